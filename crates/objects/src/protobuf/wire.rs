//! The protobuf wire format: a sequence of numbered records.

use std::fmt;

/// Why a message is malformed. It does not quote the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub(super) String);

impl Error {
    pub(super) fn new(message: &str) -> Self {
        Self(message.to_owned())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    /// serde's message may quote a value, so it is dropped.
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::new("a field has an invalid value")
    }

    fn missing_field(field: &'static str) -> Self {
        Self(format!("field {field} is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self(format!("field {field} is duplicated"))
    }
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// A string, bytes, or a message.
    Bytes(&'a [u8]),
    /// The bits of a number of fixed width.
    Fixed(u64),
}

/// A record: field number and content.
pub type Record<'a> = (u32, Value<'a>);

/// The remaining records of a message.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a>(pub &'a [u8]);

impl<'a> Records<'a> {
    /// The next record; `None` at the end of the message.
    ///
    /// # Errors
    /// If the message is malformed.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator of results is more to write for its callers"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'a>>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let field = u32::try_from(tag >> 3).map_err(|_| Error::new("a field number is too large"))?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            1 => Value::Fixed(self.fixed(8)?),
            2 => {
                let length = self.number()?;
                let length = usize::try_from(length).map_err(|_| Error::new("a field is too long"))?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed(self.fixed(4)?),
            _ => return Err(Error::new("a field has an unknown wire type")),
        };
        Ok(Some((field, value)))
    }

    /// The next record, if it is of the same field.
    pub(super) fn next_of(&mut self, field: u32) -> Result<Option<Value<'a>>, Error> {
        let mut ahead = *self;
        match ahead.next()? {
            Some((number, value)) if number == field => {
                *self = ahead;
                Ok(Some(value))
            }
            _ => Ok(None),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or_else(|| Error::new("the message ends in the middle of a field"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// The bits of a little-endian number.
    fn fixed(&mut self, length: usize) -> Result<u64, Error> {
        Ok(self.take(length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn number(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for (at, &byte) in self.0.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Ok(number);
            }
        }
        Err(Error::new("a varint is truncated or longer than ten bytes"))
    }
}

/// The bytes of a length-delimited record.
pub(super) fn bytes<'a>(value: Value<'a>) -> Result<&'a [u8], Error> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Number(_) | Value::Fixed(_) => Err(Error::new("a number in place of a string or message")),
    }
}

pub(super) fn text<'a>(value: Value<'a>) -> Result<&'a str, Error> {
    std::str::from_utf8(bytes(value)?).map_err(|_| Error::new("a string is not UTF-8"))
}

pub(super) fn number(value: Value<'_>) -> Result<i64, Error> {
    match value {
        // Negative numbers are encoded in two's complement.
        Value::Number(number) => Ok(number.cast_signed()),
        Value::Bytes(_) | Value::Fixed(_) => Err(Error::new("a string or message in place of a number")),
    }
}

/// A timestamp in microseconds since 1970; `None` for an empty message.
pub(super) fn microseconds(message: &[u8]) -> Result<Option<i64>, Error> {
    if message.is_empty() {
        return Ok(None);
    }
    let (mut records, mut seconds, mut nanos) = (Records(message), 0, 0);
    while let Some((field, value)) = records.next()? {
        match field {
            1 => seconds = number(value)?,
            2 => nanos = number(value)?,
            _ => {}
        }
    }
    let whole = seconds.checked_mul(1_000_000).and_then(|whole| whole.checked_add(nanos / 1000));
    whole.map(Some).ok_or_else(|| Error::new("a time is out of range"))
}
