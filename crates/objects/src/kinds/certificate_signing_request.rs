//! CertificateSigningRequests: who requests what, their conditions, and when an issued certificate expires.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, PAD};
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use super::full_meta::impl_full_meta;
use crate::meta::{null_is_default, null_is_empty};
use crate::protobuf::FullMessage;
use crate::{Annotations, ExtraMeta, InternedStr, Kind, ObjectMeta, RawJson, Resource, Time, WireMeta};

/// A CertificateSigningRequest.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct CertificateSigningRequest {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// `spec.signerName`.
    pub signer_name: InternedStr,
    /// `spec`, which updates of the status send back.
    pub raw_spec: RawJson,
    /// `status.conditions`.
    pub conditions: Box<[CertificateSigningRequestCondition]>,
    /// Whether `status.certificate` is not empty.
    pub is_issued: bool,
    /// `notAfter` of the issued certificate; `None` if there is none or it is malformed.
    pub not_after: Option<Time>,
}

/// The spec of a CertificateSigningRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertificateSigningRequestSpec {
    /// The PEM text of the request.
    #[serde(deserialize_with = "null_is_default")]
    pub request: Pem,
    /// The usages, by their names in the API.
    #[serde(deserialize_with = "null_is_default")]
    pub usages: Vec<String>,
    /// The requested life of the certificate.
    pub expiration_seconds: Option<i32>,
    /// The user who created the object.
    #[serde(deserialize_with = "null_is_default")]
    pub username: String,
    /// The UID of that user.
    #[serde(deserialize_with = "null_is_default")]
    pub uid: String,
    /// The groups of that user.
    #[serde(deserialize_with = "null_is_default")]
    pub groups: Vec<String>,
    /// Further attributes of that user.
    #[serde(deserialize_with = "null_is_default")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// A condition of a CertificateSigningRequest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSigningRequestCondition {
    /// The condition type.
    pub r#type: InternedStr,
    /// The status.
    pub status: InternedStr,
    /// When the condition was last updated.
    pub last_update_time: Option<Time>,
    /// All fields as the server sent them: updates send them back unchanged.
    pub raw: RawJson,
}

impl CertificateSigningRequest {
    /// The spec.
    ///
    /// # Errors
    /// If a field of it has another type than in the API. The text does not quote the object.
    pub fn spec(&self) -> Result<CertificateSigningRequestSpec, &'static str> {
        serde_json::from_str(self.raw_spec.as_str()).map_err(|_| "its spec cannot be decoded")
    }

    /// The conditions as they were received, and one more.
    #[must_use]
    pub fn conditions_and(&self, added: Value) -> Value {
        let parse = |raw: &RawJson| serde_json::from_str(raw.as_str()).unwrap_or_default();
        self.conditions.iter().map(|condition| parse(&condition.raw)).chain([added]).collect()
    }
}

impl_full_meta!(CertificateSigningRequest, WHOLE);

/// All fields, in protobuf.
static WHOLE: LazyLock<FullMessage> =
    LazyLock::new(|| FullMessage::of(&CertificateSigningRequest::RESOURCE, ""));

impl Kind for CertificateSigningRequest {
    const RESOURCE: Resource = Resource::built_in("certificates.k8s.io", "CertificateSigningRequest");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default)]
    spec: RawJson,
    #[serde(default, deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Box<[CertificateSigningRequestCondition]>,
    #[serde(deserialize_with = "null_is_default")]
    certificate: Pem,
}

impl<'de> Deserialize<'de> for CertificateSigningRequestCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Fields {
            #[serde(deserialize_with = "null_is_default")]
            r#type: InternedStr,
            #[serde(deserialize_with = "null_is_default")]
            status: InternedStr,
            last_update_time: Option<Time>,
        }
        let raw = RawJson::deserialize(deserializer)?;
        let fields: Fields = serde_json::from_str(raw.as_str()).map_err(D::Error::custom)?;
        Ok(Self {
            r#type: fields.r#type,
            status: fields.status,
            last_update_time: fields.last_update_time,
            raw,
        })
    }
}

