//! Mutated certificate requests through the approver and the signer, alone in a process so that its memory can be measured.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fastrand::Rng;
use keleustes_controllers::certificates::{KUBE_APISERVER_CLIENT_KUBELET, KUBELET_SERVING};
use keleustes_controllers::certificatesigningrequest_approving as approving;
use keleustes_controllers::certificatesigningrequest_signing::{
    self as signing, BuiltInSigner, CertificateSigningRequestSigningOptions,
};
use keleustes_objects::{CertificateSigningRequest, Key, Kind as _, SubjectAccessReview};
use keleustes_plan::Loop;
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_runtime::certificates::CertificateSigner;
use keleustes_x509::{CertificateRequest, pem};
use serde_json::{Value, json};

const REQUESTS: usize = 10_000;
/// Bytes of the longest request: its PEM is just below 1 MiB, beyond which no request is read.
const LARGEST: usize = 770_000;
/// What all requests together may add to the peak of the memory.
const MEMORY_MAX: u64 = 16 << 20;

/// How long one request may take, and how long all of them together, also in a debug build on a busy machine.
const TIME_MAX: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// The highest resident memory of this process in bytes.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// A request of a kubelet, signed with its own key; for a serving certificate with a name.
fn request(is_serving: bool) -> Vec<u8> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let names = if is_serving { vec!["node-1.example.com".to_owned()] } else { vec![] };
    let mut parameters = rcgen::CertificateParams::new(names).unwrap();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n");
    parameters.serialize_request(&key).unwrap().der().to_vec()
}

fn object(signer: &str, pem: &[u8], is_approved: bool) -> Value {
    let usage = if signer == KUBELET_SERVING { "server auth" } else { "client auth" };
    let conditions = if is_approved { json!([{"type": "Approved", "status": "True"}]) } else { json!([]) };
    json!({
        "metadata": {"name": "r", "uid": "u", "resourceVersion": "1"},
        "spec": {"signerName": signer, "request": BASE64_STANDARD.encode(pem), "username": "system:bootstrap:a",
                 "usages": ["digital signature", usage]},
        "status": {"conditions": conditions},
    })
}

fn signers() -> Vec<(&'static str, Loop)> {
    let files = tempfile::tempdir().unwrap();
    let (certificate, key_file) = (files.path().join("crt"), files.path().join("key"));
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(&certificate, rcgen::CertificateParams::default().self_signed(&key).unwrap().pem())
        .unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let authority = CertificateSigner::load(&certificate, &key_file).unwrap();
    let names = [KUBE_APISERVER_CLIENT_KUBELET, KUBELET_SERVING];
    let built_in = |name: &'static str| {
        let authority = authority.clone();
        // The files are gone by then, which keeps the pair.
        let sign = move |job| {
            let signed = authority.sign_here(&job);
            Box::pin(std::future::ready(signed)) as keleustes_plan::BoxFuture<'static, Result<String, String>>
        };
        BuiltInSigner { name, sign: Arc::new(sign) }
    };
    let options = CertificateSigningRequestSigningOptions {
        signers: names.into_iter().map(built_in).collect(),
        duration_nanoseconds: 3_600_000_000_000,
    };
    names.into_iter().zip(signing::controller(&options).unwrap().loops).collect()
}

/// Changes bytes, repeats a part, nests it, or claims a length.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.u8(..3) {
        let at = rng.usize(..bytes.len().max(1));
        match rng.u8(..40) {
            _ if bytes.is_empty() => bytes.push(0x30),
            0..=11 => bytes[at] ^= 1 << rng.u8(..8),
            12..=19 => bytes[at] = [0, 0x30, 0x7f, 0x80, 0x84, 0x88, 0xa0, 0xff][rng.usize(..8)],
            20..=25 => bytes.insert(at, rng.u8(..)),
            26..=31 => drop(bytes.remove(at)),
            32 | 33 => bytes.truncate(at),
            // The longest length that four bytes can claim.
            34 | 35 => drop(bytes.splice(at..at, [0x30, 0x84, 0xff, 0xff, 0xff, 0xff])),
            36 | 37 => {
                let part = bytes[at..bytes.len().min(at + 40)].to_vec();
                bytes.splice(at..at, part.repeat(rng.usize(1..200)));
            }
            38 => drop(bytes.splice(at..at, [0x30, 0x80].repeat(rng.usize(1..5_000)))),
            _ => bytes.resize(rng.usize(..20_000), rng.u8(..)),
        }
    }
}

/// The text of a mutated request: its DER or its PEM is changed.
fn mutated(rng: &mut Rng, original: &[u8]) -> Vec<u8> {
    let mut der = original.to_vec();
    if rng.bool() {
        mutate(rng, &mut der);
        return pem::encode("CERTIFICATE REQUEST", &der).into_bytes();
    }
    let mut text = pem::encode("CERTIFICATE REQUEST", &der).into_bytes();
    mutate(rng, &mut text);
    text
}

