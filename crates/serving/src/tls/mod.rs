//! TLS of the server: versions, cipher suites and certificates that are reloaded from their files.

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

pub(crate) use self::files::{parse_chain, read};
pub use self::names::TlsOptions;

use self::client::AnyCertificate;
use self::files::{KeyPairSource, Pair};
use self::resolver::Resolver;
use crate::{ServingError, ServingOptions};

/// The TLS configuration without the certificates themselves.
pub(crate) struct Tls {
    provider: Arc<CryptoProvider>,
    options: TlsOptions,
    alpn: Vec<Vec<u8>>,
    default_pair: KeyPairSource,
    sni: Vec<(Vec<String>, KeyPairSource)>,
}

/// All key pairs as they were read, the default one first.
#[derive(PartialEq, Eq)]
pub(crate) struct Pairs(Vec<Pair>);

impl Tls {
    /// Finds all certificates, or generates the default one.
    pub(crate) fn open(options: &ServingOptions, now: SystemTime) -> Result<Self, ServingError> {
        for unsupported in options.tls.unsupported() {
            tracing::warn!("{unsupported}");
        }
        let alpn: &[&str] = if options.http2 { &["h2", "http/1.1"] } else { &["http/1.1"] };
        Ok(Self {
            provider: Arc::new(options.tls.provider()),
            options: options.tls.clone(),
            alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
            default_pair: KeyPairSource::open(&options.certificate, options.bind_address, now)?,
            sni: options.sni.iter().map(|sni| (sni.names.clone(), KeyPairSource::sni(sni))).collect(),
        })
    }

    /// Reads all key pairs.
    pub(crate) fn read(&self) -> Result<Pairs, ServingError> {
        let sni = self.sni.iter().map(|(_, source)| source);
        std::iter::once(&self.default_pair)
            .chain(sni)
            .map(KeyPairSource::read)
            .collect::<Result<_, _>>()
            .map(Pairs)
    }

    /// The server configuration with these key pairs. With hints, clients are requested to send a certificate
    /// of one of these issuers.
    pub(crate) fn tls_server(
        &self,
        pairs: &Pairs,
        hints: Option<Vec<DistinguishedName>>,
    ) -> Result<TlsServer, ServingError> {
        let default_pair = self.default_pair.certified(&pairs.0[0], &self.provider)?;
        let sni = self
            .sni
            .iter()
            .zip(&pairs.0[1..])
            .map(|((names, source), pair)| Ok((names.clone(), source.certified(pair, &self.provider)?)));
        let resolver = Arc::new(Resolver::new(default_pair, sni.collect::<Result<_, ServingError>>()?));
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
        Ok(TlsServer { config: Arc::new(config), resolver })
    }
}

/// The current TLS server configuration.
#[derive(Clone)]
pub(crate) struct TlsServer {
    config: Arc<ServerConfig>,
    resolver: Arc<Resolver>,
}

impl TlsServer {
    /// The acceptor for a connection to this local address.
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
    fn http2_is_offered_unless_disabled() {
        for (http2, offered) in [(true, &[&b"h2"[..], b"http/1.1"][..]), (false, &[&b"http/1.1"[..]])] {
            let options = ServingOptions { http2, ..ServingOptions::default() };
            let tls = Tls::open(&options, SystemTime::now()).unwrap();
            let tls_server = tls.tls_server(&tls.read().unwrap(), None).unwrap();
            assert_eq!(tls_server.config.alpn_protocols, offered);
        }
    }
}
