//! Which proxy stands between us and the server: the kubeconfig's, or else the one that the environment names.
//!
//! Addresses of proxies may hold a password and are never quoted.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// What a kubeconfig may name.
const SCHEMES: &[&str] = &["http", "https", "socks5"];
/// What the environment may name, where other programs look as well.
const SCHEMES_OF_ENVIRONMENT: &[&str] = &["http", "https", "socks5", "socks5h"];

/// The proxy on the way to a server, or what is wrong with the one that was named.
///
/// Parity: `client-go` takes a kubeconfig's word, and without one looks where Go's HTTP client looks.
pub(super) fn on_the_way_to(
    server: &Uri,
    proxy_url: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Intercept>, String> {
    if let Some(address) = proxy_url.filter(|address| !address.is_empty()) {
        return through("proxy-url", address, SCHEMES, server, "");
    }
    let variable = |names: [&'static str; 2]| {
        let value = |name| variable(name).filter(|value| !value.is_empty());
        names.into_iter().find_map(|name| Some((name, value(name)?)))
    };
    let https = server.scheme_str() == Some("https");
    let names = if https { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] };
    let Some((name, address)) = variable(names).filter(|_| !is_here(server)) else { return Ok(None) };
    let address = if address.contains("://") { address } else { format!("http://{address}") };
    let exceptions = variable(["NO_PROXY", "no_proxy"]).map(|(_, list)| list).unwrap_or_default();
    through(name, &address, SCHEMES_OF_ENVIRONMENT, server, &for_port_of(server, &exceptions))
}

fn through(
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

/// Nobody puts a proxy between a host and itself.
fn is_here(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The exceptions that concern the server's port, as the matcher wants them: without ports and brackets.
fn for_port_of(server: &Uri, exceptions: &str) -> String {
    let https = server.scheme_str() == Some("https");
    let port = server.port_u16().unwrap_or(if https { 443 } else { 80 });
    let concerning = exceptions.split(',').map(str::trim).filter_map(|exception| {
        let host = match exception.rsplit_once(':') {
            // A bare IPv6 address has colons and no port.
            Some((host, _)) if host.contains(':') && !host.ends_with(']') => exception,
            Some((host, for_port)) => Some(host).filter(|_| for_port.parse() == Ok(port))?,
            None => exception,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(if host.starts_with("*.") { &host[1..] } else { host })
    });
    concerning.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(server: &str, proxy_url: Option<&str>, environment: &[(&str, &str)]) -> Result<String, String> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = on_the_way_to(&server.parse().unwrap(), proxy_url, variable)?;
        Ok(proxy.map(|proxy| proxy.uri().to_string()).unwrap_or_default())
    }

    /// Proves RUN-3.
    #[test]
    fn a_kubeconfig_s_word_counts_and_then_the_environment_s() {
        let environment = [
            ("HTTPS_PROXY", "http://user:secret@secure:3128"),
            ("http_proxy", "plain:3128"),
            ("NO_PROXY", "10.96.0.0/12, .svc,cluster.local, quiet:6443,[fd00::1]:443,fd00::2,*.odd"),
        ];
        let to = |server: &str| chosen(server, None, &environment).unwrap();
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
        let named = chosen("https://10.96.0.1", Some("socks5://other:1080"), &environment).unwrap();
        assert_eq!(named, "socks5://other:1080/", "what the kubeconfig names has no exceptions");
        assert_eq!(chosen("https://api", Some(""), &[]).unwrap(), "");
    }

    #[test]
    fn a_bad_address_is_told_and_not_quoted() {
        let bad = |proxy_url, environment: &[(&str, &str)]| {
            let problem = chosen("https://api", proxy_url, environment).unwrap_err();
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
