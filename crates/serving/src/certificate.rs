//! Finds the certificate to serve with, or makes one that says openly it vouches only for itself.

use std::fs;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256, RsaKeySize, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};

use crate::ServingError;

const CERTIFICATE_FLAG: &str = "--tls-cert-file";
const KEY_FLAG: &str = "--tls-private-key-file";
const DIRECTORY_FLAG: &str = "--cert-dir";

/// The name of generated files in a certificate directory, before the extension.
const PAIR_NAME: &str = "kube-controller-manager";

/// How long before its making a generated certificate is already valid, for clients whose clocks lag.
const VALID_BEFORE_NOW: Duration = Duration::from_secs(60 * 60);
const VALID_FOR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Two given PEM files (`--tls-cert-file`, `--tls-private-key-file`).
    Files {
        /// The chain, leaf first.
        certificate: PathBuf,
        /// The leaf's private key.
        key: PathBuf,
    },
    /// `kube-controller-manager.crt` and `.key` in this directory (`--cert-dir`); made there if neither is.
    Directory(PathBuf),
    /// Made at each start and kept in memory.
    Generated,
}

/// PEM text of a chain and its key.
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The TLS side of the server: TLS 1.2 and up, HTTP/2 offered first unless turned off.
///
/// Generated certificates are good for `bind_address` too, if it is a specific one.
pub(crate) fn tls_config(
    source: &CertificateSource,
    bind_address: IpAddr,
    http2: bool,
    now: SystemTime,
) -> Result<ServerConfig, ServingError> {
    let mut config = match source {
        CertificateSource::Files { certificate, key } => {
            from_files(certificate, CERTIFICATE_FLAG, key, KEY_FLAG)?
        }
        CertificateSource::Directory(directory) => from_directory(directory, bind_address, now)?,
        CertificateSource::Generated => from_generated(&generate(bind_address, now)?)?,
    };
    config.alpn_protocols =
        if http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { vec![b"http/1.1".to_vec()] };
    Ok(config)
}

fn from_files(
    certificate: &Path,
    certificate_flag: &'static str,
    key: &Path,
    key_flag: &'static str,
) -> Result<ServerConfig, ServingError> {
    let chain = chain_of(&read(certificate, certificate_flag)?).map_err(|fault| ServingError::Malformed {
        file: certificate.to_owned(),
        flag: certificate_flag,
        fault,
    })?;
    let private = key_of(&read(key, key_flag)?).map_err(|fault| ServingError::Malformed {
        file: key.to_owned(),
        flag: key_flag,
        fault,
    })?;
    combine(chain, private).map_err(|error| ServingError::Mismatched {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        fault: error.to_string(),
    })
}

fn from_directory(
    directory: &Path,
    bind_address: IpAddr,
    now: SystemTime,
) -> Result<ServerConfig, ServingError> {
    let certificate = directory.join(format!("{PAIR_NAME}.crt"));
    let key = directory.join(format!("{PAIR_NAME}.key"));
    match (certificate.exists(), key.exists()) {
        (true, true) => return from_files(&certificate, DIRECTORY_FLAG, &key, DIRECTORY_FLAG),
        (true, false) => {
            return Err(ServingError::HalfPair { missing: key, present: certificate });
        }
        (false, true) => {
            return Err(ServingError::HalfPair { missing: certificate, present: key });
        }
        (false, false) => {}
    }
    let pair = generate(bind_address, now)?;
    // A directory that cannot be written costs only that the certificate changes with each start.
    if let Err(error) = store(directory, &certificate, &key, &pair) {
        tracing::warn!(
            directory = %directory.display(), %error,
            "--cert-dir cannot be written; the self-signed certificate is kept in memory"
        );
    }
    from_generated(&pair)
}

/// Writes the pair, the key readable by its owner only. The key comes first: if the second write fails, the
/// next start says that half a pair is there, instead of serving with a certificate without key.
fn store(directory: &Path, certificate: &Path, key: &Path, pair: &Pair) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    write_new(key, &pair.key, 0o600)?;
    write_new(certificate, &pair.certificate, 0o644).inspect_err(|_| {
        // Better no pair than half of one; if this fails too, the next start will say so.
        let _ = fs::remove_file(key);
    })
}

fn write_new(file: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?;
    file.write_all(text)?;
    file.sync_all()
}

fn from_generated(pair: &Pair) -> Result<ServerConfig, ServingError> {
    let chain = chain_of(&pair.certificate).map_err(ServingError::Generate)?;
    let key = key_of(&pair.key).map_err(ServingError::Generate)?;
    combine(chain, key).map_err(|error| ServingError::Generate(error.to_string()))
}

fn read(file: &Path, flag: &'static str) -> Result<Vec<u8>, ServingError> {
    fs::read(file).map_err(|cause| ServingError::Unreadable { file: file.to_owned(), flag, cause })
}

fn chain_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("is not valid PEM: {error}"))?;
    if chain.is_empty() { Err("holds no certificate in PEM form".to_owned()) } else { Ok(chain) }
}

fn key_of(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    use rustls::pki_types::pem::Error;
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        Error::NoItemsFound => "holds no private key in PEM form".to_owned(),
        // Such an error may quote the file, and the file is a secret.
        _ => "is not a valid private key in PEM form".to_owned(),
    })
}

fn combine(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_single_cert(chain, key)
}

