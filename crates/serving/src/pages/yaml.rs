//! Writes small objects as YAML with the original's quoting. Hand-written because YAML libraries quote by
//! other rules.

use std::net::Ipv4Addr;

use serde_json::Value;

/// The value as a YAML document: keys sorted, lists not indented.
pub(super) fn text(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value, 0);
    text
}

fn write_value(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let key = format!("{indent}{}:", scalar(key));
                text.push_str(&key);
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        text.push('\n');
                        write_value(text, value, depth + 1);
                    }
                    Value::Array(inner) if !inner.is_empty() => {
                        text.push('\n');
                        write_value(text, value, depth);
                    }
                    _ => {
                        let value = folded(&leaf(value), key.chars().count() + 1, depth + 1);
                        text.push_str(&format!(" {value}\n"));
                    }
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let item = folded(&leaf(item), indent.len() + 2, depth + 1);
                text.push_str(&format!("{indent}- {item}\n"));
            }
        }
        _ => text.push_str(&format!("{}\n", leaf(value))),
    }
}

/// Breaks a scalar that begins at a column at single spaces beyond the line's width, as the original's library does.
fn folded(scalar: &str, mut column: usize, depth: usize) -> String {
    const WIDTH: usize = 80;
    if scalar.starts_with('"') {
        return scalar.to_owned();
    }
    let chars: Vec<char> = scalar.chars().collect();
    // Not at the quotes.
    let inner = if scalar.starts_with('\'') { 2..chars.len().saturating_sub(2) } else { 1..chars.len() - 1 };
    let is_single_space = |at: usize| chars[at] == ' ' && chars[at - 1] != ' ' && chars[at + 1] != ' ';
    let mut text = String::new();
    for (at, one) in chars.iter().enumerate() {
        if column > WIDTH && inner.contains(&at) && is_single_space(at) {
            let indent = "  ".repeat(depth);
            text.push('\n');
            text.push_str(&indent);
            column = indent.len();
        } else {
            text.push(*one);
            column += 1;
        }
    }
    text
}

fn leaf(value: &Value) -> String {
    match value {
        Value::String(string) => scalar(string),
        other => other.to_string(),
    }
}

/// Plain if YAML parses it as the same string, in double quotes if YAML would parse it as another type, and
/// in single quotes if only its characters need quoting.
fn scalar(string: &str) -> String {
    if string.chars().any(char::is_control) || parses_as_another_type(string) {
        return Value::from(string).to_string();
    }
    let first = string.chars().next().unwrap_or(' ');
    let second_is_space = string.chars().nth(1).is_none_or(char::is_whitespace);
    let protected = string.starts_with(char::is_whitespace)
        || string.ends_with(char::is_whitespace)
        || ",[]{}#&*!|>'\"%@`".contains(first)
        || ("-?:".contains(first) && second_is_space)
        || string.starts_with("---")
        || string.starts_with("...")
        || string.contains(": ")
        || string.ends_with(':')
        || string.contains(" #");
    if protected { format!("'{}'", string.replace('\'', "''")) } else { string.to_owned() }
}

fn parses_as_another_type(string: &str) -> bool {
    const WORDS: [&str; 10] = ["", "~", "null", "true", "false", "yes", "no", "on", "off", "<<"];
    let lower = string.to_ascii_lowercase();
    let unsigned = lower.trim_start_matches(['+', '-']);
    WORDS.contains(&lower.as_str())
        || ["y", "n"].contains(&lower.as_str())
        || [".inf", ".nan"].contains(&unsigned)
        || is_number(unsigned)
        || is_timestamp(&lower)
}

fn is_number(unsigned: &str) -> bool {
    let digits = unsigned.replace('_', "");
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') || digits.parse::<Ipv4Addr>().is_ok() {
        return false;
    }
    let radix = |prefix, radix| {
        digits.strip_prefix(prefix).is_some_and(|rest| u64::from_str_radix(rest, radix).is_ok())
    };
    let sexagesimal = || {
        digits.contains(':') && digits.split(':').all(|part| !part.is_empty() && part.parse::<f64>().is_ok())
    };
    digits.parse::<f64>().is_ok() || radix("0x", 16) || radix("0b", 2) || radix("0o", 8) || sexagesimal()
}

fn is_timestamp(lower: &str) -> bool {
    let date = lower.get(..10).unwrap_or_default();
    let mut parts = date.split('-').map(|part| (part.len(), part.parse::<u16>().is_ok()));
    parts.by_ref().take(3).eq([(4, true), (2, true), (2, true)])
        && lower[10..].chars().all(|c| c.is_ascii_digit() || "t:.z+- ".contains(c))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_matches_the_originals() {
        let value = json!({"kind": "Statusz", "apiVersion": "v1", "metadata": {"name": "m"}, "details": {},
            "paths": ["/a", "/b"], "code": 403, "none": []});
        let wanted = "apiVersion: v1\ncode: 403\ndetails: {}\nkind: Statusz\nmetadata:\n  name: m\nnone: []\npaths:\n- /a\n- /b\n";
        assert_eq!(text(&value), wanted);
    }

    /// The first text is what the original sent.
    #[test]
    fn long_lines_are_broken_at_spaces() {
        let message = |name: &str| {
            format!("forbidden: User \"system:serviceaccount:default:{name}\" cannot get path \"/metrics\"")
        };
        assert_eq!(
            text(&json!({"message": message("powerless")})),
            "message: 'forbidden: User \"system:serviceaccount:default:powerless\" cannot get path\n  \"/metrics\"'\n"
        );
        assert_eq!(text(&json!({"message": message("short")})).lines().count(), 1);
        let long = "x".repeat(90);
        assert_eq!(text(&json!({"a": [format!("{long} y  z w")]})), format!("a:\n- {long}\n  y  z w\n"));
    }

    #[test]
    fn ambiguous_strings_are_quoted() {
        for (string, wanted) in [
            ("1m0s", "1m0s"),
            ("10.128.0.0/9", "10.128.0.0/9"),
            ("0.0.0.0", "0.0.0.0"),
            ("a: b", "'a: b'"),
            ("it's: b", "'it''s: b'"),
            ("[]", "'[]'"),
            ("*", "'*'"),
            ("-a", "-a"),
            ("-", "'-'"),
            ("", "\"\""),
            ("true", "\"true\""),
            ("1.37", "\"1.37\""),
            ("0x1F", "\"0x1F\""),
            ("12:30", "\"12:30\""),
            ("2026-11-15T10:19:41Z", "\"2026-11-15T10:19:41Z\""),
            ("a\nb", "\"a\\nb\""),
        ] {
            assert_eq!(scalar(string), wanted);
        }
    }
}
