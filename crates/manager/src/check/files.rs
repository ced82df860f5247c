//! Checks files that flags name: readable, certificates that parse, pairs that match, and how long they are valid.

use std::path::Path;

use jiff::Timestamp;
use keleustes_options::Options;
use keleustes_runtime::certificates::CertificateSigner;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::report::{Category, Check, Report};
use crate::lease_lock;

/// A certificate that expires within this time is worth a warning.
const EXPIRES_SOON_DAYS: i64 = 30;

pub(super) fn check(options: &Options, report: &mut Report) {
    let header = &options.authentication.request_header;
    for (flag, file) in [
        ("--root-ca-file", &options.service_account.root_ca_file),
        ("--client-ca-file", &options.authentication.client_ca_file),
        ("--requestheader-client-ca-file", &header.client_ca_file),
    ] {
        if !file.is_empty() {
            let check = Check::new(Category::Files, flag);
            report.add(certificates(check, Path::new(file), Timestamp::now()));
        }
    }
    let signing = &options.cluster_signing;
    for (flags, certificate, key) in [
        ("--tls-cert-file, --tls-private-key-file", &options.serving.cert_file, &options.serving.key_file),
        ("--cluster-signing-*", &signing.all.cert_file, &signing.all.key_file),
        (
            "--cluster-signing-kubelet-serving-*",
            &signing.kubelet_serving.cert_file,
            &signing.kubelet_serving.key_file,
        ),
        (
            "--cluster-signing-kubelet-client-*",
            &signing.kubelet_client.cert_file,
            &signing.kubelet_client.key_file,
        ),
        (
            "--cluster-signing-kube-apiserver-client-*",
            &signing.kube_apiserver_client.cert_file,
            &signing.kube_apiserver_client.key_file,
        ),
        (
            "--cluster-signing-legacy-unknown-*",
            &signing.legacy_unknown.cert_file,
            &signing.legacy_unknown.key_file,
        ),
    ] {
        if !certificate.is_empty() && !key.is_empty() {
            let check = Check::new(Category::Files, flags);
            report.add(pair(check, Path::new(certificate), Path::new(key)));
        }
    }
    for sni in &options.serving.sni {
        let check = Check::new(Category::Files, "--tls-sni-cert-key");
        report.add(pair(check, Path::new(&sni.cert_file), Path::new(&sni.key_file)));
    }
    let lock = &options.leader_election.lock_file;
    if !lock.is_empty() {
        report.add(lease_lock_file(lock));
    }
}

fn lease_lock_file(file: &str) -> Check {
    let check = Check::new(Category::Files, "--lease-lock-file");
    match lease_lock::check_path(Path::new(file)) {
        Ok(()) => check.ok(format!("{file}: can be used")),
        Err(error) => check
            .failed(format!("{file}: {error:#}"))
            .advise("a writable folder on a local volume that outlives a restart, or leave the flag out"),
    }
}

/// A certificate and its key.
fn pair(check: Check, certificate: &Path, key: &Path) -> Check {
    match CertificateSigner::load(certificate, key) {
        Ok(_) => certificates(check, certificate, Timestamp::now()),
        Err(error) => check.failed(error).advise("the key must belong to the first certificate of its file"),
    }
}

