//! Keys on P-224, which the library of all other keys does not have.

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512};
use keleustes_objects::SecretBytes;
use keleustes_x509::der::{INTEGER, OBJECT_ID, OCTET_STRING, Reader, SEQUENCE};
use keleustes_x509::{Curve, Hash};
use p224::ecdsa::signature::hazmat::{PrehashSigner as _, PrehashVerifier as _};
use p224::ecdsa::{Signature, SigningKey, VerifyingKey};

use crate::signing::EC_PUBLIC_KEY;

/// The tag of the parameters of an `ECPrivateKey`.
const CONTEXT_0: u8 = 0xa0;
const KEY_BYTES: usize = 28;

/// A private key on P-224, which is wiped when it is dropped.
pub(super) struct P224Key(SigningKey);

impl P224Key {
    /// From an `ECPrivateKey` (RFC 5915) that names its curve.
    pub(super) fn from_sec1(der: &[u8]) -> Option<Self> {
        let mut key = Reader::new(Reader::new(der).expect(SEQUENCE).ok()?);
        let (number, mut parameters) = version_and_number(&mut key)?;
        let curve = parameters.as_mut()?.expect(OBJECT_ID).ok()?;
        (curve == Curve::P224.object_id()).then(|| Self::from_number(number)).flatten()
    }

    /// From a `PrivateKeyInfo` (RFC 5208) whose algorithm names the curve.
    pub(super) fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let mut info = Reader::new(Reader::new(der).expect(SEQUENCE).ok()?);
        info.expect(INTEGER).ok()?;
        let mut algorithm = Reader::new(info.expect(SEQUENCE).ok()?);
        let is_p224 = algorithm.expect(OBJECT_ID).ok()? == EC_PUBLIC_KEY
            && algorithm.expect(OBJECT_ID).ok()? == Curve::P224.object_id();
        let key = info.expect(OCTET_STRING).ok()?;
        let mut key = Reader::new(Reader::new(key).expect(SEQUENCE).ok()?);
        let (number, _) = version_and_number(&mut key)?;
        is_p224.then(|| Self::from_number(number)).flatten()
    }

    /// Leading zeros may be missing or too many, as in Go.
    fn from_number(number: &[u8]) -> Option<Self> {
        let digits = &number[number.iter().take_while(|byte| **byte == 0).count()..];
        let missing = KEY_BYTES.checked_sub(digits.len())?;
        let padded = SecretBytes::from([&vec![0; missing][..], digits].concat());
        SigningKey::from_slice(padded.expose()).ok().map(Self)
    }

    /// The uncompressed public point.
    pub(super) fn public_point(&self) -> Vec<u8> {
        self.0.verifying_key().to_encoded_point(false).as_bytes().to_vec()
    }

    /// The signature of SHA-256 of a message, in DER.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let hash = digest::digest(&SHA256, message);
        let signed: Result<Signature, _> = self.0.sign_prehash(hash.as_ref());
        let signature = signed.map_err(|_| "signing with the private key failed".to_owned())?;
        Ok(signature.to_der().as_bytes().to_vec())
    }
}

/// The private number of an `ECPrivateKey`, and its parameters if there are any.
fn version_and_number<'a>(key: &mut Reader<'a>) -> Option<(&'a [u8], Option<Reader<'a>>)> {
    (key.expect(INTEGER).ok()? == [1]).then_some(())?;
    let number = key.expect(OCTET_STRING).ok()?;
    let parameters = if key.is_at(CONTEXT_0) { key.expect(CONTEXT_0).ok().map(Reader::new) } else { None };
    Some((number, parameters))
}

/// Whether a DER signature of a message belongs to a public point.
pub(super) fn verifies(point: &[u8], hash: Hash, message: &[u8], signature: &[u8]) -> bool {
    let algorithm = match hash {
        Hash::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
        Hash::Sha256 => &SHA256,
        Hash::Sha384 => &SHA384,
        Hash::Sha512 => &SHA512,
        Hash::Md5 => return false,
    };
    let hash = digest::digest(algorithm, message);
    let signature = Signature::from_der(signature);
    let (Ok(key), Ok(signature)) = (VerifyingKey::from_sec1_bytes(point), signature) else {
        return false;
    };
    key.verify_prehash(hash.as_ref(), &signature).is_ok()
}
