//! What this program is: its own name, version and commit, beside the Kubernetes version that it implements.

/// The Kubernetes version that this program implements and reports.
pub(crate) const KUBERNETES_VERSION: &str = keleustes_client::KUBERNETES_VERSION;

/// The program's own version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from; empty if that is not known.
pub(crate) const COMMIT: &str = env!("KELEUSTES_COMMIT");

/// Name, version and commit, for people: `Keleustes 0.1.0 (commit 0123456789ab)`.
pub(crate) fn program() -> String {
    described(VERSION, COMMIT)
}

fn described(version: &str, commit: &str) -> String {
    match &commit[..commit.len().min(12)] {
        "" => format!("Keleustes {version}"),
        short => format!("Keleustes {version} (commit {short})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_itself_with_version_and_commit() {
        assert_eq!(described("0.1.0", "0123456789abcdef"), "Keleustes 0.1.0 (commit 0123456789ab)");
        assert_eq!(described("0.1.0", ""), "Keleustes 0.1.0");
        assert!(program().starts_with(&format!("Keleustes {VERSION}")));
    }
}
