//! Which certificate a client is shown: by the name it asks for, by the address it came to, or the usual one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The certificates to show.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    usual: Arc<CertifiedKey>,
    /// By lower-case name, `*.` wildcard or address.
    named: BTreeMap<String, Arc<CertifiedKey>>,
}

impl Resolver {
    /// Earlier pairs win over later ones, and names that were given over names found in certificates.
    pub(super) fn new(usual: CertifiedKey, named: Vec<(Vec<String>, CertifiedKey)>) -> Self {
        let (mut given, mut found) = (BTreeMap::new(), BTreeMap::new());
        for (names, pair) in named.into_iter().rev() {
            let pair = Arc::new(pair);
            let (into, names) =
                if names.is_empty() { (&mut found, names_in(&pair)) } else { (&mut given, names) };
            into.extend(names.into_iter().map(|name| (name.to_ascii_lowercase(), Arc::clone(&pair))));
        }
        found.append(&mut given);
        Self { usual: Arc::new(usual), named: found }
    }

    /// The resolver for connections to one of our addresses, if that address was given as a name: clients
    /// that connect by address send no name.
    pub(super) fn at(&self, address: IpAddr) -> Option<ByAddress> {
        let unnamed = self.named.get(&address.to_canonical().to_string())?;
        Some(ByAddress { unnamed: Arc::clone(unnamed), named: self.clone() })
    }

    fn find(&self, name: &str) -> Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        let wildcard = || {
            let (_, parent) = name.split_once('.')?;
            self.named.get(&format!("*.{parent}"))
        };
        Arc::clone(self.named.get(&name).or_else(wildcard).unwrap_or(&self.usual))
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(hello.server_name().map_or_else(|| Arc::clone(&self.usual), |name| self.find(name)))
    }
}

/// A resolver for connections to one address.
#[derive(Debug)]
pub(super) struct ByAddress {
    unnamed: Arc<CertifiedKey>,
    named: Resolver,
}

impl ResolvesServerCert for ByAddress {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match hello.server_name() {
            Some(_) => self.named.resolve(hello),
            None => Some(Arc::clone(&self.unnamed)),
        }
    }
}

/// The names a certificate is good for. Addresses do not count: no client sends one as a name.
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

    fn shown(resolver: &Resolver, name: &str) -> String {
        common_name(&resolver.find(name))
    }

    fn common_name(pair: &CertifiedKey) -> String {
        let (_, leaf) = X509Certificate::from_der(&pair.cert[0]).unwrap();
        leaf.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
    }

    #[test]
    fn names_choose_the_certificate() {
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
            ("nobody.io", "usual"),
        ] {
            assert_eq!(shown(&resolver, name), wanted, "{name}");
        }
        let by_address = resolver.at("192.0.2.7".parse().unwrap()).unwrap();
        assert_eq!(common_name(&by_address.unnamed), "given-1");
        assert!(resolver.at("192.0.2.8".parse().unwrap()).is_none());
    }
}
