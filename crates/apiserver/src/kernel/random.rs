//! The only source of randomness in the kernel: the same seed gives the same UIDs, name suffixes and tokens. A server
//! that outlives its process, or that others can reach, is given an entropy source instead.

use std::fmt;
use std::sync::Arc;

use super::kernel_options::KernelOptions;

/// Characters of generated names: without vowels and look-alikes, as in kube-apiserver.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of a generated name's suffix.
const SUFFIX_LENGTH: usize = 5;
/// Longest generated name.
const GENERATED_NAME_MAX: usize = 63;

/// Fills a buffer with random bytes.
#[derive(Clone)]
pub struct EntropySource(Arc<Fill>);

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

impl EntropySource {
    /// A source that calls `fill`.
    pub fn new(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> EntropySource {
        EntropySource(Arc::new(fill))
    }

    /// Fills the buffer.
    pub fn fill(&self, bytes: &mut [u8]) {
        (self.0)(bytes);
    }
}

impl fmt::Debug for EntropySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntropySource")
    }
}

/// A generator of UIDs, suffixes and tokens.
#[derive(Debug)]
pub(crate) enum Random {
    /// Repeatable: a client that knows the seed, or has seen some UIDs, can compute all tokens.
    Seeded(fastrand::Rng),
    /// Every bit comes from the source.
    Entropy(EntropySource),
}

impl Random {
    /// The generators of a kernel: for objects, and for the timeouts of watches.
    pub(crate) fn of(options: &KernelOptions) -> (Random, Random) {
        match &options.entropy {
            Some(source) => (Random::Entropy(source.clone()), Random::Entropy(source.clone())),
            None => (Random::seeded(options.seed), Random::seeded(!options.seed)),
        }
    }

    pub(crate) fn seeded(seed: u64) -> Random {
        Random::Seeded(fastrand::Rng::with_seed(seed))
    }

    fn bits(&mut self) -> u128 {
        match self {
            Random::Seeded(generator) => generator.u128(..),
            Random::Entropy(source) => {
                let mut bytes = [0; 16];
                source.fill(&mut bytes);
                u128::from_be_bytes(bytes)
            }
        }
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&mut self) -> String {
        let bits = (self.bits() & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
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
            name.push(char::from(SUFFIX_ALPHABET[self.index(SUFFIX_ALPHABET.len())]));
        }
        name
    }

    fn index(&mut self, length: usize) -> usize {
        match self {
            Random::Seeded(generator) => generator.usize(..length),
            // The remainder of 128 bits has no bias that could be measured, and it is less than `length`.
            Random::Entropy(_) => usize::try_from(self.bits() % length as u128).unwrap_or_default(),
        }
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        match self {
            Random::Seeded(generator) => generator.u32(..bound),
            Random::Entropy(_) => u32::try_from(self.bits() % u128::from(bound)).unwrap_or_default(),
        }
    }

    /// An opaque token of 256 bits.
    pub(crate) fn token(&mut self) -> String {
        format!("embedded.{:032x}.{:032x}", self.bits(), self.bits())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    fn check(mut one: Random, two: &mut Random) {
        let uid = one.uid();
        assert_eq!(uid, two.uid());
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"));
        assert_ne!(uid, one.uid());
        assert_eq!(one.name(&"é".repeat(60)).len(), 63);
        assert!((0..100).all(|_| one.below(3) < 3));
    }

    /// A source that counts, so that a test can tell which of its bytes were used.
    fn counting() -> EntropySource {
        let next = Mutex::new(0_u8);
        EntropySource::new(move |bytes| {
            let mut next = next.lock();
            for byte in bytes {
                *byte = *next;
                *next = next.wrapping_add(1);
            }
        })
    }

    #[test]
    fn same_seed_gives_the_same_valid_values() {
        check(Random::seeded(7), &mut Random::seeded(7));
    }

    #[test]
    fn same_entropy_gives_the_same_valid_values_whatever_the_seed() {
        let of = |seed| {
            Random::of(&KernelOptions { seed, entropy: Some(counting()), ..KernelOptions::default() }).0
        };
        check(of(1), &mut of(2));
    }

    #[test]
    fn token_consists_of_32_bytes_of_entropy() {
        let token = Random::Entropy(counting()).token();
        let digits: String = token.strip_prefix("embedded.").unwrap().split('.').collect();
        let wanted: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, wanted);
    }
}