/// What became of the requests.
#[derive(Debug, Default)]
struct Outcomes {
    unparsable: usize,
    failed: usize,
    badly_signed: usize,
    /// What is signed is unchanged, such as a request with text around it.
    issued: usize,
    approved: usize,
}

/// The original, and so this manager, leaves no condition if a request cannot be parsed (CSRS-24) or is not signed with its own
/// key (CSRS-26): these are errors that are retried. Only a violated rule is a condition, `Failed`.
#[test]
fn ten_thousand_mutated_requests_get_no_certificate_from_the_controllers() {
    let (mut rng, mut outcomes) = (Rng::with_seed(23), Outcomes::default());
    let (approver, signers) = (approving::controller().loops.remove(0), signers());
    let originals = [request(false), request(true)];
    for (at, original) in originals.iter().enumerate() {
        let text = pem::encode("CERTIFICATE REQUEST", original).into_bytes();
        check(&approver, &signers[at], original, &text, &mut outcomes);
    }
    assert_eq!((outcomes.issued, outcomes.approved), (2, 1), "the originals");
    let large = |rng: &mut Rng| {
        let der: Vec<u8> = (0..LARGEST).map(|_| rng.u8(..)).collect();
        let text = pem::encode("CERTIFICATE REQUEST", &der).into_bytes();
        assert!((1_000_000..1 << 20).contains(&text.len()), "{} bytes", text.len());
        text
    };
    // One large request first: buffers of its size are no growth.
    check(&approver, &signers[0], &originals[0], &large(&mut rng), &mut outcomes);
    let (before, began, mut longest) = (memory_peak(), Instant::now(), Duration::ZERO);
    for number in 0..REQUESTS {
        let at = number % 2;
        let text = if number % 1000 == 999 { large(&mut rng) } else { mutated(&mut rng, &originals[at]) };
        let check_began = Instant::now();
        check(&approver, &signers[at], &originals[at], &text, &mut outcomes);
        let took = check_began.elapsed();
        assert!(took < TIME_MAX.0, "number {number} took {took:?}: {} bytes", text.len());
        longest = longest.max(took);
    }
    let (grown, took) = (memory_peak() - before, began.elapsed());
    println!("{outcomes:?}, {} KiB more memory, {took:?}, the longest {longest:?}", grown / 1024);
    assert!(took < TIME_MAX.1, "all took {took:?}");
    assert!(
        outcomes.unparsable > 1000 && outcomes.failed > 100 && outcomes.badly_signed > 500,
        "{outcomes:?}"
    );
    assert!(grown < MEMORY_MAX, "{grown} bytes");
}

fn check(
    approver: &Loop,
    (signer, a_loop): &(&str, Loop),
    original: &[u8],
    text: &[u8],
    outcomes: &mut Outcomes,
) {
    let parsed = CertificateRequest::from_pem(text);
    let review = json!({"metadata": {}, "status": {"allowed": true}});
    let reconcile = |a_loop: &Loop, is_approved: bool| {
        RehearsalCluster::of(a_loop)
            .with::<CertificateSigningRequest>(object(signer, text, is_approved))
            .storing("create", &SubjectAccessReview::RESOURCE.object_path(&Key::cluster("")), review.clone())
            .reconcile(a_loop, Key::cluster("r"))
    };
    let (approved, signed) = (reconcile(approver, false), reconcile(a_loop, true));
    let puts = |transcript: &str| transcript.lines().filter(|line| line.starts_with("put ")).count();
    let begin = |text: &str| text.chars().take(300).collect::<String>();
    let Ok(parsed) = parsed else {
        outcomes.unparsable += 1;
        for transcript in [&approved, &signed] {
            assert!(transcript.starts_with("retry: unable to parse csr \"r\": "), "{}", begin(transcript));
            assert!(transcript.len() < 1000, "a short reason: {}", begin(transcript));
        }
        return;
    };
    // It is approved for what its text says; whether it is signed with its own key is the signer's question.
    outcomes.approved += puts(&approved);
    if signed.contains("\"certificate\":") {
        outcomes.issued += 1;
        let unchanged =
            CertificateRequest::from_pem(pem::encode("CERTIFICATE REQUEST", original).as_bytes()).unwrap();
        assert!(parsed.signed == unchanged.signed, "another request was signed");
    } else if puts(&signed) == 1 {
        outcomes.failed += 1;
        assert!(
            signed.contains("\"reason\":\"SignerValidationFailure\"")
                && signed.contains("\"type\":\"Failed\"")
        );
    } else {
        outcomes.badly_signed += 1;
        let begins = "retry: error auto signing csr: unable to verify certificate request signature: ";
        assert!(signed.starts_with(begins), "{}", begin(&signed));
    }
}
