//! The name a process puts on the Lease: readable by people, and never shared by two processes.

/// `<host>_<random UUID>`, drawn once for each process.
#[must_use]
pub fn identity(host: &str, chance: &mut fastrand::Rng) -> String {
    let mut bytes = chance.u128(..).to_be_bytes();
    // RFC 9562: version 4, variant 10.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
    format!("{host}_{a}-{b}-{c}-{d}-{e}")
}

/// The name of this machine.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parity: LE-2, LE-108.
    #[test]
    fn an_identity_is_a_host_and_a_uuid_of_its_own() {
        let mut chance = fastrand::Rng::with_seed(7);
        let (first, second) = (identity("node-1", &mut chance), identity("node-1", &mut chance));
        assert_ne!(first, second);
        for identity in [first, second] {
            let uuid = identity.strip_prefix("node-1_").unwrap();
            assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(!host_name().is_empty());
    }
}
