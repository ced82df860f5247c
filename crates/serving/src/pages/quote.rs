//! Quotes strings like Go's `%q`, which upstream's messages use.

/// Go's `%q`.
pub(super) fn go(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\0'..='\u{1f}' | '\u{7f}' => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() || (c.is_whitespace() && c != ' ') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_are_quoted_like_go() {
        assert_eq!(super::go("a\"b\\c\n\u{0}\u{7f}\u{a0}ü"), r#""a\"b\\c\n\x00\x7f\u00a0ü""#);
    }
}
