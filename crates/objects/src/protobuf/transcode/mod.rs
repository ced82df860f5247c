//! Transcodes protobuf messages to the JSON that the server would have sent.
//!
//! Kinds that are written back, or that pass parts on to other objects, must not lose a field. So a [`FullMessage`] lists
//! every field of a message, skipped ones included, and an unknown field is an error after which the client requests JSON.
//! Encoding protobuf costs an API server an eighth of the CPU time of encoding JSON.

mod schema;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::wire::{self, Error, Records, Value};
use crate::Time;

/// All fields of a message: the number of each, its name in JSON, and what it is.
#[derive(Debug)]
pub struct FullMessage(&'static [(u32, &'static str, Field)]);

/// The type of a field, and when JSON includes it. Servers encode every field that is not a pointer, set or not.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// A string with `omitempty`.
    Text,
    /// A string that JSON includes whenever it is encoded.
    TextSet,
    /// An integer with `omitempty`.
    Int,
    /// An integer that JSON includes whenever it is encoded.
    IntSet,
    /// A boolean with `omitempty`.
    Bool,
    /// A boolean that JSON includes whenever it is encoded.
    BoolSet,
    /// A timestamp; an empty message means unset.
    Time,
    /// A quantity, a string in JSON.
    Quantity,
    /// An `IntOrString`.
    IntOrString,
    /// JSON as bytes, in a message of their own.
    RawJson,
    /// A message.
    Part(&'static FullMessage),
    /// A pod template, whose schema several kinds share.
    PodTemplate,
    /// A message whose fields JSON inlines.
    Inline(&'static FullMessage),
    /// Repeated messages.
    Parts(&'static FullMessage),
    /// Repeated strings.
    Texts,
    /// Repeated integers.
    Ints,
    /// A map of strings.
    Map,
    /// A map of quantities.
    Quantities,
    /// A map of timestamps.
    Times,
    /// A map of lists of strings, each in a message of its own.
    TextLists,
    /// Bytes with `omitempty`, base64 in JSON.
    Bytes,
    /// Bytes that JSON includes whenever they are encoded.
    BytesSet,
    /// A field that is neither cached nor written back.
    Skipped,
}

/// Why a message cannot be transcoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranscodeError {
    /// The message is malformed.
    Malformed(Error),
    /// The message has a field that the schema lacks: the server has another version.
    UnknownField,
}

impl From<Error> for TranscodeError {
    fn from(error: Error) -> Self {
        Self::Malformed(error)
    }
}

/// Transcodes a message to JSON.
///
/// # Errors
/// If it is malformed or has an unknown field.
pub fn to_json(bytes: &[u8], message: &'static FullMessage) -> Result<String, TranscodeError> {
    let mut json = String::with_capacity(bytes.len() * 2);
    object(&mut json, bytes, message)?;
    Ok(json)
}

fn object(json: &mut String, bytes: &[u8], message: &'static FullMessage) -> Result<(), TranscodeError> {
    json.push('{');
    fields(json, bytes, message)?;
    json.push('}');
    Ok(())
}

fn fields(json: &mut String, bytes: &[u8], message: &'static FullMessage) -> Result<(), TranscodeError> {
    let mut records = Records(bytes);
    while let Some((number, first)) = records.next()? {
        let known = message.0.iter().find(|(known, ..)| *known == number);
        let &(_, name, field) = known.ok_or(TranscodeError::UnknownField)?;
        if let Field::Inline(message) = field {
            fields(json, wire::bytes(first)?, message)?;
        } else if !is_absent(field, first)? {
            separate(json);
            text(json, name);
            json.push(':');
            value(json, field, first, &mut More { number, records: &mut records })?;
        }
    }
    Ok(())
}

/// The values of a repeated field after the first.
struct More<'a, 'b> {
    number: u32,
    records: &'a mut Records<'b>,
}

impl<'b> More<'_, 'b> {
    fn each(
        &mut self,
        first: Value<'b>,
        mut take: impl FnMut(Value<'b>) -> Result<(), TranscodeError>,
    ) -> Result<(), TranscodeError> {
        take(first)?;
        while let Some(next) = self.records.next_of(self.number)? {
            take(next)?;
        }
        Ok(())
    }
}

/// Whether JSON omits the field.
fn is_absent(field: Field, value: Value<'_>) -> Result<bool, TranscodeError> {
    Ok(match field {
        Field::Text | Field::Time | Field::Bytes => wire::bytes(value)?.is_empty(),
        Field::Int | Field::Bool => wire::number(value)? == 0,
        Field::Skipped => true,
        _ => false,
    })
}

fn value<'b>(
    json: &mut String,
    field: Field,
    first: Value<'b>,
    more: &mut More<'_, 'b>,
) -> Result<(), TranscodeError> {
    match field {
        Field::Text | Field::TextSet => text(json, wire::text(first)?),
        Field::Int | Field::IntSet => json.push_str(&wire::number(first)?.to_string()),
        Field::Bool | Field::BoolSet => {
            json.push_str(if wire::number(first)? == 0 { "false" } else { "true" });
        }
        Field::Time => time(json, wire::bytes(first)?)?,
        Field::Quantity => quantity(json, wire::bytes(first)?)?,
        Field::IntOrString => int_or_string(json, wire::bytes(first)?)?,
        Field::RawJson => raw_json(json, wire::bytes(first)?)?,
        Field::Part(message) => object(json, wire::bytes(first)?, message)?,
        Field::PodTemplate => object(json, wire::bytes(first)?, &schema::POD_TEMPLATE)?,
        Field::Texts | Field::Ints | Field::Parts(_) => {
            json.push('[');
            more.each(first, |value| element(json, field, value))?;
            json.push(']');
        }
        Field::Bytes | Field::BytesSet => text(json, &BASE64_STANDARD.encode(wire::bytes(first)?)),
        Field::Map | Field::Quantities | Field::Times | Field::TextLists => {
            json.push('{');
            more.each(first, |value| entry(json, field, wire::bytes(value)?))?;
            json.push('}');
        }
        Field::Inline(_) | Field::Skipped => {}
    }
    Ok(())
}

