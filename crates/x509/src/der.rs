//! DER: reading with the rules of Go's `encoding/asn1`, and writing.

use std::fmt;

/// The tag byte of an INTEGER.
pub const INTEGER: u8 = 0x02;
/// The tag byte of a BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// The tag byte of an OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// The tag byte of an OBJECT IDENTIFIER.
pub const OBJECT_ID: u8 = 0x06;
/// The tag byte of a SEQUENCE.
pub const SEQUENCE: u8 = 0x30;
/// The tag byte of a SET.
pub const SET: u8 = 0x31;
pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const NUMERIC_STRING: u8 = 0x12;
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const T61_STRING: u8 = 0x14;
pub(crate) const IA5_STRING: u8 = 0x16;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const BMP_STRING: u8 = 0x1e;
pub(crate) const CONTEXT_0: u8 = 0xa0;

/// Why bytes are not the expected DER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerError(pub(crate) &'static str);

impl fmt::Display for DerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for DerError {}

pub(crate) const MISMATCH: DerError = DerError("asn1: structure error: tags don't match");
pub(crate) const TRUNCATED: DerError = DerError("asn1: syntax error: data truncated");
const SEQUENCE_TRUNCATED: DerError = DerError("asn1: syntax error: sequence truncated");
const TAG_TRUNCATED: DerError = DerError("asn1: syntax error: truncated tag or length");

/// One element: its identifier and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// The first byte of the identifier: class, form and, if below 31, the tag number.
    pub tag: u8,
    /// The content.
    pub content: &'a [u8],
    /// Identifier, length and content.
    pub full: &'a [u8],
}

/// Reads consecutive elements.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads these bytes.
    #[must_use]
    pub fn new(der: &'a [u8]) -> Self {
        Self(der)
    }

    /// What is not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Whether everything is read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element.
    ///
    /// # Errors
    /// If there is none, or its length is not DER.
    pub fn element(&mut self) -> Result<Element<'a>, DerError> {
        let Some((&tag, _)) = self.0.split_first() else { return Err(SEQUENCE_TRUNCATED) };
        let (header, length) = header(self.0)?;
        let end = header.checked_add(length).filter(|end| *end <= self.0.len()).ok_or(TRUNCATED)?;
        let (full, rest) = self.0.split_at(end);
        self.0 = rest;
        Ok(Element { tag, content: &full[header..], full })
    }

    /// The content of the next element, which must have this tag.
    ///
    /// # Errors
    /// If there is none, it has another tag, or its length is not DER.
    pub fn expect(&mut self, tag: u8) -> Result<&'a [u8], DerError> {
        // The tag is compared first: the content of another element may be truncated.
        match self.0.first() {
            None => Err(SEQUENCE_TRUNCATED),
            Some(found) if *found != tag => {
                header(self.0)?;
                Err(MISMATCH)
            }
            Some(_) => Ok(self.element()?.content),
        }
    }

    /// Like [`Self::expect`], with the whole element.
    ///
    /// # Errors
    /// As [`Self::expect`].
    pub fn expect_element(&mut self, tag: u8) -> Result<Element<'a>, DerError> {
        let before = *self;
        self.expect(tag)?;
        let mut again = before;
        again.element()
    }

    /// Whether the next element begins with this tag.
    #[must_use]
    pub fn is_at(&self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }
}

/// The lengths of the identifier with the length, and of the content.
fn header(der: &[u8]) -> Result<(usize, usize), DerError> {
    let mut at = 1;
    if der[0] & 0x1f == 0x1f {
        let (number, length) = base_128(&der[1..])?;
        if number < 0x1f {
            return Err(DerError("asn1: syntax error: non-minimal tag"));
        }
        at += length;
    }
    let first = *der.get(at).ok_or(TAG_TRUNCATED)?;
    at += 1;
    if first & 0x80 == 0 {
        return Ok((at, usize::from(first)));
    }
    let bytes = usize::from(first & 0x7f);
    if bytes == 0 {
        return Err(DerError("asn1: syntax error: indefinite length found (not DER)"));
    }
    let mut length = 0_usize;
    for _ in 0..bytes {
        let byte = *der.get(at).ok_or(TAG_TRUNCATED)?;
        at += 1;
        if length >= 1 << 23 {
            return Err(DerError("asn1: structure error: length too large"));
        }
        length = length << 8 | usize::from(byte);
        if length == 0 {
            return Err(DerError("asn1: structure error: superfluous leading zeros in length"));
        }
    }
    if length < 0x80 {
        return Err(DerError("asn1: structure error: non-minimal length"));
    }
    Ok((at, length))
}

/// A number in base 128 and the count of its bytes.
fn base_128(der: &[u8]) -> Result<(u64, usize), DerError> {
    let mut number = 0_u64;
    for (at, byte) in der.iter().enumerate() {
        if at == 5 {
            return Err(DerError("asn1: structure error: base 128 integer too large"));
        }
        if at == 0 && *byte == 0x80 {
            return Err(DerError("asn1: syntax error: integer is not minimally encoded"));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return if number > u64::from(u32::MAX >> 1) {
                Err(DerError("asn1: structure error: base 128 integer too large"))
            } else {
                Ok((number, at + 1))
            };
        }
    }
    Err(DerError("asn1: syntax error: truncated base 128 integer"))
}

/// Checks the content of an OBJECT IDENTIFIER. Equal identifiers have equal bytes, so nothing is decoded.
pub(crate) fn object_id(content: &[u8]) -> Result<&[u8], DerError> {
    if content.is_empty() {
        return Err(DerError("asn1: syntax error: zero length OBJECT IDENTIFIER"));
    }
    let mut rest = content;
    while !rest.is_empty() {
        rest = &rest[base_128(rest)?.1..];
    }
    Ok(content)
}

