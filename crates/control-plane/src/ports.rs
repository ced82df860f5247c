//! Ports on the loopback address that stay ours across restarts of the server behind them.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{During, Error, Result};

/// Below the range from which the kernel serves outgoing connections (32768 and up), so that no client on this machine
/// is handed the port of an API server that is down for a moment.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port no other control plane of this user takes while this value lives.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// Held for its lock alone; the file stays, because removing a locked file invites races.
    _claim: File,
}

impl Port {
    /// Claims a port that no process listens on, by a lock on a file named after it in `claims`.
    pub(crate) fn claim(claims: &Path) -> Result<Self> {
        fs::create_dir_all(claims).during(|| format!("creating {}", claims.display()))?;
        let start = usize::from(some_offset() % RANGE.len() as u16);
        for number in RANGE.cycle_from(start) {
            if let Some(port) = Self::try_claim(claims, number)? {
                return Ok(port);
            }
        }
        Err(Error::Refused {
            what: "finding a free port".into(),
            said: format!("all of {RANGE:?} are in use"),
        })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn try_claim(claims: &Path, number: u16) -> Result<Option<Self>> {
        let path = claims.join(number.to_string());
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .during(|| format!("opening {}", path.display()))?;
        let free = file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok();
        Ok(free.then_some(Self { number, _claim: file }))
    }
}

/// Where to begin looking: any number serves, a different one each time saves looking twice.
fn some_offset() -> u16 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    // The lower bits of a clock reading are often zero; the process id distinguishes programs started together.
    ((nanos / 1000) as u16).wrapping_add((std::process::id() as u16).wrapping_mul(97))
}

/// Every number of a range once, beginning in the middle.
trait CycleFrom {
    fn cycle_from(&self, start: usize) -> impl Iterator<Item = u16>;
}

impl CycleFrom for std::ops::Range<u16> {
    fn cycle_from(&self, start: usize) -> impl Iterator<Item = u16> {
        let len = self.len();
        self.clone().cycle().skip(start).take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn claimed_ports_are_distinct_free_and_outside_the_range_of_clients() {
        let claims = tempfile::tempdir().unwrap();
        let ports: Vec<Port> = (0..20).map(|_| Port::claim(claims.path()).unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        for number in numbers {
            assert!(RANGE.contains(&number));
            TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        }
    }

    #[test]
    fn a_port_is_refused_while_claimed_or_listened_on_and_free_afterwards() {
        let claims = tempfile::tempdir().unwrap();
        let port = Port::claim(claims.path()).unwrap();
        let number = port.number();
        assert!(Port::try_claim(claims.path(), number).unwrap().is_none());
        drop(port);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        assert!(Port::try_claim(claims.path(), number).unwrap().is_none());
        drop(listener);
        assert!(Port::try_claim(claims.path(), number).unwrap().is_some());
    }

    #[test]
    fn the_search_goes_once_around() {
        let around: Vec<u16> = (3..7).cycle_from(2).collect();
        assert_eq!(around, [5, 6, 3, 4]);
    }
}
