//! Validation of names, keys and values.
//!
//! The messages equal kube-apiserver's: people search for them, and programs quote them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                          start and end with an alphanumeric character";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                               alphabetic character, and end with an alphanumeric character";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                              '.', and must start and end with an alphanumeric character";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                          and must start and end with an alphanumeric character";
const CONFIG_KEY: &str = "[-._a-zA-Z0-9]+";
const CONFIG_KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";

/// Error messages; empty if the text is valid.
pub(crate) type NameErrors = Vec<String>;

/// A rule with its examples and regex.
fn rule(text: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn too_long(length_max: usize) -> String {
    format!("must be no more than {length_max} characters")
}

/// An RFC 1123 label.
pub(crate) fn label(text: &str) -> NameErrors {
    let mut errors = NameErrors::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text) {
        errors.push(if text.split('.').all(is_label) {
            "must not contain dots".to_owned()
        } else {
            rule(LABEL_RULE, LABEL, &["my-name", "123-abc"])
        });
    }
    errors
}

/// An RFC 1035 label.
pub(crate) fn label_1035(text: &str) -> NameErrors {
    let mut errors = NameErrors::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_label(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        errors.push(rule(LABEL_1035_RULE, LABEL_1035, &["my-name", "abc-123"]));
    }
    errors
}

/// An RFC 1123 subdomain.
pub(crate) fn subdomain(text: &str) -> NameErrors {
    let mut errors = NameErrors::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if !text.split('.').all(is_label) {
        errors.push(rule(SUBDOMAIN_RULE, SUBDOMAIN, &["example.com"]));
    }
    errors
}

/// A path segment.
pub(crate) fn path_segment(text: &str) -> NameErrors {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    path_segment_prefix(text)
}

/// The beginning of a path segment.
pub(crate) fn path_segment_prefix(text: &str) -> NameErrors {
    let forbidden = ["/", "%"].into_iter().filter(|part| text.contains(part));
    forbidden.map(|part| format!("may not contain '{part}'")).collect()
}

/// A qualified name: a label or annotation key, or a finalizer, with an optional domain prefix.
pub(crate) fn qualified(text: &str) -> NameErrors {
    let name_rule = || rule(KEY_RULE, KEY, &["MyName", "my.name", "123-abc"]);
    let mut errors = NameErrors::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(subdomain(prefix).into_iter().map(|error| format!("prefix part {error}")));
            }
            name
        }
        _ => {
            let example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {example}", name_rule())];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63)));
    }
    if !is_name_part(name) {
        errors.push(format!("name part {}", name_rule()));
    }
    errors
}

