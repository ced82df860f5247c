//! Chooses the certificate of a connection: by SNI name, by local address, or the default.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The certificates of a server.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    default_pair: Arc<CertifiedKey>,
    /// By lower-case name, `*.` wildcard or address.
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
}

impl Resolver {
    /// Earlier pairs take precedence over later ones, and configured names over names from certificates.
    pub(super) fn new(default_pair: CertifiedKey, by_name: Vec<(Vec<String>, CertifiedKey)>) -> Self {
        let (mut given, mut found) = (BTreeMap::new(), BTreeMap::new());
        for (names, pair) in by_name.into_iter().rev() {
            let pair = Arc::new(pair);
            let (into, names) =
                if names.is_empty() { (&mut found, names_in(&pair)) } else { (&mut given, names) };
            into.extend(names.into_iter().map(|name| (name.to_ascii_lowercase(), Arc::clone(&pair))));
        }
        found.append(&mut given);
        Self { default_pair: Arc::new(default_pair), by_name: found }
    }

    /// The resolver for connections to one local address, if that address is configured as a name: clients
    /// that connect by address send no SNI.
    pub(super) fn at(&self, address: IpAddr) -> Option<ByAddress> {
        let without_sni = self.by_name.get(&address.to_canonical().to_string())?;
        Some(ByAddress { without_sni: Arc::clone(without_sni), by_name: self.clone() })
    }

    fn find(&self, name: &str) -> Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        let wildcard = || {
            let (_, parent) = name.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        };
        Arc::clone(self.by_name.get(&name).or_else(wildcard).unwrap_or(&self.default_pair))
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or_else(|| Arc::clone(&self.default_pair), |name| self.find(name)))
    }
}

/// A resolver for connections to one address.
#[derive(Debug)]
pub(super) struct ByAddress {
    without_sni: Arc<CertifiedKey>,
    by_name: Resolver,
}

impl ResolvesServerCert for ByAddress {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match hello.server_name() {
            Some(_) => self.by_name.resolve(hello),
            None => Some(Arc::clone(&self.without_sni)),
        }
    }
}

/// The DNS names of a certificate. IP addresses are left out: clients do not send them as SNI.
fn names_in(pair: &CertifiedKey) -> Vec<String> {
    let Some((_, leaf)) = pair.cert.first().and_then(|leaf| X509Certificate::from_der(leaf).ok()) else {
        return Vec::new();
    };
    let common = leaf.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<_> = common.filter(|name| is_domain(name)).map(str::to_owned).collect();
    if let Ok(Some(others)) = leaf.subject_alternative_name() {
        names.extend(others.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        }));
    }
    names
}

fn is_domain(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    rest.parse::<IpAddr>().is_err() && rest.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::PrivateKeyDer;

    use super::*;

    fn pair(common_name: &str, names: &[&str]) -> CertifiedKey {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let certificate = params.self_signed(&key).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        CertifiedKey::from_der(vec![certificate.der().clone()], private, &aws_lc_rs::default_provider())
            .unwrap()
    }

    fn chosen(resolver: &Resolver, name: &str) -> String {
        common_name(&resolver.find(name))
    }

    fn common_name(pair: &CertifiedKey) -> String {
        let (_, leaf) = X509Certificate::from_der(&pair.cert[0]).unwrap();
        leaf.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
    }

    #[test]
    fn certificate_is_chosen_by_name() {
        let given = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let resolver = Resolver::new(
            pair("usual", &["usual.io"]),
            vec![
                (vec![], pair("found-1", &["a.io", "*.b.io"])),
                (vec![], pair("found-2", &["a.io", "c.io"])),
                (given(&["c.io", "192.0.2.7", "*.d.io"]), pair("given-1", &[])),
                (given(&["c.io"]), pair("given-2", &[])),
            ],
        );
        for (name, wanted) in [
            ("a.io", "found-1"),
            ("A.io", "found-1"),
            ("x.b.io", "found-1"),
            ("b.io", "usual"),
            ("x.y.b.io", "usual"),
            ("c.io", "given-1"),
            ("x.d.io", "given-1"),
            ("found-2", "found-2"),
            ("usual.io", "usual"),
            ("unknown.io", "usual"),
        ] {
            assert_eq!(chosen(&resolver, name), wanted, "{name}");
        }
        let by_address = resolver.at("192.0.2.7".parse().unwrap()).unwrap();
        assert_eq!(common_name(&by_address.without_sni), "given-1");
        assert!(resolver.at("192.0.2.8".parse().unwrap()).is_none());
    }
}
