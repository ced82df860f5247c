//! A playground of the program that ships.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use keleustes_client::{ClientFactory, ClientOptions, Connection, OtherServer, ServerTrust};
use keleustes_objects::Resource;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_kube-controller-manager");
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");

pub(crate) struct Playground {
    process: Child,
    pub(crate) kubeconfig: PathBuf,
    /// The login links of the live page, as they are printed.
    pub(crate) login_links: Receiver<String>,
    /// The flags of the manager's command that `--manager=off` prints, once they are printed.
    manager_flags: Receiver<Vec<String>>,
    /// What it prints on stderr, line by line.
    pub(crate) errors: Receiver<String>,
}

impl Drop for Playground {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Playground {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(flags: &[&str]) -> Self {
        let mut process = Command::new(PROGRAM)
            .args(["playground", "--nodes=1"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (kubeconfigs, kubeconfig) = channel();
        let (links, login_links) = channel();
        let (commands, manager_flags) = channel();
        let errors = lines_of(process.stderr.take().unwrap());
        // Read to the end, so that the program never writes to a closed pipe.
        std::thread::spawn(move || {
            let mut flags = Vec::new();
            for line in lines.map_while(Result::ok) {
                if let Some(path) = line.trim().strip_prefix("export KUBECONFIG=") {
                    let _ = kubeconfigs.send(PathBuf::from(path));
                }
                let mut words = line.split_whitespace();
                if let Some(link) = words.find(|word| word.contains("/debug/keleustes/login?token=")) {
                    let _ = links.send(link.to_owned());
                }
                // One flag in each line, and a backslash after all but the last.
                if line.trim().starts_with("--") {
                    flags.push(line.trim().trim_end_matches(" \\").to_owned());
                    if !line.ends_with('\\') {
                        let _ = commands.send(std::mem::take(&mut flags));
                    }
                }
            }
        });
        let kubeconfig = kubeconfig.recv_timeout(PATIENCE).unwrap();
        Self { process, kubeconfig, login_links, manager_flags, errors }
    }

    /// The flags by which a manager connects to a playground with `--manager=off`, as it prints them.
    pub(crate) fn manager_flags(&self) -> Vec<String> {
        self.manager_flags.recv_timeout(PATIENCE).unwrap()
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        let id = Pid::from_raw(self.process.id().try_into().unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn run(&self, program: &Path, args: &[&str]) -> Output {
        Command::new(program).args(args).env("KUBECONFIG", &self.kubeconfig).output().unwrap()
    }

    /// Runs `explain` until its output has this text.
    pub(crate) fn explain_until(&self, args: &[&str], wanted: &str) -> String {
        let began = Instant::now();
        loop {
            let output = self.run(Path::new(PROGRAM), &[&["explain"], args].concat());
            let text = String::from_utf8(output.stdout).unwrap();
            if text.contains(wanted) {
                return text;
            }
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(began.elapsed() < PATIENCE, "{wanted:?} does not come: {text}{errors}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub(crate) fn admin(&self) -> kube::Client {
        let connection = Connection::open(Some(&self.kubeconfig), None, None).unwrap();
        ClientFactory::new(connection, ClientOptions::default()).root("test")
    }

    /// The address of the manager's secure port.
    pub(crate) fn manager(&self) -> String {
        let text = std::fs::read_to_string(&self.kubeconfig).unwrap();
        let after = text.split_once("keleustes.dev/manager").unwrap().1;
        after.split_once("server: ").unwrap().1.lines().next().unwrap().trim().to_owned()
    }

    pub(crate) fn secure_port(&self) -> kube::Client {
        let server = OtherServer { url: self.manager(), trust: ServerTrust::Anyone };
        let connection = Connection::open_other_server(&self.kubeconfig, &server).unwrap();
        ClientFactory::new(connection, ClientOptions::default()).root("test")
    }
}

/// The lines of an output, which is read to its end, so that the program never writes to a closed pipe.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// A manager of its own, beside a playground without one. Everybody may read its pages.
pub(crate) struct Manager {
    process: Child,
    pub(crate) url: String,
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Manager {
    pub(crate) fn start(playground: &Playground, flags: &[&str]) -> Self {
        // Free for a moment only, which is enough.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(PROGRAM)
            .arg(format!("--kubeconfig={}", playground.kubeconfig.display()))
            .arg(format!("--secure-port={port}"))
            .args(["--bind-address=127.0.0.1", "--leader-elect=false"])
            .arg("--authorization-always-allow-paths=/debug/keleustes/*")
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let url = format!("https://127.0.0.1:{port}");
        wait_until_connected(&url);
        Self { process, url }
    }
}

pub(crate) fn wait_until_connected(url: &str) {
    let address = url.trim_start_matches("https://");
    let began = Instant::now();
    while std::net::TcpStream::connect(address).is_err() {
        assert!(began.elapsed() < PATIENCE, "nothing listens on {address}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn deployment(name: &str, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": image}]}}}})
}
