//! Writes whole messages down as the JSON that the server would have sent instead.
//!
//! Kinds that are written back, or whose parts are carried on, must not lose a field. So here every field of a message
//! is known, even if it is skipped, and one that is not is not passed over but an error: whoever meets it asks for JSON.
//! To write protobuf costs an API server an eighth of what JSON costs it, which is why this is worth its while.

#[rustfmt::skip] // A table.
mod schema;

use super::wire::{self, Error, Records, Value};
use crate::Time;

pub(crate) use schema::{DEPLOYMENT, ENDPOINT_SLICE, NODE, REPLICA_SET};

/// All fields of a message: the number of each, its name in JSON, and what it is.
#[derive(Debug)]
pub struct Whole(&'static [(u32, &'static str, Field)]);

/// What a field is, and when JSON has it. Servers write every field that is not a pointer, set or not.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// A text that JSON has if it is not empty.
    Text,
    /// A text that JSON has as soon as it is there.
    TextSet,
    /// A number that JSON has if it is not zero.
    Int,
    /// A number that JSON has as soon as it is there.
    IntSet,
    /// Something that JSON has if it is true.
    Bool,
    /// True or false, which JSON has as soon as it is there.
    BoolSet,
    /// A point in time; an empty message is none.
    Time,
    /// An amount, a text in JSON.
    Quantity,
    /// A number or a text.
    IntOrString,
    /// A message of its own.
    Part(&'static Whole),
    /// A message whose fields JSON has in the place of the message.
    Inline(&'static Whole),
    /// Messages.
    Parts(&'static Whole),
    /// Texts.
    Texts,
    /// Numbers.
    Ints,
    /// Texts by texts.
    Map,
    /// Amounts by texts.
    Quantities,
    /// What nobody keeps or writes back.
    Skipped,
}

/// Why a message cannot be written down whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWhole {
    /// It is no such message.
    Malformed(Error),
    /// It has a field that is not known here: the server is of another version.
    Stranger,
}

impl From<Error> for NotWhole {
    fn from(error: Error) -> Self {
        Self::Malformed(error)
    }
}

/// Writes a message down as JSON.
///
/// # Errors
/// If it is not such a message, or if anything of it would be lost.
pub fn to_json(bytes: &[u8], message: &'static Whole) -> Result<String, NotWhole> {
    let mut json = String::with_capacity(bytes.len() * 2);
    object(&mut json, bytes, message)?;
    Ok(json)
}

fn object(json: &mut String, bytes: &[u8], message: &'static Whole) -> Result<(), NotWhole> {
    json.push('{');
    fields(json, bytes, message)?;
    json.push('}');
    Ok(())
}

fn fields(json: &mut String, bytes: &[u8], message: &'static Whole) -> Result<(), NotWhole> {
    let mut records = Records(bytes);
    while let Some((number, first)) = records.next()? {
        let known = message.0.iter().find(|(known, ..)| *known == number);
        let &(_, name, field) = known.ok_or(NotWhole::Stranger)?;
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

/// The values of a field that stand behind the first.
struct More<'a, 'b> {
    number: u32,
    records: &'a mut Records<'b>,
}

impl<'b> More<'_, 'b> {
    fn each(
        &mut self,
        first: Value<'b>,
        mut take: impl FnMut(Value<'b>) -> Result<(), NotWhole>,
    ) -> Result<(), NotWhole> {
        take(first)?;
        while let Some(next) = self.records.next_of(self.number)? {
            take(next)?;
        }
        Ok(())
    }
}

/// Whether JSON would not have the field.
fn is_absent(field: Field, value: Value<'_>) -> Result<bool, NotWhole> {
    Ok(match field {
        Field::Text | Field::Time => wire::bytes(value)?.is_empty(),
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
) -> Result<(), NotWhole> {
    match field {
        Field::Text | Field::TextSet => text(json, wire::text(first)?),
        Field::Int | Field::IntSet => json.push_str(&wire::number(first)?.to_string()),
        Field::Bool | Field::BoolSet => {
            json.push_str(if wire::number(first)? == 0 { "false" } else { "true" });
        }
        Field::Time => time(json, wire::bytes(first)?)?,
        Field::Quantity => quantity(json, wire::bytes(first)?)?,
        Field::IntOrString => int_or_string(json, wire::bytes(first)?)?,
        Field::Part(message) => object(json, wire::bytes(first)?, message)?,
        Field::Texts | Field::Ints | Field::Parts(_) => {
            json.push('[');
            more.each(first, |value| element(json, field, value))?;
            json.push(']');
        }
        Field::Map | Field::Quantities => {
            json.push('{');
            more.each(first, |value| entry(json, field, wire::bytes(value)?))?;
            json.push('}');
        }
        Field::Inline(_) | Field::Skipped => {}
    }
    Ok(())
}

fn element(json: &mut String, field: Field, value: Value<'_>) -> Result<(), NotWhole> {
    separate(json);
    match field {
        Field::Parts(message) => object(json, wire::bytes(value)?, message)?,
        Field::Texts => text(json, wire::text(value)?),
        _ => json.push_str(&wire::number(value)?.to_string()),
    }
    Ok(())
}

/// One entry of a map.
fn entry(json: &mut String, field: Field, bytes: &[u8]) -> Result<(), NotWhole> {
    let (mut records, mut key, mut value) = (Records(bytes), "", &[][..]);
    while let Some((number, found)) = records.next()? {
        match number {
            1 => key = wire::text(found)?,
            2 => value = wire::bytes(found)?,
            _ => return Err(NotWhole::Stranger),
        }
    }
    separate(json);
    text(json, key);
    json.push(':');
    match field {
        Field::Quantities => quantity(json, value),
        _ => {
            text(json, wire::text(Value::Bytes(value))?);
            Ok(())
        }
    }
}

fn quantity(json: &mut String, bytes: &[u8]) -> Result<(), NotWhole> {
    let mut records = Records(bytes);
    let amount = match records.next()? {
        Some((1, amount)) => wire::text(amount)?,
        Some(_) => return Err(NotWhole::Stranger),
        None => "",
    };
    text(json, amount);
    Ok(())
}

fn int_or_string(json: &mut String, bytes: &[u8]) -> Result<(), NotWhole> {
    let (mut records, mut is_text, mut number, mut string) = (Records(bytes), false, 0, "");
    while let Some((field, found)) = records.next()? {
        match field {
            1 => is_text = wire::number(found)? != 0,
            2 => number = wire::number(found)?,
            3 => string = wire::text(found)?,
            _ => return Err(NotWhole::Stranger),
        }
    }
    if is_text {
        text(json, string);
    } else {
        json.push_str(&number.to_string());
    }
    Ok(())
}

/// JSON has whole seconds.
fn time(json: &mut String, bytes: &[u8]) -> Result<(), NotWhole> {
    match wire::microseconds(bytes)? {
        Some(microseconds) => {
            let seconds = Time::from_unix_seconds(microseconds.div_euclid(1_000_000));
            text(json, &seconds.to_string());
        }
        None => json.push_str("null"),
    }
    Ok(())
}

/// A comma, unless it is the first.
fn separate(json: &mut String) {
    if !json.ends_with(['{', '[']) {
        json.push(',');
    }
}

fn text(json: &mut String, text: &str) {
    if text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        // Writing a text into memory cannot fail.
        json.push_str(&serde_json::to_string(text).unwrap_or_default());
    } else {
        json.push('"');
        json.push_str(text);
        json.push('"');
    }
}

#[cfg(test)]
mod tests;
