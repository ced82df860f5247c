//! PKCS #10 certificate requests.

use std::collections::BTreeSet;
use std::fmt;

use crate::der::{self, CONTEXT_0, DerError, INTEGER, OBJECT_ID, OCTET_STRING, Reader, SEQUENCE, SET};
use crate::name::Subject;
use crate::pem;
use crate::san::{SUBJECT_ALT_NAME, SubjectAltNames};
use crate::{Curve, der::BIT_STRING};

/// The longest request that is read. An API server stores objects of at most 1.5 MiB.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;

/// A parsed certificate request. Its signature is not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The DER of the part that is signed.
    pub signed: Vec<u8>,
    /// The subject.
    pub subject: Subject,
    /// The requested subject alternative names.
    pub alt_names: SubjectAltNames,
    /// The public key.
    pub public_key: PublicKey,
    /// The algorithm of the request's signature; `None` if it is unknown.
    pub signature_algorithm: Option<SignatureAlgorithm>,
    /// The request's signature.
    pub signature: Vec<u8>,
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// RSA.
    Rsa {
        /// The modulus, big-endian, without leading zeros.
        modulus: Vec<u8>,
        /// The public exponent.
        exponent: u64,
    },
    /// ECDSA.
    Ecdsa {
        /// The curve.
        curve: Curve,
        /// The uncompressed point.
        point: Vec<u8>,
    },
    /// Ed25519.
    Ed25519(Vec<u8>),
    /// DSA, or an algorithm that Go does not know: it never verifies a signature.
    Unsupported,
}

/// A hash function of a signature algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// MD5, which verifies nothing.
    Md5,
    /// SHA-1, which is accepted for certificate requests.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// A signature algorithm that Go knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// RSA PKCS #1 1.5.
    Rsa(Hash),
    /// RSA-PSS with a salt as long as the hash.
    RsaPss(Hash),
    /// DSA, which verifies nothing.
    Dsa,
    /// ECDSA.
    Ecdsa(Hash),
    /// Ed25519.
    Ed25519,
}

/// Why a request cannot be parsed; the text is Go's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError(String);

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RequestError {}

impl From<DerError> for RequestError {
    fn from(error: DerError) -> Self {
        Self(error.to_string())
    }
}

impl From<&str> for RequestError {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
pub(crate) const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
const MGF1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8];
/// `extensionRequest`.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
const NULL: &[u8] = &[5, 0];

impl CertificateRequest {
    /// Parses the first PEM block, as the API's `spec.request` contains it. Parity: `ParseCSR`.
    ///
    /// # Errors
    /// If there is no such block, it has another type, or its content is malformed.
    pub fn from_pem(text: &[u8]) -> Result<Self, RequestError> {
        if text.len() > MAX_REQUEST_BYTES {
            return Err("the certificate request is longer than 1 MiB".into());
        }
        match pem::blocks(text).next() {
            Some(block) if block.kind == "CERTIFICATE REQUEST" => Self::from_der(&block.bytes),
            _ => Err("PEM block type must be CERTIFICATE REQUEST".into()),
        }
    }

    /// Parses DER. Parity: `x509.ParseCertificateRequest`.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn from_der(request: &[u8]) -> Result<Self, RequestError> {
        let mut outer = Reader::new(request);
        let mut reader = Reader::new(outer.expect(SEQUENCE)?);
        let signed = reader.expect_element(SEQUENCE)?;
        let mut info = Reader::new(signed.content);
        der::integer_i64(info.expect(INTEGER)?)?;
        let subject = info.element()?;
        let key = KeyInfo::read(info.expect(SEQUENCE)?)?;
        let attributes = attributes(info.expect(CONTEXT_0)?)?;
        let algorithm = Algorithm::read(&mut reader)?;
        let signature = der::bit_string(reader.expect(BIT_STRING)?)?;
        if !outer.is_empty() {
            return Err("asn1: syntax error: trailing data".into());
        }
        let public_key = key.public_key()?;
        let subject = Subject::parse(subject.full)?;
        let alt_names = alt_names(&attributes)?;
        let signature_algorithm = algorithm.signature();
        let signed = signed.full.to_vec();
        Ok(Self { signed, subject, alt_names, public_key, signature_algorithm, signature })
    }
}

