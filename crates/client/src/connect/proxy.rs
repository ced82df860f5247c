//! Chooses the proxy: `proxy-url` of the kubeconfig, or else the environment variables.
//!
//! Proxy URLs may hold a password and are never quoted.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// Schemes allowed in `proxy-url`.
const SCHEMES: &[&str] = &["http", "https", "socks5"];
/// Schemes allowed in environment variables, which other programs use as well.
const SCHEMES_OF_ENVIRONMENT: &[&str] = &["http", "https", "socks5", "socks5h"];

/// The proxy for a server, or the problem of the configured one.
///
/// Parity: `client-go` uses `proxy-url`, and without it the variables that Go's HTTP client uses.
pub(super) fn for_server(
    server: &Uri,
    proxy_url: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Intercept>, String> {
    if let Some(address) = proxy_url.filter(|address| !address.is_empty()) {
        return matching_proxy("proxy-url", address, SCHEMES, server, "");
    }
    let variable = |names: [&'static str; 2]| {
        let value = |name| variable(name).filter(|value| !value.is_empty());
        names.into_iter().find_map(|name| Some((name, value(name)?)))
    };
    let https = server.scheme_str() == Some("https");
    let names = if https { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] };
    let Some((name, address)) = variable(names).filter(|_| !is_loopback(server)) else { return Ok(None) };
    let address = if address.contains("://") { address } else { format!("http://{address}") };
    let exceptions = variable(["NO_PROXY", "no_proxy"]).map(|(_, list)| list).unwrap_or_default();
    matching_proxy(name, &address, SCHEMES_OF_ENVIRONMENT, server, &for_port_of(server, &exceptions))
}

fn matching_proxy(
    name: &str,
    address: &str,
    schemes: &[&str],
    server: &Uri,
    exceptions: &str,
) -> Result<Option<Intercept>, String> {
    let proxy: Uri = address.parse().map_err(|_| format!("{name} is no address"))?;
    if proxy.scheme_str().is_none_or(|scheme| !schemes.contains(&scheme)) || proxy.host().is_none() {
        return Err(format!("{name} must begin with one of {}://", schemes.join("://, ")));
    }
    Ok(Matcher::builder().all(address.to_owned()).no(exceptions.to_owned()).build().intercept(server))
}

/// Loopback addresses are never proxied.
fn is_loopback(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The `NO_PROXY` entries for the server's port, in the matcher's syntax: without ports and brackets.
fn for_port_of(server: &Uri, exceptions: &str) -> String {
    let https = server.scheme_str() == Some("https");
    let port = server.port_u16().unwrap_or(if https { 443 } else { 80 });
    let matching = exceptions.split(',').map(str::trim).filter_map(|exception| {
        let host = match exception.rsplit_once(':') {
            // A bare IPv6 address has colons and no port.
            Some((host, _)) if host.contains(':') && !host.ends_with(']') => exception,
            Some((host, for_port)) => Some(host).filter(|_| for_port.parse() == Ok(port))?,
            None => exception,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(if host.starts_with("*.") { &host[1..] } else { host })
    });
    matching.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen_proxy(
        server: &str,
        proxy_url: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Result<String, String> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = for_server(&server.parse().unwrap(), proxy_url, variable)?;
        Ok(proxy.map(|proxy| proxy.uri().to_string()).unwrap_or_default())
    }

    /// Proves RUN-3.
    #[test]
    fn proxy_url_takes_precedence_over_environment() {
        let environment = [
            ("HTTPS_PROXY", "http://user:secret@secure:3128"),
            ("http_proxy", "plain:3128"),
            ("NO_PROXY", "10.96.0.0/12, .svc,cluster.local, quiet:6443,[fd00::1]:443,fd00::2,*.odd"),
        ];
        let to = |server: &str| chosen_proxy(server, None, &environment).unwrap();
        let (secure, plain) = ("http://secure:3128/", "http://plain:3128/");
        for (server, proxy) in [
            ("https://api.example.com:6443", secure),
            ("http://api.example.com:8080", plain),
            ("https://10.96.0.1", ""),
            ("https://10.112.0.1", secure),
            ("https://kubernetes.default.svc", ""),
            ("https://api.cluster.local", ""),
            ("https://quiet:6443", ""),
            ("https://quiet", secure),
            ("https://[fd00::1]", ""),
            ("https://[fd00::1]:6443", secure),
            ("https://[fd00::2]:6443", ""),
            ("https://very.odd", ""),
            ("https://127.0.0.1:6443", ""),
            ("https://[::1]:6443", ""),
            ("https://localhost:6443", ""),
        ] {
            assert_eq!(to(server), proxy, "{server}");
        }
        let named = chosen_proxy("https://10.96.0.1", Some("socks5://other:1080"), &environment).unwrap();
        assert_eq!(named, "socks5://other:1080/", "NO_PROXY does not apply to proxy-url");
        assert_eq!(chosen_proxy("https://api", Some(""), &[]).unwrap(), "");
    }

    #[test]
    fn invalid_proxy_url_is_reported_without_quoting_it() {
        let bad = |proxy_url, environment: &[(&str, &str)]| {
            let problem = chosen_proxy("https://api", proxy_url, environment).unwrap_err();
            assert!(!problem.contains("secret"), "{problem}");
            problem
        };
        let schemes = "proxy-url must begin with one of http://, https://, socks5://";
        assert_eq!(bad(Some("ftp://me:secret@proxy"), &[]), schemes);
        assert_eq!(bad(Some("me:secret@proxy"), &[]), schemes);
        assert_eq!(bad(Some("http://me:secret@pro xy"), &[]), "proxy-url is no address");
        assert_eq!(bad(None, &[("https_proxy", "http://sec ret")]), "https_proxy is no address");
    }
}
