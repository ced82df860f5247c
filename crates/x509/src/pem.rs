//! PEM, as Go's `encoding/pem` reads and writes it.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;

/// One PEM block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its type, such as `CERTIFICATE`.
    pub kind: String,
    /// Whether it has headers.
    pub has_headers: bool,
    /// Its content.
    pub bytes: Vec<u8>,
}

const BEGIN: &[u8] = b"-----BEGIN ";
/// With the newline that must precede it.
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

/// Go does not check the bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// All well-formed blocks of a text, in order. Everything else is skipped.
pub fn blocks(text: &[u8]) -> impl Iterator<Item = Block> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (block, after) = next_block(rest)?;
        rest = after;
        Some(block)
    })
}

/// A block with 64 characters per line. The last line ends with a newline.
#[must_use]
pub fn encode(kind: &str, bytes: &[u8]) -> String {
    let base64 = BASE64_STANDARD.encode(bytes);
    let mut text = format!("-----BEGIN {kind}-----\n");
    let mut rest = base64.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(&format!("-----END {kind}-----\n"));
    text
}

/// The first well-formed block, and the text after it. Parity: `pem.Decode`.
fn next_block(text: &[u8]) -> Option<(Block, &[u8])> {
    let mut from = 0;
    loop {
        let end = from + find(&text[from..], END)?;
        let trailer = end + END.len();
        // The last BEGIN before the END counts: an earlier one has no END of its own.
        let begin = rfind(&text[from..end], BEGIN).map(|begin| from + begin);
        if let Some(begin) = begin
            && (begin == from || text[begin - 1] == b'\n')
        {
            match block_between(text, begin + BEGIN.len(), end, trailer) {
                Parsed::Block(block, rest) => return Some((block, rest)),
                Parsed::EndOfText => return None,
                Parsed::Malformed => {}
            }
        }
        from = trailer;
    }
}

enum Parsed<'a> {
    Block(Block, &'a [u8]),
    /// A header line was the last line of the text.
    EndOfText,
    Malformed,
}

/// Reads the block whose type begins at `kind_at`, whose END line follows the newline at `end`, and whose trailer begins
/// at `trailer`.
fn block_between(text: &[u8], kind_at: usize, end: usize, trailer: usize) -> Parsed<'_> {
    let (line, mut at) = line(text, kind_at);
    let Some(kind) = line.strip_suffix(DASHES) else { return Parsed::Malformed };
    let mut has_headers = false;
    loop {
        if at >= text.len() {
            return Parsed::EndOfText;
        }
        let (line, next) = self::line(text, at);
        if !line.contains(&b':') {
            break;
        }
        has_headers = true;
        at = next;
    }
    // An empty block has no newline of its own before its END line.
    let is_empty = at > end;
    if at > trailer {
        // Headers that run past the END line: Go gives up here, which also keeps reading linear.
        return Parsed::EndOfText;
    }
    if is_empty && has_headers {
        return Parsed::Malformed;
    }
    let Some(after) = text[trailer..].strip_prefix(kind).and_then(|rest| rest.strip_prefix(DASHES)) else {
        return Parsed::Malformed;
    };
    let (rest_of_line, next) = self::line(after, 0);
    if !rest_of_line.is_empty() {
        return Parsed::Malformed;
    }
    let body = if is_empty { &[][..] } else { &text[at..end] };
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let base64: Vec<u8> = body.iter().copied().filter(|byte| !is_blank(byte)).collect();
    let Ok(bytes) = BASE64.decode(base64) else { return Parsed::Malformed };
    let kind = String::from_utf8_lossy(kind).into_owned();
    Parsed::Block(Block { kind, has_headers, bytes }, &after[next..])
}

/// The line that begins here, without trailing blanks, and where the next one begins.
fn line(text: &[u8], at: usize) -> (&[u8], usize) {
    let (end, next) = match find(&text[at..], b"\n") {
        None => (text.len(), text.len()),
        Some(length) => (at + length, at + length + 1),
    };
    let line = &text[at..end];
    let line = if end < next { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    let trimmed = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    (&line[..trimmed], next)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn rfind(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).rposition(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::cloned_ref_to_slice_refs, reason = "one object is written like several")]

    use super::*;

    fn found(text: &str) -> Vec<(String, Vec<u8>)> {
        blocks(text.as_bytes()).map(|block| (block.kind, block.bytes)).collect()
    }

    const A: &str = "-----BEGIN A-----\nAQID\n-----END A-----\n";

    #[test]
    fn well_formed_blocks_are_found_among_other_text() {
        let a = ("A".to_owned(), vec![1, 2, 3]);
        assert_eq!(found(A), [a.clone()]);
        assert_eq!(found(&format!("text\n{A}more\n{A}")), [a.clone(), a.clone()]);
        assert_eq!(found(&A.replace('\n', "\r\n")), [a.clone()]);
        assert_eq!(found(A.trim_end()), [a.clone()], "no final newline");
        assert_eq!(found(&format!("-----BEGIN B-----\nAA\n{A}")), [a.clone()], "a BEGIN without END");
        assert_eq!(found("-----BEGIN A-----\n-----END A-----\n"), [("A".to_owned(), vec![])]);
        let bad = "-----BEGIN B-----\n!!!!\n-----END B-----\n";
        assert_eq!(found(&format!("{bad}{A}")), [a]);
        for none in ["", "x", "-----BEGIN A-----", "x-----BEGIN A-----\nAQID\n-----END A-----\n"] {
            assert_eq!(found(none), [], "{none}");
        }
        for none in [A.replace("END A", "END B"), A.replace("END A-----", "END A----- x")] {
            assert_eq!(found(&none), [], "{none}");
        }
    }

    #[test]
    fn headers_are_noticed() {
        let text = "-----BEGIN A-----\nkey: value\n\nAQID\n-----END A-----\n";
        let block = blocks(text.as_bytes()).next().unwrap();
        assert!(block.has_headers && block.bytes == [1, 2, 3]);
        assert!(!blocks(A.as_bytes()).next().unwrap().has_headers);
        assert_eq!(found("-----BEGIN A-----\na: b\n-----END A-----\n"), [], "no line after the headers");
    }

    #[test]
    fn lines_have_64_characters() {
        let text = encode("X", &[0; 100]);
        let lengths: Vec<_> = text.lines().map(str::len).collect();
        assert_eq!(lengths, [17, 64, 64, 8, 15]);
        assert!(text.ends_with("-----END X-----\n"));
        assert_eq!(blocks(text.as_bytes()).next().unwrap().bytes, [0; 100]);
    }
}
