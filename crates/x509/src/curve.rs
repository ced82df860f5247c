//! The elliptic curves of public keys, and whether a point is on its curve.

/// A named curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// secp224r1.
    P224,
    /// secp256r1.
    P256,
    /// secp384r1.
    P384,
    /// secp521r1.
    P521,
}

const P224_ID: &[u8] = &[0x2b, 0x81, 0x04, 0, 0x21];
const P256_ID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384_ID: &[u8] = &[0x2b, 0x81, 0x04, 0, 0x22];
const P521_ID: &[u8] = &[0x2b, 0x81, 0x04, 0, 0x23];

impl Curve {
    pub(crate) fn from_object_id(id: &[u8]) -> Option<Self> {
        [Self::P224, Self::P256, Self::P384, Self::P521].into_iter().find(|curve| curve.object_id() == id)
    }

    /// The content of its OBJECT IDENTIFIER.
    #[must_use]
    pub fn object_id(self) -> &'static [u8] {
        match self {
            Self::P224 => P224_ID,
            Self::P256 => P256_ID,
            Self::P384 => P384_ID,
            Self::P521 => P521_ID,
        }
    }

    /// Whether this is an uncompressed point of the curve: `y² = x³ - 3x + b` modulo the field's prime.
    pub(crate) fn contains(self, point: &[u8]) -> bool {
        let (prime, b) = self.parameters();
        let Some((4, coordinates)) = point.split_first() else { return false };
        let length = self.coordinate_bytes();
        if coordinates.len() != 2 * length {
            return false;
        }
        let prime = Number::from_hex(prime);
        let (x, y) = coordinates.split_at(length);
        let (x, y) = (Number::from_bytes(x), Number::from_bytes(y));
        if !x.is_below(&prime) || !y.is_below(&prime) {
            return false;
        }
        let left = y.times(&y, &prime);
        let three_x = x.plus(&x, &prime).plus(&x, &prime);
        let cube = x.times(&x, &prime).times(&x, &prime);
        let right = cube.plus(&Number::from_hex(b), &prime);
        left.plus(&three_x, &prime) == right
    }

    /// The length of a coordinate.
    pub(crate) fn coordinate_bytes(self) -> usize {
        match self {
            Self::P224 => 28,
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// The prime of the field and the coefficient `b`, from FIPS 186-4, D.1.2.
    fn parameters(self) -> (&'static str, &'static str) {
        match self {
            Self::P224 => (
                "ffffffffffffffffffffffffffffffff000000000000000000000001",
                "b4050a850c04b3abf54132565044b0b7d7bfd8ba270b39432355ffb4",
            ),
            Self::P256 => (
                "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff",
                "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b",
            ),
            Self::P384 => (
                "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe\
                 ffffffff0000000000000000ffffffff",
                "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875a\
                 c656398d8a2ed19d2a85c8edd3ec2aef",
            ),
            Self::P521 => (
                "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\
                 ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
                "0051953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef1\
                 09e156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00",
            ),
        }
    }
}

const LIMBS: usize = 9;

/// A number below 2^576, as limbs of 64 bits with the lowest first. Only public keys are computed with it, so it need
/// not run in constant time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number([u64; LIMBS]);

impl Number {
    const ZERO: Self = Self([0; LIMBS]);

    /// From big-endian bytes, at most 72.
    fn from_bytes(bytes: &[u8]) -> Self {
        let mut number = Self::ZERO;
        for (at, byte) in bytes.iter().rev().enumerate() {
            number.0[at / 8] |= u64::from(*byte) << (8 * (at % 8));
        }
        number
    }

    fn from_hex(hex: &str) -> Self {
        let mut number = Self::ZERO;
        for (at, digit) in hex.chars().rev().enumerate() {
            number.0[at / 16] |= u64::from(digit.to_digit(16).unwrap_or(0)) << (4 * (at % 16));
        }
        number
    }

    fn is_below(&self, other: &Self) -> bool {
        self.0.iter().rev().lt(other.0.iter().rev())
    }

    /// The difference; the other number must not be larger.
    fn minus(&self, other: &Self) -> Self {
        let (mut result, mut borrow) = (Self::ZERO, false);
        for at in 0..LIMBS {
            let (difference, first) = self.0[at].overflowing_sub(other.0[at]);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            (result.0[at], borrow) = (difference, first || second);
        }
        result
    }

    /// The sum modulo a prime that is larger than both; there are 55 spare bits.
    fn plus(&self, other: &Self, prime: &Self) -> Self {
        let (mut result, mut carry) = (Self::ZERO, false);
        for at in 0..LIMBS {
            let (sum, first) = self.0[at].overflowing_add(other.0[at]);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (result.0[at], carry) = (sum, first || second);
        }
        if result.is_below(prime) { result } else { result.minus(prime) }
    }

    /// The product modulo a prime that is larger than both: one doubling, and an addition, per bit.
    fn times(&self, other: &Self, prime: &Self) -> Self {
        let mut result = Self::ZERO;
        for bit in (0..LIMBS * 64).rev() {
            result = result.plus(&result, prime);
            if other.0[bit / 64] >> (bit % 64) & 1 == 1 {
                result = result.plus(self, prime);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    /// The base points, from FIPS 186-4.
    const BASE_POINTS: [(Curve, &str); 4] = [
        (
            Curve::P224,
            "b70e0cbd6bb4bf7f321390b94a03c1d356c21122343280d6115c1d21\
             bd376388b5f723fb4c22dfe6cd4375a05a07476444d5819985007e34",
        ),
        (
            Curve::P256,
            "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
             4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
        ),
        (
            Curve::P384,
            "aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7\
             3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f",
        ),
        (
            Curve::P521,
            "00c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dbaa14b5e77efe75928fe1dc127a2ffa\
             8de3348b3c1856a429bf97e7e31c2e5bd66011839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd1727\
             3e662c97ee72995ef42640c550b9013fad0761353c7086a272c24088be94769fd16650",
        ),
    ];

    #[test]
    fn base_points_are_on_their_curves_and_changed_ones_are_not() {
        for (curve, point) in BASE_POINTS {
            let mut point = [vec![4], bytes(point)].concat();
            assert!(curve.contains(&point), "{curve:?}");
            *point.last_mut().unwrap() ^= 1;
            assert!(!curve.contains(&point), "{curve:?}");
            point[0] = 2;
            assert!(!curve.contains(&point) && !curve.contains(&point[1..]) && !curve.contains(&[]));
            let above = [vec![4], vec![0xff; point.len() - 1]].concat();
            assert!(!curve.contains(&above), "coordinates above the prime");
        }
    }
}
