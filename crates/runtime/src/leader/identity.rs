//! The holder identity of a process: readable by people, and never shared by two processes.

/// `<host>_<random UUID>`, generated once per process.
#[must_use]
pub fn identity(host: &str, random: &mut fastrand::Rng) -> String {
    let mut bytes = random.u128(..).to_be_bytes();
    // RFC 9562: version 4, variant 10.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
    format!("{host}_{a}-{b}-{c}-{d}-{e}")
}

/// The name of this machine.
///
/// # Errors
/// If it has none: an identity must say where its process runs.
pub fn host_name() -> Result<String, NoHostName> {
    non_empty(&rustix::system::uname().nodename().to_string_lossy())
}

/// This machine has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this host has no name, so it cannot take part in leader election")]
pub struct NoHostName;

fn non_empty(host: &str) -> Result<String, NoHostName> {
    if host.is_empty() { Err(NoHostName) } else { Ok(host.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves LE-2, LE-108.
    #[test]
    fn identity_is_a_host_name_and_a_unique_uuid() {
        let mut random = fastrand::Rng::with_seed(7);
        let (first, second) = (identity("node-1", &mut random), identity("node-1", &mut random));
        assert_ne!(first, second);
        for identity in [first, second] {
            let uuid = identity.strip_prefix("node-1_").unwrap();
            assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
            assert_eq!(&uuid[14..15], "4", "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        }
    }

    /// Proves LE-3.
    #[test]
    fn machine_without_host_name_takes_no_part() {
        assert_eq!(non_empty("node-1"), Ok("node-1".to_owned()));
        assert!(non_empty("").unwrap_err().to_string().contains("leader election"));
        assert!(!host_name().unwrap().is_empty());
    }
}
