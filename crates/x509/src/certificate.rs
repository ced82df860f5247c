//! X.509 certificates: what signing needs to know of the CA's, and the encoding of issued ones.

use crate::der::{
    self, BIT_STRING, DerError, GENERALIZED_TIME, INTEGER, OBJECT_ID, OCTET_STRING, Reader, SEQUENCE,
    UTC_TIME,
};
use crate::name::Subject;
use crate::pem;
use crate::quote::quoted;
use crate::request::{ED25519, KeyInfo, PublicKey, extensions};
use crate::san::{SubjectAltNames, extension};

/// What signing needs to know of the CA certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The DER of its subject.
    pub subject: Vec<u8>,
    /// Seconds since 1970.
    pub not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
    /// Its subject key identifier; empty if it has none.
    pub subject_key_id: Vec<u8>,
    /// Its public key.
    pub public_key: PublicKey,
}

const MALFORMED: DerError = DerError("x509: malformed certificate");
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_3: u8 = 0xa3;

const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 14];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 35];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];

impl Certificate {
    /// Parses DER. Whether it is a CA's, and when it begins to be valid, does not matter.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn from_der(certificate: &[u8]) -> Result<Self, String> {
        let mut outer = Reader::new(certificate);
        let content = outer.expect(SEQUENCE).map_err(|_| MALFORMED.to_string())?;
        if !outer.is_empty() {
            return Err("x509: trailing data".to_owned());
        }
        let mut reader = Reader::new(content);
        let tbs = reader.expect(SEQUENCE).map_err(|_| "x509: malformed tbs certificate".to_owned())?;
        let algorithm = reader.expect(SEQUENCE).and_then(|_| der::bit_string(reader.expect(BIT_STRING)?));
        algorithm.map_err(|_| "x509: malformed signature".to_owned())?;
        Self::from_tbs(tbs)
    }

    fn from_tbs(tbs: &[u8]) -> Result<Self, String> {
        let malformed = |what: &str| format!("x509: malformed {what}");
        let mut reader = Reader::new(tbs);
        if reader.is_at(CONTEXT_0) {
            reader.expect(CONTEXT_0).map_err(|_| malformed("version"))?;
        }
        reader.expect(INTEGER).and_then(der::integer).map_err(|_| malformed("serial number"))?;
        reader.expect(SEQUENCE).map_err(|_| malformed("signature algorithm identifier"))?;
        reader.expect(SEQUENCE).map_err(|_| malformed("issuer"))?;
        let mut validity = Reader::new(reader.expect(SEQUENCE).map_err(|_| malformed("validity"))?);
        let mut time = || {
            let element = validity.element().map_err(|_| malformed("validity"))?;
            time_from_der(element.tag, element.content).ok_or_else(|| malformed("UTCTime"))
        };
        let (not_before, not_after) = (time()?, time()?);
        let subject = reader.expect_element(SEQUENCE).map_err(|_| malformed("issuer"))?.full.to_vec();
        let key = reader.expect(SEQUENCE).and_then(KeyInfo::read).map_err(|_| malformed("spki"))?;
        let public_key = key.public_key().map_err(|error| error.to_string())?;
        let mut subject_key_id = Vec::new();
        while !reader.is_empty() {
            let element = reader.element().map_err(|_| malformed("certificate"))?;
            if element.tag == CONTEXT_3 {
                subject_key_id = subject_key_id_of(element.content).map_err(|_| malformed("extensions"))?;
            }
        }
        Ok(Self { subject, not_before, not_after, subject_key_id, public_key })
    }
}

fn subject_key_id_of(content: &[u8]) -> Result<Vec<u8>, DerError> {
    let found = extensions(Reader::new(content).expect(SEQUENCE)?)?;
    let value =
        found.iter().find(|extension| extension.id == SUBJECT_KEY_ID).map(|extension| extension.value);
    value.map_or(Ok(Vec::new()), |value| Ok(Reader::new(value).expect(OCTET_STRING)?.to_vec()))
}

/// The certificates of a PEM text: blocks of this type without headers. Other blocks are skipped.
/// Parity: `ParseCertsPEM`.
///
/// # Errors
/// If one of them is malformed, or there is none.
pub fn certificates_from_pem(text: &[u8]) -> Result<Vec<Certificate>, String> {
    let blocks = pem::blocks(text).filter(|block| block.kind == "CERTIFICATE" && !block.has_headers);
    let found = blocks.map(|block| Certificate::from_der(&block.bytes)).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err("data does not contain any valid RSA or ECDSA certificates".to_owned());
    }
    Ok(found)
}

