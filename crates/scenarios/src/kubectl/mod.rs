//! kubectl prints the same for the embedded API server and kube-apiserver in a long session, or the
//! difference is listed.
//!
//! Both clusters have the same hollow nodes, scheduler and manager. The session is data, in `session.txt`;
//! accepted differences are in `docs/differences/kubectl.md`.

mod cluster;
mod compare;
mod normalize_output;
mod session;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use keleustes_control_plane::ControlPlane;

use self::cluster::Cluster;
use self::compare::difference;
use self::session::{Command, Step};
use crate::TestCluster;
use crate::accepted::Accepted;

/// How often a read-only command is repeated while the outputs differ, and after which delay.
const RETRIES_MAX: usize = 12;
const RETRY_DELAY: Duration = Duration::from_millis(500);

pub(crate) async fn kubectl_output_matches_kube_apiserver(_: &TestCluster) -> anyhow::Result<()> {
    let plane = match logs() {
        Some(folder) => ControlPlane::builder().keep_logs(folder),
        None => ControlPlane::builder(),
    };
    let plane = plane.start()?;
    let (real, embedded) = tokio::try_join!(Cluster::real(&plane), Cluster::embedded(&plane))?;
    let (accepted, mut transcript) = (Accepted::read("kubectl.md")?, Transcript::default());
    let (mut problems, mut commands, mut lines) = (Vec::new(), 0, 0);
    for step in session::steps()? {
        let command = match step {
            Step::File { name, text } => {
                real.write(&name, &text)?;
                embedded.write(&name, &text)?;
                continue;
            }
            Step::Command(command) => command,
        };
        let mut pair = Pair::run(&command, &real, &embedded).await?;
        // One side may need a moment longer until controllers and nodes have acted.
        for _ in 0..if command.only_reads() { RETRIES_MAX } else { 0 } {
            if accepted.allows(&command.line, &pair.differing()) && pair.problems.is_empty() {
                break;
            }
            tokio::time::sleep(RETRY_DELAY).await;
            pair = Pair::run(&command, &real, &embedded).await?;
        }
        transcript.record(&command, &pair);
        commands += 1;
        lines += pair.real.len();
        let differing = pair.differing();
        let unlisted = accepted.unlisted(&command.line, &differing);
        if !unlisted.is_empty() {
            problems.push(format!("{}\n  {}", command.line, unlisted.join("\n  ")));
        }
        problems.append(&mut pair.problems);
    }
    transcript.save()?;
    problems.extend(accepted.stale(|_| true));
    let (rows, used) = accepted.counts();
    println!("        {commands} commands, {lines} lines, of which {used} differ as {rows} rows allow");
    ensure!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

/// The outputs of both clusters for a command.
struct Pair {
    outputs: [String; 2],
    /// The normalized lines of kube-apiserver's cluster.
    real: Vec<String>,
    /// The normalized lines of the embedded cluster.
    embedded: Vec<String>,
    /// Unexpected successes and failures.
    problems: Vec<String>,
}

impl Pair {
    async fn run(command: &Command, real: &Cluster, embedded: &Cluster) -> anyhow::Result<Self> {
        let (real, embedded) = tokio::try_join!(real.run(command), embedded.run(command))?;
        let mut problems = Vec::new();
        for (whose, (succeeded, outputs)) in [("kube-apiserver", &real), ("the embedded one", &embedded)] {
            if *succeeded != command.succeeds {
                let how = if *succeeded { "succeeds" } else { "fails" };
                problems.push(format!("{}\n  {how} with {whose}: {outputs}", command.line));
            }
        }
        let plain = |outputs: &str| {
            let mut lines = normalize_output::lines(outputs);
            if !command.ordered {
                lines.sort();
            }
            lines
        };
        let (plain_there, plain_here) = (plain(&real.1), plain(&embedded.1));
        Ok(Self { real: plain_there, embedded: plain_here, outputs: [real.1, embedded.1], problems })
    }

    /// The lines that only one of them has.
    fn differing(&self) -> Vec<String> {
        difference(&self.real, &self.embedded)
    }
}

/// Commands and outputs of both sides, saved in the folder `KELEUSTES_LOGS`.
#[derive(Default)]
struct Transcript {
    real: String,
    embedded: String,
}

impl Transcript {
    fn record(&mut self, command: &Command, pair: &Pair) {
        for (transcript, outputs) in [&mut self.real, &mut self.embedded].into_iter().zip(&pair.outputs) {
            // Writing to a string does not fail.
            let _ = writeln!(transcript, "$ {}\n{outputs}", command.line);
        }
    }

    fn save(&self) -> anyhow::Result<()> {
        let Some(folder) = logs() else { return Ok(()) };
        std::fs::write(folder.join("said-real.txt"), &self.real)?;
        Ok(std::fs::write(folder.join("said-embedded.txt"), &self.embedded)?)
    }
}

/// The folder for logs, if one is set.
fn logs() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("KELEUSTES_LOGS")?).join("kubectl"))
}
