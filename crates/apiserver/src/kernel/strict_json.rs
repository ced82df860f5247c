//! A JSON parser that reports duplicate fields, with the error messages of Go's parser.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

/// The value and its duplicate fields as error messages; or why the text is not JSON.
pub(crate) fn parse(text: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Parser { path: String::new(), duplicates: &mut duplicates }.deserialize(&mut reader);
    let value =
        value.and_then(|value| reader.end().map(|()| value)).map_err(|error| go_message(&error, text))?;
    Ok((value, duplicates.into_iter().map(|field| format!("duplicate field {field:?}")).collect()))
}

fn go_message(error: &serde_json::Error, text: &[u8]) -> String {
    if error.classify() == Category::Eof {
        return "unexpected end of JSON input".to_owned();
    }
    let lines: usize = text.split_inclusive(|b| *b == b'\n').take(error.line() - 1).map(<[u8]>::len).sum();
    let at = (lines + error.column()).saturating_sub(1);
    let found = text.get(at).copied().map_or('?', char::from);
    if error.to_string().starts_with("trailing characters") {
        return format!("invalid character '{found}' after top-level value");
    }
    format!("invalid character '{found}' looking for beginning of value")
}

/// The state of parsing one value.
struct Parser<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Parser<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Parser<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, list.len());
            let Some(item) = items.next_element_seed(Parser { path, duplicates: self.duplicates })? else {
                return Ok(Value::Array(list));
            };
            list.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = if self.path.is_empty() { name.clone() } else { format!("{}.{name}", self.path) };
            let value = fields.next_value_seed(Parser { path: path.clone(), duplicates: self.duplicates })?;
            if map.insert(name, value).is_some() {
                self.duplicates.push(path);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicate_fields_are_reported() {
        let text = r#"{"a": [1, -2, 0.5, "x", true, null], "b": {"c": 1, "c": 2}, "l": [{"d": 1, "d": 2}]}"#;
        let (value, duplicates) = parse(text.as_bytes()).unwrap();
        assert_eq!(value, json!({"a": [1, -2, 0.5, "x", true, null], "b": {"c": 2}, "l": [{"d": 2}]}));
        assert_eq!(duplicates, ["duplicate field \"b.c\"", "duplicate field \"l[0].d\""]);
    }

    #[test]
    fn parse_errors_equal_those_of_go() {
        for (text, complaint) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("{} {}", "invalid character '{' after top-level value"),
            ("x", "invalid character 'x' looking for beginning of value"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), complaint, "{text}");
        }
    }
}
