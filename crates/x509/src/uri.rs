//! URLs, parsed and serialized as Go's `net/url` does: a certificate contains the serialized form.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::quote::quoted;

/// A parsed URL. The parts are unescaped, so they need not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uri {
    scheme: String,
    opaque: String,
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) host: Vec<u8>,
    path: Vec<u8>,
    raw_path: String,
    force_query: bool,
    raw_query: String,
    fragment: Vec<u8>,
    raw_fragment: String,
    omit_host: bool,
}

/// The part of a URL for which text is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Host,
    Zone,
    UserPassword,
    Fragment,
}

/// Whether a byte must be escaped in a part.
fn is_escaped(byte: u8, part: Part) -> bool {
    use Part::{Fragment, Host, Path, UserPassword, Zone};
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => false,
        b'!' | b'(' | b')' | b'*' => !matches!(part, Fragment | Zone | Host),
        b'"' | b'\'' | b'<' | b'>' | b'[' | b']' => !matches!(part, Zone | Host),
        b'$' | b'&' | b'+' | b'=' | b',' | b';' => {
            !matches!(part, Fragment | UserPassword | Zone | Host | Path)
        }
        b'/' | b'@' => !matches!(part, Fragment | Path),
        b':' => !matches!(part, Fragment | Zone | Host | Path),
        b'?' => part != Fragment,
        _ => true,
    }
}

fn hex(byte: u8) -> Option<u8> {
    // A hexadecimal digit is below 16.
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

fn escape_error(text: &[u8]) -> String {
    format!("invalid URL escape {}", quoted(&String::from_utf8_lossy(text)))
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'%' {
            if matches!(part, Part::Host | Part::Zone) && bytes[at] < 0x80 && is_escaped(bytes[at], part) {
                let character = quoted(&char::from(bytes[at]).to_string());
                return Err(format!("invalid character {character} in host name"));
            }
            unescaped.push(bytes[at]);
            at += 1;
            continue;
        }
        let escape = &bytes[at..bytes.len().min(at + 3)];
        let [_, high, low] = *escape else { return Err(escape_error(escape)) };
        let (Some(high), Some(low)) = (hex(high), hex(low)) else { return Err(escape_error(escape)) };
        let value = high << 4 | low;
        let is_refused = match part {
            Part::Host => high < 8 && escape != b"%25",
            Part::Zone => escape != b"%25" && value != b' ' && is_escaped(value, Part::Host),
            _ => false,
        };
        if is_refused {
            return Err(escape_error(escape));
        }
        unescaped.push(value);
        at += 3;
    }
    Ok(unescaped)
}

fn escape(bytes: &[u8], part: Part) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for byte in bytes {
        if is_escaped(*byte, part) {
            escaped.push_str(&format!("%{byte:02X}"));
        } else {
            escaped.push(char::from(*byte));
        }
    }
    escaped
}

/// Whether a raw part is a valid encoding. Parity: `validEncoded`.
fn is_valid_encoding(text: &str, part: Part) -> bool {
    text.bytes().all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !is_escaped(byte, part))
}

