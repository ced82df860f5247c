//! The TLS side of the server: what is spoken, with which certificates, and that both follow their files.

mod client;
mod files;
mod generate;
mod names;
mod resolver;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::{DistinguishedName, ServerConfig};
use tokio_rustls::TlsAcceptor;

pub(crate) use self::files::{chain_of, read};
pub use self::names::TlsOptions;

use self::client::AnyCertificate;
use self::files::{Origin, Pair};
use self::resolver::Resolver;
use crate::{ServingError, ServingOptions};

/// What stays the same while certificates come and go.
pub(crate) struct Tls {
    provider: Arc<CryptoProvider>,
    options: TlsOptions,
    alpn: Vec<Vec<u8>>,
    usual: Origin,
    named: Vec<(Vec<String>, Origin)>,
}

/// All pairs as they were read, the usual one first.
#[derive(PartialEq, Eq)]
pub(crate) struct Pairs(Vec<Pair>);

impl Tls {
    /// Finds all certificates, or makes one.
    pub(crate) fn open(options: &ServingOptions, now: SystemTime) -> Result<Self, ServingError> {
        for left_out in options.tls.left_out() {
            tracing::warn!("{left_out}");
        }
        let alpn: &[&str] = if options.http2 { &["h2", "http/1.1"] } else { &["http/1.1"] };
        Ok(Self {
            provider: Arc::new(options.tls.provider()),
            options: options.tls.clone(),
            alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
            usual: Origin::open(&options.certificate, options.bind_address, now)?,
            named: options.sni.iter().map(|named| (named.names.clone(), Origin::named(named))).collect(),
        })
    }

    /// Reads all pairs.
    pub(crate) fn read(&self) -> Result<Pairs, ServingError> {
        let named = self.named.iter().map(|(_, origin)| origin);
        std::iter::once(&self.usual).chain(named).map(Origin::read).collect::<Result<_, _>>().map(Pairs)
    }

    /// How to greet clients with these pairs. With hints, clients are asked for a certificate of one of
    /// these issuers.
    pub(crate) fn greeting(
        &self,
        pairs: &Pairs,
        hints: Option<Vec<DistinguishedName>>,
    ) -> Result<Greeting, ServingError> {
        let usual = self.usual.certified(&pairs.0[0], &self.provider)?;
        let named = self
            .named
            .iter()
            .zip(&pairs.0[1..])
            .map(|((names, origin), pair)| Ok((names.clone(), origin.certified(pair, &self.provider)?)));
        let resolver = Arc::new(Resolver::new(usual, named.collect::<Result<_, ServingError>>()?));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(self.options.versions())
            .map_err(|error| ServingError::Option {
                flag: "--tls-cipher-suites",
                fault: error.to_string(),
            })?;
        let builder = match hints {
            Some(hints) => builder.with_client_cert_verifier(Arc::new(AnyCertificate {
                hints,
                algorithms: self.provider.signature_verification_algorithms,
            })),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&resolver) as _);
        config.alpn_protocols.clone_from(&self.alpn);
        Ok(Greeting { config: Arc::new(config), resolver })
    }
}

/// How clients are greeted for now.
#[derive(Clone)]
pub(crate) struct Greeting {
    config: Arc<ServerConfig>,
    resolver: Arc<Resolver>,
}

impl Greeting {
    /// For a connection to this address of ours.
    pub(crate) fn acceptor(&self, local: IpAddr) -> TlsAcceptor {
        match self.resolver.at(local) {
            Some(by_address) => {
                let mut config = ServerConfig::clone(&self.config);
                config.cert_resolver = Arc::new(by_address);
                Arc::new(config).into()
            }
            None => Arc::clone(&self.config).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves SRV-11.
    #[test]
    fn http2_is_offered_unless_turned_off() {
        for (http2, offered) in [(true, &[&b"h2"[..], b"http/1.1"][..]), (false, &[&b"http/1.1"[..]])] {
            let options = ServingOptions { http2, ..ServingOptions::default() };
            let tls = Tls::open(&options, SystemTime::now()).unwrap();
            let greeting = tls.greeting(&tls.read().unwrap(), None).unwrap();
            assert_eq!(greeting.config.alpn_protocols, offered);
        }
    }
}
