//! Secure serving, authentication and authorization.

use std::net::IpAddr;

use crate::go_text::{GoDuration, quote};
use crate::parser::Values;
use crate::value::SniCertKey;

/// Secure serving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The address to listen on.
    pub bind_address: IpAddr,
    /// The port; 0 disables serving. Validation checks the range.
    pub secure_port: i64,
    /// The directory of the certificate if no files are given.
    pub cert_dir: String,
    /// The certificate file.
    pub cert_file: String,
    /// The key file.
    pub key_file: String,
    /// SNI certificates.
    pub sni: Vec<SniCertKey>,
    /// Cipher suites by their IANA names, validated; empty for the server's default.
    pub cipher_suites: Vec<String>,
    /// Key exchange groups by their IANA numbers, validated; empty for the server's default.
    pub curves: Vec<i32>,
    /// The minimum TLS version, if it is set.
    pub min_version: Option<TlsVersion>,
    min_version_text: String,
    /// Whether HTTP/2 is disabled.
    pub disable_http2: bool,
    /// Maximum concurrent streams per connection; 0 or less for the server's default.
    pub http2_max_streams: i64,
    /// `SO_REUSEADDR`.
    pub permit_address_sharing: bool,
    /// `SO_REUSEPORT`.
    pub permit_port_sharing: bool,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// 1.0
    Tls10,
    /// 1.1
    Tls11,
    /// 1.2
    Tls12,
    /// 1.3
    Tls13,
}

/// The names that the original accepts: those of Go's TLS library and two legacy names.
const CIPHER_SUITES: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

const CURVES: [i32; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

impl Serving {
    pub(super) fn read(values: &Values) -> Self {
        let min_version_text = values.text("tls-min-version");
        Self {
            bind_address: values.ip("bind-address"),
            secure_port: values.int("secure-port"),
            cert_dir: values.text("cert-dir"),
            cert_file: values.text("tls-cert-file"),
            key_file: values.text("tls-private-key-file"),
            sni: values.cert_keys("tls-sni-cert-key"),
            cipher_suites: values.list("tls-cipher-suites"),
            curves: values.numbers("tls-curve-preferences"),
            min_version: tls_version(&min_version_text),
            min_version_text,
            disable_http2: values.bool("disable-http2-serving"),
            http2_max_streams: values.int("http2-max-streams-per-connection"),
            permit_address_sharing: values.bool("permit-address-sharing"),
            permit_port_sharing: values.bool("permit-port-sharing"),
        }
    }

    /// Whether the secure port is enabled.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.secure_port != 0
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let port = self.secure_port;
        if port > 65535 {
            let text = "must be between 1 and 65535, inclusive. It cannot be turned off with 0";
            return vec![format!("--secure-port {port} {text}")];
        }
        if port < 0 {
            let text = "must be between 0 and 65535, inclusive. 0 for turning off secure port";
            return vec![format!("--secure-port {port} {text}")];
        }
        Vec::new()
    }

    /// The checks that the original makes when it builds its server; the first error is returned.
    pub(super) fn check_applied(&self) -> Result<(), String> {
        if self.cert_file.is_empty() != self.key_file.is_empty() {
            return Err("missing filename for serving cert".to_owned());
        }
        let is_unknown = |name: &&String| !CIPHER_SUITES.contains(&name.as_str());
        if let Some(name) = self.cipher_suites.iter().find(is_unknown) {
            return Err(format!("Cipher suite {name} not supported or doesn't exist"));
        }
        for (place, curve) in self.curves.iter().enumerate() {
            if !(1..=65535).contains(curve) {
                return Err(format!("curve preference {curve} is out of range (must be 1-65535)"));
            }
            if self.curves[..place].contains(curve) {
                return Err(format!("duplicate curve preference {curve}"));
            }
            if !CURVES.contains(curve) {
                return Err(format!("curve preference {curve} is not supported"));
            }
        }
        if !self.min_version_text.is_empty() && self.min_version.is_none() {
            return Err(format!("unknown tls version {}", quote(&self.min_version_text)));
        }
        Ok(())
    }
}

fn tls_version(text: &str) -> Option<TlsVersion> {
    match text {
        "VersionTLS10" => Some(TlsVersion::Tls10),
        "VersionTLS11" => Some(TlsVersion::Tls11),
        "VersionTLS12" => Some(TlsVersion::Tls12),
        "VersionTLS13" => Some(TlsVersion::Tls13),
        _ => None,
    }
}

/// Authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authentication {
    /// The kubeconfig for delegated requests; empty if unset.
    pub kubeconfig: String,
    /// Whether the cluster's client CAs are not looked up.
    pub skip_lookup: bool,
    /// Whether a failed lookup is tolerated at start.
    pub tolerate_lookup_failure: bool,
    /// The cache TTL of TokenReviews.
    pub token_cache_ttl: GoDuration,
    /// The client CA file; empty if unset.
    pub client_ca_file: String,
    /// Authenticating proxies.
    pub request_header: RequestHeader,
}