/// The elements of the attributes, whole.
fn attributes(content: &[u8]) -> Result<Vec<&[u8]>, RequestError> {
    let mut reader = Reader::new(content);
    let mut found = Vec::new();
    while !reader.is_empty() {
        let element = reader.element().map_err(|error| match error {
            der::TRUNCATED => DerError("asn1: syntax error: truncated sequence"),
            error => error,
        })?;
        found.push(element.full);
    }
    Ok(found)
}

/// An AlgorithmIdentifier.
struct Algorithm<'a> {
    id: &'a [u8],
    /// The whole element; empty if it is absent.
    parameters: &'a [u8],
}

impl<'a> Algorithm<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DerError> {
        Self::from_content(reader.expect(SEQUENCE)?)
    }

    fn from_content(content: &'a [u8]) -> Result<Self, DerError> {
        let mut reader = Reader::new(content);
        let id = der::object_id(reader.expect(OBJECT_ID)?)?;
        let parameters = if reader.is_empty() { &[][..] } else { reader.element()?.full };
        Ok(Self { id, parameters })
    }

    /// The signature algorithm. Parity: `getSignatureAlgorithmFromAI`.
    fn signature(&self) -> Option<SignatureAlgorithm> {
        use Hash::{Md5, Sha1, Sha256, Sha384, Sha512};
        use SignatureAlgorithm::{Dsa, Ecdsa, Ed25519, Rsa};
        match self.id {
            ED25519 => self.parameters.is_empty().then_some(Ed25519),
            RSA_PSS => self.pss_hash().map(SignatureAlgorithm::RsaPss),
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, number] => match number {
                4 => Some(Rsa(Md5)),
                5 => Some(Rsa(Sha1)),
                11 => Some(Rsa(Sha256)),
                12 => Some(Rsa(Sha384)),
                13 => Some(Rsa(Sha512)),
                _ => None,
            },
            // The ISO name of SHA-1 with RSA.
            [0x2b, 0x0e, 3, 2, 0x1d] => Some(Rsa(Sha1)),
            // SHA-1 and SHA-256 with DSA.
            [0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3] | [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 2] => Some(Dsa),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] => Some(Ecdsa(Sha1)),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, number] => match number {
                2 => Some(Ecdsa(Sha256)),
                3 => Some(Ecdsa(Sha384)),
                4 => Some(Ecdsa(Sha512)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The hash of RSA-PSS parameters that Go accepts: the same hash for the mask, a salt as long as the hash.
    fn pss_hash(&self) -> Option<Hash> {
        let mut reader = Reader::new(Reader::new(self.parameters).expect(SEQUENCE).ok()?);
        let explicit = |reader: &mut Reader<'a>, tag: u8| {
            if reader.is_at(tag) { reader.expect(tag).ok() } else { None }
        };
        let hash = Self::read(&mut Reader::new(explicit(&mut reader, 0xa0)?)).ok()?;
        let mask = Self::read(&mut Reader::new(explicit(&mut reader, 0xa1)?)).ok()?;
        let salt = der::integer_i64(Reader::new(explicit(&mut reader, 0xa2)?).expect(INTEGER).ok()?).ok()?;
        let trailer = match explicit(&mut reader, 0xa3) {
            Some(content) => der::integer_i64(Reader::new(content).expect(INTEGER).ok()?).ok()?,
            None => 1,
        };
        let mask_hash = Self::read(&mut Reader::new(mask.parameters)).ok()?;
        let is_null = |parameters: &[u8]| parameters.is_empty() || parameters == NULL;
        let is_accepted = is_null(hash.parameters)
            && is_null(mask_hash.parameters)
            && mask.id == MGF1
            && mask_hash.id == hash.id
            && trailer == 1;
        let (hash, length) = match hash.id {
            [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => (Hash::Sha256, 32),
            [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => (Hash::Sha384, 48),
            [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => (Hash::Sha512, 64),
            _ => return None,
        };
        (is_accepted && salt == length).then_some(hash)
    }
}

/// A SubjectPublicKeyInfo.
pub(crate) struct KeyInfo<'a> {
    algorithm: Algorithm<'a>,
    key: Vec<u8>,
}

impl<'a> KeyInfo<'a> {
    pub(crate) fn read(content: &'a [u8]) -> Result<Self, DerError> {
        let mut reader = Reader::new(content);
        let algorithm = Algorithm::read(&mut reader)?;
        Ok(Self { algorithm, key: der::bit_string(reader.expect(BIT_STRING)?)? })
    }

    /// Parity: `parsePublicKey`, for the algorithms that `getPublicKeyAlgorithmFromOID` knows.
    pub(crate) fn public_key(&self) -> Result<PublicKey, RequestError> {
        let parameters = self.algorithm.parameters;
        match self.algorithm.id {
            RSA if parameters != NULL => Err("x509: RSA key missing NULL parameters".into()),
            RSA => rsa_key(&self.key),
            ECDSA => {
                let id = Reader::new(parameters).expect(OBJECT_ID).and_then(der::object_id);
                let id = id.map_err(|_| RequestError::from("x509: invalid ECDSA parameters"))?;
                let curve = Curve::from_object_id(id).ok_or("x509: unsupported elliptic curve")?;
                // In the order and with the texts of `ecdsa.ParseUncompressedPublicKey`.
                if self.key.first() != Some(&4) {
                    return Err("ecdsa: invalid uncompressed public key".into());
                }
                if self.key.len() != 1 + 2 * curve.coordinate_bytes() {
                    return Err(RequestError(format!("invalid {curve:?} point encoding")));
                }
                if !curve.contains(&self.key) {
                    return Err(RequestError(format!("{curve:?} point not on curve")));
                }
                Ok(PublicKey::Ecdsa { curve, point: self.key.clone() })
            }
            ED25519 if !parameters.is_empty() => {
                Err("x509: Ed25519 key encoded with illegal parameters".into())
            }
            ED25519 if self.key.len() != 32 => Err("x509: wrong Ed25519 public key size".into()),
            ED25519 => Ok(PublicKey::Ed25519(self.key.clone())),
            DSA => dsa_key(&self.key, parameters),
            _ => Ok(PublicKey::Unsupported),
        }
    }
}

fn rsa_key(key: &[u8]) -> Result<PublicKey, RequestError> {
    let content =
        Reader::new(key).expect(SEQUENCE).map_err(|_| RequestError::from("x509: invalid RSA public key"))?;
    let mut reader = Reader::new(content);
    let modulus = reader.expect(INTEGER).and_then(der::integer);
    let modulus = modulus.map_err(|_| RequestError::from("x509: invalid RSA modulus"))?;
    let exponent = reader.expect(INTEGER).and_then(der::integer_i64);
    let exponent = exponent.map_err(|_| RequestError::from("x509: invalid RSA public exponent"))?;
    if modulus[0] & 0x80 != 0 || modulus == [0] {
        return Err("x509: RSA modulus is not a positive number".into());
    }
    let Some(exponent) = u64::try_from(exponent).ok().filter(|exponent| *exponent > 0) else {
        return Err("x509: RSA public exponent is not a positive number".into());
    };
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus).to_vec();
    Ok(PublicKey::Rsa { modulus, exponent })
}

/// Go checks a DSA key and then refuses its signatures.
fn dsa_key(key: &[u8], parameters: &[u8]) -> Result<PublicKey, RequestError> {
    let y = Reader::new(key).expect(INTEGER).and_then(der::integer);
    let y = y.map_err(|_| RequestError::from("x509: invalid DSA public key"))?;
    let numbers = || {
        let mut reader = Reader::new(Reader::new(parameters).expect(SEQUENCE)?);
        let mut number = || reader.expect(INTEGER).and_then(der::integer);
        Ok::<_, DerError>([number()?, number()?, number()?])
    };
    let [p, q, g] = numbers().map_err(|_| RequestError::from("x509: invalid DSA parameters"))?;
    if [y, p, q, g].iter().any(|number| number[0] & 0x80 != 0 || *number == [0]) {
        return Err("x509: zero or negative DSA parameter".into());
    }
    Ok(PublicKey::Unsupported)
}

/// The subject alternative names of the requested extensions. Parity: `parseCSRExtensions`.
fn alt_names(attributes: &[&[u8]]) -> Result<SubjectAltNames, RequestError> {
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    for attribute in attributes {
        let Some(value) = extension_request(attribute) else { continue };
        let content = Reader::new(value).expect(SEQUENCE)?;
        for extension in extensions(content)? {
            if !ids.insert(extension.id) {
                return Err("x509: certificate request contains duplicate requested extensions".into());
            }
            found.push(extension);
        }
    }
    let names = found.iter().find(|extension| extension.id == SUBJECT_ALT_NAME);
    names.map_or(Ok(SubjectAltNames::default()), |names| {
        SubjectAltNames::parse(names.value).map_err(RequestError)
    })
}

/// The first value of an attribute that requests extensions. Other and malformed attributes are skipped.
fn extension_request(attribute: &[u8]) -> Option<&[u8]> {
    let mut outer = Reader::new(attribute);
    let mut reader = Reader::new(outer.expect(SEQUENCE).ok()?);
    let id = der::object_id(reader.expect(OBJECT_ID).ok()?).ok()?;
    let mut values = Reader::new(reader.expect(SET).ok()?);
    let first = values.element().ok()?;
    while !values.is_empty() {
        values.element().ok()?;
    }
    (id == EXTENSION_REQUEST && outer.is_empty()).then_some(first.full)
}

/// A requested extension, or one of a certificate.
pub(crate) struct Extension<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// The extensions in the content of a SEQUENCE.
pub(crate) fn extensions(content: &[u8]) -> Result<Vec<Extension<'_>>, DerError> {
    let mut reader = Reader::new(content);
    let mut found = Vec::new();
    while !reader.is_empty() {
        let mut extension = Reader::new(reader.expect(SEQUENCE).map_err(|error| match error {
            der::MISMATCH => DerError("asn1: structure error: sequence tag mismatch"),
            error => error,
        })?);
        let id = der::object_id(extension.expect(OBJECT_ID)?)?;
        if extension.is_at(der::BOOLEAN) {
            der::boolean(extension.expect(der::BOOLEAN)?)?;
        }
        let value = extension.expect(OCTET_STRING)?;
        found.push(Extension { id, value });
    }
    Ok(found)
}

impl PublicKey {
    /// An RSA key in the encoding of PKCS #1.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn from_pkcs1(key: &[u8]) -> Result<Self, RequestError> {
        rsa_key(key)
    }

    /// The SubjectPublicKeyInfo, as Go writes it; `None` if certificates cannot contain the key.
    #[must_use]
    pub fn to_der(&self) -> Option<Vec<u8>> {
        let id = |id: &[u8]| der::element(OBJECT_ID, id);
        let (algorithm, key) = match self {
            Self::Rsa { modulus, exponent } => {
                let numbers =
                    [der::unsigned_integer(modulus), der::unsigned_integer(&exponent.to_be_bytes())];
                (der::sequence(&[id(RSA), NULL.to_vec()]), der::sequence(&numbers))
            }
            Self::Ecdsa { curve, point } => {
                (der::sequence(&[id(ECDSA), id(curve.object_id())]), point.clone())
            }
            Self::Ed25519(key) => (der::sequence(&[id(ED25519)]), key.clone()),
            Self::Unsupported => return None,
        };
        Some(der::sequence(&[algorithm, der::bits(&key)]))
    }
}
