//! Verifies that a certificate request is signed with the key that it contains.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA1_ASN1, ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1,
    ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA1_ASN1,
    ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519,
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA384, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use keleustes_x509::{CertificateRequest, Curve, Hash, PublicKey, SignatureAlgorithm};

use super::curve_p224;

const UNSUPPORTED: &str = "x509: cannot verify signature: algorithm unimplemented";

/// The longest RSA key whose signatures are verified: the time grows with the cube of its length.
const MAX_RSA_BITS: usize = 8192;

/// Verifies the signature of a request. Parity: `CertificateRequest.CheckSignature`.
///
/// # Errors
/// If it is wrong, or its algorithm is unknown or insecure; the texts are Go's.
pub fn verify_signature(request: &CertificateRequest) -> Result<(), String> {
    let algorithm = request.signature_algorithm.ok_or(UNSUPPORTED)?;
    if algorithm == SignatureAlgorithm::Rsa(Hash::Md5) {
        return Err("x509: cannot verify signature: insecure algorithm MD5-RSA".to_owned());
    }
    let (message, signature) = (&request.signed, &request.signature);
    match (&request.public_key, algorithm) {
        (PublicKey::Unsupported, _) => Err(UNSUPPORTED.to_owned()),
        (
            PublicKey::Rsa { modulus, exponent },
            SignatureAlgorithm::Rsa(hash) | SignatureAlgorithm::RsaPss(hash),
        ) => {
            let is_pss = matches!(algorithm, SignatureAlgorithm::RsaPss(_));
            verify_rsa(modulus, *exponent, (is_pss, hash), message, signature)
        }
        (PublicKey::Ecdsa { curve: Curve::P224, point }, SignatureAlgorithm::Ecdsa(hash)) => {
            let verified = curve_p224::verifies(point, hash, message, signature);
            verified.then_some(()).ok_or_else(|| "x509: ECDSA verification failure".to_owned())
        }
        (PublicKey::Ecdsa { curve, point }, SignatureAlgorithm::Ecdsa(hash)) => {
            let algorithm = ecdsa(*curve, hash)?;
            let verified = UnparsedPublicKey::new(algorithm, point).verify(message, signature);
            verified.map_err(|_| "x509: ECDSA verification failure".to_owned())
        }
        (PublicKey::Ed25519(key), SignatureAlgorithm::Ed25519) => {
            let verified = UnparsedPublicKey::new(&ED25519, key).verify(message, signature);
            verified.map_err(|_| "x509: Ed25519 verification failure".to_owned())
        }
        (key, algorithm) => Err(mismatch(key, algorithm)),
    }
}

fn mismatch(key: &PublicKey, algorithm: SignatureAlgorithm) -> String {
    let wanted = match algorithm {
        SignatureAlgorithm::Rsa(_) | SignatureAlgorithm::RsaPss(_) => "RSA",
        SignatureAlgorithm::Dsa => "DSA",
        SignatureAlgorithm::Ecdsa(_) => "ECDSA",
        SignatureAlgorithm::Ed25519 => "Ed25519",
    };
    let found = match key {
        PublicKey::Rsa { .. } => "*rsa.PublicKey",
        PublicKey::Ecdsa { .. } => "*ecdsa.PublicKey",
        PublicKey::Ed25519(_) => "ed25519.PublicKey",
        PublicKey::Unsupported => "<nil>",
    };
    format!("x509: signature algorithm specifies an {wanted} public key, but have public key of type {found}")
}

fn ecdsa(curve: Curve, hash: Hash) -> Result<&'static dyn VerificationAlgorithm, String> {
    Ok(match (curve, hash) {
        (Curve::P256, Hash::Sha1) => &ECDSA_P256_SHA1_ASN1,
        (Curve::P256, Hash::Sha256) => &ECDSA_P256_SHA256_ASN1,
        (Curve::P256, Hash::Sha384) => &ECDSA_P256_SHA384_ASN1,
        (Curve::P256, Hash::Sha512) => &ECDSA_P256_SHA512_ASN1,
        (Curve::P384, Hash::Sha256) => &ECDSA_P384_SHA256_ASN1,
        (Curve::P384, Hash::Sha384) => &ECDSA_P384_SHA384_ASN1,
        (Curve::P384, Hash::Sha512) => &ECDSA_P384_SHA512_ASN1,
        (Curve::P521, Hash::Sha1) => &ECDSA_P521_SHA1_ASN1,
        (Curve::P521, Hash::Sha256) => &ECDSA_P521_SHA256_ASN1,
        (Curve::P521, Hash::Sha384) => &ECDSA_P521_SHA384_ASN1,
        (Curve::P521, Hash::Sha512) => &ECDSA_P521_SHA512_ASN1,
        (curve, hash) => return Err(format!("ECDSA on {curve:?} with {hash:?} is not supported")),
    })
}

fn verify_rsa(
    modulus: &[u8],
    exponent: u64,
    (is_pss, hash): (bool, Hash),
    message: &[u8],
    signature: &[u8],
) -> Result<(), String> {
    let bits = modulus.len() * 8 - modulus.first().map_or(0, |byte| byte.leading_zeros() as usize);
    if bits < 1024 {
        return Err(format!(
            "crypto/rsa: {bits}-bit keys are insecure (see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
        ));
    }
    if bits > MAX_RSA_BITS {
        return Err(format!(
            "RSA keys of more than {MAX_RSA_BITS} bits are not supported, this one has {bits}"
        ));
    }
    let parameters: &RsaParameters = match (is_pss, hash) {
        (false, Hash::Sha1) => &RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        (false, Hash::Sha256) => &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        (false, Hash::Sha384) => &RSA_PKCS1_2048_8192_SHA384,
        (false, Hash::Sha512) => &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        (true, Hash::Sha256) => &RSA_PSS_2048_8192_SHA256,
        (true, Hash::Sha384) => &RSA_PSS_2048_8192_SHA384,
        (true, Hash::Sha512) => &RSA_PSS_2048_8192_SHA512,
        _ => return Err(UNSUPPORTED.to_owned()),
    };
    let exponent = exponent.to_be_bytes();
    let exponent = &exponent[exponent.iter().take_while(|byte| **byte == 0).count()..];
    let verified = RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, message, signature);
    verified.map_err(|_| "crypto/rsa: verification error".to_owned())
}
