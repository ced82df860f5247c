//! `check` as a program, beside a playground without a manager: flags in, exit code and output out.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[expect(dead_code, reason = "its other helpers serve the tests in this folder")]
#[path = "inspect/playground.rs"]
mod playground;

use std::net::TcpListener;
use std::process::Command;

use keleustes_client::Call;
use serde_json::Value;

use crate::playground::{PROGRAM, Playground};

/// Runs `check` with the flags that the playground prints, changed by further ones.
struct Checker {
    playground: Playground,
    flags: Vec<String>,
}

/// What it printed on stdout, and its exit code.
struct Checked {
    code: Option<i32>,
    text: String,
}

impl Checker {
    fn start() -> Self {
        let playground = Playground::start_with(&["--manager=off"]);
        let flags = playground.manager_flags();
        Self { playground, flags }
    }

    fn check(&self, more: &[&str]) -> Checked {
        let output = Command::new(PROGRAM).arg("check").args(&self.flags).args(more).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("panic"), "{errors}");
        Checked { code: output.status.code(), text: String::from_utf8(output.stdout).unwrap() }
    }

    /// Checks with a copy of the manager's kubeconfig in which one text is replaced.
    fn check_with_kubeconfig(&self, from: &str, to: &str) -> Checked {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("kubeconfig");
        let text = self.kubeconfig();
        assert!(text.contains(from), "{text}");
        std::fs::write(&copy, text.replace(from, to)).unwrap();
        self.check(&[&format!("--kubeconfig={}", copy.display())])
    }

    fn kubeconfig(&self) -> String {
        std::fs::read_to_string(self.playground.kubeconfig.with_file_name("manager.kubeconfig")).unwrap()
    }
}

impl Checked {
    /// Fails with one failed check, and says what to do about it.
    fn assert_fails(&self, check: &str, advice: &str) {
        let text = &self.text;
        assert_eq!(self.code, Some(1), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let failed: Vec<usize> =
            (0..lines.len()).filter(|at| lines[*at].trim_start().starts_with("FAILED")).collect();
        let [failed] = failed[..] else { panic!("one check fails: {text}") };
        assert!(lines[failed].contains(check), "{text}");
        assert!(lines[failed + 1].contains(&format!("-> {advice}")), "{text}");
        assert!(text.contains(" 1 failed, "), "{text}");
    }
}

/// The value of a key in a kubeconfig.
fn value<'a>(kubeconfig: &'a str, key: &str) -> &'a str {
    let after = kubeconfig.split_once(&format!("{key}: ")).unwrap().1;
    after.lines().next().unwrap().trim()
}

#[test]
fn manager_that_can_run_passes_with_code_0() {
    let checker = Checker::start();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let checked = checker.check(&["--bind-address=127.0.0.1", &format!("--secure-port={port}")]);
    let text = &checked.text;
    assert_eq!(checked.code, Some(0), "{text}");
    assert!(text.contains(" 0 failed, ") && !text.contains("FAILED"), "{text}");
    for line in [
        "connection: it answers",
        "this manager: ",
        "deployment-controller (kube-system/deployment-controller)",
        "kube-system/kube-controller-manager: does not exist yet",
        &format!("--secure-port: 127.0.0.1:{port} is free"),
    ] {
        assert!(text.contains(&format!("ok       {line}")), "{line}: {text}");
    }
}

#[test]
fn json_has_the_checks_of_the_text() {
    let checker = Checker::start();
    let lines = checker.check(&[]).text;
    let lines = lines.lines().filter(|line| line.starts_with("  ok ") || line.starts_with("  WARNING"));
    let checked = checker.check(&["-o", "json"]);
    assert_eq!(checked.code, Some(0), "{}", checked.text);
    let report: Value = serde_json::from_str(&checked.text).unwrap();
    assert_eq!((&report["success"], &report["failed"]), (&true.into(), &0.into()));
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), lines.count());
    let names: Vec<&Value> = checks.iter().map(|check| &check["name"]).collect();
    assert!(names.contains(&&"connection".into()) && names.contains(&&"--secure-port".into()), "{names:?}");

    let failed = checker.check(&["--root-ca-file=/no/such/ca", "--output=json"]);
    assert_eq!(failed.code, Some(1), "{}", failed.text);
    let report: Value = serde_json::from_str(&failed.text).unwrap();
    assert_eq!(report["success"], false);
}

#[test]
fn taken_port_fails_with_code_1_and_advice() {
    let checker = Checker::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let checked = checker.check(&["--bind-address=127.0.0.1", &format!("--secure-port={port}")]);
    checked.assert_fails(
        &format!("--secure-port: 127.0.0.1:{port}: "),
        "another process listens there; stop it or choose another --secure-port",
    );
}

#[test]
fn certificate_of_another_authority_fails_with_code_1_and_advice() {
    let (checker, other) = (Checker::start(), Checker::start());
    let (own, wrong) = (checker.kubeconfig(), other.kubeconfig());
    let key = "certificate-authority-data";
    let checked = checker.check_with_kubeconfig(value(&own, key), value(&wrong, key));
    checked.assert_fails("connection: ", "is the address in the kubeconfig right, does the API server run");
    assert!(checked.text.contains("certificate"), "the reason is named: {}", checked.text);
}

#[test]
fn unreachable_api_server_fails_with_code_1_and_advice() {
    let checker = Checker::start();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nowhere = format!("https://127.0.0.1:{port}");
    let checked = checker.check_with_kubeconfig(value(&checker.kubeconfig(), "server"), &nowhere);
    checked.assert_fails("connection: ", "is the address in the kubeconfig right, does the API server run");
    // What needs the API server is left out, and the rest is checked nevertheless.
    let text = &checked.text;
    assert!(!text.contains("permissions") && text.contains("--secure-port"), "{text}");
}

/// It neither creates the service accounts that it asks about nor takes the Lease.
#[tokio::test(flavor = "multi_thread")]
async fn check_creates_neither_service_accounts_nor_a_lease() {
    let checker = Checker::start();
    assert_eq!(checker.check(&[]).code, Some(0));
    let admin = checker.playground.admin();
    for path in [
        "/api/v1/namespaces/kube-system/serviceaccounts",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
    ] {
        let list = Call::raw(http::Method::GET, path).send(&admin).await.unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 0, "{list:#}");
    }
}
