//! Signs service account tokens with the key that the API server trusts.
//!
//! `jsonwebtoken` is not suitable: it has no ES512, which the original accepts. Without it, two base64 parts
//! and a signature remain.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use keleustes_objects::SecretBytes;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use serde_json::Value;
use thiserror::Error;

/// Why a key cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    /// Nothing in the file is a private key of a known format.
    #[error("data does not contain a valid RSA or ECDSA private key")]
    NoKey,
    /// There is a private key, but it cannot sign tokens.
    #[error(
        "unsupported key type: only RSA and ECDSA with P-256, P-384 or P-521 sign service account tokens"
    )]
    Unsupported,
    /// The key is too short to be safe.
    #[error("unsupported key: an RSA key below 2048 bits does not sign service account tokens")]
    RsaTooSmall,
}

/// HMAC-SHA256 (RFC 2104) of a message, for signatures with a shared secret.
#[must_use]
pub fn hmac_sha256(key: &SecretBytes, message: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.expose()), message);
    tag.as_ref().try_into().unwrap_or_else(|_| unreachable!("SHA-256 has 32 bytes"))
}

/// SHA-256 of bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().try_into().unwrap_or_else(|_| unreachable!("SHA-256 has 32 bytes"))
}

/// A private key and the header that all its tokens share.
pub struct Signer {
    key: PrivateKey,
    header_base64: String,
}

enum PrivateKey {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(EcdsaKeyPair),
}

