//! The CA: its certificate and its private key.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use keleustes_objects::SecretBytes;
use keleustes_x509::certificate::SigningAlgorithm;
use keleustes_x509::{Certificate, Curve, PublicKey, certificates_from_pem, pem};

use super::curve_p224::P224Key;

/// A CA certificate and its private key, whose memory is wiped when it is dropped.
pub struct CertificateAuthority {
    certificate: Certificate,
    key: PrivateKey,
}

enum PrivateKey {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(Curve, Box<EcdsaKeyPair>),
    P224(Box<P224Key>),
    Ed25519(Box<Ed25519KeyPair>),
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Reads a pair that `check_pair` has accepted. Parity: `caProvider.setCA`.
    ///
    /// # Errors
    /// If there is not exactly one certificate, or no key fits its label; `name` is the original's name of the files.
    pub fn from_pem(certificate: &SecretBytes, key: &SecretBytes, name: &str) -> Result<Self, String> {
        let unreadable = |what: &str, cause: &str| format!("error reading CA {what} file {name:?}: {cause}");
        let mut certificates =
            certificates_from_pem(certificate.expose()).map_err(|error| unreadable("cert", &error))?;
        let found = certificates.len();
        let (Some(certificate), 1) = (certificates.pop(), found) else {
            return Err(unreadable("cert", &format!("expected 1 certificate, found {found}")));
        };
        let blocks = secret_blocks(key);
        let key = blocks.iter().find_map(|(kind, der)| PrivateKey::labelled(kind, der.expose()));
        let Some(key) = key else {
            return Err(unreadable("key", "data does not contain a valid RSA or ECDSA private key"));
        };
        if key.public_key() != certificate.public_key {
            return Err(unreadable("key", "x509: provided PrivateKey doesn't match parent's PublicKey"));
        }
        Ok(Self { certificate, key })
    }

    /// The certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The algorithm of its signatures, which follows from the key alone.
    #[must_use]
    pub fn algorithm(&self) -> SigningAlgorithm {
        match &self.key {
            PrivateKey::Rsa(_) => SigningAlgorithm::RsaSha256,
            PrivateKey::P224(_) | PrivateKey::Ecdsa(Curve::P224 | Curve::P256, _) => {
                SigningAlgorithm::EcdsaSha256
            }
            PrivateKey::Ecdsa(Curve::P384, _) => SigningAlgorithm::EcdsaSha384,
            PrivateKey::Ecdsa(Curve::P521, _) => SigningAlgorithm::EcdsaSha512,
            PrivateKey::Ed25519(_) => SigningAlgorithm::Ed25519,
        }
    }

    /// The signature of a message.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let random = SystemRandom::new();
        let failed = |_| "signing with the private key failed".to_owned();
        match &self.key {
            PrivateKey::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            PrivateKey::Ecdsa(_, key) => Ok(key.sign(&random, message).map_err(failed)?.as_ref().to_vec()),
            PrivateKey::P224(key) => key.sign(message),
            PrivateKey::Ed25519(key) => Ok(key.try_sign(message).map_err(failed)?.as_ref().to_vec()),
        }
    }
}

const CURVES: [(Curve, &EcdsaSigningAlgorithm); 3] = [
    (Curve::P256, &ECDSA_P256_SHA256_ASN1_SIGNING),
    (Curve::P384, &ECDSA_P384_SHA384_ASN1_SIGNING),
    (Curve::P521, &ECDSA_P521_SHA512_ASN1_SIGNING),
];

impl PrivateKey {
    /// A key whose content fits its label. Parity: `ParsePrivateKeyPEM`.
    fn labelled(kind: &str, der: &[u8]) -> Option<Self> {
        match kind {
            "RSA PRIVATE KEY" => Self::pkcs1(der),
            "EC PRIVATE KEY" => Self::sec1(der),
            "PRIVATE KEY" => Self::pkcs8(der),
            _ => None,
        }
    }

    /// A key of any format. Parity: `parsePrivateKey` of `crypto/tls`.
    fn unlabelled(der: &[u8]) -> Option<Self> {
        Self::pkcs1(der).or_else(|| Self::pkcs8(der)).or_else(|| Self::sec1(der))
    }

