//! `cargo xtask control-plane`: runs a real control plane until Ctrl-C and removes it afterwards.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use keleustes_control_plane::build::{BinaryCache, Program};
use keleustes_control_plane::{Builder, ControlPlane, User};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How often the control plane is checked while it waits for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The parts of the control plane.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run kube-scheduler
    #[arg(long)]
    scheduler: bool,
    /// Run kwok with this many nodes
    #[arg(long, value_name = "NODES")]
    kwok: Option<usize>,
    /// Run Go's kube-controller-manager
    #[arg(long)]
    go_manager: bool,
    /// Run metrics-server behind the aggregation layer; the annotations kwok.x-k8s.io/usage-cpu and usage-memory of pods say
    /// what it measures
    #[arg(long, requires = "kwok")]
    metrics_server: bool,
    /// Run an adapter for custom and external metrics behind the aggregation layer
    #[arg(long)]
    metrics_adapter: bool,
    /// Build this program as well (`all` for every one), without running it
    #[arg(long, value_name = "PROGRAM", value_parser = programs)]
    with: Vec<Programs>,
    /// Build what is missing, print where it is, and run nothing
    #[arg(long)]
    build_only: bool,
    /// Keep all logs, the audit log among them, in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// The programs of one `--with`.
#[derive(Clone)]
struct Programs(Vec<Program>);

fn programs(name: &str) -> Result<Programs> {
    if name == "all" {
        return Ok(Programs(Program::ALL.to_vec()));
    }
    let known = || Program::ALL.map(Program::name).join(", ");
    let found = Program::ALL.into_iter().find(|program| program.name() == name);
    found.map(|program| Programs(vec![program])).ok_or_else(|| anyhow!("there are: all, {}", known()))
}

impl Options {
    /// Starts the control plane, prints how to use it, and stops it on Ctrl-C.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let builder = self.builder()?;
        if self.build_only {
            return build(&builder);
        }
        // Until everything runs Ctrl-C ends this program at once, and the watchers of its children end those.
        let began = Instant::now();
        let plane = builder.start()?;
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        println!("The control plane is ready after {:.1} s.\n", began.elapsed().as_secs_f64());
        println!("{}", instructions(&plane)?);
        let ended = loop {
            if signals.pending().next().is_some() {
                break None;
            }
            if let Some(part) = plane.exited_component() {
                break Some(part);
            }
            std::thread::sleep(CHECK_INTERVAL);
        };
        println!("\nStopping the control plane.");
        drop(plane);
        match ended {
            None => Ok(ExitCode::SUCCESS),
            Some(error) => Err(error.into()),
        }
    }

    fn builder(&self) -> Result<Builder> {
        let mut builder = ControlPlane::builder();
        if self.scheduler {
            builder = builder.with_scheduler();
        }
        if let Some(nodes) = self.kwok {
            builder = builder.with_kwok(nodes);
        }
        if self.go_manager {
            builder = builder.with_go_manager(Vec::<String>::new());
        }
        if self.metrics_server {
            builder = builder.with_metrics_server();
        }
        if self.metrics_adapter {
            builder = builder.with_metrics_adapter();
        }
        if let Some(dir) = &self.keep {
            if dir.is_file() {
                bail!("{} is a file; --keep needs a directory", dir.display());
            }
            builder = builder.keep_logs(std::path::absolute(dir)?);
        }
        let also = self.with.iter().flat_map(|programs| programs.0.iter().copied());
        Ok(also.fold(builder, Builder::with_program))
    }
}

fn build(builder: &Builder) -> Result<ExitCode> {
    let wanted = builder.programs();
    let found = BinaryCache::from_env().provide(&wanted)?;
    for path in wanted.iter().filter_map(|program| found.path(*program)) {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn instructions(plane: &ControlPlane) -> Result<String> {
    let kubectl = plane.binary(Program::Kubectl)?;
    let manager: String = plane
        .manager_args(plane.free_port()?)
        .iter()
        .map(|arg| format!(" \\\n    {}", quoted(arg)))
        .collect();
    Ok(format!(
        "In another terminal:\n\n  \
         export KUBECONFIG={kubeconfig}\n  \
         {kubectl} get namespaces\n\n\
         To run Keleustes against it:\n\n  \
         cargo run --release --{manager}\n\n\
         Logs are in {logs}.\n\
         Press Ctrl-C to stop everything and remove its data.",
        kubeconfig = plane.kubeconfig(User::Admin).display(),
        kubectl = kubectl.display(),
        logs = plane.logs_dir().display(),
    ))
}

/// Protects an argument from the shell it is pasted into.
fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:".contains(c);
    if arg.chars().all(plain) { arg.to_owned() } else { format!("'{arg}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_names_one_program_or_all() {
        assert_eq!(programs("kwok").unwrap().0, [Program::Kwok]);
        assert_eq!(programs("all").unwrap().0, Program::ALL);
        let complaint = programs("kubelet").err().unwrap().to_string();
        assert!(complaint.contains("kube-scheduler"), "{complaint}");
    }

    #[test]
    fn only_arguments_that_need_it_are_quoted() {
        assert_eq!(quoted("--secure-port=20000"), "--secure-port=20000");
        assert_eq!(quoted("--controllers=*,a"), "'--controllers=*,a'");
    }
}
