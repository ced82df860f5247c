//! What surrounds an object: its type line, and the event that it is part of.

use super::wire::{self, Error, Records};

/// Every object that is sent by itself begins so.
const MAGIC: &[u8] = b"k8s\0";

/// An object with its type line, not yet read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Group and version; empty if it does not say.
    pub api_version: &'a str,
    /// Its kind; empty if it does not say.
    pub kind: &'a str,
    /// The message.
    pub object: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens an object that was sent by itself.
    ///
    /// # Errors
    /// If it is not one.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let bytes = bytes
            .strip_prefix(MAGIC)
            .ok_or_else(|| Error::new("this is not how the API begins an object"))?;
        let (mut records, mut envelope) = (Records(bytes), Self::default());
        while let Some((field, value)) = records.next()? {
            match field {
                1 => (envelope.api_version, envelope.kind) = type_line(wire::bytes(value)?)?,
                2 => envelope.object = wire::bytes(value)?,
                _ => {}
            }
        }
        Ok(envelope)
    }
}

fn type_line(bytes: &[u8]) -> Result<(&str, &str), Error> {
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

/// One event of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchEvent<'a> {
    /// `ADDED`, `MODIFIED` and so on.
    pub r#type: &'a str,
    /// The object, to be opened as an [`Envelope`].
    pub object: &'a [u8],
}

impl<'a> WatchEvent<'a> {
    /// Reads one frame of a watch.
    ///
    /// # Errors
    /// If it is no event.
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
