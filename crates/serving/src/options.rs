//! Typed options of secure serving, authentication and authorization.
//!
//! The command line is parsed elsewhere; the values are validated here. Each field names its flag.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::ServingError;
use crate::access::BrowserLogin;
use crate::tls::TlsOptions;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct ServingOptions {
    /// `--bind-address`; an unspecified one means all interfaces of both IP families.
    pub bind_address: IpAddr,
    /// `--secure-port`; 0 serves nothing.
    pub port: u16,
    /// Where the certificate comes from.
    pub certificate: CertificateSource,
    /// `--tls-sni-cert-key`, in the given order: for one name the first takes precedence.
    pub sni: Vec<NamedCertificate>,
    /// `--tls-min-version`, `--tls-cipher-suites`, `--tls-curve-preferences`.
    pub tls: TlsOptions,
    /// Whether HTTP/2 is enabled (`--disable-http2-serving` disables it).
    pub http2: bool,
    /// Whether an HTTP/2 connection is closed after an unauthenticated request (feature gate
    /// `UnauthenticatedHTTP2DOSMitigation`).
    pub unauthenticated_http2_dos_mitigation: bool,
    /// `--permit-address-sharing`. The socket always uses `SO_REUSEADDR`, so the flag has no effect.
    pub permit_address_sharing: bool,
    /// `--permit-port-sharing`: several processes may listen on one port (`SO_REUSEPORT`).
    pub permit_port_sharing: bool,
    /// How often the files of certificates and client CAs are read again.
    pub reload_every: Duration,
    /// Limits of client connections, including `--http2-max-streams-per-connection`.
    pub limits: ConnectionLimits,
}

impl Default for ServingOptions {
    fn default() -> Self {
        Self {
            bind_address: IpAddr::from([0, 0, 0, 0]),
            port: 10257,
            certificate: CertificateSource::Generated,
            sni: Vec::new(),
            tls: TlsOptions::default(),
            http2: true,
            unauthenticated_http2_dos_mitigation: true,
            permit_address_sharing: false,
            permit_port_sharing: false,
            reload_every: Duration::from_secs(2),
            limits: ConnectionLimits::default(),
        }
    }
}

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
    /// `kube-controller-manager.crt` and `.key` in this directory (`--cert-dir`); generated there if both are
    /// missing.
    Directory(PathBuf),
    /// Generated at each start and kept in memory.
    Generated,
}

/// One `--tls-sni-cert-key`: a certificate for certain server names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCertificate {
    /// The chain, leaf first.
    pub certificate: PathBuf,
    /// The leaf's private key.
    pub key: PathBuf,
    /// Host names, `*.` wildcards and IP addresses; those in the certificate if empty.
    pub names: Vec<String>,
}

impl FromStr for NamedCertificate {
    type Err = ServingError;

    /// Parses `CERTIFICATE,KEY` or `CERTIFICATE,KEY:NAME,NAME`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |problem| ServingError::Option { flag: "--tls-sni-cert-key", fault: problem };
        let (files, names) = match text.split_once(':') {
            Some((_, names)) if names.trim().is_empty() => {
                return Err(bad("empty names list is not allowed".to_owned()));
            }
            Some((files, names)) => (files, names.split(',').map(|name| name.trim().to_owned()).collect()),
            None => (text, Vec::new()),
        };
        match files.split(',').map(str::trim).collect::<Vec<_>>()[..] {
            [certificate, key] => Ok(Self { certificate: certificate.into(), key: key.into(), names }),
            _ => Err(bad("expected comma separated certificate and key file paths".to_owned())),
        }
    }
}

/// Limits of client connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Concurrent connections; beyond it, a new one replaces the longest idle one, anonymous ones first, or else one that
    /// waits for reviews. The original has no such limit.
    pub connections_max: usize,
    /// The size of the request headers.
    pub header_bytes_max: u32,
    /// Concurrent streams per HTTP/2 connection.
    pub http2_streams_max: u32,
    /// For the TLS handshake and the headers of the first request together.
    pub first_request_timeout: Duration,
    /// Between a response and the next request.
    pub idle_timeout: Duration,
    /// How long responses in flight may take after shutdown begins.
    pub shutdown_grace: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections_max: 256,
            header_bytes_max: 1 << 20,
            http2_streams_max: 100,
            first_request_timeout: Duration::from_secs(32),
            idle_timeout: Duration::from_secs(90),
            shutdown_grace: Duration::from_secs(1),
        }
    }
}

