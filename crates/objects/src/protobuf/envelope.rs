//! The `runtime.Unknown` envelope of objects, and watch events.

use super::wire::{self, Error, Records};

/// The prefix of every top-level object.
const MAGIC: &[u8] = b"k8s\0";

/// An encoded object with its `apiVersion` and `kind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apiVersion`; empty if unset.
    pub api_version: &'a str,
    /// `kind`; empty if unset.
    pub kind: &'a str,
    /// The encoded object.
    pub object: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Decodes the envelope of a top-level object.
    ///
    /// # Errors
    /// If the prefix is missing or the envelope is malformed.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let bytes = bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| Error::new("the k8s prefix of protobuf objects is missing"))?;
        let (mut records, mut envelope) = (Records(bytes), Self::default());
        while let Some((field, value)) = records.next()? {
            match field {
                1 => (envelope.api_version, envelope.kind) = type_meta(wire::bytes(value)?)?,
                2 => envelope.object = wire::bytes(value)?,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

fn type_meta(bytes: &[u8]) -> Result<(&str, &str), Error> {
    let (mut records, mut api_version, mut kind) = (Records(bytes), "", "");
    while let Some((field, value)) = records.next()? {
        match field {
            1 => api_version = wire::text(value)?,
            2 => kind = wire::text(value)?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

/// A watch event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchEvent<'a> {
    /// `ADDED`, `MODIFIED` and so on.
    pub r#type: &'a str,
    /// The object, in an [`Envelope`].
    pub object: &'a [u8],
}

impl<'a> WatchEvent<'a> {
    /// Decodes one frame of a watch.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn read(frame: &'a [u8]) -> Result<Self, Error> {
        let (mut records, mut event) = (Records(frame), Self::default());
        while let Some((field, value)) = records.next()? {
            match field {
                1 => event.r#type = wire::text(value)?,
                2 => {
                    let mut extension = Records(wire::bytes(value)?);
                    while let Some((field, value)) = extension.next()? {
                        if field == 1 {
                            event.object = wire::bytes(value)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }
}