/// PEM text, base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pem(pub Vec<u8>);

impl<'de> Deserialize<'de> for Pem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        BASE64_STANDARD.decode(&*text).map(Self).map_err(|_| D::Error::custom("invalid base64"))
    }
}

impl From<Wire> for CertificateSigningRequest {
    fn from(wire: Wire) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Signer {
            signer_name: InternedStr,
        }
        let certificate = wire.status.certificate.0;
        let signer: Signer = serde_json::from_str(wire.spec.as_str()).unwrap_or_default();
        let (meta, extra_meta) = wire.metadata.split();
        Self {
            meta,
            extra_meta,
            signer_name: signer.signer_name,
            raw_spec: wire.spec,
            conditions: wire.status.conditions,
            is_issued: !certificate.is_empty(),
            not_after: first_pem_block(&certificate).and_then(|der| not_after(&der)),
        }
    }
}

/// `notAfter` of the first of one or more certificates; `None` if one of them is malformed.
fn not_after(mut der: &[u8]) -> Option<Time> {
    let mut first = None;
    while !der.is_empty() {
        let (rest, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let not_after = certificate.validity().not_after.timestamp();
        first = first.or(Some(Time::from_unix_seconds(not_after)));
        der = rest;
    }
    first
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// Go does not check the bits after the last byte.
const PEM_BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, PAD.with_decode_allow_trailing_bits(true));

/// The content of the first well-formed PEM block, whatever its type. Parity: Go's `pem.Decode`.
///
/// A block begins at the last BEGIN before an END, so a line belongs to one block at most and the time is linear.
fn first_pem_block(pem: &[u8]) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).collect();
    let mut begin = None;
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with(BEGIN) {
            begin = Some(at);
        } else if line.starts_with(END)
            && let Some(block) = begin.take().and_then(|begin| pem_block(&lines[begin..=at]))
        {
            return Some(block);
        }
    }
    None
}

