//! Bytes that appear in no log, no transcript and no freed memory.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use zeroize::Zeroizing;

/// The decoded value of one key of a Secret. It is wiped when it is dropped, never interned, and `Debug` redacts it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretBytes(Zeroizing<Box<[u8]>>);

impl SecretBytes {
    /// The bytes.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Takes over the bytes. A vector with spare capacity is moved, and the old memory is wiped.
impl From<Vec<u8>> for SecretBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let bytes = Zeroizing::new(bytes);
        Self(Zeroizing::new(bytes.as_slice().into()))
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(redacted)")
    }
}

/// From base64, as in the data of a Secret; `null` is empty.
impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FromBase64;
        impl Visitor<'_> for FromBase64 {
            type Value = SecretBytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<SecretBytes, E> {
                // The decoder's error quotes a byte of the secret.
                let bytes = BASE64_STANDARD.decode(text).map_err(|_| E::custom("invalid base64"))?;
                Ok(SecretBytes(Zeroizing::new(bytes.into())))
            }
            fn visit_unit<E: Error>(self) -> Result<SecretBytes, E> {
                Ok(SecretBytes::default())
            }
        }
        deserializer.deserialize_any(FromBase64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_decoded_and_never_printed() {
        let secret: SecretBytes = serde_json::from_str("\"aHVudGVyMgr/\"").unwrap();
        assert_eq!(secret.expose(), b"hunter2\n\xff");
        assert!(!format!("{secret:?}").contains("hunter"));
        assert!(serde_json::from_str::<SecretBytes>("null").unwrap().is_empty());
        let error = serde_json::from_str::<SecretBytes>("\"hunter2!\"").unwrap_err().to_string();
        assert!(!error.contains("hunter") && !error.contains('!'), "{error}");
    }
}