/// Makes a certificate of the shape the original makes: a leaf for `localhost` under a CA made for it alone.
///
/// Parity: staging/src/k8s.io/client-go/util/cert/cert.go (GenerateSelfSignedCertKey).
fn generate(bind_address: IpAddr, now: SystemTime) -> Result<Pair, ServingError> {
    let generated = || -> Result<Pair, rcgen::Error> {
        let made_at = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let authority_key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let mut authority = valid_from(now, format!("localhost-ca@{made_at}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
        ];
        let authority = CertifiedIssuer::self_signed(authority, authority_key)?;

        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let mut leaf = valid_from(now, format!("localhost@{made_at}"));
        leaf.key_usages = vec![KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.subject_alt_names = vec![
            SanType::DnsName(Ia5String::try_from("localhost")?),
            SanType::IpAddress(IpAddr::from([127, 0, 0, 1])),
        ];
        if !bind_address.is_unspecified() && bind_address != IpAddr::from([127, 0, 0, 1]) {
            leaf.subject_alt_names.push(SanType::IpAddress(bind_address));
        }
        let leaf = leaf.signed_by(&key, &authority)?;
        Ok(Pair {
            certificate: format!("{}{}", leaf.pem(), authority.pem()).into_bytes(),
            key: key.serialize_pem().into_bytes(),
        })
    };
    generated().map_err(|error| ServingError::Generate(error.to_string()))
}

fn valid_from(now: SystemTime, common_name: String) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = (now - VALID_BEFORE_NOW).into();
    params.not_after = (now + VALID_FOR).into();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

    fn fault(source: &CertificateSource) -> String {
        tls_config(source, ANY, true, SystemTime::now()).unwrap_err().to_string()
    }

    fn files(directory: &Path, certificate: &str, key: &str) -> CertificateSource {
        CertificateSource::Files { certificate: directory.join(certificate), key: directory.join(key) }
    }

    /// Parity: SRV-13.
    #[test]
    fn a_pair_made_in_the_directory_is_used_again() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("pki");
        let source = CertificateSource::Directory(directory.clone());
        tls_config(&source, ANY, true, SystemTime::now()).unwrap();
        let first = fs::read(directory.join("kube-controller-manager.crt")).unwrap();
        assert_eq!(chain_of(&first).unwrap().len(), 2, "leaf and its issuer");
        let key = fs::metadata(directory.join("kube-controller-manager.key")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
        tls_config(&source, ANY, true, SystemTime::now()).unwrap();
        assert_eq!(fs::read(directory.join("kube-controller-manager.crt")).unwrap(), first);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_served_from_memory() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "not a directory").unwrap();
        let source = CertificateSource::Directory(file);
        tls_config(&source, ANY, true, SystemTime::now()).unwrap();
    }

    /// Parity: SRV-11.
    #[test]
    fn http2_is_offered_unless_turned_off() {
        let config =
            |http2| tls_config(&CertificateSource::Generated, ANY, http2, SystemTime::now()).unwrap();
        assert_eq!(config(true).alpn_protocols, [&b"h2"[..], b"http/1.1"]);
        assert_eq!(config(false).alpn_protocols, [b"http/1.1"]);
    }

    #[test]
    fn every_bad_file_is_named_with_its_flag() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for (pair, name) in [
            (generate(ANY, SystemTime::now()).unwrap(), "a"),
            (generate(ANY, SystemTime::now()).unwrap(), "b"),
        ] {
            fs::write(path.join(format!("{name}.crt")), pair.certificate).unwrap();
            fs::write(path.join(format!("{name}.key")), pair.key).unwrap();
        }
        fs::write(path.join("empty"), "").unwrap();
        fs::write(path.join("cut.crt"), &fs::read(path.join("a.crt")).unwrap()[..300]).unwrap();
        fs::write(
            path.join("noise.crt"),
            "-----BEGIN CERTIFICATE-----\naHVudGVyMg==\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        fs::write(
            path.join("noise.key"),
            "-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----\n",
        )
        .unwrap();
        tls_config(&files(path, "a.crt", "a.key"), ANY, true, SystemTime::now()).unwrap();
        let rows = [
            ("gone.crt", "a.key", "cannot read DIR/gone.crt (--tls-cert-file): No such file"),
            ("a.crt", "gone.key", "cannot read DIR/gone.key (--tls-private-key-file): No such file"),
            (".", "a.key", "cannot read DIR/. (--tls-cert-file): Is a directory"),
            ("empty", "a.key", "DIR/empty (--tls-cert-file) holds no certificate in PEM form"),
            ("a.key", "a.key", "DIR/a.key (--tls-cert-file) holds no certificate in PEM form"),
            ("cut.crt", "a.key", "DIR/cut.crt (--tls-cert-file) is not valid PEM"),
            ("a.crt", "empty", "DIR/empty (--tls-private-key-file) holds no private key in PEM form"),
            ("a.crt", "a.crt", "DIR/a.crt (--tls-private-key-file) holds no private key in PEM form"),
            ("a.crt", "b.key", "DIR/a.crt and DIR/b.key cannot be used together"),
            ("noise.crt", "a.key", "DIR/noise.crt and DIR/a.key cannot be used together"),
            ("a.crt", "noise.key", "DIR/a.crt and DIR/noise.key cannot be used together"),
        ];
        for (certificate, key, expected) in rows {
            let fault = fault(&files(path, certificate, key)).replace(path.to_str().unwrap(), "DIR");
            assert!(fault.starts_with(expected), "{fault}\nexpected {expected}");
            assert!(!fault.contains('\n') && !fault.contains("hunter2"), "{fault}");
        }
    }

    #[test]
    fn half_a_pair_in_the_directory_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("kube-controller-manager.key");
        fs::write(&key, "precious").unwrap();
        let fault = fault(&CertificateSource::Directory(directory.path().to_owned()));
        assert!(fault.contains("kube-controller-manager.crt (--cert-dir) is missing while "), "{fault}");
        assert_eq!(fs::read_to_string(&key).unwrap(), "precious");
    }
}
