//! The commit that is packaged, and its date, which stands for the build's so that a build can be repeated.

use std::process::Command;

use crate::workspace::Workspace;

/// A commit of this repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Revision {
    /// The whole hash.
    pub(super) commit: String,
    /// When it was committed: `2026-01-31T23:59:59Z`.
    pub(super) date: String,
    /// The same in seconds since 1970.
    pub(super) seconds: u64,
    /// Whether files differ from the commit.
    pub(super) changed: bool,
}

impl Revision {
    /// The current commit; `None` outside of a repository.
    pub(super) fn of(workspace: &Workspace) -> Option<Self> {
        let shown =
            git(workspace, &["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%H %cd %ct"])?;
        let changed = !git(workspace, &["status", "--porcelain"])?.is_empty();
        Self::parse(&shown, changed)
    }

    fn parse(shown: &str, changed: bool) -> Option<Self> {
        let [commit, date, seconds] = shown.split(' ').collect::<Vec<_>>()[..] else { return None };
        Some(Self {
            commit: commit.to_owned(),
            date: date.to_owned(),
            seconds: seconds.parse().ok()?,
            changed,
        })
    }
}

fn git(workspace: &Workspace, args: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(args).current_dir(workspace.root()).env("TZ", "UTC").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_git_is_read() {
        let revision = Revision::parse("0123abcd 2026-01-31T23:59:59Z 1769903999", true).unwrap();
        assert_eq!((revision.commit.as_str(), revision.seconds), ("0123abcd", 1_769_903_999));
        assert_eq!(Revision::parse("fatal: not a git repository", false), None);
    }
}