/// All certificates of a file, judged by the one that expires first.
fn certificates(check: Check, file: &Path, now: Timestamp) -> Check {
    let shown = file.display();
    let pem = match std::fs::read(file) {
        Ok(pem) => pem,
        Err(error) => {
            return check
                .failed(format!("{shown}: {error}"))
                .advise("the user that runs the manager must read it");
        }
    };
    let mut first_end: Option<i64> = None;
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let parsed = certificate.ok().and_then(|der| {
            Some(x509_parser::parse_x509_certificate(&der).ok()?.1.validity().not_after.timestamp())
        });
        let Some(end) = parsed else {
            return check.failed(format!("{shown}: certificate {} is malformed", count + 1));
        };
        count += 1;
        first_end = Some(first_end.map_or(end, |first| first.min(end)));
    }
    let Some(end) = first_end else {
        return check.failed(format!("{shown}: it contains no certificate")).advise("PEM blocks CERTIFICATE");
    };
    let days = (end - now.as_second()).div_euclid(86_400);
    let until = Timestamp::from_second(end).map_or_else(|_| "9999".to_owned(), |end| end.to_string());
    let text = format!("{shown}: {count} certificate{}", if count == 1 { "" } else { "s" });
    if days < 0 {
        check.failed(format!("{text}, expired since {until}")).advise("renew it")
    } else if days < EXPIRES_SOON_DAYS {
        check.warning(format!("{text}, expires in {days} days, at {until}")).advise("renew it in time")
    } else {
        check.ok(format!("{text}, valid until {until}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::OutputFormat;
    use super::*;

    fn shown(check: Check) -> String {
        let mut report = Report::default();
        report.add(check);
        report.text(OutputFormat::Text)
    }

    #[test]
    fn certificates_are_judged_by_the_one_that_expires_first() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.crt");
        let key = rcgen::KeyPair::generate().unwrap();
        let until = |year| {
            let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            params.self_signed(&key).unwrap().pem()
        };
        let judged = |content: &str, now: &str| {
            std::fs::write(&file, content).unwrap();
            shown(certificates(Check::new(Category::Files, "--root-ca-file"), &file, now.parse().unwrap()))
        };
        let both = format!("{}{}", until(2040), until(2030));
        let now = "2026-01-01T00:00:00Z";
        assert!(
            judged(&both, now).contains("2 certificates, valid until 2030-01-01"),
            "{}",
            judged(&both, now)
        );
        let soon = judged(&both, "2029-12-20T00:00:00Z");
        assert!(soon.contains("WARNING") && soon.contains("expires in 12 days"), "{soon}");
        let expired = judged(&both, "2031-01-01T00:00:00Z");
        assert!(expired.contains("FAILED") && expired.contains("-> renew it"), "{expired}");
        assert!(judged("nothing", now).contains("it contains no certificate"));
    }

    #[test]
    fn lease_lock_file_is_checked_and_not_created() {
        let directory = tempfile::tempdir().unwrap();
        let judged = |path: &Path| shown(lease_lock_file(&path.display().to_string()));
        let new = directory.path().join("lease.lock");
        assert!(judged(&new).contains("  ok ") && !new.exists(), "{}", judged(&new));
        std::fs::write(&new, "").unwrap();
        assert!(judged(&new).contains("  ok "), "{}", judged(&new));
        let folder = judged(directory.path());
        assert!(folder.contains("FAILED") && folder.contains("s a directory"), "{folder}");
        let nowhere = judged(Path::new("/no/such/folder/lease.lock"));
        assert!(nowhere.contains("FAILED") && nowhere.contains("/no/such/folder: No such file"), "{nowhere}");
        let process = judged(Path::new("/proc/lease.lock"));
        assert!(process.contains("FAILED"), "{process}");
    }

    #[test]
    fn missing_sni_pair_fails() {
        let flag = ["--tls-sni-cert-key=/no/such.crt,/no/such.key"];
        let options = crate::command::read(flag.iter().map(Into::into)).unwrap();
        let mut report = Report::default();
        check(&options, &mut report);
        let text = report.text(OutputFormat::Text);
        assert!(text.contains("FAILED   --tls-sni-cert-key: ") && text.contains("/no/such.crt"), "{text}");
    }

    #[test]
    fn pair_that_does_not_match_fails() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (own, other) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
        let params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        let certificate = write("a.crt", params.self_signed(&own).unwrap().pem());
        let judged = |key: &Path| shown(pair(Check::new(Category::Files, "pair"), &certificate, key));
        assert!(judged(&write("a.key", own.serialize_pem())).contains("  ok "));
        let mismatch = judged(&write("b.key", other.serialize_pem()));
        assert!(mismatch.contains("FAILED") && mismatch.contains("does not match"), "{mismatch}");
    }
}
