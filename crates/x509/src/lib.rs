//! Reads PKCS #10 certificate requests and writes X.509 certificates byte for byte as Go's `crypto/x509` does.
//!
//! The crate has no clock, no randomness and no cryptography: a caller verifies signatures and makes them. Every input
//! is hostile: reading is linear in its length, allocates no more than a small multiple of it, and never panics.
//!
//! General parsers are not suitable: they accept requests that Go refuses and refuse requests that Go accepts, and
//! both decide whether a certificate is issued. The encoders of other crates order fields and extensions differently.

pub mod builder;
pub mod certificate;
mod curve;
pub mod der;
mod name;
pub mod pem;
mod quote;
pub mod request;
mod san;
mod uri;

pub use certificate::{Certificate, IssuedCertificate, KeyUsages, certificates_from_pem};
pub use curve::Curve;
pub use name::Subject;
pub use quote::quoted;
pub use request::{CertificateRequest, Hash, PublicKey, RequestError, SignatureAlgorithm};
pub use san::SubjectAltNames;

/// One certificate that is to be signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningJob {
    /// The request. The signer verifies its signature.
    pub request: CertificateRequest,
    /// The usages, by their names in the API.
    pub usages: Vec<String>,
    /// The life of the certificate in nanoseconds.
    pub life: i128,
    /// The time in nanoseconds since 1970.
    pub now: i128,
}
