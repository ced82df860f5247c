//! The only source of randomness in the kernel: the same seed gives the same UIDs, name suffixes and tokens.

/// Characters of generated names: without vowels and look-alikes, as in kube-apiserver.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a generated name's suffix.
const SUFFIX_LENGTH: usize = 5;
/// Longest generated name.
const GENERATED_NAME_MAX: usize = 63;

/// A seeded generator of UIDs, suffixes and tokens.
#[derive(Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&mut self) -> String {
        let bits = (self.0.u128(..) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// `prefix` with a random suffix, truncated to the length of a DNS label.
    pub(crate) fn name(&mut self, prefix: &str) -> String {
        let mut end = prefix.len().min(GENERATED_NAME_MAX - SUFFIX_LENGTH);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let mut name = prefix[..end].to_owned();
        for _ in 0..SUFFIX_LENGTH {
            name.push(char::from(SUFFIX_ALPHABET[self.0.usize(..SUFFIX_ALPHABET.len())]));
        }
        name
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0.u32(..bound)
    }

    /// An opaque token, unique within the process.
    pub(crate) fn token(&mut self) -> String {
        format!("embedded.{:032x}.{:032x}", self.0.u128(..), self.0.u128(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_valid_values() {
        let (mut one, mut two) = (Random::seeded(7), Random::seeded(7));
        let uid = one.uid();
        assert_eq!(uid, two.uid());
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"));
        assert_ne!(uid, one.uid());
        assert_eq!(one.name(&"é".repeat(60)).len(), 63);
    }
}