/// The bytes of a BIT STRING, shifted right so that the last bit is used.
pub(crate) fn bit_string(content: &[u8]) -> Result<Vec<u8>, DerError> {
    let Some((&padding, bytes)) = content.split_first() else {
        return Err(DerError("asn1: syntax error: zero length BIT STRING"));
    };
    let unused = 1_u16.checked_shl(u32::from(padding)).unwrap_or(0).wrapping_sub(1);
    let last = content[content.len() - 1];
    if padding > 7 || bytes.is_empty() && padding > 0 || u16::from(last) & unused != 0 {
        return Err(DerError("asn1: syntax error: invalid padding bits in BIT STRING"));
    }
    if padding == 0 {
        return Ok(bytes.to_vec());
    }
    let mut shifted = Vec::with_capacity(bytes.len());
    let mut carry = 0;
    for byte in bytes {
        shifted.push(carry | byte >> padding);
        carry = byte << (8 - padding);
    }
    Ok(shifted)
}

/// Checks the content of an INTEGER: not empty and minimal.
pub(crate) fn integer(content: &[u8]) -> Result<&[u8], DerError> {
    match content {
        [] => Err(DerError("asn1: structure error: empty integer")),
        [0, next, ..] if next & 0x80 == 0 => {
            Err(DerError("asn1: structure error: integer not minimally-encoded"))
        }
        [0xff, next, ..] if next & 0x80 != 0 => {
            Err(DerError("asn1: structure error: integer not minimally-encoded"))
        }
        _ => Ok(content),
    }
}

/// The value of an INTEGER of at most 64 bits.
pub(crate) fn integer_i64(content: &[u8]) -> Result<i64, DerError> {
    let content = integer(content)?;
    if content.len() > 8 {
        return Err(DerError("asn1: structure error: integer too large"));
    }
    let sign = if content[0] & 0x80 == 0 { 0 } else { -1 };
    Ok(content.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte)))
}

pub(crate) fn boolean(content: &[u8]) -> Result<bool, DerError> {
    match content {
        [0] => Ok(false),
        [0xff] => Ok(true),
        _ => Err(DerError("asn1: syntax error: invalid boolean")),
    }
}

/// An element with this tag and content.
#[must_use]
pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut der = Vec::with_capacity(content.len() + 6);
    der.push(tag);
    let length = content.len();
    if length < 0x80 {
        // The cast keeps the value: it is below 128.
        der.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        der.push(0x80 | digits.len() as u8);
        der.extend_from_slice(digits);
    }
    der.extend_from_slice(content);
    der
}

/// A SEQUENCE of encoded elements.
#[must_use]
pub fn sequence(elements: &[Vec<u8>]) -> Vec<u8> {
    element(SEQUENCE, &elements.concat())
}

/// An INTEGER from an unsigned big-endian number.
#[must_use]
pub fn unsigned_integer(number: &[u8]) -> Vec<u8> {
    let digits = &number[number.iter().take_while(|byte| **byte == 0).count()..];
    match digits.first() {
        None => element(INTEGER, &[0]),
        Some(first) if first & 0x80 != 0 => element(INTEGER, &[&[0], digits].concat()),
        Some(_) => element(INTEGER, digits),
    }
}

/// A BIT STRING of whole bytes.
#[must_use]
pub fn bits(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(der: &[u8]) -> Result<(u8, usize), &'static str> {
        Reader::new(der).element().map(|found| (found.tag, found.content.len())).map_err(|error| error.0)
    }

    #[test]
    fn only_minimal_definite_lengths_are_read() {
        assert_eq!(read(&[4, 1, 9]), Ok((4, 1)));
        let long = [&[4, 0x81, 0x80][..], &[0; 128]].concat();
        assert_eq!(read(&long), Ok((4, 128)));
        for (der, error) in [
            (&[][..], "sequence truncated"),
            (&[4], "truncated tag or length"),
            (&[4, 2, 1], "data truncated"),
            (&[4, 0x80, 0, 0], "indefinite length found (not DER)"),
            (&[4, 0x81, 5, 0, 0, 0, 0, 0], "non-minimal length"),
            (&[4, 0x82, 0, 200], "superfluous leading zeros in length"),
            (&[4, 0x85, 1, 1, 1, 1, 1], "length too large"),
            (&[0x1f, 5, 0], "non-minimal tag"),
            (&[0x1f, 0x80, 5, 0], "integer is not minimally encoded"),
        ] {
            assert!(read(der).is_err_and(|found| found.ends_with(error)), "{der:?} {error}");
        }
    }

    #[test]
    fn written_lengths_are_read_back() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let der = element(OCTET_STRING, &vec![7; length]);
            let mut reader = Reader::new(&der);
            assert_eq!(reader.expect(OCTET_STRING).unwrap().len(), length);
            assert!(reader.is_empty());
        }
        assert_eq!(unsigned_integer(&[0, 0]), [2, 1, 0]);
        assert_eq!(unsigned_integer(&[0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(unsigned_integer(&[0, 0x7f]), [2, 1, 0x7f]);
    }

    #[test]
    fn bit_string_is_right_aligned_and_its_padding_is_zero() {
        assert_eq!(bit_string(&[0, 0xa5]), Ok(vec![0xa5]));
        assert_eq!(bit_string(&[4, 0x12, 0x30]), Ok(vec![0x01, 0x23]));
        for bad in [&[][..], &[1], &[8, 0], &[255, 0], &[4, 0x12, 0x31]] {
            assert!(bit_string(bad).is_err(), "{bad:?}");
        }
    }
}
