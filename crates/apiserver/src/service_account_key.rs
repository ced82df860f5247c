//! The key that signs service account tokens: ECDSA with P-256, in a PEM file.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use thiserror::Error;

use crate::kernel::{TokenKey, TokenSigner};

/// The file has no P-256 private key in PKCS#8.
#[derive(Debug, Error)]
#[error("not a private key of the curve P-256 in PKCS#8")]
pub struct NotAKey;

struct ServiceAccountKey {
    pair: EcdsaKeyPair,
    key_id: String,
}

/// A signer with the key in this PEM file.
///
/// # Errors
/// If it has none.
pub fn signer(pem: &str) -> Result<TokenSigner, NotAKey> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| NotAKey)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der());
    let pair = pair.map_err(|_| NotAKey)?;
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|_| NotAKey)?;
    let key_id = URL_SAFE_NO_PAD.encode(digest(&SHA256, public.as_ref()));
    Ok(TokenSigner::new(ServiceAccountKey { pair, key_id }))
}

impl TokenKey for ServiceAccountKey {
    fn algorithm(&self) -> &'static str {
        "ES256"
    }

    fn key_id(&self) -> &str {
        &self.key_id
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        Some(self.pair.sign(&SystemRandom::new(), message).ok()?.as_ref().to_vec())
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        public.verify(message, signature).is_ok()
    }
}
