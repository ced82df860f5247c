//! The results of the checks, as text and as JSON.

use std::fmt::Write as _;

use serde_json::json;

use crate::identity;

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Category {
    Files,
    ApiServer,
    Controllers,
    Permissions,
    Lease,
    Ports,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    Warning,
    Failed,
}

/// One check and its result.
#[derive(Clone, Debug)]
pub(super) struct Check {
    category: Category,
    name: String,
    status: Status,
    message: String,
    /// What to do about a failure or a warning.
    advice: Option<String>,
}

impl Check {
    pub(super) fn new(category: Category, name: impl Into<String>) -> Self {
        Self { category, name: name.into(), status: Status::Ok, message: String::new(), advice: None }
    }

    pub(super) fn ok(self, message: impl Into<String>) -> Self {
        Self { status: Status::Ok, message: message.into(), ..self }
    }

    pub(super) fn warning(self, message: impl Into<String>) -> Self {
        Self { status: Status::Warning, message: message.into(), ..self }
    }

    pub(super) fn failed(self, message: impl Into<String>) -> Self {
        Self { status: Status::Failed, message: message.into(), ..self }
    }

    pub(super) fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputFormat {
    Text,
    Json,
}

impl OutputFormat {
    /// Takes the format out of the arguments; the others are flags of the manager.
    pub(super) fn read<'a>(args: &[&'a str]) -> Result<(Self, Vec<&'a str>), String> {
        let (mut format, mut flags) = (Self::Text, Vec::new());
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let value = match *arg {
                "-o" | "--output" => args.next().copied().unwrap_or_default(),
                arg => match arg.strip_prefix("--output=").or_else(|| arg.strip_prefix("-o")) {
                    Some(value) => value.trim_start_matches('='),
                    None => {
                        flags.push(arg);
                        continue;
                    }
                },
            };
            format = match value {
                "text" => Self::Text,
                "json" => Self::Json,
                other => return Err(format!("unknown output format {other:?}: text or json")),
            };
        }
        Ok((format, flags))
    }
}

/// All results, in the order of the checks.
#[derive(Default)]
pub(super) struct Report {
    checks: Vec<Check>,
}

impl Report {
    pub(super) fn add(&mut self, check: Check) {
        self.checks.push(check);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.count(Status::Failed) > 0
    }

    fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status == status).count()
    }

    pub(super) fn text(&self, format: OutputFormat) -> String {
        match format {
            OutputFormat::Text => self.lines(),
            OutputFormat::Json => self.json(),
        }
    }

    /// One line for each check, by category, and what to do about those that failed.
    fn lines(&self) -> String {
        let mut checks: Vec<_> = self.checks.iter().collect();
        checks.sort_by_key(|check| check.category);
        let (mut text, mut category) = (String::new(), None);
        for check in checks {
            // Writing to a String cannot fail.
            if category.replace(check.category) != Some(check.category) {
                let line_break = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{line_break}{}", check.category.title());
            }
            let mark = match check.status {
                Status::Ok => "ok     ",
                Status::Warning => "WARNING",
                Status::Failed => "FAILED ",
            };
            let _ = writeln!(text, "  {mark}  {}: {}", check.name, check.message);
            if let Some(advice) = check.advice.as_ref().filter(|_| check.status != Status::Ok) {
                let _ = writeln!(text, "           -> {advice}");
            }
        }
        let (failed, warnings) = (self.count(Status::Failed), self.count(Status::Warning));
        let _ = writeln!(text, "\n{} checks, {failed} failed, {warnings} warnings", self.checks.len());
        text
    }

    fn json(&self) -> String {
        let checks: Vec<_> = self
            .checks
            .iter()
            .map(|check| {
                let status = match check.status {
                    Status::Ok => "ok",
                    Status::Warning => "warning",
                    Status::Failed => "failed",
                };
                let advice = check.advice.as_ref().filter(|_| check.status != Status::Ok);
                json!({
                    "category": check.category.title(), "name": check.name, "status": status,
                    "message": check.message, "advice": advice,
                })
            })
            .collect();
        let report = json!({
            "program": identity::program(),
            "kubernetesVersion": identity::KUBERNETES_VERSION,
            "success": !self.has_failed(),
            "failed": self.count(Status::Failed),
            "warnings": self.count(Status::Warning),
            "checks": checks,
        });
        format!("{report:#}\n")
    }
}

impl Category {
    fn title(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::ApiServer => "api-server",
            Self::Controllers => "controllers",
            Self::Permissions => "permissions",
            Self::Lease => "lease",
            Self::Ports => "ports",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        report.add(Check::new(Category::Ports, "--secure-port").ok("10257 is free").advise("unused"));
        report
            .add(Check::new(Category::Files, "--root-ca-file").failed("no such file").advise("give a file"));
        report.add(Check::new(Category::Files, "--client-ca-file").warning("expires soon"));
        report
    }

    #[test]
    fn text_is_sorted_by_category_and_advises_on_failures() {
        let wanted = "files\n  FAILED   --root-ca-file: no such file\n           -> give a file\n  \
                      WARNING  --client-ca-file: expires soon\n\nports\n  ok       --secure-port: 10257 is free\n\
                      \n3 checks, 1 failed, 1 warnings\n";
        assert_eq!(report().text(OutputFormat::Text), wanted);
        assert!(report().has_failed() && !Report::default().has_failed());
    }

    #[test]
    fn json_has_every_check() {
        let json: serde_json::Value = serde_json::from_str(&report().text(OutputFormat::Json)).unwrap();
        assert_eq!(
            (&json["success"], &json["failed"], &json["warnings"]),
            (&json!(false), &json!(1), &json!(1))
        );
        let wanted = json!({"category": "ports", "name": "--secure-port", "status": "ok",
            "message": "10257 is free", "advice": null});
        assert_eq!(json["checks"][0], wanted);
        assert_eq!(json["checks"][1]["advice"], "give a file");
    }

    #[test]
    fn format_is_taken_out_of_the_flags() {
        for args in [
            &["-o", "json", "--v=2"][..],
            &["--v=2", "--output=json"],
            &["-ojson", "--v=2"],
            &["--output", "json", "--v=2"],
        ] {
            assert_eq!(OutputFormat::read(args), Ok((OutputFormat::Json, vec!["--v=2"])), "{args:?}");
        }
        assert_eq!(OutputFormat::read(&["--v=2"]), Ok((OutputFormat::Text, vec!["--v=2"])));
        assert!(OutputFormat::read(&["-o", "yaml"]).is_err());
    }
}
