//! The values of string and bytes literals.

/// The characters or bytes of a literal as it was written, with its quotes and without the `b` of bytes.
pub(crate) fn unescape(written: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let written = written.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, body) = match written.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, written.as_str()),
    };
    let fence =
        if body.len() >= 6 && (body.starts_with("'''") || body.starts_with("\"\"\"")) { 3 } else { 1 };
    let body = body.get(fence..body.len().saturating_sub(fence)).ok_or("unable to unescape string")?;
    if raw || !body.contains('\\') {
        return Ok(body.as_bytes().to_vec());
    }
    let (mut value, mut rest) = (Vec::with_capacity(body.len()), body.chars());
    while let Some(one) = rest.next() {
        if one == '\\' {
            escaped(&mut rest, bytes, &mut value)?;
        } else {
            push(&mut value, one);
        }
    }
    Ok(value)
}

fn push(value: &mut Vec<u8>, one: char) {
    value.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes());
}

fn escaped(rest: &mut std::str::Chars<'_>, bytes: bool, value: &mut Vec<u8>) -> Result<(), &'static str> {
    let letter = rest.next().ok_or("unable to unescape string, found '\\' as last character")?;
    let (radix, digits, lead) = match letter {
        'a' => return plain(value, 7),
        'b' => return plain(value, 8),
        'f' => return plain(value, 12),
        'n' => return plain(value, 10),
        'r' => return plain(value, 13),
        't' => return plain(value, 9),
        'v' => return plain(value, 11),
        '\\' | '\'' | '"' | '`' | '?' => {
            push(value, letter);
            return Ok(());
        }
        'x' | 'X' => (16, 2, 0),
        'u' if !bytes => (16, 4, 0),
        'U' if !bytes => (16, 8, 0),
        '0'..='3' => (8, 2, u32::from(letter) - u32::from('0')),
        _ => return Err("unable to unescape string"),
    };
    let mut code = lead;
    for _ in 0..digits {
        let digit = rest.next().and_then(|one| one.to_digit(radix)).ok_or("unable to unescape string")?;
        code = code.wrapping_mul(radix) + digit;
    }
    if bytes {
        return plain(value, u8::try_from(code).unwrap_or(u8::MAX));
    }
    push(value, char::from_u32(code).ok_or("invalid unicode code point")?);
    Ok(())
}

fn plain(value: &mut Vec<u8>, byte: u8) -> Result<(), &'static str> {
    value.push(byte);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_characters_or_bytes() {
        assert_eq!(unescape(r#""a\n\x41\101\u00e9""#, false).unwrap(), "a\nAA\u{e9}".as_bytes());
        assert_eq!(unescape(r"'\xff\377'", true).unwrap(), [255, 255]);
        assert_eq!(unescape(r"r'\d'", false).unwrap(), br"\d");
        assert_eq!(unescape("'''a'b'''", false).unwrap(), b"a'b");
        assert_eq!(unescape("''", false).unwrap(), b"");
        assert_eq!(unescape(r"'\ud800'", false), Err("invalid unicode code point"));
        assert_eq!(unescape(r"'\u0041'", true), Err("unable to unescape string"));
    }
}