const CURVES: [(&EcdsaSigningAlgorithm, &str); 3] = [
    (&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256"),
    (&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384"),
    (&ECDSA_P521_SHA512_FIXED_SIGNING, "ES512"),
];

impl Signer {
    /// Uses the first private key in a PEM file, and no other if that one cannot sign tokens. Other blocks, and blocks
    /// that cannot be decoded, are skipped.
    ///
    /// # Errors
    /// If there is no private key, or one of a type that cannot sign tokens.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        for (kind, der) in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).filter_map(Result::ok) {
            let found = match kind {
                SectionKind::RsaPrivateKey => rsa(RsaKeyPair::from_der(&der).ok()),
                SectionKind::EcPrivateKey => {
                    ecdsa(|curve| EcdsaKeyPair::from_private_key_der(curve, &der).ok())
                }
                SectionKind::PrivateKey => rsa(RsaKeyPair::from_pkcs8(&der).ok())
                    .or_else(|| ecdsa(|curve| EcdsaKeyPair::from_pkcs8(curve, &der).ok())),
                _ => continue,
            };
            match found {
                Some((key, algorithm)) => return Self::new(key, algorithm),
                None => unusable_key(kind, &der).map_or(Ok(()), Err)?,
            }
        }
        Err(KeyError::NoKey)
    }

    fn new(key: PrivateKey, algorithm: &str) -> Result<Self, KeyError> {
        let public: PublicKeyX509Der<'_> = match &key {
            PrivateKey::Rsa(pair) => pair.public_key().as_der(),
            PrivateKey::Ecdsa(pair) => pair.public_key().as_der(),
        }
        .map_err(|_| KeyError::Unsupported)?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, public.as_ref());
        let key_id = BASE64_URL_SAFE_NO_PAD.encode(digest);
        let header = format!(r#"{{"alg":"{algorithm}","kid":"{key_id}"}}"#);
        Ok(Self { key, header_base64: BASE64_URL_SAFE_NO_PAD.encode(header) })
    }

    /// Signs claims as a compact JWS.
    ///
    /// # Errors
    /// If signing fails.
    pub fn sign(&self, claims: &Value) -> Result<String, String> {
        let claims_base64 = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
        let message = format!("{}.{claims_base64}", self.header_base64);
        let random = SystemRandom::new();
        let signature = match &self.key {
            PrivateKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).map(|()| signature)
            }
            PrivateKey::Ecdsa(pair) => {
                pair.sign(&random, message.as_bytes()).map(|signature| signature.as_ref().to_vec())
            }
        }
        .map_err(|_| "signing with the private key failed".to_owned())?;
        Ok(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn rsa(pair: Option<RsaKeyPair>) -> Option<(PrivateKey, &'static str)> {
    pair.map(|pair| (PrivateKey::Rsa(Box::new(pair)), "RS256"))
}

fn ecdsa(
    read: impl Fn(&'static EcdsaSigningAlgorithm) -> Option<EcdsaKeyPair>,
) -> Option<(PrivateKey, &'static str)> {
    CURVES.iter().find_map(|(curve, algorithm)| Some((PrivateKey::Ecdsa(read(curve)?), *algorithm)))
}

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// The parameters of an `ECPrivateKey`.
const CONTEXT_0: u8 = 0xa0;
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
pub(crate) const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P224: &[u8] = &[0x2b, 0x81, 0x04, 0, 0x21];
const X25519: &[u8] = &[0x2b, 0x65, 0x6e];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// Why a key that Go's x509 package decodes cannot sign tokens; `None` if Go does not decode it either.
fn unusable_key(kind: SectionKind, der: &[u8]) -> Option<KeyError> {
    let [(SEQUENCE, key)] = elements(der)?[..] else { return None };
    match (kind, &elements(key)?[..]) {
        (SectionKind::RsaPrivateKey, [_, (_, modulus), rest @ ..]) => {
            let integers = elements(key)?.iter().all(|(tag, _)| *tag == INTEGER);
            let digits = modulus.iter().skip_while(|byte| **byte == 0).count();
            (integers && rest.len() >= 7 && digits < 256).then_some(KeyError::RsaTooSmall)
        }
        (SectionKind::EcPrivateKey, [(INTEGER, [1]), (OCTET_STRING, _), (CONTEXT_0, curve), ..]) => {
            (elements(curve)? == [(OBJECT_ID, P224)]).then_some(KeyError::Unsupported)
        }
        (SectionKind::PrivateKey, [(INTEGER, _), (SEQUENCE, algorithm), (OCTET_STRING, inner), ..]) => {
            match &elements(algorithm)?[..] {
                [(OBJECT_ID, RSA_ENCRYPTION), ..] => unusable_key(SectionKind::RsaPrivateKey, inner),
                [(OBJECT_ID, EC_PUBLIC_KEY), (OBJECT_ID, P224)] => Some(KeyError::Unsupported),
                [(OBJECT_ID, ED25519 | X25519)] => {
                    let is_seed = matches!(elements(inner)?[..], [(OCTET_STRING, seed)] if seed.len() == 32);
                    is_seed.then_some(KeyError::Unsupported)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The tags and contents of the DER elements that these bytes consist of.
fn elements(mut der: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    while let [tag, length, rest @ ..] = der
        && *length != 0x80
    {
        // A length of more than 127 is preceded by the number of its bytes.
        let bytes = usize::from(*length).saturating_sub(0x80);
        let (long, rest) = rest.split_at_checked(bytes).filter(|_| bytes <= 2)?;
        let length = match bytes {
            0 => usize::from(*length),
            _ => long.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
        };
        let (content, rest) = rest.split_at_checked(length)?;
        found.push((*tag, content));
        der = rest;
    }
    der.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::encoding::Pkcs8V1Der;
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, Ed25519KeyPair,
        RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
    };
    use base64::prelude::BASE64_STANDARD;
    use serde_json::json;

    use super::*;

    fn pem(label: &str, der: &[u8]) -> String {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
    }

    fn rsa_pkcs8() -> Vec<u8> {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).unwrap().as_ref().to_vec()
    }

    fn decode(part: &str) -> Vec<u8> {
        BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()
    }

    fn check(pem: &str, algorithm: &str, verifier: &'static dyn VerificationAlgorithm, public: &[u8]) {
        let signer = Signer::from_pem(pem.as_bytes()).unwrap();
        let claims = json!({"sub": "x", "iss": "y"});
        let token = signer.sign(&claims).unwrap();
        let [header, payload, signature] = token.split('.').collect::<Vec<_>>()[..] else {
            panic!("{token}")
        };
        let key_id = {
            let spki = match &signer.key {
                PrivateKey::Rsa(pair) => AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).unwrap(),
                PrivateKey::Ecdsa(pair) => AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).unwrap(),
            };
            let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, spki.as_ref());
            BASE64_URL_SAFE_NO_PAD.encode(digest)
        };
        let header_text = String::from_utf8(decode(header)).unwrap();
        assert_eq!(header_text, format!(r#"{{"alg":"{algorithm}","kid":"{key_id}"}}"#));
        assert_eq!(serde_json::from_slice::<Value>(&decode(payload)).unwrap(), claims);
        UnparsedPublicKey::new(verifier, public)
            .verify(format!("{header}.{payload}").as_bytes(), &decode(signature))
            .unwrap();
    }

    /// Proves SAT-3, SAT-45, SAT-46.
    #[test]
    fn every_key_type_signs_with_its_algorithm_name() {
        let der = rsa_pkcs8();
        let public = RsaKeyPair::from_pkcs8(&der).unwrap().public_key().as_ref().to_vec();
        check(&pem("PRIVATE KEY", &der), "RS256", &RSA_PKCS1_2048_8192_SHA256, &public);
        let verifiers: [&'static dyn VerificationAlgorithm; 3] =
            [&ECDSA_P256_SHA256_FIXED, &ECDSA_P384_SHA384_FIXED, &ECDSA_P521_SHA512_FIXED];
        for ((curve, algorithm), verifier) in CURVES.into_iter().zip(verifiers) {
            let pair = EcdsaKeyPair::generate(curve).unwrap();
            let pkcs8 = pair.to_pkcs8v1().unwrap();
            let public = pair.public_key().as_ref();
            check(&pem("PRIVATE KEY", pkcs8.as_ref()), algorithm, verifier, public);
            let sec1 = pair.private_key().as_der().unwrap();
            check(&pem("EC PRIVATE KEY", sec1.as_ref()), algorithm, verifier, public);
        }
    }

    /// Proves SAT-2.
    #[test]
    fn first_decodable_key_is_used() {
        let der = rsa_pkcs8();
        let noise = pem("EC PARAMETERS", &[6, 8, 42]) + &pem("PRIVATE KEY", b"garbage") + "plain text\n";
        assert!(Signer::from_pem((noise.clone() + &pem("PRIVATE KEY", &der)).as_bytes()).is_ok());
        for bad in ["", "no PEM", &noise, &pem("CERTIFICATE", &der), &pem("RSA PRIVATE KEY", b"garbage")] {
            assert_eq!(Signer::from_pem(bad.as_bytes()).err(), Some(KeyError::NoKey), "{bad}");
        }
        assert_eq!(KeyError::NoKey.to_string(), "data does not contain a valid RSA or ECDSA private key");
    }

    /// A DER element.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).ok().filter(|length| *length < 0x80);
        let length = length.map_or_else(
            || [vec![0x82], (content.len() as u16).to_be_bytes().to_vec()].concat(),
            |length| vec![length],
        );
        [vec![tag], length, content.to_vec()].concat()
    }

    fn sequence(elements: &[Vec<u8>]) -> Vec<u8> {
        element(SEQUENCE, &elements.concat())
    }

    fn pkcs8(algorithm: &[Vec<u8>], inner: &[u8]) -> String {
        let version = element(INTEGER, &[0]);
        pem("PRIVATE KEY", &sequence(&[version, sequence(algorithm), element(OCTET_STRING, inner)]))
    }

    /// Keys that Go decodes and that do not sign tokens here, with the error.
    fn unusable_keys() -> Vec<(&'static str, String, KeyError)> {
        let id = |bytes: &[u8]| element(OBJECT_ID, bytes);
        let seed = element(OCTET_STRING, &[7; 32]);
        let p224 = sequence(&[
            element(INTEGER, &[1]),
            element(OCTET_STRING, &[7; 28]),
            element(CONTEXT_0, &id(P224)),
        ]);
        let modulus = [vec![0, 0x80], vec![1; 127]].concat();
        let mut numbers = vec![element(INTEGER, &[0]), element(INTEGER, &modulus)];
        numbers.extend(std::iter::repeat_n(element(INTEGER, &[3]), 7));
        let rsa_1024 = sequence(&numbers);
        let null = element(5, &[]);
        let real = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        vec![
            ("Ed25519", pem("PRIVATE KEY", real.as_ref()), KeyError::Unsupported),
            ("Ed25519, version 1", pkcs8(&[id(ED25519)], &seed), KeyError::Unsupported),
            ("X25519", pkcs8(&[id(X25519)], &seed), KeyError::Unsupported),
            ("P-224", pem("EC PRIVATE KEY", &p224), KeyError::Unsupported),
            ("P-224, PKCS #8", pkcs8(&[id(EC_PUBLIC_KEY), id(P224)], &p224), KeyError::Unsupported),
            ("RSA 1024", pem("RSA PRIVATE KEY", &rsa_1024), KeyError::RsaTooSmall),
            ("RSA 1024, PKCS #8", pkcs8(&[id(RSA_ENCRYPTION), null], &rsa_1024), KeyError::RsaTooSmall),
        ]
    }

    /// Proves SAT-2, SAT-3.
    #[test]
    fn first_decodable_key_decides_even_if_it_cannot_sign() {
        let usable = pem("PRIVATE KEY", &rsa_pkcs8());
        for (name, unusable, wanted) in unusable_keys() {
            let alone = Signer::from_pem(unusable.as_bytes()).err();
            assert_eq!(alone.as_ref(), Some(&wanted), "{name}");
            let first = Signer::from_pem((unusable.clone() + &usable).as_bytes()).err();
            assert_eq!(first.as_ref(), Some(&wanted), "{name} before a usable key");
            assert!(
                Signer::from_pem((usable.clone() + &unusable).as_bytes()).is_ok(),
                "{name} after a usable key"
            );
        }
    }

    /// Proves SAT-2.
    #[test]
    fn block_that_is_no_complete_key_is_skipped() {
        let usable = rsa_pkcs8();
        let secp256k1 = element(OBJECT_ID, &[0x2b, 0x81, 0x04, 0, 0x0a]);
        let unknown_curve = sequence(&[
            element(INTEGER, &[1]),
            element(OCTET_STRING, &[7; 32]),
            element(CONTEXT_0, &secp256k1),
        ]);
        let short_seed = element(OCTET_STRING, &[7; 31]);
        for bad in [
            pem("PRIVATE KEY", &usable[..usable.len() - 1]),
            pem("EC PRIVATE KEY", &unknown_curve),
            pem("RSA PRIVATE KEY", &usable),
            pkcs8(&[element(OBJECT_ID, ED25519)], &short_seed),
            pkcs8(&[element(OBJECT_ID, &[1, 2, 3])], &[7; 32]),
        ] {
            assert_eq!(Signer::from_pem(bad.as_bytes()).err(), Some(KeyError::NoKey), "{bad}");
            let both = bad.clone() + &pem("PRIVATE KEY", &usable);
            assert!(Signer::from_pem(both.as_bytes()).is_ok(), "{bad}");
        }
    }

    #[test]
    fn pkcs1_rsa_key_is_accepted() {
        // PKCS #8 wraps PKCS #1: the inner key is the last octet string.
        let der = rsa_pkcs8();
        let inner = der.windows(4).position(|bytes| bytes[0] == 4 && bytes[1] == 0x82).unwrap() + 4;
        assert!(Signer::from_pem(pem("RSA PRIVATE KEY", &der[inner..]).as_bytes()).is_ok());
    }
}