/// The value of a label.
pub(crate) fn label_value(text: &str) -> NameErrors {
    let mut errors = NameErrors::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !text.is_empty() && !is_name_part(text) {
        errors.push(rule(VALUE_RULE, &format!("({KEY})?"), &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// A data key of a ConfigMap or Secret.
pub(crate) fn config_key(text: &str) -> NameErrors {
    let mut errors = NameErrors::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        errors.push(rule(CONFIG_KEY_RULE, CONFIG_KEY, &["key.name", "KEY_NAME", "key-name"]));
    }
    match text {
        "." | ".." => errors.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// The name of a port.
pub(crate) fn port_name(text: &str) -> NameErrors {
    let mut errors = NameErrors::new();
    let mut add = |wrong: bool, error: String| errors.extend(wrong.then_some(error));
    add(text.len() > 15, too_long(15));
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let charset = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
    add(text.is_empty() || !text.bytes().all(plain), charset.to_owned());
    add(!text.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)".to_owned());
    add(text.contains("--"), "must not contain consecutive hyphens".to_owned());
    add(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen".to_owned());
    errors
}

/// A valid port number.
pub(crate) fn port_number(number: i64) -> NameErrors {
    if (1..=65_535).contains(&number) {
        return NameErrors::new();
    }
    vec!["must be between 1 and 65535, inclusive".to_owned()]
}

/// A domain-prefixed path.
pub(crate) fn domain_path(text: &str) -> NameErrors {
    match text.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            if path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
                return subdomain(domain);
            }
            vec!["Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')".to_owned()]
        }
        _ => vec!["must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned()],
    }
}

/// An IP address.
pub(crate) fn ip(text: &str) -> NameErrors {
    if text.parse::<IpAddr>().is_ok() {
        return NameErrors::new();
    }
    vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
}

/// A CIDR.
pub(crate) fn cidr(text: &str) -> NameErrors {
    let range = text.split_once('/').and_then(|(network, bits)| {
        let (network, bits): (IpAddr, u8) = (network.parse().ok()?, bits.parse().ok()?);
        Some(bits <= if network.is_ipv4() { 32 } else { 128 })
    });
    if range == Some(true) {
        return NameErrors::new();
    }
    vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()]
}

/// An IP address in canonical form.
pub(crate) fn canonical_ip(text: &str) -> NameErrors {
    let Some(address) = lenient_ip(text) else { return ip(text) };
    if text.parse::<IpAddr>().is_err() {
        return vec!["must not have leading 0s".to_owned()];
    }
    if is_mapped(address) {
        return vec!["must not be an IPv4-mapped IPv6 address".to_owned()];
    }
    canonical(text, &address.to_string())
}

/// A CIDR in canonical form.
pub(crate) fn canonical_cidr(text: &str) -> NameErrors {
    let Some((address, bits)) = lenient_cidr(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let (network, length) = text.split_once('/').unwrap_or_default();
    if network.parse::<IpAddr>().is_err() || length != bits.to_string() {
        return vec!["must not have leading 0s in IP or prefix length".to_owned()];
    }
    if is_mapped(address) {
        return vec!["must not have an IPv4-mapped IPv6 address".to_owned()];
    }
    if network_address(address, bits) != address {
        return vec!["must not have bits set beyond the prefix length".to_owned()];
    }
    canonical(text, &format!("{address}/{bits}"))
}

/// Whether the CIDR is one of IPv4 or of IPv6; `None` if it is invalid.
pub(crate) fn cidr_is_ipv4(text: &str) -> Option<bool> {
    lenient_cidr(text).map(|(address, _)| address.is_ipv4())
}

fn canonical(text: &str, canonical: &str) -> NameErrors {
    match text == canonical {
        true => NameErrors::new(),
        false => vec![format!("must be in canonical form ({canonical:?})")],
    }
}

/// An address with or without leading zeros.
fn lenient_ip(text: &str) -> Option<IpAddr> {
    let octet = |part: &str| {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u8>().ok().filter(|_| is_number)
    };
    let octets: Option<Vec<u8>> = text.split('.').map(octet).collect();
    match octets.and_then(|octets| <[u8; 4]>::try_from(octets).ok()) {
        Some(octets) => Some(IpAddr::V4(Ipv4Addr::from(octets))),
        None => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
    }
}

/// The address and the prefix length of a CIDR, with or without leading zeros.
fn lenient_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address = lenient_ip(address)?;
    let bits: u8 = bits.parse().ok().filter(|_| bits.bytes().all(|byte| byte.is_ascii_digit()))?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// The address without the bits beyond the prefix length.
fn network_address(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_name_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.bytes().all(inner) && edge(text.bytes().next()) && edge(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_have_no_errors() {
        assert!(subdomain("a.b-c").is_empty());
        assert!(label("a-1").is_empty());
        assert!(qualified("example.com/My_Name").is_empty());
        assert!(label_value("").is_empty());
        assert!(config_key("key.NAME").is_empty());
        assert!(path_segment("system:controller:x").is_empty());
        assert!(port_name("http-2").is_empty());
    }

    #[test]
    fn every_error_is_reported() {
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert!(label("A")[0].ends_with(
            "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        ));
        assert!(subdomain("a..b")[0].contains("(e.g. 'example.com', regex"));
        assert_eq!(qualified("a/b/c").len(), 1);
        assert_eq!(qualified("").len(), 2);
        assert_eq!(label_value("-").len(), 1);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(port_name("Bad--name-that-is-long").len(), 3);
    }

    #[test]
    fn addresses_and_ranges_must_be_canonical() {
        for valid in ["10.0.0.1", "fd00::1", "::", "0.0.0.0"] {
            assert!(canonical_ip(valid).is_empty(), "{valid}");
        }
        assert!(canonical_ip("x")[0].starts_with("must be a valid IP address"));
        assert!(canonical_ip("1.2.3.256")[0].starts_with("must be a valid IP address"));
        assert_eq!(canonical_ip("010.0.0.1"), ["must not have leading 0s"]);
        assert_eq!(canonical_ip("::ffff:1.2.3.4"), ["must not be an IPv4-mapped IPv6 address"]);
        assert_eq!(canonical_ip("FD00:0::1"), ["must be in canonical form (\"fd00::1\")"]);
        for valid in ["10.0.0.0/8", "0.0.0.0/0", "fd00::/64", "::/0", "fd00::1/128"] {
            assert!(canonical_cidr(valid).is_empty(), "{valid}");
        }
        for invalid in ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "10.0.0.0/+8", "x/8"] {
            assert!(canonical_cidr(invalid)[0].starts_with("must be a valid CIDR value"), "{invalid}");
        }
        assert_eq!(canonical_cidr("10.0.0.0/08"), ["must not have leading 0s in IP or prefix length"]);
        assert_eq!(canonical_cidr("::ffff:10.0.0.0/104"), ["must not have an IPv4-mapped IPv6 address"]);
        assert_eq!(canonical_cidr("10.0.0.1/8"), ["must not have bits set beyond the prefix length"]);
        assert_eq!(canonical_cidr("FD00::/64"), ["must be in canonical form (\"fd00::/64\")"]);
    }
}
