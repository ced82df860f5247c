//! A second reader of protobuf messages, written for clarity: the JSON that a message stands for.

use jiff::Timestamp;
use keleustes_objects::protobuf::{Message, Records, Shape, WireValue};
use serde_json::{Map, Value, json};

/// The JSON of the fields that a schema names. `None` if the message is malformed or JSON cannot say it.
pub(crate) fn transcribed(bytes: &[u8], message: &Message) -> Option<Value> {
    let mut object = Map::new();
    add_fields(&mut object, bytes, message)?;
    Some(Value::Object(object))
}

fn add_fields(object: &mut Map<String, Value>, bytes: &[u8], message: &Message) -> Option<()> {
    let mut records = Records(bytes);
    while let Some((number, value)) = records.next().ok()? {
        let known = message.0.iter().find(|(known, ..)| *known == number);
        let Some(&(_, name, shape)) = known else { continue };
        match shape {
            Shape::Inline(part) => add_fields(object, content(value)?, part)?,
            Shape::Texts | Shape::Parts(_) => {
                let element = match shape {
                    Shape::Parts(part) => transcribed(content(value)?, part)?,
                    _ => text(value)?,
                };
                object.entry(name).or_insert_with(|| json!([])).as_array_mut()?.push(element);
            }
            Shape::Map | Shape::Quantities => {
                let (key, value) = entry(content(value)?, matches!(shape, Shape::Quantities))?;
                object.entry(name).or_insert_with(|| json!({})).as_object_mut()?.insert(key, value);
            }
            _ => {
                let unset = match shape {
                    Shape::Text | Shape::Time => value == WireValue::Bytes(&[]),
                    Shape::Count => value == WireValue::Number(0),
                    _ => false,
                };
                if !unset {
                    object.insert(name.to_owned(), single(value, shape)?);
                }
            }
        }
    }
    Some(())
}

fn single(value: WireValue<'_>, shape: Shape) -> Option<Value> {
    match shape {
        Shape::Number | Shape::Count => Some(json!(number(value)?)),
        Shape::Flag => Some(json!(number(value)? != 0)),
        Shape::Time => time(content(value)?),
        Shape::Part(part) => transcribed(content(value)?, part),
        _ => text(value),
    }
}

fn content(value: WireValue<'_>) -> Option<&[u8]> {
    if let WireValue::Bytes(bytes) = value { Some(bytes) } else { None }
}

fn text(value: WireValue<'_>) -> Option<Value> {
    Some(json!(std::str::from_utf8(content(value)?).ok()?))
}

fn number(value: WireValue<'_>) -> Option<i64> {
    if let WireValue::Number(number) = value { Some(number.cast_signed()) } else { None }
}

/// Key and value of a map's entry; a quantity is a message with a text.
fn entry(bytes: &[u8], quantity: bool) -> Option<(String, Value)> {
    let (mut key, mut value) = (json!(""), json!(""));
    let mut records = Records(bytes);
    while let Some((field, found)) = records.next().ok()? {
        match field {
            1 => key = text(found)?,
            2 if quantity => {
                value = json!("");
                let mut inner = Records(content(found)?);
                while let Some((field, found)) = inner.next().ok()? {
                    if field == 1 {
                        value = text(found)?;
                    }
                }
            }
            2 => value = text(found)?,
            _ => {}
        }
    }
    Some((key.as_str()?.to_owned(), value))
}

/// A time with microseconds, which is what JSON has. Other years than those with four digits have no JSON.
fn time(bytes: &[u8]) -> Option<Value> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    let mut records = Records(bytes);
    while let Some((field, found)) = records.next().ok()? {
        match field {
            1 => seconds = number(found)?,
            2 => nanoseconds = number(found)?,
            _ => {}
        }
    }
    let nanoseconds = i32::try_from(nanoseconds).ok().filter(|nanos| (0..1_000_000_000).contains(nanos))?;
    let time = Timestamp::new(seconds, nanoseconds / 1000 * 1000).ok()?;
    let year = time.strftime("%Y").to_string().parse::<i32>().ok()?;
    (1..=9999).contains(&year).then(|| json!(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()))
}
