//! Subject alternative names.

use crate::der::{self, OBJECT_ID, Reader, SEQUENCE};
use crate::quote::quoted;
use crate::uri::Uri;

/// The subject alternative names of the kinds that certificates keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectAltNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// Email addresses.
    pub emails: Vec<String>,
    /// IP addresses, 4 or 16 bytes each.
    pub ips: Vec<Vec<u8>>,
    /// URIs, as Go serializes the parsed URL.
    pub uris: Vec<String>,
}

const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const IP: u8 = 0x87;

/// `2.5.29.17`.
pub(crate) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// An IPv4 address inside IPv6 begins so.
const IPV4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl SubjectAltNames {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.emails.is_empty() && self.ips.is_empty() && self.uris.is_empty()
    }

    /// Reads the value of the extension. Names of other kinds are skipped. Parity: `parseSANExtension`.
    pub(crate) fn parse(value: &[u8]) -> Result<Self, String> {
        const INVALID: &str = "x509: invalid subject alternative name";
        let mut names = Self::default();
        let content = Reader::new(value).expect(SEQUENCE).map_err(|_| format!("{INVALID}s"))?;
        let mut reader = Reader::new(content);
        while !reader.is_empty() {
            let name = reader.element().map_err(|_| INVALID.to_owned())?;
            if name.tag & 0x1f == 0x1f {
                // `cryptobyte` reads no tag numbers above 30.
                return Err(INVALID.to_owned());
            }
            let text = || {
                let is_ascii = name.content.is_ascii();
                is_ascii.then(|| String::from_utf8_lossy(name.content).into_owned())
            };
            let malformed = |kind: &str| format!("x509: SAN {kind} is malformed");
            match name.tag {
                EMAIL => names.emails.push(text().ok_or_else(|| malformed("rfc822Name"))?),
                DNS => names.dns.push(text().ok_or_else(|| malformed("dNSName"))?),
                URI => {
                    let text = text().ok_or_else(|| malformed("uniformResourceIdentifier"))?;
                    names.uris.push(uri(&text)?);
                }
                IP if matches!(name.content.len(), 4 | 16) => names.ips.push(name.content.to_vec()),
                IP => {
                    let length = name.content.len();
                    return Err(format!("x509: cannot parse IP address of length {length}"));
                }
                _ => {}
            }
        }
        Ok(names)
    }

    /// The extension of a certificate; `None` without names. Parity: `marshalSANs`.
    pub(crate) fn to_extension(&self, critical: bool) -> Option<Vec<u8>> {
        if self.is_empty() {
            return None;
        }
        let texts = |tag, texts: &[String]| -> Vec<Vec<u8>> {
            texts.iter().map(|text| der::element(tag, text.as_bytes())).collect()
        };
        let ips = self.ips.iter().map(|ip| {
            let ip = if ip.len() == 16 { ip.strip_prefix(&IPV4_MAPPED).unwrap_or(ip) } else { ip };
            der::element(IP, ip)
        });
        let names: Vec<_> = texts(DNS, &self.dns)
            .into_iter()
            .chain(texts(EMAIL, &self.emails))
            .chain(ips)
            .chain(texts(URI, &self.uris))
            .collect();
        Some(extension(SUBJECT_ALT_NAME, critical, &der::sequence(&names)))
    }
}

/// An extension of a certificate.
pub(crate) fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![der::element(OBJECT_ID, id)];
    if critical {
        parts.push(der::element(der::BOOLEAN, &[0xff]));
    }
    parts.push(der::element(der::OCTET_STRING, value));
    der::sequence(&parts)
}

fn uri(text: &str) -> Result<String, String> {
    let cannot = |cause: &str| format!("x509: cannot parse URI {}: {cause}", quoted(text));
    let uri = Uri::parse(text).map_err(|cause| cannot(&cause))?;
    if !is_domain_name(&uri.host) {
        return Err(cannot("invalid domain"));
    }
    Ok(uri.to_string())
}

/// Parity: `domainNameValid`.
fn is_domain_name(host: &[u8]) -> bool {
    host.is_empty()
        || host.iter().all(|byte| (33..=126).contains(byte))
            && host.split(|byte| *byte == b'.').all(|label| !label.is_empty())
}
