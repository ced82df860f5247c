//! Named health checks, reported in the order of registration. The reason of a failure is logged and not
//! returned to the client.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;

/// Runs one check; the error is the reason, which is only logged.
type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks behind `/healthz`. Clones share one list, so checks can be added while the server runs.
#[derive(Clone, Default)]
pub struct HealthChecks {
    /// In the order of registration, which is the order of the report.
    checks: Arc<Mutex<Vec<(String, Check)>>>,
}

/// The result of one `/healthz` request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) passed: bool,
    pub(crate) text: String,
    /// Every check that was run, and whether it passed.
    pub(crate) outcomes: Vec<(String, bool)>,
}

impl HealthChecks {
    /// No checks: healthy as long as the server responds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds several checks that always pass, atomically: no report shows only some of them.
    pub fn add_pings(&self, names: impl IntoIterator<Item = impl Into<String>>) {
        let mut checks = self.checks.lock();
        for name in names {
            let name = name.into();
            if !checks.iter().any(|(known, _)| *known == name) {
                checks.push((name, Arc::new(|| Ok(()))));
            }
        }
    }

    /// Adds a check, or replaces the one of that name.
    pub fn add(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let (name, check): (String, Check) = (name.into(), Arc::new(check));
        let mut checks = self.checks.lock();
        match checks.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = check,
            None => checks.push((name, check)),
        }
    }

    /// Adds a check that always passes: it only shows that a component of that name was started.
    pub fn add_ping(&self, name: impl Into<String>) {
        self.add(name, || Ok(()));
    }

    /// Runs all checks but the excluded ones.
    ///
    /// Parity: staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go, down to the line breaks.
    pub(crate) fn report(&self, verbose: bool, excluded: &BTreeSet<String>) -> Report {
        self.report_as("healthz", verbose, excluded, |name, reason| {
            tracing::warn!(check = %name, %reason, "health check failed");
            "reason withheld".to_owned()
        })
    }

    /// Runs all checks but the excluded ones, for `/readyz`. It shows the reasons, which name controllers and resources.
    pub(crate) fn readiness(&self, verbose: bool, excluded: &BTreeSet<String>) -> Report {
        self.report_as("readyz", verbose, excluded, |_, reason| reason)
    }

    fn report_as(
        &self,
        page: &str,
        verbose: bool,
        excluded: &BTreeSet<String>,
        shown: impl Fn(&str, String) -> String,
    ) -> Report {
        let mut checks = self.checks.lock().clone();
        if checks.is_empty() {
            checks.push(("ping".to_owned(), Arc::new(|| Ok(()))));
        }
        let mut text = String::new();
        let mut unmatched = excluded.clone();
        let mut outcomes = Vec::new();
        for (name, check) in &checks {
            if unmatched.remove(name) || excluded.contains(name) {
                line(&mut text, format_args!("[+]{name} excluded: ok"));
                continue;
            }
            let result = check();
            outcomes.push((name.clone(), result.is_ok()));
            match result {
                Ok(()) => line(&mut text, format_args!("[+]{name} ok")),
                Err(reason) => line(&mut text, format_args!("[-]{name} failed: {}", shown(name, reason))),
            }
        }
        let passed = outcomes.iter().all(|(_, passed)| *passed);
        if !unmatched.is_empty() {
            let names: Vec<_> = unmatched.iter().map(|name| format!("{name:?}")).collect();
            let names = names.join(",");
            // Anonymous clients choose these names, so only their number is logged.
            tracing::trace!(count = unmatched.len(), "health checks cannot be excluded: no matches");
            line(
                &mut text,
                format_args!("warn: some health checks cannot be excluded: no matches for {names}"),
            );
        }
        if !passed {
            line(&mut text, format_args!("{page} check failed"));
        } else if verbose {
            line(&mut text, format_args!("{page} check passed"));
        } else {
            text = "ok".to_owned();
        }
        Report { passed, text, outcomes }
    }
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(failing: &'static [&'static str]) -> HealthChecks {
        let checks = HealthChecks::new();
        for name in ["leaderElection", "serviceaccount-controller", "a-controller"] {
            checks.add(name, move || {
                if failing.contains(&name) { Err("the password is hunter2".to_owned()) } else { Ok(()) }
            });
        }
        checks
    }

    fn report(checks: &HealthChecks, verbose: bool, excluded: &[&str]) -> (bool, String) {
        let excluded = excluded.iter().map(|name| (*name).to_owned()).collect();
        let report = checks.report(verbose, &excluded);
        (report.passed, report.text)
    }

    /// Proves SRV-22, SRV-24.
    #[test]
    fn healthy_report_is_ok_or_one_line_per_check() {
        assert_eq!(report(&checks(&[]), false, &[]), (true, "ok".to_owned()));
        let lines = "[+]leaderElection ok\n[+]serviceaccount-controller ok\n[+]a-controller ok\nhealthz check passed\n";
        assert_eq!(report(&checks(&[]), true, &[]), (true, lines.to_owned()));
        let nothing = "[+]ping ok\nhealthz check passed\n";
        assert_eq!(report(&HealthChecks::new(), true, &[]), (true, nothing.to_owned()));
    }

    /// Proves SRV-25, SRV-105.
    #[test]
    fn failed_check_is_reported_without_its_reason() {
        let lines = "[+]leaderElection ok\n[-]serviceaccount-controller failed: reason withheld\n\
                     [+]a-controller ok\nhealthz check failed\n";
        for verbose in [false, true] {
            assert_eq!(
                report(&checks(&["serviceaccount-controller"]), verbose, &[]),
                (false, lines.to_owned())
            );
        }
    }

    /// Proves SRV-26.
    #[test]
    fn excluded_checks_do_not_fail_and_unknown_exclusions_are_named() {
        let (passed, text) = report(&checks(&["a-controller"]), true, &["a-controller", "z", "y"]);
        assert!(passed);
        assert_eq!(
            text,
            "[+]leaderElection ok\n[+]serviceaccount-controller ok\n[+]a-controller excluded: ok\n\
             warn: some health checks cannot be excluded: no matches for \"y\",\"z\"\nhealthz check passed\n"
        );
        assert_eq!(report(&checks(&["a-controller"]), false, &["a-controller"]), (true, "ok".to_owned()));
    }

    /// Proves SRV-23.
    #[test]
    fn controller_checks_are_added_atomically() {
        let checks = HealthChecks::new();
        checks.add("leaderElection", || Ok(()));
        assert_eq!(report(&checks, true, &[]).1, "[+]leaderElection ok\nhealthz check passed\n");
        checks.add_pings(["b-controller", "a-controller"]);
        assert_eq!(
            report(&checks, true, &[]).1,
            "[+]leaderElection ok\n[+]b-controller ok\n[+]a-controller ok\nhealthz check passed\n"
        );
    }

    #[test]
    fn check_with_an_existing_name_replaces_it() {
        let checks = checks(&["a-controller"]);
        checks.add_ping("a-controller");
        assert!(report(&checks, false, &[]).0);
        assert_eq!(report(&checks, true, &[]).1.matches("a-controller").count(), 1);
    }
}
