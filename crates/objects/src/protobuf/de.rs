//! A serde deserializer for protobuf messages, with JSON field names.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::schema::{Message, Shape};
use super::wire::{self, Error, Records, Value};

/// Decodes a message.
///
/// # Errors
/// If it is malformed. The error does not quote it.
pub fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8], message: &'static Message) -> Result<T, Error> {
    T::deserialize(One { shape: Shape::Part(message), value: Value::Bytes(bytes) })
}

/// The fields of a message.
struct Fields<'de> {
    records: Records<'de>,
    message: &'static Message,
    /// Where decoding continues after an inlined message.
    outer: Option<(Records<'de>, &'static Message)>,
    /// The field whose key has been returned and whose value has not.
    found: Option<(u32, Shape, Value<'de>)>,
}

impl<'de> Fields<'de> {
    /// Advances to the next field that the message declares and that is set.
    fn advance(&mut self) -> Result<Option<&'static str>, Error> {
        loop {
            let Some((number, value)) = self.records.next()? else {
                let Some((records, message)) = self.outer.take() else { return Ok(None) };
                (self.records, self.message) = (records, message);
                continue;
            };
            let known = self.message.0.iter().find(|(known, ..)| *known == number);
            let Some(&(_, name, shape)) = known else { continue };
            if let Shape::Inline(message) = shape {
                self.outer = Some((self.records, self.message));
                (self.records, self.message) = (Records(wire::bytes(value)?), message);
            } else if !is_unset(shape, value) {
                self.found = Some((number, shape, value));
                return Ok(Some(name));
            }
        }
    }
}

/// Whether JSON would omit the field.
fn is_unset(shape: Shape, value: Value<'_>) -> bool {
    match shape {
        Shape::Text | Shape::Time => value == Value::Bytes(&[]),
        Shape::Count => value == Value::Number(0),
        _ => false,
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        match self.advance()? {
            Some(name) => seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (number, shape, value) =
            self.found.take().ok_or_else(|| Error::new("a value was requested before its key"))?;
        match shape {
            Shape::Texts | Shape::Parts(_) | Shape::Map | Shape::Quantities => {
                let many = Many { number, shape, first: Some(value), records: &mut self.records };
                seed.deserialize(many)
            }
            _ => seed.deserialize(One { shape, value }),
        }
    }
}

/// A singular field, one value of a repeated field, or a top-level message.
struct One<'de> {
    shape: Shape,
    value: Value<'de>,
}

impl<'de> Deserializer<'de> for One<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.shape {
            Shape::Number | Shape::Count => visitor.visit_i64(wire::number(self.value)?),
            Shape::Flag => visitor.visit_bool(wire::number(self.value)? != 0),
            Shape::Time => match wire::microseconds(wire::bytes(self.value)?)? {
                Some(microseconds) => visitor.visit_i64(microseconds),
                None => visitor.visit_unit(),
            },
            Shape::Part(message) | Shape::Parts(message) | Shape::Inline(message) => {
                let records = Records(wire::bytes(self.value)?);
                visitor.visit_map(Fields { records, message, outer: None, found: None })
            }
            Shape::Text | Shape::TextIfSet | Shape::Texts | Shape::Map | Shape::Quantities => {
                visitor.visit_borrowed_str(wire::text(self.value)?)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        BorrowedStrDeserializer::new(wire::text(self.value)?).deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A repeated field, whose records are adjacent.
struct Many<'a, 'de> {
    number: u32,
    shape: Shape,
    first: Option<Value<'de>>,
    records: &'a mut Records<'de>,
}

impl<'de> Many<'_, 'de> {
    fn next(&mut self) -> Result<Option<Value<'de>>, Error> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.records.next_of(self.number),
        }
    }
}

impl<'de> Deserializer<'de> for Many<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.shape {
            Shape::Map | Shape::Quantities => visitor.visit_map(Entries { many: self, value: None }),
            _ => visitor.visit_seq(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> SeqAccess<'de> for Many<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        match self.next()? {
            Some(value) => seed.deserialize(One { shape: self.shape, value }).map(Some),
            None => Ok(None),
        }
    }
}

/// The entries of a map of strings or quantities.
struct Entries<'a, 'de> {
    many: Many<'a, 'de>,
    value: Option<&'de str>,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(entry) = self.many.next()? else { return Ok(None) };
        let (mut records, mut key, mut value) = (Records(wire::bytes(entry)?), "", "");
        while let Some((field, found)) = records.next()? {
            match field {
                1 => key = wire::text(found)?,
                2 if matches!(self.many.shape, Shape::Quantities) => value = quantity_text(found)?,
                2 => value = wire::text(found)?,
                _ => {}
            }
        }
        self.value = Some(value);
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(BorrowedStrDeserializer::new(self.value.take().unwrap_or_default()))
    }
}

/// The text of a `Quantity` message.
fn quantity_text(message: Value<'_>) -> Result<&str, Error> {
    let (mut records, mut text) = (Records(wire::bytes(message)?), "");
    while let Some((field, found)) = records.next()? {
        if field == 1 {
            text = wire::text(found)?;
        }
    }
    Ok(text)
}
