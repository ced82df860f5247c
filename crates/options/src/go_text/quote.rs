//! Quoting as Go's `%q` does.

use std::fmt::Write;

/// The text in double quotes, with non-printable characters escaped.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        push_escaped(&mut quoted, character, '"');
    }
    quoted.push('"');
    quoted
}

/// One character in single quotes.
pub(crate) fn quote_char(character: char) -> String {
    let mut quoted = String::from("'");
    push_escaped(&mut quoted, character, '\'');
    quoted.push('\'');
    quoted
}

/// A list as Go formats it: quoted items in brackets, separated by spaces.
pub(crate) fn quote_list(items: &[String]) -> String {
    let items: Vec<_> = items.iter().map(|item| quote(item)).collect();
    format!("[{}]", items.join(" "))
}

fn push_escaped(out: &mut String, character: char, delimiter: char) {
    match character {
        '\\' => out.push_str("\\\\"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        other if other == delimiter => {
            out.push('\\');
            out.push(other);
        }
        other if other.is_control() => {
            let code = u32::from(other);
            // Writing to a String cannot fail.
            let _ = if code < 0x80 { write!(out, "\\x{code:02x}") } else { write!(out, "\\u{code:04x}") };
        }
        other => out.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_keeps_an_error_on_one_line() {
        assert_eq!(quote("a\"b\\c\n\u{1}\u{7f}\u{85}é"), r#""a\"b\\c\n\x01\x7f\u0085é""#);
        assert_eq!(quote_char('x'), "'x'");
        assert_eq!(quote_char('\''), r"'\''");
        assert_eq!(quote_list(&["a".to_owned(), "b c".to_owned()]), r#"["a" "b c"]"#);
    }
}
