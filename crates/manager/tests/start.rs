//! How the program starts and refuses to start, seen from outside: arguments in, exit code and output out.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The result of a run.
struct Ended {
    code: Option<i32>,
    stderr: String,
    /// `/proc/PID/limits` while it ran; empty if it exited by itself.
    limits: String,
}

/// Runs the program until it exits; after a timeout it is killed and has no exit code.
fn run(args: &[&str]) -> Ended {
    run_until(args, None)
}

/// Runs the program until it exits or prints a text.
fn run_until(args: &[&str], words: Option<&'static str>) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"))
        .args(args)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let (sender, said) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        for line in stderr.lines().map_while(Result::ok) {
            text.push_str(&line);
            text.push('\n');
            if words.is_some_and(|words| line.contains(words)) {
                let _ = sender.send(());
            }
        }
        text
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut limits = String::new();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if Instant::now() > deadline || said.try_recv().is_ok() {
            limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap_or_default();
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Ended { code, stderr: reader.join().unwrap(), limits }
}

/// `--secure-port` with a free port; tests run in parallel, so each uses its own.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("--secure-port={}", listener.local_addr().unwrap().port())
}

/// A kubeconfig for an API server that does not exist.
fn kubeconfig(directory: &tempfile::TempDir) -> PathBuf {
    // A port on which no process listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = directory.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs with a valid kubeconfig and more flags, and returns the error of the refused start.
fn refusal(more: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig(&directory).display());
    let ended = run(&[&[kubeconfig.as_str(), "--bind-address=127.0.0.1"], more].concat());
    assert_eq!(ended.code, Some(1), "{more:?}: {}", ended.stderr);
    assert!(!ended.stderr.contains("panic"), "{}", ended.stderr);
    ended.stderr
}

/// Runs for a while with valid flags and an API server that does not answer.
fn standing_by() -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig(&directory).display());
    let args = [
        "--bind-address=127.0.0.1",
        "--authentication-skip-lookup",
        "--allow-missing-controllers",
        &kubeconfig,
        &free_port(),
    ];
    run_until(&args, Some("Attempting to acquire leader lease"))
}

