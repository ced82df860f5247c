//! Resource usage of a process, from /proc.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;

/// The kernel's clock ticks per second; the same on every relevant Linux.
const TICKS_A_SECOND: f64 = 100.0;

/// A measured process.
#[derive(Clone, Copy)]
pub(crate) struct Meter(pub(crate) u32);

impl Meter {
    /// This process.
    pub(crate) fn own() -> Self {
        Self(std::process::id())
    }

    /// Anonymous resident memory in bytes.
    pub(crate) fn anonymous(self) -> anyhow::Result<u64> {
        Ok(self.status("RssAnon:")? as u64)
    }

    /// The same, once it has stopped growing.
    pub(crate) async fn settled(self) -> anyhow::Result<u64> {
        let mut last = 0;
        loop {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let now = self.anonymous()?;
            if now.abs_diff(last) < now / 100 {
                return Ok(now);
            }
            last = now;
        }
    }

    /// CPU seconds so far.
    pub(crate) fn cpu(self) -> anyhow::Result<f64> {
        let stat = self.read("stat")?;
        // The name in parentheses may contain spaces; fields are counted after it.
        let (_, numbers) = stat.rsplit_once(')').context("no name in stat")?;
        let ticks = |at: usize| -> anyhow::Result<f64> {
            Ok(numbers.split_whitespace().nth(at).context("stat is short")?.parse()?)
        };
        Ok((ticks(11)? + ticks(12)?) / TICKS_A_SECOND)
    }

    /// Resident memory in bytes, including file pages.
    pub(crate) fn resident(self) -> anyhow::Result<f64> {
        self.status("VmRSS:")
    }

    /// The peak resident memory since [`Meter::reset_peak`].
    pub(crate) fn peak(self) -> anyhow::Result<f64> {
        self.status("VmHWM:")
    }

    /// Resets the peak.
    pub(crate) fn reset_peak(self) -> anyhow::Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.0), "5")?)
    }

    fn status(self, line: &str) -> anyhow::Result<f64> {
        let status = self.read("status")?;
        let found = status.lines().find(|found| found.starts_with(line));
        let found = found.with_context(|| format!("no {line} in status"))?;
        let kilobytes: f64 = found.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kilobytes * 1024.0)
    }

    fn read(self, file: &str) -> anyhow::Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.0))
            .with_context(|| format!("process {} has exited", self.0))
    }
}
