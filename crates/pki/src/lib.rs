//! A certificate authority for the clusters of tests and of the playground, and kubeconfig files with its certificates.
//!
//! A manager never uses it: what it signs for a cluster is written by `x509`, as the original writes it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

pub use rcgen::Error;

/// A certificate authority.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keeps the private key out of logs.
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A server proves its names.
    Server,
    /// A client proves its user name and groups.
    Client,
}

/// The content of a certificate.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The common name, which is a user name.
    pub name: &'a str,
    /// The organization, which is a group.
    pub group: Option<&'a str>,
    /// DNS names and IP addresses of a server.
    pub alt_names: &'a [String],
    /// What it is for.
    pub usage: Usage,
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: Certificate,
    /// Its key.
    pub key: KeyPair,
}

impl Authority {
    /// A new authority of this name.
    ///
    /// # Errors
    /// If no key can be generated.
    pub fn generate(name: &str) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let pem = authority(name).self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(authority(name), key) })
    }

    /// The authority of this name that was stored as PEM.
    ///
    /// # Errors
    /// If the key cannot be read.
    pub fn from_pem(name: &str, certificate: String, key: &str) -> Result<Self, Error> {
        Ok(Self { pem: certificate, issuer: Issuer::new(authority(name), KeyPair::from_pem(key)?) })
    }

    /// The certificate, as PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The key, as PEM.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate for a new key.
    ///
    /// # Errors
    /// If an alternative name is invalid, or no key can be generated.
    pub fn issue(&self, subject: &Subject<'_>) -> Result<Issued, Error> {
        self.issue_with(subject, |_| ())
    }

    /// The same, valid from a minute ago until the end of its life.
    ///
    /// # Errors
    /// If an alternative name is invalid, or no key can be generated.
    pub fn issue_for(&self, subject: &Subject<'_>, life: Duration) -> Result<Issued, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        self.issue_with(subject, |params| {
            params.not_before = epoch + now.saturating_sub(Duration::from_secs(60));
            params.not_after = epoch + now + life;
        })
    }

    fn issue_with(
        &self,
        subject: &Subject<'_>,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<Issued, Error> {
        let mut params = CertificateParams::new(subject.alt_names)?;
        params.distinguished_name = DistinguishedName::new();
        if let Some(group) = subject.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, subject.name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![match subject.usage {
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        change(&mut params);
        let key = KeyPair::generate()?;
        Ok(Issued { certificate: params.signed_by(&key, &self.issuer)?, key })
    }

    /// A kubeconfig file for a user, with everything embedded, so that it can be copied anywhere.
    #[must_use]
    pub fn kubeconfig(&self, context: &str, server: &str, user: &str, issued: &Issued) -> String {
        let [ca, certificate, key] = [self.pem(), &issued.certificate.pem(), &issued.key.serialize_pem()]
            .map(|pem| STANDARD.encode(pem));
        // A JSON string is a YAML string, whatever the name contains.
        let [user, context] = [user, context].map(serde_json::Value::from);
        format!(
            "\
apiVersion: v1
kind: Config
clusters:
- name: keleustes
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {context}
  context:
    cluster: keleustes
    user: {user}
current-context: {context}
"
        )
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_authority_issues_the_same_certificates_and_hides_its_key() {
        let authority = Authority::generate("ca").unwrap();
        let again = Authority::from_pem("ca", authority.pem().to_owned(), &authority.key_pem()).unwrap();
        assert_eq!((again.pem(), again.key_pem()), (authority.pem(), authority.key_pem()));
        assert_eq!(format!("{again:?}"), "Authority { .. }");
        assert!(Authority::from_pem("ca", String::new(), "nonsense").is_err());
        let subject = Subject { name: "jane", group: Some("crew"), alt_names: &[], usage: Usage::Client };
        let issued = again.issue(&subject).unwrap();
        let contains =
            |text: &str| issued.certificate.der().windows(text.len()).any(|window| window == text.as_bytes());
        assert!(contains("jane") && contains("crew"));
    }

    #[test]
    fn kubeconfig_quotes_names() {
        let authority = Authority::generate("ca").unwrap();
        let subject = Subject { name: "a: b", group: None, alt_names: &[], usage: Usage::Client };
        let issued = authority.issue(&subject).unwrap();
        let text = authority.kubeconfig("here", "https://127.0.0.1:1", "a: b", &issued);
        assert!(text.contains("user: \"a: b\"\n") && text.contains("current-context: \"here\"\n"), "{text}");
    }

    #[test]
    fn invalid_names_are_refused() {
        let authority = Authority::generate("ca").unwrap();
        let names = ["é".to_owned()];
        let subject = Subject { name: "a", group: None, alt_names: &names, usage: Usage::Server };
        assert!(authority.issue(&subject).is_err());
    }
}
