//! Protobuf as bytes: numbered records, one after the other.

use std::fmt;

/// Why bytes cannot be read. It does not quote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub(super) String);

impl Error {
    pub(super) fn new(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    /// What serde says may quote a value, so only that something was said is kept.
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::new("a field has a value that it cannot have")
    }

    fn missing_field(field: &'static str) -> Self {
        Self(format!("field {field} is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self(format!("field {field} is there twice"))
    }
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A number of fixed width, which no field of the API that anybody reads has.
    Fixed,
}

/// A record: the number of its field, and what it holds.
pub(super) type Record<'a> = (u32, Value<'a>);

/// The records of a message that are still to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records<'a>(pub(super) &'a [u8]);

impl<'a> Records<'a> {
    pub(super) fn next(&mut self) -> Result<Option<Record<'a>>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let field = u32::try_from(tag >> 3).map_err(|_| Error::new("a field number is too large"))?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.number()?;
                let length = usize::try_from(length).map_err(|_| Error::new("a field is too long"))?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Error::new("a field is of no known wire type")),
        };
        Ok(Some((field, value)))
    }

    /// The next record, if it is one more of the same field.
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

    fn number(&mut self) -> Result<u64, Error> {
        let mut number = 0;
        for (at, &byte) in self.0.iter().enumerate().take(10) {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Ok(number);
            }
        }
        Err(Error::new("a number has no end"))
    }
}

/// The bytes of a record, which for these fields must be some.
pub(super) fn bytes<'a>(value: Value<'a>) -> Result<&'a [u8], Error> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Number(_) | Value::Fixed => {
            Err(Error::new("a number stands where a text or a message should"))
        }
    }
}

pub(super) fn text<'a>(value: Value<'a>) -> Result<&'a str, Error> {
    std::str::from_utf8(bytes(value)?).map_err(|_| Error::new("a text is not UTF-8"))
}

pub(super) fn number(value: Value<'_>) -> Result<i64, Error> {
    match value {
        // Negative numbers are written as large ones.
        Value::Number(number) => Ok(number.cast_signed()),
        Value::Bytes(_) | Value::Fixed => Err(Error::new("something else stands where a number should")),
    }
}

/// Seconds and nanoseconds since 1970 in microseconds. An empty message is no time at all.
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
