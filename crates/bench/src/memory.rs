//! How much memory a process holds, as the kernel counts it.

use std::time::Duration;

use anyhow::Context as _;

/// Resident memory of a process that is not backed by a file, in bytes.
///
/// # Errors
/// If there is no such process.
pub(crate) fn resident(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).context("no RssAnon in /proc")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("no number in RssAnon")?.parse()?;
    Ok(kilobytes * 1024)
}

/// Resident memory once it has stopped growing.
///
/// # Errors
/// If the process ends before that.
pub(crate) async fn settled(pid: u32) -> anyhow::Result<u64> {
    let mut last = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = resident(pid)?;
        if now.abs_diff(last) < now / 100 {
            return Ok(now);
        }
        last = now;
    }
}
