//! Splits an expression into tokens.

use crate::issues::Issues;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An operator, a bracket, or one of the words `in`, `true`, `false` and `null`.
    Fixed(&'static str),
    Identifier,
    /// An identifier in backquotes.
    QuotedIdentifier,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    End,
}

/// A token: its place, and its text as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) offset: usize,
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, TokenKind::Fixed(fixed) if fixed == text)
    }
}

/// Longer ones first.
const FIXED: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%",
];
const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Splits the text; what is no token is reported and left out.
pub(crate) fn tokens(chars: &[char], issues: &mut Issues) -> Vec<Token> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        let rest = &chars[at..];
        let skipped = blank(rest);
        if skipped > 0 {
            at += skipped;
            continue;
        }
        match token(rest) {
            Ok((kind, length)) => {
                let text = rest[..length].iter().collect();
                tokens.push(Token { kind, offset: at, text });
                at += length;
            }
            Err(length) => {
                let shown: String = rest[..length].iter().collect();
                let shown = shown.replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r");
                issues.report(at, format!("Syntax error: token recognition error at: '{shown}'"));
                at += length;
            }
        }
    }
    tokens.push(Token { kind: TokenKind::End, offset: chars.len(), text: "<EOF>".to_owned() });
    tokens
}

/// The length of white space or of a comment.
fn blank(rest: &[char]) -> usize {
    if rest.starts_with(&['/', '/']) {
        return rest.iter().take_while(|one| **one != '\n').count();
    }
    rest.iter().take_while(|one| matches!(one, '\t' | ' ' | '\r' | '\n' | '\u{c}')).count()
}

/// The next token and its length, or how much of the text is none.
fn token(rest: &[char]) -> Result<(TokenKind, usize), usize> {
    let first = rest[0];
    if first.is_ascii_digit() || (first == '.' && rest.get(1).is_some_and(char::is_ascii_digit)) {
        return Ok(number(rest));
    }
    if let Some(result) = quoted(rest) {
        return result;
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = rest.iter().take_while(|one| one.is_ascii_alphanumeric() || **one == '_').count();
        let word: String = rest[..length].iter().collect();
        let fixed = WORDS.iter().find(|fixed| **fixed == word);
        return Ok((fixed.map_or(TokenKind::Identifier, |fixed| TokenKind::Fixed(fixed)), length));
    }
    if first == '`' {
        let within = |one: &&char| one.is_ascii_alphanumeric() || matches!(one, '_' | '.' | '-' | '/' | ' ');
        let length = rest[1..].iter().take_while(within).count();
        let closed = length > 0 && rest.get(length + 1) == Some(&'`');
        return if closed { Ok((TokenKind::QuotedIdentifier, length + 2)) } else { Err(length + 1) };
    }
    let begins = |fixed: &&&str| {
        fixed.len() <= rest.len() && fixed.chars().zip(rest).all(|(one, other)| one == *other)
    };
    FIXED.iter().find(begins).map_or(Err(1), |fixed| Ok((TokenKind::Fixed(fixed), fixed.len())))
}

fn number(rest: &[char]) -> (TokenKind, usize) {
    let digits = |from: usize| rest[from..].iter().take_while(|one| one.is_ascii_digit()).count();
    let is_unsigned = |at: usize| matches!(rest.get(at), Some('u' | 'U'));
    if rest.starts_with(&['0', 'x']) {
        let length = 2 + rest[2..].iter().take_while(|one| one.is_ascii_hexdigit()).count();
        if length > 2 {
            return if is_unsigned(length) {
                (TokenKind::Uint, length + 1)
            } else {
                (TokenKind::Int, length)
            };
        }
    }
    let mut length = digits(0);
    let mut kind = TokenKind::Int;
    if rest.get(length) == Some(&'.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
        kind = TokenKind::Float;
    }
    if matches!(rest.get(length), Some('e' | 'E')) {
        let signed = usize::from(matches!(rest.get(length + 1), Some('+' | '-')));
        let exponent = rest.get(length + 1 + signed..).map_or(0, |_| digits(length + 1 + signed));
        if exponent > 0 {
            length += 1 + signed + exponent;
            kind = TokenKind::Float;
        }
    }
    if kind == TokenKind::Int && is_unsigned(length) {
        return (TokenKind::Uint, length + 1);
    }
    (kind, length)
}

