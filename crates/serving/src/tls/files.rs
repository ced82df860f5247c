//! Reads key pairs from files, again at each reload.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::generate::{generate, store};
use crate::{CertificateSource, NamedCertificate, ServingError};

const CERTIFICATE_FLAG: &str = "--tls-cert-file";
const KEY_FLAG: &str = "--tls-private-key-file";
const DIRECTORY_FLAG: &str = "--cert-dir";
const SNI_FLAG: &str = "--tls-sni-cert-key";

/// The name of generated files in a certificate directory, before the extension.
const PAIR_NAME: &str = "kube-controller-manager";

/// A certificate chain and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

/// The source of one key pair.
pub(super) enum KeyPairSource {
    Files { certificate: PathBuf, certificate_flag: &'static str, key: PathBuf, key_flag: &'static str },
    Memory(Pair),
}

impl KeyPairSource {
    /// Finds the default key pair, or generates one that is also valid for `bind_address`.
    pub(super) fn open(
        source: &CertificateSource,
        bind_address: IpAddr,
        now: SystemTime,
    ) -> Result<Self, ServingError> {
        match source {
            CertificateSource::Files { certificate, key } => Ok(Self::Files {
                certificate: certificate.clone(),
                certificate_flag: CERTIFICATE_FLAG,
                key: key.clone(),
                key_flag: KEY_FLAG,
            }),
            CertificateSource::Directory(directory) => Self::in_directory(directory, bind_address, now),
            CertificateSource::Generated => {
                let pair = generate(bind_address, now)?;
                tracing::info!("Generated self-signed cert in-memory");
                Ok(Self::Memory(pair))
            }
        }
    }

    /// The key pair of one `--tls-sni-cert-key`.
    pub(super) fn sni(sni: &NamedCertificate) -> Self {
        Self::Files {
            certificate: sni.certificate.clone(),
            certificate_flag: SNI_FLAG,
            key: sni.key.clone(),
            key_flag: SNI_FLAG,
        }
    }

    fn in_directory(directory: &Path, bind_address: IpAddr, now: SystemTime) -> Result<Self, ServingError> {
        let certificate = directory.join(format!("{PAIR_NAME}.crt"));
        let key = directory.join(format!("{PAIR_NAME}.key"));
        match (certificate.exists(), key.exists()) {
            (true, true) => {}
            (true, false) => {
                return Err(ServingError::IncompleteKeyPair { missing: key, present: certificate });
            }
            (false, true) => {
                return Err(ServingError::IncompleteKeyPair { missing: certificate, present: key });
            }
            (false, false) => {
                let pair = generate(bind_address, now)?;
                // If the directory cannot be written, the certificate only changes with each start.
                if let Err(error) = store(directory, &certificate, &key, &pair) {
                    tracing::warn!(
                        directory = %directory.display(), %error,
                        "cannot write to --cert-dir, keeping the self-signed certificate in memory"
                    );
                    return Ok(Self::Memory(pair));
                }
            }
        }
        Ok(Self::Files { certificate, certificate_flag: DIRECTORY_FLAG, key, key_flag: DIRECTORY_FLAG })
    }

    /// Reads the key pair.
    pub(super) fn read(&self) -> Result<Pair, ServingError> {
        match self {
            Self::Files { certificate, certificate_flag, key, key_flag } => {
                Ok(Pair { certificate: read(certificate, certificate_flag)?, key: read(key, key_flag)? })
            }
            Self::Memory(pair) => Ok(pair.clone()),
        }
    }

    /// Parses the key pair; an error names the invalid file.
    pub(super) fn certified(
        &self,
        pair: &Pair,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, ServingError> {
        let malformed = |file: &Path, flag, fault| ServingError::Malformed { file: file.into(), flag, fault };
        let (chain, private) = (parse_chain(&pair.certificate), parse_key(&pair.key));
        match self {
            Self::Files { certificate, certificate_flag, key, key_flag } => {
                let chain = chain.map_err(|fault| malformed(certificate, certificate_flag, fault))?;
                let private = private.map_err(|fault| malformed(key, key_flag, fault))?;
                CertifiedKey::from_der(chain, private, provider).map_err(|error| ServingError::Mismatched {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    fault: error.to_string(),
                })
            }
            Self::Memory(_) => {
                let chain = chain.map_err(ServingError::Generate)?;
                let private = private.map_err(ServingError::Generate)?;
                CertifiedKey::from_der(chain, private, provider)
                    .map_err(|error| ServingError::Generate(error.to_string()))
            }
        }
    }
}

/// Reads a file that a flag names.
pub(crate) fn read(file: &Path, flag: &'static str) -> Result<Vec<u8>, ServingError> {
    fs::read(file).map_err(|cause| ServingError::Unreadable { file: file.to_owned(), flag, cause })
}

/// Parses the certificates of a PEM text; at least one.
pub(crate) fn parse_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("is not valid PEM: {error}"))?;
    if chain.is_empty() { Err("holds no certificate in PEM form".to_owned()) } else { Ok(chain) }
}

fn parse_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    use rustls::pki_types::pem::Error;
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        Error::NoItemsFound => "holds no private key in PEM form".to_owned(),
        // The parser's message may quote the file, which is a secret.
        _ => "is not a valid private key in PEM form".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use rustls::crypto::aws_lc_rs;

    use super::*;

    const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

    fn open(source: &CertificateSource) -> Result<CertifiedKey, ServingError> {
        let source = KeyPairSource::open(source, ANY, SystemTime::now())?;
        source.certified(&source.read()?, &aws_lc_rs::default_provider())
    }

    fn fault(source: &CertificateSource) -> String {
        open(source).unwrap_err().to_string()
    }

    fn files(directory: &Path, certificate: &str, key: &str) -> CertificateSource {
        CertificateSource::Files { certificate: directory.join(certificate), key: directory.join(key) }
    }

    /// Proves SRV-13.
    #[test]
    fn generated_pair_in_cert_dir_is_reused() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("pki");
        let source = CertificateSource::Directory(directory.clone());
        open(&source).unwrap();
        let first = fs::read(directory.join("kube-controller-manager.crt")).unwrap();
        assert_eq!(parse_chain(&first).unwrap().len(), 2, "leaf and its issuer");
        let key = fs::metadata(directory.join("kube-controller-manager.key")).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
        open(&source).unwrap();
        assert_eq!(fs::read(directory.join("kube-controller-manager.crt")).unwrap(), first);
    }

    #[test]
    fn unwritable_cert_dir_keeps_the_certificate_in_memory() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "not a directory").unwrap();
        let source = CertificateSource::Directory(file);
        open(&source).unwrap();
    }

    #[test]
    fn invalid_file_is_reported_with_its_flag() {
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
        open(&files(path, "a.crt", "a.key")).unwrap();
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
    fn incomplete_pair_in_cert_dir_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("kube-controller-manager.key");
        fs::write(&key, "precious").unwrap();
        let fault = fault(&CertificateSource::Directory(directory.path().to_owned()));
        assert!(fault.contains("kube-controller-manager.crt (--cert-dir) is missing while "), "{fault}");
        assert_eq!(fs::read_to_string(&key).unwrap(), "precious");
    }
}
