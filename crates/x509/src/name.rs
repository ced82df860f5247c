//! Distinguished names: the standard attributes of a request's subject, and their encoding in a certificate.

use crate::der::{
    self, BIT_STRING, BMP_STRING, BOOLEAN, DerError, Element, GENERALIZED_TIME, IA5_STRING, INTEGER,
    NUMERIC_STRING, OBJECT_ID, PRINTABLE_STRING, Reader, SEQUENCE, SET, T61_STRING, UTC_TIME, UTF8_STRING,
};

/// The standard attributes of a subject. Others are dropped, as the original drops them from certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `C`.
    pub country: Vec<String>,
    /// `ST`.
    pub province: Vec<String>,
    /// `L`.
    pub locality: Vec<String>,
    /// `STREET`.
    pub street_address: Vec<String>,
    /// `POSTALCODE`.
    pub postal_code: Vec<String>,
    /// `O`.
    pub organization: Vec<String>,
    /// `OU`.
    pub organizational_unit: Vec<String>,
    /// `CN`; the last one counts.
    pub common_name: String,
    /// `SERIALNUMBER`; the last one counts.
    pub serial_number: String,
}

/// The attribute types are `2.5.4.n`.
const PREFIX: [u8; 2] = [0x55, 4];
const COMMON_NAME: u8 = 3;
const SERIAL_NUMBER: u8 = 5;
const COUNTRY: u8 = 6;
const LOCALITY: u8 = 7;
const PROVINCE: u8 = 8;
const STREET_ADDRESS: u8 = 9;
const ORGANIZATION: u8 = 10;
const ORGANIZATIONAL_UNIT: u8 = 11;
const POSTAL_CODE: u8 = 17;

impl Subject {
    /// Reads an RDNSequence. Parity: `asn1.Unmarshal` into a `pkix.RDNSequence`, and `FillFromRDNSequence`.
    pub(crate) fn parse(full: &[u8]) -> Result<Self, DerError> {
        let mut subject = Self::default();
        let mut outer = Reader::new(full);
        let mut rdns = Reader::new(outer.expect(SEQUENCE)?);
        if !outer.is_empty() {
            return Err(DerError("x509: trailing data after X.509 Subject"));
        }
        let sequence = |error: DerError| match error {
            der::MISMATCH => DerError("asn1: structure error: sequence tag mismatch"),
            der::TRUNCATED => DerError("asn1: syntax error: truncated sequence"),
            error => error,
        };
        while !rdns.is_empty() {
            let mut attributes = Reader::new(rdns.expect(SET).map_err(sequence)?);
            while !attributes.is_empty() {
                let mut attribute = Reader::new(attributes.expect(SEQUENCE).map_err(sequence)?);
                let id = der::object_id(attribute.expect(OBJECT_ID)?)?;
                let value = attribute_value(attribute.element()?)?;
                if let ([0x55, 4, number], Some(value)) = (id, value) {
                    subject.set(*number, value);
                }
            }
        }
        Ok(subject)
    }

    fn set(&mut self, number: u8, value: String) {
        match number {
            COMMON_NAME => self.common_name = value,
            SERIAL_NUMBER => self.serial_number = value,
            COUNTRY => self.country.push(value),
            LOCALITY => self.locality.push(value),
            PROVINCE => self.province.push(value),
            STREET_ADDRESS => self.street_address.push(value),
            ORGANIZATION => self.organization.push(value),
            ORGANIZATIONAL_UNIT => self.organizational_unit.push(value),
            POSTAL_CODE => self.postal_code.push(value),
            _ => {}
        }
    }

    /// The RDNSequence of a certificate. Parity: `ToRDNSequence`.
    #[must_use]
    pub fn to_der(&self) -> Vec<u8> {
        let one = |value: &String| if value.is_empty() { Vec::new() } else { vec![value.clone()] };
        let attributes = [
            (COUNTRY, &self.country),
            (PROVINCE, &self.province),
            (LOCALITY, &self.locality),
            (STREET_ADDRESS, &self.street_address),
            (POSTAL_CODE, &self.postal_code),
            (ORGANIZATION, &self.organization),
            (ORGANIZATIONAL_UNIT, &self.organizational_unit),
            (COMMON_NAME, &one(&self.common_name)),
            (SERIAL_NUMBER, &one(&self.serial_number)),
        ];
        let rdns: Vec<_> = attributes
            .iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(number, values)| {
                let mut set: Vec<_> = values.iter().map(|value| attribute(*number, value)).collect();
                set.sort();
                der::element(SET, &set.concat())
            })
            .collect();
        der::sequence(&rdns)
    }
}

/// The value of an attribute; `None` if it is no string. Parity: the type `any` of `encoding/asn1`.
fn attribute_value(element: Element<'_>) -> Result<Option<String>, DerError> {
    let content = element.content;
    let is = |allowed: fn(u8) -> bool| content.iter().all(|byte| allowed(*byte));
    let ascii = || String::from_utf8_lossy(content).into_owned();
    match element.tag {
        PRINTABLE_STRING if is(is_printable_leniently) => Ok(Some(ascii())),
        PRINTABLE_STRING => Err(DerError("asn1: syntax error: PrintableString contains invalid character")),
        NUMERIC_STRING if is(|byte| byte.is_ascii_digit() || byte == b' ') => Ok(Some(ascii())),
        NUMERIC_STRING => Err(DerError("asn1: syntax error: NumericString contains invalid character")),
        IA5_STRING if is(|byte| byte < 0x80) => Ok(Some(ascii())),
        IA5_STRING => Err(DerError("asn1: syntax error: IA5String contains invalid character")),
        T61_STRING => Ok(Some(content.iter().copied().map(char::from).collect())),
        UTF8_STRING => match std::str::from_utf8(content) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(DerError("asn1: invalid UTF-8 string")),
        },
        BMP_STRING => bmp_string(content).map(Some),
        BOOLEAN => der::boolean(content).map(|_| None),
        INTEGER => der::integer_i64(content).map(|_| None),
        BIT_STRING => der::bit_string(content).map(|_| None),
        OBJECT_ID => der::object_id(content).map(|_| None),
        // Go checks the time. A subject that contains one is refused whether it is valid or not.
        UTC_TIME | GENERALIZED_TIME => Err(DerError("asn1: structure error: time in a subject")),
        _ => Ok(None),
    }
}

fn bmp_string(content: &[u8]) -> Result<String, DerError> {
    const INVALID: DerError = DerError("invalid BMPString");
    if !content.len().is_multiple_of(2) {
        return Err(INVALID);
    }
    let content = content.strip_suffix(&[0, 0]).unwrap_or(content);
    let points = content.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    points
        .map(|point| match point {
            0xfffe | 0xffff | 0xfdd0..=0xfdef => None,
            // `None` for surrogates.
            point => char::from_u32(u32::from(point)),
        })
        .collect::<Option<String>>()
        .ok_or(INVALID)
}

/// The characters of a PrintableString.
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'\''..=b')' | b'+'..=b'/' | b' ' | b':' | b'=' | b'?')
}

/// The characters that Go accepts in a PrintableString.
fn is_printable_leniently(byte: u8) -> bool {
    is_printable(byte) || matches!(byte, b'*' | b'&')
}

fn attribute(number: u8, value: &str) -> Vec<u8> {
    let is_printable = value.bytes().all(is_printable);
    let tag = if is_printable { PRINTABLE_STRING } else { UTF8_STRING };
    let id = der::element(OBJECT_ID, &[PREFIX[0], PREFIX[1], number]);
    der::sequence(&[id, der::element(tag, value.as_bytes())])
}
