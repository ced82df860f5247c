//! JSON as YAML, as kubectl prints it: maps in order, lists not indented, texts quoted where they must be.

use std::fmt::Write as _;

use serde_json::Value;

/// The value as a YAML document.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let _ = write!(out, "{:indent$}{}:", "", scalar(name));
                nested(out, field, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut inner = String::new();
                block(&mut inner, item, indent + 2);
                // The first line of the item stands behind the dash.
                let _ = write!(out, "{:indent$}- {}", "", inner.trim_start());
            }
        }
        other => {
            let _ = writeln!(out, "{:indent$}{}", "", flow(other));
        }
    }
}

fn nested(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            block(out, value, indent + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(out, value, indent);
        }
        other => {
            let _ = writeln!(out, " {}", flow(other));
        }
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

/// A plain scalar if nothing in it has a meaning of its own, and JSON's quoting otherwise, which YAML also reads.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " ./-_(),;@".contains(c))
        && !text.ends_with(' ')
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_lowercase().as_str());
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_reads_back_as_the_same_value() {
        let value = json!({"kind": "Explanation", "empty": [], "none": {}, "exists": true, "count": 3, "nothing": null,
            "causes": [{"text": "pods \"a\" is: forbidden\nx", "path": ["deployment/web", "pod/x"]}, {"text": "no"}],
            "nested": [[1, [2]], "- x", "#", "1.5", "0x1f", "~", " a", "a: b", "a #b", "\u{1f600}"]});
        let printed = text(&value);
        let read: Value = serde_saphyr::from_str(&printed).unwrap();
        assert_eq!(read, value, "{printed}");
        assert!(printed.contains("causes:\n- path:\n  - deployment/web\n"), "{printed}");
    }
}
