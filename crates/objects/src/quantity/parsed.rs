//! Quantities as the original holds them after parsing: the pod-template-hash is computed from that representation.
//!
//! Parity: pkg/api/resource/quantity.go and gopkg.in/inf.v0 as apimachinery v0.37 uses it.

use std::fmt;

/// A quantity with the amount, the cached text and the format that apimachinery would hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedQuantity<'t> {
    amount: Amount,
    /// The text, if it is kept because it is canonical.
    text: &'t str,
    format: Format,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Amount {
    /// `value` · 10^`scale`.
    Int64 { value: i64, scale: i32 },
    /// `unscaled` · 10^-`scale`, for amounts that do not fit.
    Decimal { negative: bool, unscaled: Natural, scale: i64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

/// The finest precision, as a power of ten.
const NANO: i64 = 9;
/// So many decimal digits fit into 64 bits for certain.
const INT64_DIGITS: i64 = 18;
/// Amounts beyond this power of ten are not computed: no API server could have stored them.
const SHIFT_MAX: i64 = 10_000;

/// The parts of a text: everything before the suffix, the digits before and after the point, and the suffix.
struct Parts<'t> {
    number: &'t str,
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

impl<'t> ParsedQuantity<'t> {
    /// Parses a quantity; `None` if apimachinery would refuse it.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        if text == "0" {
            let amount = Amount::Int64 { value: 0, scale: 0 };
            return Some(Self { amount, text, format: Format::DecimalSi });
        }
        let negative = text.starts_with('-');
        let parts = split(text)?;
        let (exponent, format) = interpret(parts.suffix)?;
        match fast(&parts, negative, exponent, format) {
            Fast::Invalid => None,
            Fast::Fits { amount, is_canonical } => {
                Some(Self { amount, text: if is_canonical { text } else { "" }, format })
            }
            Fast::TooLong => {
                let (amount, format) = exact(&parts, negative, exponent, format)?;
                Some(Self { amount, text: "", format })
            }
        }
    }

    /// The amount as `value` · 10^`scale`, if it fits.
    pub(crate) fn value_and_scale(&self) -> Option<(i64, i32)> {
        match self.amount {
            Amount::Int64 { value, scale } => Some((value, scale)),
            Amount::Decimal { .. } => None,
        }
    }

    /// Whether two quantities have the same numeric value.
    pub(crate) fn equals(&self, other: &ParsedQuantity<'_>) -> bool {
        self.amount.normalized() == other.amount.normalized()
    }
}

impl Amount {
    /// Sign, digits without trailing zeros, and the power of ten of the last digit.
    fn normalized(&self) -> (bool, String, i64) {
        let (negative, digits, power) = match self {
            Self::Int64 { value, scale } => (*value < 0, value.unsigned_abs().to_string(), i64::from(*scale)),
            Self::Decimal { negative, unscaled, scale } => (*negative, unscaled.to_string(), -scale),
        };
        let kept = digits.trim_end_matches('0');
        if kept.is_empty() {
            return (false, String::new(), 0);
        }
        let zeros = i64::try_from(digits.len() - kept.len()).unwrap_or(i64::MAX);
        (negative, kept.to_owned(), power.saturating_add(zeros))
    }
}