/// The usages of an issued certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyUsages {
    /// Bit `n` is the bit `n` of the KeyUsage extension.
    bits: u16,
    /// Bit `n` stands for entry `n` of [`EXTENDED`].
    extended: u16,
}

/// The names of the API and the bits they set.
const BITS: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// The names of the API and the identifiers, in the order in which certificates list them.
const EXTENDED: [(&[&str], &[u8]); 12] = [
    (&["any"], &[0x55, 0x1d, 0x25, 0]),
    (&["server auth"], &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    (&["client auth"], &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    (&["code signing"], &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    (&["email protection", "s/mime"], &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    (&["ipsec end system"], &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    (&["ipsec tunnel"], &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    (&["ipsec user"], &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    (&["timestamping"], &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    (&["ocsp signing"], &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    (&["microsoft sgc"], &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    (&["netscape sgc"], &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];

impl KeyUsages {
    /// The usages of these names of the API. Parity: `keyUsagesFromStrings`.
    ///
    /// # Errors
    /// Names all that are unknown.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut usages, mut unknown) = (Self::default(), Vec::new());
        for name in names {
            if let Some((_, bit)) = BITS.iter().find(|(known, _)| *known == name) {
                usages.bits |= 1 << bit;
            } else if let Some(at) = EXTENDED.iter().position(|(known, _)| known.contains(&name)) {
                usages.extended |= 1 << at;
            } else {
                unknown.push(quoted(name));
            }
        }
        if unknown.is_empty() {
            return Ok(usages);
        }
        Err(format!("unrecognized usage values: [{}]", unknown.join(" ")))
    }

    fn extensions(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        if self.bits != 0 {
            // Bit 0 of a BIT STRING is the highest bit of its first byte.
            let reversed = self.bits.reverse_bits().to_be_bytes();
            let used = if reversed[1] == 0 { &reversed[..1] } else { &reversed[..] };
            let padding = used[used.len() - 1].trailing_zeros();
            let value = der::element(BIT_STRING, &[&[padding as u8], used].concat());
            found.push(extension(KEY_USAGE, true, &value));
        }
        if self.extended != 0 {
            let ids = EXTENDED.iter().enumerate().filter(|(at, _)| self.extended >> at & 1 == 1);
            let ids: Vec<_> = ids.map(|(_, (_, id))| der::element(OBJECT_ID, id)).collect();
            found.push(extension(EXTENDED_KEY_USAGE, false, &der::sequence(&ids)));
        }
        found
    }
}

/// The algorithm of a CA's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// RSA PKCS #1 1.5 with SHA-256.
    RsaSha256,
    /// ECDSA with SHA-256.
    EcdsaSha256,
    /// ECDSA with SHA-384.
    EcdsaSha384,
    /// ECDSA with SHA-512.
    EcdsaSha512,
    /// Ed25519.
    Ed25519,
}

impl SigningAlgorithm {
    fn to_der(self) -> Vec<u8> {
        let ecdsa = |number| vec![der::element(OBJECT_ID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, number])];
        der::sequence(&match self {
            Self::RsaSha256 => {
                vec![der::element(OBJECT_ID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]), vec![5, 0]]
            }
            Self::EcdsaSha256 => ecdsa(2),
            Self::EcdsaSha384 => ecdsa(3),
            Self::EcdsaSha512 => ecdsa(4),
            Self::Ed25519 => vec![der::element(OBJECT_ID, ED25519)],
        })
    }
}

/// The content of a certificate that is to be issued.
pub struct IssuedCertificate<'a> {
    /// The CA.
    pub authority: &'a Certificate,
    /// The serial number, big-endian.
    pub serial: [u8; 16],
    /// Seconds since 1970: notBefore and notAfter.
    pub validity: (i64, i64),
    /// The subject.
    pub subject: &'a Subject,
    /// The subject alternative names.
    pub alt_names: &'a SubjectAltNames,
    /// The key that is certified.
    pub public_key: &'a PublicKey,
    /// The usages.
    pub usages: KeyUsages,
}

impl IssuedCertificate<'_> {
    /// The TBSCertificate; `None` if certificates cannot contain the key. Parity: `x509.CreateCertificate`.
    #[must_use]
    pub fn to_be_signed(&self, algorithm: SigningAlgorithm) -> Option<Vec<u8>> {
        let subject = self.subject.to_der();
        let (not_before, not_after) = self.validity;
        Some(der::sequence(&[
            der::element(CONTEXT_0, &der::element(INTEGER, &[2])),
            der::unsigned_integer(&self.serial),
            algorithm.to_der(),
            self.authority.subject.clone(),
            der::sequence(&[time_to_der(not_before), time_to_der(not_after)]),
            subject.clone(),
            self.public_key.to_der()?,
            der::element(CONTEXT_3, &der::sequence(&self.extensions(&subject))),
        ]))
    }

    /// The extensions, in Go's order: key usages, basic constraints, authority key identifier, alternative names.
    fn extensions(&self, subject: &[u8]) -> Vec<Vec<u8>> {
        let mut extensions = self.usages.extensions();
        extensions.push(extension(BASIC_CONSTRAINTS, true, &der::sequence(&[])));
        let authority_key_id = &self.authority.subject_key_id;
        // A certificate whose subject is that of the CA counts as self-signed, and has no such identifier.
        if !authority_key_id.is_empty() && subject != self.authority.subject {
            let value = der::sequence(&[der::element(0x80, authority_key_id)]);
            extensions.push(extension(AUTHORITY_KEY_ID, false, &value));
        }
        extensions.extend(self.alt_names.to_extension(subject == [SEQUENCE, 0]));
        extensions
    }
}

/// A certificate from its signed part and the signature.
#[must_use]
pub fn with_signature(to_be_signed: Vec<u8>, algorithm: SigningAlgorithm, signature: &[u8]) -> Vec<u8> {
    der::sequence(&[to_be_signed, algorithm.to_der(), der::bits(signature)])
}

const NANOSECONDS: i128 = 1_000_000_000;
const BACKDATE: i128 = 300 * NANOSECONDS;
/// A certificate of a shorter life is not shortened by the backdating.
const SHORT: i128 = 8 * 3600 * NANOSECONDS;

/// notBefore and notAfter of a certificate in seconds since 1970, from the time and its life in nanoseconds and the CA's
/// notAfter in seconds. Parity: `PermissiveSigningPolicy.apply`.
///
/// # Errors
/// If the CA has expired.
pub fn validity(now: i128, life: i128, authority_not_after: i64) -> Result<(i64, i64), String> {
    let limit = i128::from(authority_not_after) * NANOSECONDS;
    let not_before = now - BACKDATE;
    let not_after = if life < SHORT { now + life } else { now + life - BACKDATE };
    if not_before >= limit {
        return Err(format!("the signer has expired: NotAfter={}", go_time(authority_not_after)));
    }
    if now >= limit {
        let limit = go_time(authority_not_after);
        return Err(format!("refusing to sign a certificate that expired in the past: NotAfter={limit}"));
    }
    let seconds = |time: i128| i64::try_from(time.div_euclid(NANOSECONDS)).unwrap_or(i64::MAX);
    Ok((seconds(not_before), seconds(not_after.min(limit))))
}

/// A time as Go prints it.
fn go_time(seconds: i64) -> String {
    let (year, month, day, hour, minute, second) = civil(seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} +0000 UTC")
}

fn time_to_der(seconds: i64) -> Vec<u8> {
    let (year, month, day, hour, minute, second) = civil(seconds);
    let rest = format!("{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    if (1950..2050).contains(&year) {
        der::element(UTC_TIME, format!("{:02}{rest}", year % 100).as_bytes())
    } else {
        der::element(GENERALIZED_TIME, format!("{year:04}{rest}").as_bytes())
    }
}

/// Seconds since 1970 of a UTCTime or GeneralizedTime with seconds, in UTC.
fn time_from_der(tag: u8, content: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, at) = match (tag, text.len()) {
        (UTC_TIME, 12) => (number(0..2).map(|year| if year < 50 { year + 2000 } else { year + 1900 })?, 2),
        (GENERALIZED_TIME, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    let part = |index: usize| number(at + 2 * index..at + 2 * index + 2);
    let (month, day) = (part(0)?, part(1)?);
    let (hour, minute, second) = (part(2)?, part(3)?, part(4)?);
    let is_valid =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 60;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    (is_valid && civil(seconds).2 == day).then_some(seconds)
}

/// Days from 1970 to a date of the Gregorian calendar; years begin in March, so that leap days come last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month, day, hour, minute and second.
fn civil(seconds: i64) -> (i64, i64, i64, i64, i64, i64) {
    let (days, rest) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day, rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i128 = 1_800_000_000 * NANOSECONDS;
    const SECOND: i128 = NANOSECONDS;

    /// Proves CSRS-41, CSRS-42, CSRS-43, CSRS-72.
    #[test]
    fn short_lives_are_not_backdated_and_the_ca_limits_all() {
        let far = 4_000_000_000;
        let now = 1_800_000_000;
        assert_eq!(validity(NOW, 28_799 * SECOND, far), Ok((now - 300, now + 28_799)));
        assert_eq!(validity(NOW, 28_800 * SECOND, far), Ok((now - 300, now + 28_500)));
        assert_eq!(validity(NOW, 31_536_000 * SECOND, far), Ok((now - 300, now + 31_535_700)));
        for life in [28_799, 28_800] {
            assert_eq!(validity(NOW, life * SECOND, now + 60), Ok((now - 300, now + 60)), "{life}");
        }
    }

    /// Proves CSRS-83.
    #[test]
    fn life_that_is_not_positive_ends_before_the_signing() {
        assert_eq!(validity(NOW, 0, i64::MAX), Ok((1_799_999_700, 1_800_000_000)));
        assert_eq!(validity(NOW, -SECOND, i64::MAX), Ok((1_799_999_700, 1_799_999_999)));
    }

    /// Proves CSRS-44.
    #[test]
    fn expired_ca_does_not_sign() {
        let refused = |not_after| validity(NOW, SECOND, not_after).unwrap_err();
        let text = "2027-01-15 07:55:00 +0000 UTC";
        assert_eq!(refused(1_799_999_700), format!("the signer has expired: NotAfter={text}"));
        let past = "refusing to sign a certificate that expired in the past: NotAfter=";
        assert_eq!(refused(1_799_999_701), format!("{past}2027-01-15 07:55:01 +0000 UTC"));
        assert_eq!(refused(1_800_000_000), format!("{past}2027-01-15 08:00:00 +0000 UTC"));
        assert!(validity(NOW, SECOND, 1_800_000_001).is_ok());
    }

    /// Proves CSRS-99.
    #[test]
    fn times_are_whole_seconds_and_change_their_form_in_2050() {
        assert_eq!(validity(NOW + 999_999_999, 60 * SECOND, i64::MAX), Ok((1_799_999_700, 1_800_000_060)));
        let text = |seconds| String::from_utf8(time_to_der(seconds)).unwrap();
        assert_eq!(text(2_524_607_999), "\u{17}\u{d}491231235959Z");
        assert_eq!(text(2_524_608_000), "\u{18}\u{f}20500101000000Z");
        for seconds in [0, -1, 951_782_400, 1_800_000_000, 2_524_608_000, 4_102_444_800] {
            let der = time_to_der(seconds);
            assert_eq!(time_from_der(der[0], &der[2..]), Some(seconds));
        }
        for bad in ["490231000000Z", "49023100000Z", "4902280000000", "490228240000Z", "4902280000+0Z"] {
            assert_eq!(time_from_der(UTC_TIME, bad.as_bytes()), None, "{bad}");
        }
    }

    /// Proves CSRS-49, CSRS-50, CSRS-51, CSRS-79, CSRS-119.
    #[test]
    fn usages_become_bits_and_identifiers_in_a_fixed_order() {
        let hex = |names: &[&str]| -> Vec<String> {
            let found = KeyUsages::from_names(names.iter().copied()).unwrap().extensions();
            found.iter().map(|der| der.iter().map(|byte| format!("{byte:02x}")).collect()).collect()
        };
        assert_eq!(hex(&[]), [""; 0]);
        // Critical, BIT STRING.
        let bits = |value: &str| format!("300e0603551d0f0101ff0404{value}");
        assert_eq!(hex(&["signing"]), [bits("03020780")]);
        assert_eq!(hex(&["digital signature", "signing", "digital signature"]), [bits("03020780")]);
        assert_eq!(hex(&["digital signature", "key encipherment"]), [bits("030205a0")]);
        assert_eq!(hex(&["encipher only"]), [bits("03020001")]);
        assert_eq!(hex(&["decipher only"]), ["300f0603551d0f0101ff040503030700 80".replace(' ', "")]);
        for (name, value) in [
            ("content commitment", "03020640"),
            ("data encipherment", "03020410"),
            ("key agreement", "03020308"),
            ("cert sign", "03020204"),
            ("crl sign", "03020102"),
        ] {
            assert_eq!(hex(&[name]), [bits(value)], "{name}");
        }
        let both = hex(&["client auth", "server auth", "client auth"]);
        assert_eq!(both, ["301d0603551d250416301406082b0601050507030106082b06010505070302"]);
        assert_eq!(hex(&["s/mime"]), hex(&["email protection", "s/mime"]));
        let all = EXTENDED.iter().flat_map(|(names, _)| names.iter().copied());
        let reversed: Vec<_> = all.clone().rev().collect();
        assert_eq!(hex(&all.collect::<Vec<_>>()), hex(&reversed));
    }

    /// Proves CSRS-52.
    #[test]
    fn unknown_usages_are_named() {
        let error = KeyUsages::from_names(["client auth", "x y", "z\""]).unwrap_err();
        assert_eq!(error, r#"unrecognized usage values: ["x y" "z\""]"#);
    }
}
