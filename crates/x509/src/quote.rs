//! Quotes text as Go's `%q` does, for error messages that equal the original's.

use std::fmt::Write as _;

/// A quoted Go string of ASCII text; other characters are kept if they are printable.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_quotes_are_escaped() {
        assert_eq!(quoted("a\"\\\n\u{1}\u{7f}é"), r#""a\"\\\n\x01\x7fé""#);
    }
}