/// A string or bytes: `None` if the text begins with neither.
fn quoted(rest: &[char]) -> Option<Result<(TokenKind, usize), usize>> {
    let bytes = usize::from(matches!(rest[0], 'b' | 'B'));
    let raw = usize::from(matches!(rest.get(bytes), Some('r' | 'R')));
    let prefix = bytes + raw;
    let quote = *rest.get(prefix).filter(|one| matches!(one, '"' | '\''))?;
    let kind = if bytes == 1 { TokenKind::Bytes } else { TokenKind::String };
    let body = &rest[prefix..];
    let length = triple(body, quote, raw == 1).or_else(|| single(body, quote, raw == 1));
    match length {
        Some(length) => Some(Ok((kind, prefix + length))),
        // Without a string behind it, the prefix is an identifier.
        None if prefix > 0 => None,
        // The generated lexer gives up at the character that no string can have.
        None => Some(Err(broken(body, quote))),
    }
}

fn triple(body: &[char], quote: char, raw: bool) -> Option<usize> {
    let fence = [quote; 3];
    if !body.starts_with(&fence) {
        return None;
    }
    let mut at = 3;
    while at < body.len() {
        if body[at..].starts_with(&fence) {
            return Some(at + 3);
        }
        at += if raw { 1 } else { one_character(&body[at..])? };
    }
    None
}

fn single(body: &[char], quote: char, raw: bool) -> Option<usize> {
    let mut at = 1;
    while at < body.len() {
        match body[at] {
            one if one == quote => return Some(at + 1),
            '\n' | '\r' => return None,
            _ if raw => at += 1,
            _ => at += one_character(&body[at..])?,
        }
    }
    None
}

fn broken(body: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < body.len() {
        match body[at] {
            one if one == quote => return at + 1,
            '\n' | '\r' => return at + 1,
            _ => match one_character(&body[at..]) {
                Some(length) => at += length,
                None => return (at + 2).min(body.len()),
            },
        }
    }
    at
}

/// The length of one character of a string; `None` for an escape that does not exist.
fn one_character(rest: &[char]) -> Option<usize> {
    if rest[0] != '\\' {
        return Some(1);
    }
    let hex = |count: usize| {
        let digits = rest.get(2..2 + count)?;
        digits.iter().all(char::is_ascii_hexdigit).then_some(2 + count)
    };
    match rest.get(1)? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Some(2),
        'x' | 'X' => hex(2),
        'u' => hex(4),
        'U' => hex(8),
        '0'..='3' => {
            let octal = rest.get(2..4)?;
            octal.iter().all(|one| matches!(one, '0'..='7')).then_some(4)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        let mut issues = Issues::default();
        let found = tokens(&chars, &mut issues);
        let mut shown: Vec<String> = found.iter().map(|token| token.text.clone()).collect();
        shown.pop();
        shown.extend(issues.list().iter().map(|issue| issue.message.clone()));
        shown
    }

    #[test]
    fn texts_split_into_the_longest_tokens() {
        assert_eq!(split("a<=b&&!in x.y"), ["a", "<=", "b", "&&", "!", "in", "x", ".", "y"]);
        assert_eq!(
            split("1.5e3 .5 1.foo 0x1Fu 12U 0xg"),
            ["1.5e3", ".5", "1", ".", "foo", "0x1Fu", "12U", "0", "xg"]
        );
        assert_eq!(
            split("r'\\d' b\"x\" '''a'b''' \"\\x41\""),
            ["r'\\d'", "b\"x\"", "'''a'b'''", "\"\\x41\""]
        );
        assert_eq!(split("a // rest\n`b-c`"), ["a", "`b-c`"]);
        assert_eq!(split("1e+ 2"), ["1", "e", "+", "2"]);
    }

    #[test]
    fn what_is_no_token_is_reported() {
        assert_eq!(split("a @ b"), ["a", "b", "Syntax error: token recognition error at: '@'"]);
        assert_eq!(split("'\\q'")[0], "Syntax error: token recognition error at: ''\\q'");
        assert_eq!(split("br'a")[..2], ["br", "Syntax error: token recognition error at: ''a'"]);
    }
}