/// Options of authentication.
#[derive(Clone, Debug)]
pub struct AuthenticationOptions {
    /// `--client-ca-file`: client certificates of these CAs authenticate users.
    pub client_ca_file: Option<PathBuf>,
    /// The `--requestheader-…` flags.
    pub request_header: RequestHeaderOptions,
    /// `--authentication-token-webhook-cache-ttl`; zero disables the cache.
    pub token_cache_ttl: Duration,
    /// `--authentication-skip-lookup`: missing configuration is not looked up in the cluster.
    pub skip_lookup: bool,
    /// `--authentication-tolerate-lookup-failure`: start even if the lookup fails.
    pub tolerate_lookup_failure: bool,
    /// Login links for browsers, of a playground.
    pub browser_login: Option<BrowserLogin>,
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        Self {
            client_ca_file: None,
            request_header: RequestHeaderOptions::default(),
            token_cache_ttl: Duration::from_secs(10),
            skip_lookup: false,
            tolerate_lookup_failure: false,
            browser_login: None,
        }
    }
}

/// Options of request-header authentication by front proxies. Used only with a CA file; without one, the
/// configuration comes from the cluster.
#[derive(Clone, Debug)]
pub struct RequestHeaderOptions {
    /// `--requestheader-client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-allowed-names`: allowed common names of proxies; any if empty.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`: the first non-empty one is used.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`: the first non-empty one is used.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`: all are used.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_header_prefixes: Vec<String>,
}

impl Default for RequestHeaderOptions {
    fn default() -> Self {
        Self {
            client_ca_file: None,
            allowed_names: Vec::new(),
            username_headers: vec!["x-remote-user".to_owned()],
            uid_headers: Vec::new(),
            group_headers: vec!["x-remote-group".to_owned()],
            extra_header_prefixes: vec!["x-remote-extra-".to_owned()],
        }
    }
}

/// Options of authorization.
#[derive(Clone, Debug)]
pub struct AuthorizationOptions {
    /// `--authorization-always-allow-paths`: exact paths, or prefixes that end in `*`.
    pub always_allow_paths: Vec<String>,
    /// `--authorization-webhook-cache-authorized-ttl`; zero disables the cache.
    pub allowed_cache_ttl: Duration,
    /// `--authorization-webhook-cache-unauthorized-ttl`; zero disables the cache.
    pub denied_cache_ttl: Duration,
}

impl Default for AuthorizationOptions {
    fn default() -> Self {
        Self {
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).to_vec(),
            allowed_cache_ttl: Duration::from_secs(10),
            denied_cache_ttl: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves SRV-1.
    #[test]
    fn defaults_match_the_flags() {
        let serving = ServingOptions::default();
        assert_eq!((serving.bind_address, serving.port), (IpAddr::from([0, 0, 0, 0]), 10257));
        assert_eq!(serving.certificate, CertificateSource::Generated);
        assert!(serving.http2 && serving.sni.is_empty() && !serving.permit_port_sharing);
        let authentication = AuthenticationOptions::default();
        assert_eq!(authentication.token_cache_ttl, Duration::from_secs(10));
        assert!(!authentication.skip_lookup && !authentication.tolerate_lookup_failure);
        assert_eq!(authentication.request_header.username_headers, ["x-remote-user"]);
        assert_eq!(authentication.request_header.group_headers, ["x-remote-group"]);
        assert_eq!(authentication.request_header.extra_header_prefixes, ["x-remote-extra-"]);
        assert!(authentication.request_header.uid_headers.is_empty());
        let authorization = AuthorizationOptions::default();
        assert_eq!(authorization.always_allow_paths, ["/healthz", "/readyz", "/livez"]);
        assert_eq!(authorization.allowed_cache_ttl, Duration::from_secs(10));
        assert_eq!(authorization.denied_cache_ttl, Duration::from_secs(10));
    }

    #[test]
    fn sni_certificates_are_parsed_like_the_originals() {
        let read = |text: &str| text.parse::<NamedCertificate>();
        let two = |certificate: &str, key: &str, names: &[&str]| NamedCertificate {
            certificate: certificate.into(),
            key: key.into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(read("a.crt,a.key").unwrap(), two("a.crt", "a.key", &[]));
        assert_eq!(read(" a.crt , a.key : *.a.io , b ").unwrap(), two("a.crt", "a.key", &["*.a.io", "b"]));
        assert_eq!(read("a,b:::1").unwrap(), two("a", "b", &["::1"]));
        for (text, problem) in [
            ("a.crt", "expected comma separated certificate and key file paths"),
            ("a,b,c", "expected comma separated certificate and key file paths"),
            ("", "expected comma separated certificate and key file paths"),
            ("a,b:", "empty names list is not allowed"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), format!("--tls-sni-cert-key: {problem}"));
        }
    }
}
