//! What a process has used, as the kernel counts it.

use std::fs;

use anyhow::Context as _;

/// How many parts of a second the kernel counts in; the same on every Linux that matters.
const TICKS_A_SECOND: f64 = 100.0;

/// A process that is measured.
#[derive(Clone, Copy)]
pub(super) struct Meter(pub(super) u32);

impl Meter {
    /// Seconds of processor time so far.
    pub(super) fn cpu(self) -> anyhow::Result<f64> {
        let stat = self.read("stat")?;
        // The name in parentheses may hold spaces; numbers are counted from behind it.
        let (_, numbers) = stat.rsplit_once(')').context("no name in stat")?;
        let ticks = |at: usize| -> anyhow::Result<f64> {
            Ok(numbers.split_whitespace().nth(at).context("stat is short")?.parse()?)
        };
        Ok((ticks(11)? + ticks(12)?) / TICKS_A_SECOND)
    }

    /// Resident memory in bytes, the pages of its file included.
    pub(super) fn resident(self) -> anyhow::Result<f64> {
        self.status("VmRSS:")
    }

    /// The most that was resident since [`Meter::forget_peak`].
    pub(super) fn peak(self) -> anyhow::Result<f64> {
        self.status("VmHWM:")
    }

    /// Begins a new peak.
    pub(super) fn forget_peak(self) -> anyhow::Result<()> {
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
            .with_context(|| format!("process {} is gone", self.0))
    }
}
