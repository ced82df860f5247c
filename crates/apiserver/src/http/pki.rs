//! The server's certificate authority: serving certificate, client certificates and kubeconfig files.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use keleustes_pki::{Authority, Issued, Subject, Usage};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::HttpError;
use crate::kernel::User;
use crate::private_files;

/// Subject alternative names of the serving certificate, besides the address.
const NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];
const AUTHORITY: &str = "keleustes-embedded";
/// Between the groups of a user in a certificate.
const GROUP_SEPARATOR: &str = "\u{1f}";

/// The certificate authority.
#[derive(Debug)]
pub struct Pki(Authority);

fn failed(error: impl std::fmt::Display) -> HttpError {
    HttpError::Certificates(error.to_string())
}

impl Pki {
    /// A new authority that is not written to disk.
    pub fn generate() -> Result<Pki, HttpError> {
        Authority::generate(AUTHORITY).map(Pki).map_err(failed)
    }

    /// The authority stored in the directory, or a new one that is stored there, so that kubeconfig files stay valid
    /// across restarts.
    pub fn load_or_generate(dir: &Path) -> Result<Pki, HttpError> {
        let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        if certificate.exists() && key.exists() {
            let read = |path: &Path| {
                fs::read_to_string(path).map_err(|source| HttpError::File { path: path.to_owned(), source })
            };
            return Authority::from_pem(AUTHORITY, read(&certificate)?, &read(&key)?)
                .map(Pki)
                .map_err(failed);
        }
        let pki = Pki::generate()?;
        let write = |path: &Path, text: &str| {
            private_files::write(path, text)
                .map_err(|source| HttpError::File { path: path.to_owned(), source })
        };
        write(&key, &pki.0.key_pem())?;
        write(&certificate, pki.0.pem())?;
        Ok(pki)
    }

    /// The CA certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        self.0.pem()
    }

    /// The listener's TLS configuration: a serving certificate for the address, and optional client certificates of
    /// this authority.
    pub(super) fn server_config(&self, address: IpAddr) -> Result<ServerConfig, HttpError> {
        let addresses = [address, IpAddr::from(Ipv4Addr::LOCALHOST)].map(|address| address.to_string());
        let alt_names: Vec<String> = NAMES.map(String::from).into_iter().chain(addresses).collect();
        let subject =
            Subject { name: "kube-apiserver", group: None, alt_names: &alt_names, usage: Usage::Server };
        let Issued { certificate, key } = self.0.issue(&subject).map_err(failed)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.authority_der()?).map_err(failed)?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(failed)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .map_err(failed)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn authority_der(&self) -> Result<CertificateDer<'static>, HttpError> {
        use rustls::pki_types::pem::PemObject as _;
        CertificateDer::from_pem_slice(self.ca_pem().as_bytes()).map_err(failed)
    }

    /// A certificate and key for a user, as PEM.
    pub fn client(&self, user: &User) -> Result<(String, String), HttpError> {
        let Issued { certificate, key } = self.issue(user)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn issue(&self, user: &User) -> Result<Issued, HttpError> {
        // Every authenticated user is in this group, so no certificate names it; other servers read one group only.
        let groups = user.groups.iter().map(String::as_str).filter(|group| *group != "system:authenticated");
        // One value per attribute type is written, so the groups are joined with a separator that no group contains.
        let groups = groups.collect::<Vec<_>>().join(GROUP_SEPARATOR);
        let group = Some(groups.as_str()).filter(|groups| !groups.is_empty());
        let subject = Subject { name: &user.name, group, alt_names: &[], usage: Usage::Client };
        self.0.issue(&subject).map_err(failed)
    }

    /// A kubeconfig file with which the user reaches the server at the address.
    pub fn kubeconfig(&self, address: SocketAddr, user: &User) -> Result<String, HttpError> {
        let server = format!("https://{address}");
        Ok(self.0.kubeconfig("keleustes", &server, &user.name, &self.issue(user)?))
    }
}

/// The user of a verified client certificate.
pub(super) fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let organisations = parsed.subject().iter_organization().filter_map(|name| name.as_str().ok());
    let groups: Vec<&str> = organisations
        .flat_map(|text| text.split(GROUP_SEPARATOR))
        .filter(|g| *g != "system:authenticated")
        .collect();
    Some(User::new(&name, &groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_identify_users() {
        use rustls::pki_types::pem::PemObject as _;
        let pki = Pki::generate().unwrap();
        let user = User::new("jane", &["one", "two"]);
        let (certificate, _) = pki.client(&user).unwrap();
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        assert_eq!(user_of(&der), Some(user));
        assert_eq!(user_of(&CertificateDer::from(vec![1, 2, 3])), None);
    }

    #[test]
    fn stored_authority_is_loaded_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::load_or_generate(dir.path()).unwrap();
        let again = Pki::load_or_generate(dir.path()).unwrap();
        assert_eq!(first.ca_pem(), again.ca_pem());
        assert!(again.server_config(IpAddr::from(Ipv4Addr::LOCALHOST)).is_ok());
        private_files::write(&dir.path().join("ca.key"), "nonsense").unwrap();
        assert!(Pki::load_or_generate(dir.path()).is_err());
    }
}