    fn pkcs1(der: &[u8]) -> Option<Self> {
        RsaKeyPair::from_der(der).ok().map(|key| Self::Rsa(Box::new(key)))
    }

    fn sec1(der: &[u8]) -> Option<Self> {
        let p224 = || P224Key::from_sec1(der).map(|key| Self::P224(Box::new(key)));
        Self::ecdsa(|curve| EcdsaKeyPair::from_private_key_der(curve, der).ok()).or_else(p224)
    }

    fn pkcs8(der: &[u8]) -> Option<Self> {
        let rsa = || RsaKeyPair::from_pkcs8(der).ok().map(|key| Self::Rsa(Box::new(key)));
        let ecdsa = || Self::ecdsa(|curve| EcdsaKeyPair::from_pkcs8(curve, der).ok());
        let ed25519 = || {
            let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
            Some(Self::Ed25519(Box::new(key)))
        };
        let p224 = || P224Key::from_pkcs8(der).map(|key| Self::P224(Box::new(key)));
        rsa().or_else(ecdsa).or_else(p224).or_else(ed25519)
    }

    fn ecdsa(read: impl Fn(&'static EcdsaSigningAlgorithm) -> Option<EcdsaKeyPair>) -> Option<Self> {
        CURVES.iter().find_map(|(curve, algorithm)| Some(Self::Ecdsa(*curve, Box::new(read(algorithm)?))))
    }

    fn public_key(&self) -> PublicKey {
        match self {
            Self::Rsa(key) => {
                PublicKey::from_pkcs1(key.public_key().as_ref()).unwrap_or(PublicKey::Unsupported)
            }
            Self::Ecdsa(curve, key) => {
                PublicKey::Ecdsa { curve: *curve, point: key.public_key().as_ref().to_vec() }
            }
            Self::P224(key) => PublicKey::Ecdsa { curve: Curve::P224, point: key.public_point() },
            Self::Ed25519(key) => PublicKey::Ed25519(key.public_key().as_ref().to_vec()),
        }
    }
}

/// The blocks of a key file; their contents are wiped.
fn secret_blocks(text: &SecretBytes) -> Vec<(String, SecretBytes)> {
    pem::blocks(text.expose()).map(|block| (block.kind, block.bytes.into())).collect()
}

/// Checks that the first key belongs to the first certificate. Parity: `tls.X509KeyPair`.
///
/// # Errors
/// The texts are those of Go.
pub(super) fn check_pair(certificate: &SecretBytes, key: &SecretBytes) -> Result<(), String> {
    let kinds = |kinds: &[String]| kinds.join(" ");
    let mut skipped = Vec::new();
    let mut first = None;
    for block in pem::blocks(certificate.expose()) {
        if block.kind == "CERTIFICATE" {
            first = first.or(Some(block.bytes));
        } else {
            skipped.push(block.kind);
        }
    }
    let Some(first) = first else {
        return Err(match &skipped[..] {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [kind] if kind.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; \
                 PEM inputs may have been switched"
                    .to_owned()
            }
            skipped => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM \
                 blocks of the following types: [{}]",
                kinds(skipped)
            ),
        });
    };
    let blocks = secret_blocks(key);
    let is_key = |kind: &str| kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY");
    let Some((_, der)) = blocks.iter().find(|(kind, _)| is_key(kind)) else {
        let skipped: Vec<_> = blocks.into_iter().map(|(kind, _)| kind).collect();
        return Err(match &skipped[..] {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [kind] if kind == "CERTIFICATE" => {
                "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            skipped => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping \
                 PEM blocks of the following types: [{}]",
                kinds(skipped)
            ),
        });
    };
    let wanted = Certificate::from_der(&first)?.public_key;
    let found = PrivateKey::unlabelled(der.expose()).ok_or("tls: failed to parse private key")?.public_key();
    if std::mem::discriminant(&wanted) != std::mem::discriminant(&found) {
        return Err("tls: private key type does not match public key type".to_owned());
    }
    if wanted != found {
        return Err("tls: private key does not match public key".to_owned());
    }
    Ok(())
}