/// Authenticating proxies (request header authentication).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The CA file of proxies; empty if unset.
    pub client_ca_file: String,
    /// Allowed common names; empty for all.
    pub allowed_names: Vec<String>,
    /// Username headers.
    pub username_headers: Vec<String>,
    /// UID headers.
    pub uid_headers: Vec<String>,
    /// Group headers.
    pub group_headers: Vec<String>,
    /// Prefixes of extra headers.
    pub extra_header_prefixes: Vec<String>,
}

impl Authentication {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            kubeconfig: values.text("authentication-kubeconfig"),
            skip_lookup: values.bool("authentication-skip-lookup"),
            tolerate_lookup_failure: values.bool("authentication-tolerate-lookup-failure"),
            token_cache_ttl: values.duration("authentication-token-webhook-cache-ttl"),
            client_ca_file: values.text("client-ca-file"),
            request_header: RequestHeader {
                client_ca_file: values.text("requestheader-client-ca-file"),
                allowed_names: values.list("requestheader-allowed-names"),
                username_headers: values.list("requestheader-username-headers"),
                uid_headers: values.list("requestheader-uid-headers"),
                group_headers: values.list("requestheader-group-headers"),
                extra_header_prefixes: values.list("requestheader-extra-headers-prefix"),
            },
        }
    }
}

impl RequestHeader {
    pub(super) fn problems(&self, uid_headers_allowed: bool) -> Vec<String> {
        let mut problems = Vec::new();
        for (flag, items) in [
            ("requestheader-username-headers", &self.username_headers),
            ("requestheader-group-headers", &self.group_headers),
            ("requestheader-extra-headers-prefix", &self.extra_header_prefixes),
            ("requestheader-allowed-names", &self.allowed_names),
        ] {
            problems.extend(blank_entry(flag, items));
        }
        let flag = "requestheader-uid-headers";
        if self.uid_headers.is_empty() {
            return problems;
        }
        if !uid_headers_allowed {
            problems.push(format!("--{flag} requires the \"RemoteRequestHeaderUID\" feature to be enabled"));
            return problems;
        }
        problems.extend(blank_entry(flag, &self.uid_headers));
        if lacks(&self.uid_headers, "X-Remote-Uid") {
            problems.push(lacking(flag, "X-Remote-Uid header"));
        }
        problems
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        [
            ("requestheader-username-headers", &self.username_headers, "X-Remote-User", "header"),
            ("requestheader-group-headers", &self.group_headers, "X-Remote-Group", "header"),
            (
                "requestheader-extra-headers-prefix",
                &self.extra_header_prefixes,
                "X-Remote-Extra-",
                "header prefix",
            ),
        ]
        .into_iter()
        .filter(|(_, items, standard, _)| !items.is_empty() && lacks(items, standard))
        .map(|(flag, _, standard, what)| lacking(flag, &format!("{standard} {what}")))
        .collect()
    }
}

fn blank_entry(flag: &str, items: &[String]) -> Option<String> {
    items.iter().any(|item| item.trim().is_empty()).then(|| format!("empty value in {}", quote(flag)))
}

fn lacks(items: &[String], standard: &str) -> bool {
    !items.iter().any(|item| item.eq_ignore_ascii_case(standard))
}

fn lacking(flag: &str, standard: &str) -> String {
    format!("--{flag} is set without specifying the standard {standard} - API aggregation will not work")
}

/// Authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// The kubeconfig for delegated requests; empty if unset.
    pub kubeconfig: String,
    /// Paths without authorization; `*` is allowed at the end only.
    pub always_allow_paths: Vec<String>,
    /// The cache TTL of allowed SubjectAccessReviews.
    pub authorized_ttl: GoDuration,
    /// The cache TTL of denied SubjectAccessReviews.
    pub unauthorized_ttl: GoDuration,
}

impl Authorization {
    pub(super) fn read(values: &Values) -> Self {
        Self {
            kubeconfig: values.text("authorization-kubeconfig"),
            always_allow_paths: values.list("authorization-always-allow-paths"),
            authorized_ttl: values.duration("authorization-webhook-cache-authorized-ttl"),
            unauthorized_ttl: values.duration("authorization-webhook-cache-unauthorized-ttl"),
        }
    }

    pub(super) fn check_applied(&self) -> Result<(), String> {
        for path in &self.always_allow_paths {
            let path = path.strip_prefix('/').unwrap_or(path);
            if path.strip_suffix('*').unwrap_or(path).contains('*') {
                return Err(format!("only trailing * allowed in {}", quote(path)));
            }
        }
        Ok(())
    }
}
