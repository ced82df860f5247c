//! The server's certificate authority: serving certificate, client certificates and kubeconfig files.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
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

/// The certificate authority.
pub struct Pki {
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keeps the private key out of logs.
        f.debug_struct("Pki").finish_non_exhaustive()
    }
}

fn failed(error: impl std::fmt::Display) -> HttpError {
    HttpError::Certificates(error.to_string())
}

impl Pki {
    /// A new authority that is not written to disk.
    pub fn generate() -> Result<Pki, HttpError> {
        let key = KeyPair::generate().map_err(failed)?;
        let pem = authority().self_signed(&key).map_err(failed)?.pem();
        Ok(Pki::of(pem, key))
    }

    /// The authority stored in the directory, or a new one that is stored there, so that kubeconfig files stay valid
    /// across restarts.
    pub fn load_or_generate(dir: &Path) -> Result<Pki, HttpError> {
        let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        if certificate.exists() && key.exists() {
            let read = |path: &Path| {
                fs::read_to_string(path).map_err(|source| HttpError::File { path: path.to_owned(), source })
            };
            let pair = KeyPair::from_pem(&read(&key)?).map_err(failed)?;
            return Ok(Pki::of(read(&certificate)?, pair));
        }
        let pki = Pki::generate()?;
        let write = |path: &Path, text: &str| {
            private_files::write(path, text)
                .map_err(|source| HttpError::File { path: path.to_owned(), source })
        };
        write(&key, &pki.issuer.key().serialize_pem())?;
        write(&certificate, &pki.ca_pem)?;
        Ok(pki)
    }

    fn of(ca_pem: String, key: KeyPair) -> Pki {
        Pki { ca_pem, issuer: Issuer::new(authority(), key) }
    }

    /// The CA certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The listener's TLS configuration: a serving certificate for the address, and optional client certificates of
    /// this authority.
    pub(super) fn server_config(&self, address: IpAddr) -> Result<ServerConfig, HttpError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(NAMES.map(String::from)).map_err(failed)?;
        params.distinguished_name = named("kube-apiserver", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for address in [address, IpAddr::from(Ipv4Addr::LOCALHOST)] {
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        let leaf = params.signed_by(&key, &self.issuer).map_err(failed)?;
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
                vec![leaf.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .map_err(failed)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn authority_der(&self) -> Result<CertificateDer<'static>, HttpError> {
        use rustls::pki_types::pem::PemObject as _;
        CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).map_err(failed)
    }

    /// A certificate and key for a user, as PEM.
    pub fn client(&self, user: &User) -> Result<(String, String), HttpError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        // Every authenticated user is in this group, so no certificate names it; other servers read one group only.
        let groups: Vec<_> =
            user.groups.iter().filter(|group| *group != "system:authenticated").cloned().collect();
        params.distinguished_name = named(&user.name, &groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let leaf = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok((leaf.pem(), key.serialize_pem()))
    }

    /// A kubeconfig file with which the user reaches the server at the address.
    pub fn kubeconfig(&self, address: SocketAddr, user: &User) -> Result<String, HttpError> {
        let (certificate, key) = self.client(user)?;
        let encode = |text: &str| STANDARD.encode(text);
        Ok(format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: keleustes\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {}\n\
             users:\n\
             - name: {name}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
             contexts:\n\
             - name: keleustes\n  context:\n    cluster: keleustes\n    user: {name}\n\
             current-context: keleustes\n",
            encode(&self.ca_pem),
            encode(&certificate),
            encode(&key),
            name = serde_json::Value::from(user.name.as_str()),
        ))
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(AUTHORITY, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn named(common_name: &str, organisations: &[String]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // rcgen keeps one value per attribute type, so the groups are joined into one organization with a separator that
    // no group contains.
    if !organisations.is_empty() {
        name.push(DnType::OrganizationName, organisations.join("\u{1f}"));
    }
    name.push(DnType::CommonName, common_name);
    name
}

/// The user of a verified client certificate.
pub(super) fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let organisations = parsed.subject().iter_organization().filter_map(|name| name.as_str().ok());
    let groups: Vec<&str> = organisations
        .flat_map(|text| text.split('\u{1f}'))
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
