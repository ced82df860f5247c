//! Authentication by client certificates and by request headers of front proxies.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use http::HeaderMap;
use percent_encoding::percent_decode_str;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, DistinguishedName, Error, RootCertStore};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};

use super::user::User;
use crate::tls::parse_chain;

/// The user's extra key with the fingerprint of the client certificate.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The subject attribute with the user's UID.
const UID_OBJECT_ID: &str = "1.3.6.1.4.1.57683.2";

/// webpki's search grows with the power of their number: four are at most 64 steps.
const INTERMEDIATES_MAX: usize = 4;
/// The size of all intermediates of a chain. Each step of the search parses them again.
const INTERMEDIATES_BYTES_MAX: usize = 32 << 10;

/// The CAs in use.
#[derive(Clone, Default)]
pub(super) struct Trust {
    /// Increases with every change.
    pub(super) version: u64,
    /// The client CA.
    pub(super) clients: Option<Authority>,
    /// The front-proxy CA with its headers.
    pub(super) proxies: Option<Proxies>,
}

/// The CAs of one PEM bundle.
#[derive(Clone)]
pub(super) struct Authority {
    pem: Vec<u8>,
    subjects: Vec<DistinguishedName>,
    roots: Vec<Root>,
}

/// One CA of a bundle. Each has a verifier of its own, because rustls forgets the validity and the path length of
/// a trust anchor.
#[derive(Clone)]
struct Root {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Seconds since the epoch.
    valid: RangeInclusive<i64>,
    /// How many intermediates may be between this CA and a client certificate.
    path_length: usize,
}

/// Front proxies and their request headers.
#[derive(Clone, PartialEq)]
pub(super) struct Proxies {
    pub(super) authority: Authority,
    pub(super) headers: Headers,
}

/// The request headers, and the proxies that may send them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers {
    /// Allowed common names of proxies; any if empty.
    pub(super) allowed_names: Vec<String>,
    pub(super) username: Vec<String>,
    pub(super) uid: Vec<String>,
    pub(super) group: Vec<String>,
    pub(super) extra_prefixes: Vec<String>,
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Trust {
    /// The subjects of all CAs, sent to clients in the TLS handshake.
    pub(super) fn hints(&self) -> Vec<DistinguishedName> {
        let authorities = self.clients.iter().chain(self.proxies.iter().map(|proxies| &proxies.authority));
        authorities.flat_map(|authority| authority.subjects.clone()).collect()
    }
}

impl Authority {
    /// Parses a PEM bundle of CAs. A certificate that may not issue client certificates is ignored, like in the
    /// original, where it never verifies anything.
    pub(super) fn new(pem: &[u8]) -> Result<Self, String> {
        let (mut subjects, mut roots) = (Vec::new(), Vec::new());
        for certificate in parse_chain(pem)? {
            match Root::new(certificate)? {
                Some((root, subject)) => {
                    roots.push(root);
                    subjects.extend(subject);
                }
                None => tracing::warn!("ignoring a certificate in a CA bundle that cannot verify clients"),
            }
        }
        Ok(Self { pem: pem.to_owned(), subjects, roots })
    }

    fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        self.verify_at(chain, UnixTime::now())
    }

    pub(super) fn verify_at(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
        let [leaf, intermediates @ ..] = chain else {
            return Err("no certificate".to_owned());
        };
        let intermediates = signers(intermediates)?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let mut failure = None;
        for root in self.roots.iter().filter(|root| root.valid.contains(&seconds)) {
            // Clients send a chain in order, so the path to this CA is at its beginning.
            let intermediates = &intermediates[..intermediates.len().min(root.path_length)];
            match root.verifier.verify_client_cert(leaf, intermediates, now) {
                Ok(_) => return Ok(()),
                // The issuer's own verdict says more than that the others are not the issuer.
                Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
                Err(error) => failure = Some(error.to_string()),
            }
        }
        Err(failure
            .unwrap_or_else(|| "certificate signed by unknown authority, or its CA has expired".to_owned()))
    }

    /// The user of a client certificate; `None` without a common name.
    pub(super) fn user_of(&self, chain: &[CertificateDer<'_>]) -> Result<Option<User>, String> {
        self.verify(chain)?;
        let leaf = parse(&chain[0])?;
        let Some(name) = common_name(&leaf).filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let groups = leaf.subject().iter_organization();
        let groups = groups.filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
        let digest = sha256_hex(&chain[0]);
        let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={digest}")])]);
        Ok(Some(User { name: name.to_owned(), uid: uid(&leaf)?, groups, extra }))
    }
}

impl Root {
    /// The CA and its subject; `None` if the certificate may not issue client certificates.
    ///
    /// Parity: Go's `CheckSignatureFrom`, and `checkChainForKeyUsage`, which checks the root, too.
    fn new(certificate: CertificateDer<'static>) -> Result<Option<(Self, Vec<DistinguishedName>)>, String> {
        let invalid = |error: String| format!("holds an invalid CA certificate: {error}");
        let parsed = parse(&certificate).map_err(invalid)?;
        let constraints = parsed.basic_constraints().map_err(|error| invalid(error.to_string()))?;
        let purposes = parsed.extended_key_usage().map_err(|error| invalid(error.to_string()))?;
        let (is_ca, path_length) = match constraints {
            Some(constraints) => (constraints.value.ca, constraints.value.path_len_constraint),
            // Certificates before version 3 have no extensions.
            None => (parsed.version() != X509Version::V3, None),
        };
        let is_for_clients = purposes.is_none_or(|purposes| purposes.value.any || purposes.value.client_auth);
        if !is_ca || !is_for_clients || !may_sign(&parsed).map_err(invalid)? {
            return Ok(None);
        }
        let path_length = path_length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        let validity = parsed.validity();
        let valid = validity.not_before.timestamp()..=validity.not_after.timestamp();
        let mut store = RootCertStore::empty();
        store.add(certificate).map_err(|error| invalid(error.to_string()))?;
        let subjects = store.subjects();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider)
            .build()
            .map_err(|error| format!("cannot be used: {error}"))?;
        Ok(Some((Self { verifier, valid, path_length }, subjects)))
    }
}