/// Proves OPT-7.
#[test]
fn error_names_a_missing_kubeconfig() {
    let ended = run(&["--kubeconfig=/no/such/kubeconfig"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("/no/such/kubeconfig"), "{}", ended.stderr);
    assert!(ended.stderr.contains("does not exist"), "{}", ended.stderr);
}

/// Proves OPT-15.
#[test]
fn error_without_kubeconfig_names_the_flags() {
    let ended = run(&[]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("--kubeconfig"), "{}", ended.stderr);
}

/// Proves OPT-22.
#[test]
fn flags_that_fail_validation_are_logged_as_a_failed_command() {
    let ended = run(&["--secure-port=-1"]);
    assert_eq!(ended.code, Some(1));
    let wanted = "\"command failed\" err=\"--secure-port -1 must be between 0 and 65535, inclusive. 0 for turning off \
                  secure port\"\n";
    assert!(ended.stderr.starts_with('E') && ended.stderr.ends_with(wanted), "{}", ended.stderr);
}

#[test]
fn reader_that_closes_the_pipe_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"))
        .args(["check", "--kubeconfig=/no/such/kubeconfig", "--secure-port=0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), &*stderr), (Some(1), ""), "a check failed");
}

/// Proves OPT-57.
#[test]
fn error_names_unusable_serving_files() {
    let path =
        refusal(&[&free_port(), "--authentication-skip-lookup", "--authorization-always-allow-paths=/a*b"]);
    assert!(path.contains(r#"only trailing * allowed in \"a*b\""#), "{path}");
    let ca = refusal(&[&free_port(), "--client-ca-file=/no/such/ca", "--authentication-skip-lookup"]);
    // The file, its flag and the reason.
    for part in ["/no/such/ca", "--client-ca-file", "No such file"] {
        assert!(ca.contains(part), "{part}: {ca}");
    }
    let sni = refusal(&[&free_port(), "--tls-sni-cert-key=/no/such.crt,/no/such.key"]);
    for part in ["/no/such.crt", "--tls-sni-cert-key", "No such file"] {
        assert!(sni.contains(part), "{part}: {sni}");
    }
}

/// Proves OPT-58.
#[test]
fn port_in_use_ends_the_start_before_leader_election() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = refusal(&[&format!("--secure-port={port}"), "--authentication-skip-lookup"]);
    assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
    assert!(!said.contains("acquire"), "{said}");
}

/// Proves OPT-59.
#[test]
fn lease_durations_that_allow_two_leaders_are_refused() {
    let said = refusal(&["--secure-port=0", "--leader-elect-lease-duration=5s"]);
    assert!(said.contains("leaseDuration must be greater than renewDeadline"), "{said}");
}

/// Proves OPT-103.
#[test]
fn generated_serving_certificate_is_logged() {
    let ended = standing_by();
    assert_eq!(ended.code, None, "it waits for its API server: {}", ended.stderr);
    assert!(ended.stderr.contains("Generated self-signed cert in-memory"), "{}", ended.stderr);
    assert!(ended.stderr.contains("no --authorization-kubeconfig"), "{}", ended.stderr);
}

/// Proves OPT-100.
#[test]
fn flags_are_logged_from_verbosity_one() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
    let said = refusal(&[&port, "--authentication-skip-lookup", "-v=1"]);
    assert!(said.contains("FLAG: --secure-port="), "{said}");
    let silent = refusal(&[&port, "--authentication-skip-lookup"]);
    assert!(!silent.contains("FLAG:"), "{silent}");
}

/// Proves OPT-112.
#[test]
fn unreachable_api_server_for_delegated_authorization_is_fatal() {
    let directory = tempfile::tempdir().unwrap();
    let other = format!("--authentication-kubeconfig={}", kubeconfig(&directory).display());
    let said = refusal(&[&free_port(), &other]);
    // The ConfigMap, the reason and the flags that help.
    for part in [
        "configmap/extension-apiserver-authentication in kube-system",
        "onnection refused",
        "--authentication-skip-lookup",
        "--authentication-tolerate-lookup-failure",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Proves RUN-3.
#[test]
fn kubeconfig_from_the_environment_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"));
    command.arg("--secure-port=0").env("KUBECONFIG", kubeconfig(&directory));
    let ended = command.env("KUBERNETES_MASTER", "http://127.0.0.1:1").output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("no --kubeconfig and no --master given"), "{said}");
}

/// Proves RUN-10.
#[test]
fn version_is_logged_first_and_pages_are_served_before_leader_election() {
    let said = standing_by().stderr;
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words} in {said}"));
    assert!(at("\"Starting\" version=") < at("Serving securely on"), "{said}");
    assert!(at("Serving securely on") < at("Attempting to acquire leader lease"), "{said}");
}

/// Operators see from the API server's audit log which build sends a request.
#[test]
fn user_agent_names_version_and_commit() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let master = format!("--master=http://{}", server.local_addr().unwrap());
    let mut manager = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"))
        .args([&master, "--secure-port=0", "--allow-missing-controllers"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (sender, user_agents) = mpsc::channel();
    std::thread::spawn(move || {
        let stream = server.accept().map(|(stream, _)| BufReader::new(stream));
        let mut lines = stream.unwrap().lines().map_while(Result::ok);
        let line = lines.find(|line| line.to_lowercase().starts_with("user-agent: "));
        let _ = sender.send(line.unwrap_or_default());
    });
    let user_agent = user_agents.recv_timeout(Duration::from_secs(30));
    manager.kill().unwrap();
    manager.wait().unwrap();
    let user_agent = user_agent.unwrap();
    // Seven digits, as git abbreviates it; outside a repository it is not known.
    let commit = env!("KELEUSTES_COMMIT").get(..7).map(|commit| format!("+{commit}")).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    assert!(user_agent.contains(&format!(") keleustes/{version}{commit}/")), "{user_agent}");
}

/// A core dump would contain private keys. With a limit of 1 the kernel neither writes a file nor starts a handler.
#[test]
#[cfg(target_os = "linux")]
fn core_dumps_are_forbidden() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Children inherit the limit: without the program's own they could dump.
    let maximum = getrlimit(Resource::Core).maximum;
    setrlimit(Resource::Core, Rlimit { current: maximum, maximum }).unwrap();
    let limits = standing_by().limits;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    let [soft, hard, _] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert!(soft == hard && ["0", "1"].contains(&soft), "{line}");
}
