//! Builds certificate requests for tests, generators and stand-ins: valid ones, and invalid ones.

use crate::der::{self, OBJECT_ID, OCTET_STRING, SET, UTF8_STRING};
use crate::pem;

/// One attribute of a name: its identifier, the tag of the value, and the value.
pub type NameAttribute = (Vec<u8>, u8, Vec<u8>);

/// A certificate request in parts. Every part may be malformed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestBuilder {
    /// The relative distinguished names, each a set of attributes.
    pub subject: Vec<Vec<NameAttribute>>,
    /// The SubjectPublicKeyInfo.
    pub key_info: Vec<u8>,
    /// Subject alternative names: tag and content.
    pub alt_names: Vec<(u8, Vec<u8>)>,
    /// Further requested extensions: identifier, whether it is critical, and value.
    pub extensions: Vec<(Vec<u8>, bool, Vec<u8>)>,
}

/// The tags of alternative names.
pub mod alt_name {
    /// An otherName.
    pub const OTHER: u8 = 0xa0;
    /// An email address.
    pub const EMAIL: u8 = 0x81;
    /// A DNS name.
    pub const DNS: u8 = 0x82;
    /// A URI.
    pub const URI: u8 = 0x86;
    /// An IP address.
    pub const IP: u8 = 0x87;
}

impl RequestBuilder {
    /// A request for an Ed25519 key of this content, which need not be a valid point.
    #[must_use]
    pub fn for_ed25519(key: &[u8; 32]) -> Self {
        let algorithm = der::sequence(&[der::element(OBJECT_ID, crate::request::ED25519)]);
        Self { key_info: der::sequence(&[algorithm, der::bits(key)]), ..Self::default() }
    }

    /// Adds an attribute `2.5.4.n` as UTF8String in a set of its own.
    #[must_use]
    pub fn attribute(mut self, number: u8, value: &str) -> Self {
        self.subject.push(vec![(vec![0x55, 4, number], UTF8_STRING, value.as_bytes().to_vec())]);
        self
    }

    /// The subject of a kubelet: its organization and its common name.
    #[must_use]
    pub fn kubelet(self, node: &str) -> Self {
        self.attribute(10, "system:nodes").attribute(3, &format!("system:node:{node}"))
    }

    /// Adds an alternative name.
    #[must_use]
    pub fn alt_name(mut self, tag: u8, content: &[u8]) -> Self {
        self.alt_names.push((tag, content.to_vec()));
        self
    }

    /// Adds an extension.
    #[must_use]
    pub fn extension(mut self, id: &[u8], critical: bool, value: &[u8]) -> Self {
        self.extensions.push((id.to_vec(), critical, value.to_vec()));
        self
    }

    /// The part that is signed.
    #[must_use]
    pub fn to_be_signed(&self) -> Vec<u8> {
        let attribute = |(id, tag, value): &(Vec<u8>, u8, Vec<u8>)| {
            der::sequence(&[der::element(OBJECT_ID, id), der::element(*tag, value)])
        };
        let set = |attributes: &Vec<(Vec<u8>, u8, Vec<u8>)>| {
            der::element(SET, &attributes.iter().map(attribute).collect::<Vec<_>>().concat())
        };
        let subject: Vec<_> = self.subject.iter().map(set).collect();
        der::sequence(&[
            der::element(der::INTEGER, &[0]),
            der::sequence(&subject),
            self.key_info.clone(),
            der::element(der::CONTEXT_0, &self.attributes()),
        ])
    }

    fn attributes(&self) -> Vec<u8> {
        let mut extensions = self.extensions.clone();
        if !self.alt_names.is_empty() {
            let names: Vec<_> =
                self.alt_names.iter().map(|(tag, content)| der::element(*tag, content)).collect();
            extensions.insert(0, (crate::san::SUBJECT_ALT_NAME.to_vec(), false, der::sequence(&names)));
        }
        if extensions.is_empty() {
            return Vec::new();
        }
        let extension = |(id, critical, value): &(Vec<u8>, bool, Vec<u8>)| {
            let mut parts = vec![der::element(OBJECT_ID, id)];
            if *critical {
                parts.push(der::element(der::BOOLEAN, &[0xff]));
            }
            parts.push(der::element(OCTET_STRING, value));
            der::sequence(&parts)
        };
        let extensions: Vec<_> = extensions.iter().map(extension).collect();
        let id = der::element(OBJECT_ID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14]);
        der::sequence(&[id, der::element(SET, &der::sequence(&extensions))])
    }

    /// The request as PEM with this AlgorithmIdentifier and signature.
    #[must_use]
    pub fn to_pem(&self, algorithm: &[u8], signature: &[u8]) -> String {
        let parts = [self.to_be_signed(), algorithm.to_vec(), der::bits(signature)];
        pem::encode("CERTIFICATE REQUEST", &der::sequence(&parts))
    }

    /// The request as PEM with a signature that is all zeros.
    #[must_use]
    pub fn to_pem_unsigned(&self) -> String {
        let algorithm = der::sequence(&[der::element(OBJECT_ID, crate::request::ED25519)]);
        self.to_pem(&algorithm, &[0; 64])
    }
}