fn element(json: &mut String, field: Field, value: Value<'_>) -> Result<(), TranscodeError> {
    separate(json);
    match field {
        Field::Parts(message) => object(json, wire::bytes(value)?, message)?,
        Field::Texts => text(json, wire::text(value)?),
        _ => json.push_str(&wire::number(value)?.to_string()),
    }
    Ok(())
}

/// One entry of a map.
fn entry(json: &mut String, field: Field, bytes: &[u8]) -> Result<(), TranscodeError> {
    let (mut records, mut key, mut value) = (Records(bytes), "", &[][..]);
    while let Some((number, found)) = records.next()? {
        match number {
            1 => key = wire::text(found)?,
            2 => value = wire::bytes(found)?,
            _ => return Err(TranscodeError::UnknownField),
        }
    }
    separate(json);
    text(json, key);
    json.push(':');
    match field {
        Field::Quantities => quantity(json, value),
        Field::Times => time(json, value),
        Field::TextLists => texts(json, value),
        _ => {
            text(json, wire::text(Value::Bytes(value))?);
            Ok(())
        }
    }
}

fn quantity(json: &mut String, bytes: &[u8]) -> Result<(), TranscodeError> {
    let mut records = Records(bytes);
    let amount = match records.next()? {
        Some((1, amount)) => wire::text(amount)?,
        Some(_) => return Err(TranscodeError::UnknownField),
        None => "",
    };
    text(json, amount);
    Ok(())
}

/// A message of which the first field is a list of strings.
fn texts(json: &mut String, bytes: &[u8]) -> Result<(), TranscodeError> {
    let mut records = Records(bytes);
    json.push('[');
    while let Some((number, found)) = records.next()? {
        if number != 1 {
            return Err(TranscodeError::UnknownField);
        }
        element(json, Field::Texts, found)?;
    }
    json.push(']');
    Ok(())
}

fn int_or_string(json: &mut String, bytes: &[u8]) -> Result<(), TranscodeError> {
    let (mut records, mut is_text, mut number, mut string) = (Records(bytes), false, 0, "");
    while let Some((field, found)) = records.next()? {
        match field {
            1 => is_text = wire::number(found)? != 0,
            2 => number = wire::number(found)?,
            3 => string = wire::text(found)?,
            _ => return Err(TranscodeError::UnknownField),
        }
    }
    if is_text {
        text(json, string);
    } else {
        json.push_str(&number.to_string());
    }
    Ok(())
}

/// The field of the message holds the JSON; `null` if it is unset.
fn raw_json(json: &mut String, bytes: &[u8]) -> Result<(), TranscodeError> {
    let raw = match Records(bytes).next()? {
        Some((1, raw)) => wire::text(raw)?,
        Some(_) => return Err(TranscodeError::UnknownField),
        None => "",
    };
    json.push_str(if raw.is_empty() { "null" } else { raw });
    Ok(())
}

/// JSON timestamps have seconds.
fn time(json: &mut String, bytes: &[u8]) -> Result<(), TranscodeError> {
    match wire::microseconds(bytes)? {
        Some(microseconds) => {
            let seconds = Time::from_unix_seconds(microseconds.div_euclid(1_000_000));
            text(json, &seconds.to_string());
        }
        None => json.push_str("null"),
    }
    Ok(())
}

/// Appends a comma, unless the element is the first.
fn separate(json: &mut String) {
    if !json.ends_with(['{', '[']) {
        json.push(',');
    }
}

fn text(json: &mut String, text: &str) {
    if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        // Serializing a string cannot fail.
        json.push_str(&serde_json::to_string(text).unwrap_or_default());
    } else {
        json.push('"');
        json.push_str(text);
        json.push('"');
    }
}

#[cfg(test)]
mod tests;