/// The content of the PEM block of these lines, from BEGIN to END.
fn pem_block(lines: &[&[u8]]) -> Option<Vec<u8>> {
    let [begin, body @ .., end] = lines else { return None };
    let kind = begin.strip_prefix(BEGIN)?.strip_suffix(DASHES)?;
    if end.strip_prefix(END)?.strip_suffix(DASHES)? != kind {
        return None;
    }
    let headers = body.iter().take_while(|line| line.contains(&b':')).count();
    let body = &body[headers..];
    // Go wants a line between headers and END, which may be empty.
    if headers > 0 && body.is_empty() {
        return None;
    }
    let base64 = body.iter().flat_map(|line| line.iter());
    let base64: Vec<u8> = base64.copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    PEM_BASE64.decode(base64).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A self-signed certificate; notAfter is 2020-01-02T00:00:00Z.
    const EXPIRED: &str = include_str!("testdata/expired.pem");
    /// A self-signed certificate; notAfter is 2100-01-01T00:00:00Z.
    const VALID: &str = include_str!("testdata/valid.pem");

    fn request(certificate: &str) -> CertificateSigningRequest {
        let status = json!({"certificate": BASE64_STANDARD.encode(certificate)});
        serde_json::from_value(json!({"metadata": {"name": "r"}, "status": status})).unwrap()
    }

    fn expires(certificate: &str) -> Option<String> {
        request(certificate).not_after.map(|time| time.to_string())
    }

    /// Proves CSRC-18.
    #[test]
    fn expiry_is_read_from_the_first_well_formed_pem_block() {
        let expired = Some("2020-01-02T00:00:00Z".to_owned());
        assert_eq!(expires(EXPIRED), expired);
        assert_eq!(expires(&EXPIRED.replace("CERTIFICATE", "ANYTHING")), expired, "any block type");
        assert_eq!(expires(&format!("text\n-----BEGIN X-----\n!\n-----END X-----\n{EXPIRED}")), expired);
        assert_eq!(expires(&EXPIRED.replace("-----END CERTIFICATE-----", "-----END OTHER-----")), None);
        assert_eq!(expires("no PEM at all"), None);
        assert_eq!(expires("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"), None);
        assert!(request("no PEM at all").is_issued);
        assert_eq!(expires(""), None);
        assert!(!request("").is_issued);
    }

    /// Proves CSRC-18.
    #[test]
    fn pem_is_read_like_in_go() {
        let expired = expires(EXPIRED);
        assert!(expired.is_some());
        for (what, certificate) in [
            ("headers", EXPIRED.replacen("-----\n", "-----\nProc-Type: 4\nA: b\n\n", 1)),
            ("headers without an empty line", EXPIRED.replacen("-----\n", "-----\nA: b\n", 1)),
            ("a block of headers only", format!("-----BEGIN X-----\nA: b\n-----END X-----\n{EXPIRED}")),
            ("a BEGIN without END", format!("-----BEGIN X-----\naGVsbG8=\n{EXPIRED}")),
            ("an END without BEGIN", format!("-----END X-----\n-----END CERTIFICATE-----\n{EXPIRED}")),
            ("another type at the END", format!("-----BEGIN X-----\n-----END Y-----\n{EXPIRED}")),
            ("text after the block", format!("{EXPIRED}text\n")),
            ("other line ends", EXPIRED.replace('\n', " \r\n")),
            ("trailing bits", EXPIRED.replace("7Lc=\n", "7Ld=\n")),
        ] {
            assert_ne!(certificate, EXPIRED, "{what}");
            assert_eq!(expires(&certificate), expired, "{what}");
        }
        assert_eq!(expires(&EXPIRED.replace("=\n", "=\n-----END CERTIFICATE----- text\n")), None);
    }

    /// A quadratic search would take minutes.
    #[test]
    fn pem_is_read_in_linear_time() {
        let expired = expires(EXPIRED);
        assert!(expired.is_some());
        let (begin, end) = ("-----BEGIN CERTIFICATE-----\n", "-----END X-----\n");
        for before in [begin, end, "-----BEGIN X-----\n!\n-----END X-----\n"] {
            assert_eq!(expires(&(before.repeat(50_000) + EXPIRED)), expired, "{before}");
        }
    }

    /// Proves CSRC-49.
    #[test]
    fn later_blocks_are_not_read_and_trailing_bytes_make_a_block_malformed() {
        assert_eq!(
            expires(&format!("{EXPIRED}{VALID}")),
            expires(EXPIRED),
            "an expired leaf with a valid CA"
        );
        assert_eq!(expires(&format!("{VALID}{EXPIRED}")), Some("2100-01-01T00:00:00Z".to_owned()));
        let der = |pem: &str| first_pem_block(pem.as_bytes()).unwrap();
        let block = |der: &[u8]| {
            format!(
                "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
                BASE64_STANDARD.encode(der)
            )
        };
        assert_eq!(
            expires(&block(&[der(EXPIRED), der(VALID)].concat())),
            expires(EXPIRED),
            "two in one block"
        );
        assert_eq!(expires(&block(&[der(EXPIRED), vec![1, 2, 3]].concat())), None);
    }

    #[test]
    fn conditions_are_decoded_and_null_is_absent() {
        let request: CertificateSigningRequest = serde_json::from_value(json!({
            "metadata": {"name": "r"},
            "status": {"certificate": null, "conditions": [
                {"type": "Approved", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z"},
                {"type": "Failed", "lastUpdateTime": null}]},
        }))
        .unwrap();
        let found: Vec<_> = request.conditions.iter().map(|condition| condition.r#type.as_str()).collect();
        assert_eq!(found, ["Approved", "Failed"]);
        assert!(request.conditions[0].last_update_time.is_some());
        assert!(request.conditions[1].last_update_time.is_none() && !request.is_issued);
    }
}
