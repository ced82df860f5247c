//! Signs service account tokens with the key that the API server trusts.
//!
//! `jsonwebtoken` is not suitable: it has no ES512, which the original accepts. Without it, two base64 parts
//! and a signature remain.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
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
    /// Uses the first private key in a PEM file. Other blocks, and blocks that cannot be decoded, are
    /// skipped.
    ///
    /// # Errors
    /// If there is no private key, or one of a type that cannot sign tokens.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let mut refusal = KeyError::NoKey;
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
                // For a well-formed key of another type, "unsupported" is clearer than "no key".
                None if is_private_key(kind, &der) => refusal = KeyError::Unsupported,
                None => {}
            }
        }
        Err(refusal)
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

/// Whether the bytes have the outer form of a private key: a DER sequence that begins with a small
/// version number.
fn is_private_key(kind: SectionKind, der: &[u8]) -> bool {
    let begins_with_version = der.windows(3).take(6).any(|bytes| matches!(bytes, [2, 1, 0 | 1]));
    matches!(kind, SectionKind::PrivateKey | SectionKind::EcPrivateKey)
        && der.first() == Some(&0x30)
        && begins_with_version
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

    #[test]
    fn key_of_an_unsupported_type_is_refused() {
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let refused = Signer::from_pem(pem("PRIVATE KEY", ed25519.as_ref()).as_bytes()).err();
        assert_eq!(refused, Some(KeyError::Unsupported));
    }

    #[test]
    fn pkcs1_rsa_key_is_accepted() {
        // PKCS #8 wraps PKCS #1: the inner key is the last octet string.
        let der = rsa_pkcs8();
        let inner = der.windows(4).position(|bytes| bytes[0] == 4 && bytes[1] == 0x82).unwrap() + 4;
        assert!(Signer::from_pem(pem("RSA PRIVATE KEY", &der[inner..]).as_bytes()).is_ok());
    }
}