/// Leading zeros are dropped; a text of zeros and a lone sign count as `0`.
fn split(text: &str) -> Option<Parts<'_>> {
    let after_sign = text.strip_prefix(['-', '+']).unwrap_or(text);
    let rest = after_sign.trim_start_matches('0');
    if rest.is_empty() {
        return Some(Parts { number: "0", whole: "0", fraction: "", suffix: "" });
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let power = &suffix[letters..];
    let power = power.strip_prefix(['-', '+']).unwrap_or(power);
    if power.bytes().any(|byte| !byte.is_ascii_digit()) {
        return None;
    }
    let number = &text[..text.len() - suffix.len()];
    Some(Parts { number, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
}

/// The exponent of a suffix, to the base that the format implies.
fn interpret(suffix: &str) -> Option<(i64, Format)> {
    const DECIMAL: [(&str, i64); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [(&str, i64); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    let find = |table: &[(&str, i64)]| table.iter().find(|(known, _)| *known == suffix).map(|entry| entry.1);
    if let Some(exponent) = find(&DECIMAL) {
        return Some((exponent, Format::DecimalSi));
    }
    if let Some(exponent) = find(&BINARY) {
        return Some((exponent, Format::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i64>().ok()?;
    // Go truncates to 32 bits; no API server stores an exponent for which that matters.
    Some((i64::from(i32::try_from(exponent).ok()?), Format::DecimalExponent))
}

enum Fast {
    Fits { amount: Amount, is_canonical: bool },
    TooLong,
    Invalid,
}

/// The amount if it is short enough for 64 bits.
fn fast(parts: &Parts<'_>, negative: bool, exponent: i64, format: Format) -> Fast {
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let (scale, spare_digits, mantissa) = match format {
        Format::BinarySi if parts.fraction.is_empty() => {
            (0, 15 - length(parts.whole) - exponent * 3 / 10 - 1, 1_i64 << exponent)
        }
        Format::BinarySi => (0, -1, 1),
        _ => (exponent, INT64_DIGITS - length(parts.whole) - length(parts.fraction), 1),
    };
    let scale = scale - length(parts.fraction);
    if spare_digits < 0 || scale < -NANO {
        return Fast::TooLong;
    }
    let shifted = format!("{}{}", parts.whole, parts.fraction);
    let Ok(value) = shifted.parse::<i64>() else { return Fast::Invalid };
    let (Some(product), Ok(scale)) = (value.checked_mul(mantissa), i32::try_from(scale)) else {
        return Fast::TooLong;
    };
    let is_canonical = match format {
        Format::BinarySi => value & 7 != 0,
        _ => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
    };
    let value = if negative { -product } else { product };
    Fast::Fits { amount: Amount::Int64 { value, scale }, is_canonical }
}

/// The amount with all its digits, rounded up to 10⁻⁹ and capped.
fn exact(parts: &Parts<'_>, negative: bool, exponent: i64, format: Format) -> Option<(Amount, Format)> {
    let digits: String = parts.number.chars().filter(char::is_ascii_digit).collect();
    if digits.is_empty() {
        return None;
    }
    let mut unscaled = Natural::parse(&digits);
    // Unlike the digits, the scale counts every digit behind the point.
    let mut scale = i64::try_from(parts.fraction.len()).ok()?;
    match format {
        Format::BinarySi => unscaled.multiply(1_u64 << exponent),
        _ => scale -= exponent,
    }
    if !unscaled.is_zero() {
        unscaled = unscaled.rescaled_up(NANO - scale)?;
        scale = NANO;
    }
    let mut format = format;
    if format == Format::BinarySi && !unscaled.is_zero() {
        let mut max = Natural::from(i64::MAX.unsigned_abs());
        let mut one = Natural::from(1);
        max.multiply(1_000_000_000);
        one.multiply(1_000_000_000);
        if unscaled.exceeds(&max) {
            (unscaled, scale) = (Natural::from(i64::MAX.unsigned_abs()), 0);
        } else if one.exceeds(&unscaled) {
            format = Format::DecimalSi;
        }
    }
    let negative = negative && !unscaled.is_zero();
    Some((Amount::Decimal { negative, unscaled, scale }, format))
}

/// The text that Go's printer makes of the struct, types included, without that of the struct itself.
impl fmt::Display for ParsedQuantity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, power) = match &self.amount {
            Amount::Int64 { value, scale } => (*value, *scale),
            Amount::Decimal { .. } => (0, 0),
        };
        write!(f, "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){power}}} ")?;
        f.write_str("d:(resource.infDecAmount){Dec:(*inf.Dec)")?;
        match &self.amount {
            Amount::Int64 { .. } => f.write_str("<nil>")?,
            Amount::Decimal { negative, unscaled, scale } => {
                write!(f, "{{unscaled:(big.Int){{neg:(bool){negative} abs:(big.nat)[")?;
                for (index, word) in unscaled.0.iter().enumerate() {
                    write!(f, "{}{word}", if index > 0 { " " } else { "" })?;
                }
                write!(f, "]}} scale:(inf.Scale){scale}}}")?;
            }
        }
        let format = match self.format {
            Format::DecimalSi => "DecimalSI",
            Format::BinarySi => "BinarySI",
            Format::DecimalExponent => "DecimalExponent",
        };
        write!(f, "}} s:(string){} Format:(resource.Format){format}}}", self.text)
    }
}

/// A natural number of any size: digits to the base 2^64, the least significant first, without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Natural(Vec<u64>);

impl From<u64> for Natural {
    fn from(number: u64) -> Self {
        Self(if number == 0 { Vec::new() } else { vec![number] })
    }
}

impl Natural {
    /// The number with these decimal digits.
    fn parse(digits: &str) -> Self {
        let mut number = Self(Vec::new());
        for digit in digits.bytes().filter(u8::is_ascii_digit) {
            number.multiply(10);
            number.add(u64::from(digit - b'0'));
        }
        number
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry = 0;
        for word in &mut self.0 {
            let product = u128::from(*word) * u128::from(factor) + u128::from(carry);
            (*word, carry) = halves(product);
        }
        if carry > 0 {
            self.0.push(carry);
        }
    }

    fn add(&mut self, mut carry: u64) {
        for word in &mut self.0 {
            let (sum, overflows) = word.overflowing_add(carry);
            (*word, carry) = (sum, u64::from(overflows));
        }
        if carry > 0 {
            self.0.push(carry);
        }
    }

    /// Divides and returns the remainder.
    fn divide(&mut self, divisor: u64) -> u64 {
        let mut remainder = 0;
        for word in self.0.iter_mut().rev() {
            let dividend = u128::from(remainder) << 64 | u128::from(*word);
            *word = halves(dividend / u128::from(divisor)).0;
            remainder = halves(dividend % u128::from(divisor)).0;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        remainder
    }

    fn exceeds(&self, other: &Self) -> bool {
        let (one, two) = (self.0.iter().rev(), other.0.iter().rev());
        (self.0.len(), one.collect::<Vec<_>>()) > (other.0.len(), two.collect::<Vec<_>>())
    }

    /// The number times a power of ten, rounded up. `None` if the power is absurdly large.
    fn rescaled_up(mut self, power: i64) -> Option<Self> {
        if power > SHIFT_MAX {
            return None;
        }
        let mut is_exact = true;
        for _ in 0..power {
            self.multiply(10);
        }
        for _ in power..0 {
            if self.is_zero() {
                break;
            }
            is_exact &= self.divide(10) == 0;
        }
        if !is_exact {
            self.add(1);
        }
        Some(self)
    }
}

/// The lower and the upper half.
#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
const fn halves(number: u128) -> (u64, u64) {
    (number as u64, (number >> 64) as u64)
}

impl fmt::Display for Natural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.clone();
        let mut digits = Vec::new();
        while !rest.is_zero() {
            digits.push(rest.divide(10).to_string());
        }
        if digits.is_empty() {
            return f.write_str("0");
        }
        digits.iter().rev().try_for_each(|digit| f.write_str(digit))
    }
}