impl Proxies {
    /// The user in the request headers; `None` without a user name.
    pub(super) fn user_of(
        &self,
        chain: &[CertificateDer<'_>],
        headers: &HeaderMap,
    ) -> Result<Option<User>, String> {
        self.authority.verify(chain)?;
        let leaf = parse(&chain[0])?;
        let name = common_name(&leaf).unwrap_or_default();
        let allowed = &self.headers.allowed_names;
        if !allowed.is_empty() && !allowed.iter().any(|allowed| allowed == name) {
            return Err(format!("the common name {name:?} is not in --requestheader-allowed-names"));
        }
        Ok(self.headers.user_in(headers))
    }
}

impl Headers {
    fn user_in(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| {
            let mut values = names.iter().filter_map(|name| headers.get(name.as_str()));
            values.find(|value| !value.is_empty()).map(text)
        };
        let name = first(&self.username)?;
        let groups = self.group.iter().flat_map(|name| headers.get_all(name.as_str()));
        let groups = groups.filter(|value| !value.is_empty()).map(text).collect();
        let mut extra = BTreeMap::<_, Vec<_>>::new();
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_ascii_lowercase();
            for (key, value) in headers {
                if let Some(key) = key.as_str().strip_prefix(&prefix) {
                    let decoded = percent_decode_str(key).decode_utf8();
                    let key = decoded.map_or_else(|_| key.to_owned(), |key| key.into_owned());
                    extra.entry(key).or_default().push(text(value));
                }
            }
        }
        Some(User { name, uid: first(&self.uid).unwrap_or_default(), groups, extra })
    }

    /// Removes the request headers, so that pages cannot be misled by them.
    pub(super) fn remove_from(&self, headers: &mut HeaderMap) {
        for name in self.username.iter().chain(&self.uid).chain(&self.group) {
            headers.remove(name.as_str());
        }
        let prefixes: Vec<_> = self.extra_prefixes.iter().map(|prefix| prefix.to_ascii_lowercase()).collect();
        let is_extra =
            |name: &http::HeaderName| prefixes.iter().any(|prefix| name.as_str().starts_with(prefix));
        let extra: Vec<_> = headers.keys().filter(|name| is_extra(name)).cloned().collect();
        for name in extra {
            headers.remove(name);
        }
    }

    /// The default header names.
    pub(super) fn defaults() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            allowed_names: Vec::new(),
            username: one("x-remote-user"),
            uid: one("x-remote-uid"),
            group: one("x-remote-group"),
            extra_prefixes: one("x-remote-extra-"),
        }
    }
}

fn text(value: &http::HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    X509Certificate::from_der(certificate).map(|(_, leaf)| leaf).map_err(|error| error.to_string())
}

/// The intermediates of a chain that may sign others, because webpki ignores their key usage. An error if their
/// number or size would make the search slow.
fn signers<'a>(intermediates: &[CertificateDer<'a>]) -> Result<Vec<CertificateDer<'a>>, String> {
    if intermediates.len() > INTERMEDIATES_MAX {
        return Err(format!("more than {INTERMEDIATES_MAX} intermediate certificates"));
    }
    let bytes: usize = intermediates.iter().map(|certificate| certificate.len()).sum();
    if bytes > INTERMEDIATES_BYTES_MAX {
        return Err(format!("more than {INTERMEDIATES_BYTES_MAX} bytes of intermediate certificates"));
    }
    let signers = intermediates
        .iter()
        .filter(|certificate| parse(certificate).and_then(|parsed| may_sign(&parsed)) == Ok(true));
    Ok(signers.cloned().collect())
}

/// Whether the key usage of a certificate, if it has one, includes signing others.
fn may_sign(certificate: &X509Certificate<'_>) -> Result<bool, String> {
    let usage = certificate.key_usage().map_err(|error| error.to_string())?;
    Ok(usage.is_none_or(|usage| usage.value.key_cert_sign()))
}

/// The remaining validity of a certificate in seconds.
pub(super) fn seconds_left(certificate: &CertificateDer<'_>) -> Option<f64> {
    let not_after = parse(certificate).ok()?.validity().not_after.timestamp();
    #[allow(clippy::cast_precision_loss, reason = "seconds of a few centuries fit")]
    Some(not_after as f64 - UnixTime::now().as_secs() as f64)
}

/// The last of several common names, as in the original.
fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a str> {
    certificate.subject().iter_common_name().last()?.as_str().ok()
}

fn uid(certificate: &X509Certificate<'_>) -> Result<String, String> {
    let named = |attribute: &&x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.attr_type().to_id_string() == UID_OBJECT_ID
    };
    let mut uids = certificate.subject().iter_attributes().filter(named);
    match (uids.next(), uids.next()) {
        (None, _) => Ok(String::new()),
        (Some(uid), None) => match uid.as_str() {
            Ok("") | Err(_) => Err("the certificate's UID is not a string".to_owned()),
            Ok(uid) => Ok(uid.to_owned()),
        },
        (Some(_), Some(_)) => Err("the certificate has several UIDs".to_owned()),
    }
}

fn sha256_hex(certificate: &[u8]) -> String {
    let digest = ::aws_lc_rs::digest::digest(&::aws_lc_rs::digest::SHA256, certificate);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
