//! A set of numbers with a fast search for the next one that is not in it.

/// The bits of a word.
const WORD: u64 = 64;

/// A bitmap with a summary: one bit for each word that is full, and one for each full word of those. A search passes
/// 262,144 used numbers with three words. Words are allocated as far as the highest number that was set.
#[derive(Clone, Default)]
pub(super) struct Bitmap {
    /// The lowest level has a bit per number; each further one has a bit per full word of the level below.
    levels: [Vec<u64>; 3],
    count: u64,
}

impl Bitmap {
    /// How many numbers are in the set.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a number, and returns whether it was not in the set.
    pub(super) fn set(&mut self, number: u64) -> bool {
        if self.is_set(0, number) {
            return false;
        }
        self.count += 1;
        let mut at = number;
        for level in &mut self.levels {
            let (word, bit) = position(at);
            if level.len() <= word {
                level.resize(word + 1, 0);
            }
            level[word] |= bit;
            if level[word] != u64::MAX {
                break;
            }
            at /= WORD;
        }
        true
    }

    /// Removes a number, and returns whether it was in the set.
    pub(super) fn clear(&mut self, number: u64) -> bool {
        if !self.is_set(0, number) {
            return false;
        }
        self.count -= 1;
        let mut at = number;
        for level in &mut self.levels {
            let (word, bit) = position(at);
            let Some(word) = level.get_mut(word) else { break };
            *word &= !bit;
            at /= WORD;
        }
        true
    }

    /// The lowest number from `start` to before `end` that is not in the set.
    pub(super) fn first_clear(&self, start: u64, end: u64) -> Option<u64> {
        self.first_clear_at(0, start).filter(|found| *found < end)
    }

    /// The lowest position from `start` on whose bit is clear at this level.
    fn first_clear_at(&self, level: usize, start: u64) -> Option<u64> {
        let word = start / WORD;
        if let Some(found) = self.clear_in_word(level, word, start % WORD) {
            return Some(found);
        }
        let words = self.levels[level].len() as u64;
        let next_word = if level + 1 < self.levels.len() {
            self.first_clear_at(level + 1, word + 1)?
        } else {
            (word + 1..).find(|word| *word >= words || self.word(level, *word) != u64::MAX)?
        };
        self.clear_in_word(level, next_word, 0)
    }

    fn clear_in_word(&self, level: usize, word: u64, from: u64) -> Option<u64> {
        let free = !self.word(level, word) & (u64::MAX << from);
        (free != 0).then(|| word * WORD + u64::from(free.trailing_zeros()))
    }

    /// A word; those beyond the highest number are empty.
    fn word(&self, level: usize, word: u64) -> u64 {
        let at = usize::try_from(word).ok();
        at.and_then(|at| self.levels[level].get(at)).copied().unwrap_or(0)
    }

    fn is_set(&self, level: usize, number: u64) -> bool {
        self.word(level, number / WORD) & (1 << (number % WORD)) != 0
    }
}

fn position(number: u64) -> (usize, u64) {
    // An index beyond the address space cannot be allocated anyway.
    (usize::try_from(number / WORD).unwrap_or(usize::MAX), 1 << (number % WORD))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn search_agrees_with_a_plain_set() {
        let (mut bitmap, mut plain) = (Bitmap::default(), BTreeSet::new());
        // A linear congruential generator: the same numbers in every run.
        let mut seed: u64 = 7;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..4000 {
            let (start, length) = (draw(20_000), draw(300));
            for number in start..start + length {
                if draw(20) == 0 {
                    assert_eq!(bitmap.clear(number), plain.remove(&number));
                } else {
                    assert_eq!(bitmap.set(number), plain.insert(number));
                }
            }
            let from = draw(21_000);
            let expected = (from..20_300).find(|number| !plain.contains(number));
            assert_eq!(bitmap.first_clear(from, 20_300), expected);
            assert_eq!(bitmap.count(), plain.len() as u64);
        }
    }

    #[test]
    fn full_range_has_no_clear_number() {
        let mut bitmap = Bitmap::default();
        (0..8192).for_each(|number| assert!(bitmap.set(number)));
        assert_eq!(bitmap.first_clear(0, 8192), None);
        assert_eq!(bitmap.first_clear(5, 8193), Some(8192));
        assert!(bitmap.clear(4096) && !bitmap.clear(4096));
        assert_eq!(bitmap.first_clear(0, 8192), Some(4096));
        assert_eq!(bitmap.first_clear(4097, 8192), None);
    }
}