impl Uri {
    /// Parses ASCII text; the error is Go's.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut uri = Self::parse_without_fragment(before)
            .map_err(|cause| format!("parse {}: {cause}", quoted(before)))?;
        if !fragment.is_empty() {
            uri.fragment = unescape(fragment, Part::Fragment)
                .map_err(|cause| format!("parse {}: {cause}", quoted(text)))?;
            if escape(&uri.fragment, Part::Fragment) != fragment {
                fragment.clone_into(&mut uri.raw_fragment);
            }
        }
        Ok(uri)
    }

    fn parse_without_fragment(text: &str) -> Result<Self, String> {
        let mut uri = Self::default();
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text == "*" {
            uri.path = b"*".to_vec();
            return Ok(uri);
        }
        let (scheme, mut rest) = split_scheme(text)?;
        uri.scheme = scheme.to_ascii_lowercase();
        if rest.ends_with('?') && rest.matches('?').count() == 1 {
            uri.force_query = true;
            rest = &rest[..rest.len() - 1];
        } else if let Some((before, query)) = rest.split_once('?') {
            query.clone_into(&mut uri.raw_query);
            rest = before;
        }
        if !rest.starts_with('/') {
            if !uri.scheme.is_empty() {
                rest.clone_into(&mut uri.opaque);
                return Ok(uri);
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        if (!uri.scheme.is_empty() || !rest.starts_with("///"))
            && let Some(authority) = rest.strip_prefix("//")
        {
            let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
            rest = path;
            uri.set_authority(authority)?;
        } else if !uri.scheme.is_empty() && rest.starts_with('/') {
            uri.omit_host = true;
        }
        uri.path = unescape(rest, Part::Path)?;
        if escape(&uri.path, Part::Path) != rest {
            rest.clone_into(&mut uri.raw_path);
        }
        Ok(uri)
    }

    fn set_authority(&mut self, authority: &str) -> Result<(), String> {
        let Some((user, host)) = authority.rsplit_once('@') else {
            self.host = parse_host(&self.scheme, authority)?;
            return Ok(());
        };
        self.host = parse_host(&self.scheme, host)?;
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
        if !user.bytes().all(is_allowed) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        self.user = Some(match user.split_once(':') {
            None => (unescape(user, Part::UserPassword)?, None),
            Some((name, password)) => {
                (unescape(name, Part::UserPassword)?, Some(unescape(password, Part::UserPassword)?))
            }
        });
        Ok(())
    }

    fn escaped_path(&self) -> String {
        if !self.raw_path.is_empty() && is_valid_encoding(&self.raw_path, Part::Path) {
            return self.raw_path.clone();
        }
        if self.path == b"*" { "*".to_owned() } else { escape(&self.path, Part::Path) }
    }

    fn escaped_fragment(&self) -> String {
        if !self.raw_fragment.is_empty() && is_valid_encoding(&self.raw_fragment, Part::Fragment) {
            return self.raw_fragment.clone();
        }
        escape(&self.fragment, Part::Fragment)
    }

    fn has_authority(&self) -> bool {
        let is_named = !self.host.is_empty() || self.user.is_some();
        is_named || (!self.scheme.is_empty() && !self.omit_host)
    }
}

/// Scheme and rest; no scheme if the text does not begin with one.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    match host.rfind('[') {
        Some(0) => return parse_ip_literal(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let (Some(first), Some(last)) = (host.find(':'), host.rfind(':')) {
        let colon = if matches!(scheme, "http" | "https") { first } else { last };
        check_port(&host[colon..])?;
    }
    unescape(host, Part::Host)
}

fn parse_ip_literal(host: &str) -> Result<Vec<u8>, String> {
    let close = host.rfind(']').ok_or("missing ']' in host")?;
    let port = &host[close + 1..];
    check_port(port)?;
    let port = unescape(port, Part::Host)?;
    let name = &host[1..close];
    let name = match name.find("%25") {
        Some(zone) => [unescape(&name[..zone], Part::Host)?, unescape(&name[zone..], Part::Zone)?].concat(),
        None => unescape(name, Part::Host)?,
    };
    let text = String::from_utf8_lossy(&name).into_owned();
    if text.parse::<Ipv4Addr>().is_ok() {
        return Err("invalid IP-literal".to_owned());
    }
    let (address, zone) =
        text.split_once('%').map_or((&*text, None), |(address, zone)| (address, Some(zone)));
    if address.parse::<Ipv6Addr>().is_err() || zone.is_some_and(str::is_empty) {
        return Err(format!("invalid host: ParseAddr({}): unable to parse IP", quoted(&text)));
    }
    Ok([&b"["[..], &name, b"]", &port].concat())
}

fn check_port(port: &str) -> Result<(), String> {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if port.is_empty() || port.strip_prefix(':').is_some_and(is_port) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", quoted(port)))
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if self.opaque.is_empty() {
            if self.has_authority() {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    f.write_str("//")?;
                }
                if let Some((name, password)) = &self.user {
                    f.write_str(&escape(name, Part::UserPassword))?;
                    if let Some(password) = password {
                        write!(f, ":{}", escape(password, Part::UserPassword))?;
                    }
                    f.write_str("@")?;
                }
                f.write_str(&escape(&self.host, Part::Host))?;
            }
            let path = self.escaped_path();
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                f.write_str("/")?;
            }
            let is_first = self.scheme.is_empty() && !self.has_authority();
            if is_first && path.split('/').next().is_some_and(|segment| segment.contains(':')) {
                f.write_str("./")?;
            }
            f.write_str(&path)?;
        } else {
            f.write_str(&self.opaque)?;
        }
        if self.force_query || !self.raw_query.is_empty() {
            write!(f, "?{}", self.raw_query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.escaped_fragment())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts and what Go 1.26 makes of them; a `!` precedes an error.
    const CASES: &[(&str, &str)] = &[
        ("SPIFFE://Cluster.Local/ns/a", "spiffe://Cluster.Local/ns/a"),
        ("help://me@what:8080/where/when?why=true", "help://me@what:8080/where/when?why=true"),
        ("http://a/b c", "http://a/b%20c"),
        ("http://a/%7Eb%2f", "http://a/%7Eb%2f"),
        ("urn:X:y", "urn:X:y"),
        ("http://u:p%40@h/#f g", "http://u:p%40@h/#f%20g"),
        ("http://a?", "http://a?"),
        ("/only/path", "/only/path"),
        ("http:/x", "http:/x"),
        ("", ""),
        ("http://[::1]:80/", "http://[::1]:80/"),
        (":x", "!parse \":x\": missing protocol scheme"),
        ("a b:c", "!parse \"a b:c\": first path segment in URL cannot contain colon"),
        ("http://a b/", "!parse \"http://a b/\": invalid character \" \" in host name"),
        ("http://a/%zz", "!parse \"http://a/%zz\": invalid URL escape \"%zz\""),
        ("http://a:x/", "!parse \"http://a:x/\": invalid port \":x\" after host"),
        ("http://[1.2.3.4]/", "!parse \"http://[1.2.3.4]/\": invalid IP-literal"),
        ("a\u{7f}", "!parse \"a\\x7f\": net/url: invalid control character in URL"),
    ];

    #[test]
    fn urls_are_serialized_as_go_does() {
        for (text, wanted) in CASES {
            let found = Uri::parse(text).map_or_else(|error| format!("!{error}"), |uri| uri.to_string());
            assert_eq!(found, *wanted, "{text}");
        }
    }
}
