//! Mutations of inputs, the same for the same seed.

use fastrand::Rng;

use crate::INPUT_BYTES_MAX;

/// Bytes at the limits of lengths, tags and texts.
const NOTABLE: &[u8] = &[0, 1, 7, 9, b'\n', b'"', b'\\', b'{', b'-', b'0', b'9', 0x7f, 0x80, 0xc3, 0xff];

/// Applies one to four changes, among them parts of another input.
#[must_use]
pub fn mutated(rng: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..rng.usize(1..5) {
        let at = rng.usize(..=bytes.len());
        let end = (at + rng.usize(..32)).min(bytes.len());
        match rng.u8(..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
            1 if at < bytes.len() => bytes[at] = NOTABLE[rng.usize(..NOTABLE.len())],
            2 => bytes.insert(at, NOTABLE[rng.usize(..NOTABLE.len())]),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            5 => {
                let from = rng.usize(..=other.len());
                let to = (from + rng.usize(..64)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}
