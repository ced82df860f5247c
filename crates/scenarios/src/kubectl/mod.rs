//! To kubectl the embedded API server is kube-apiserver: a long session says the same on both, or the difference is listed.
//!
//! Both clusters have the same hollow nodes, scheduler and manager. The session is data, in `session.txt`; what may
//! differ is in `docs/differences/kubectl.md`.

mod cluster;
mod compare;
mod plain;
mod session;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use keleustes_control_plane::ControlPlane;

use self::cluster::Cluster;
use self::compare::difference;
use self::session::{Command, Step};
use crate::World;
use crate::accepted::Accepted;

/// How often a command that changes nothing is typed again when the answers differ, and after how long.
const ASKED_AGAIN_MAX: usize = 12;
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(500);

pub(crate) async fn kubectl_cannot_tell_the_clusters_apart(_: &World) -> anyhow::Result<()> {
    let plane = match logs() {
        Some(folder) => ControlPlane::builder().keep_logs(folder),
        None => ControlPlane::builder(),
    };
    let plane = plane.start()?;
    let (real, embedded) = tokio::try_join!(Cluster::real(&plane), Cluster::embedded(&plane))?;
    let (mut accepted, mut minutes) = (Accepted::read("kubectl.md")?, Minutes::default());
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
        let mut pair = Pair::ask(&command, &real, &embedded).await?;
        // What controllers and nodes bring about may take another moment on one side.
        for _ in 0..if command.only_reads() { ASKED_AGAIN_MAX } else { 0 } {
            if accepted.allows(&command.line, &pair.differing()) && pair.problems.is_empty() {
                break;
            }
            tokio::time::sleep(ASKED_AGAIN_AFTER).await;
            pair = Pair::ask(&command, &real, &embedded).await?;
        }
        minutes.note(&command, &pair);
        commands += 1;
        lines += pair.there.len();
        let differing = pair.differing();
        let unlisted = accepted.unlisted(&command.line, &differing);
        if !unlisted.is_empty() {
            problems.push(format!("{}\n  {}", command.line, unlisted.join("\n  ")));
        }
        problems.append(&mut pair.problems);
    }
    minutes.keep()?;
    problems.extend(accepted.stale(|_| true));
    let (rows, used) = accepted.counts();
    println!("        {commands} commands, {lines} lines, of which {used} differ as {rows} rows allow");
    ensure!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    Ok(())
}

/// What both clusters say to a command.
struct Pair {
    said: [String; 2],
    /// The lines of kube-apiserver's cluster, made plain.
    there: Vec<String>,
    /// The lines of ours.
    here: Vec<String>,
    /// Who succeeded or failed and was not meant to.
    problems: Vec<String>,
}

impl Pair {
    async fn ask(command: &Command, real: &Cluster, embedded: &Cluster) -> anyhow::Result<Self> {
        let (there, here) = tokio::try_join!(real.type_in(command), embedded.type_in(command))?;
        let mut problems = Vec::new();
        for (whose, (succeeded, said)) in [("kube-apiserver", &there), ("the embedded one", &here)] {
            if *succeeded != command.succeeds {
                let how = if *succeeded { "succeeds" } else { "fails" };
                problems.push(format!("{}\n  {how} with {whose}: {said}", command.line));
            }
        }
        let plain = |said: &str| {
            let mut lines = plain::lines(said);
            if !command.ordered {
                lines.sort();
            }
            lines
        };
        let (plain_there, plain_here) = (plain(&there.1), plain(&here.1));
        Ok(Self { there: plain_there, here: plain_here, said: [there.1, here.1], problems })
    }

    /// The lines that only one of them says.
    fn differing(&self) -> Vec<String> {
        difference(&self.there, &self.here)
    }
}

/// What was typed and said on both sides, for people who want to read it: kept where `KELEUSTES_LOGS` says.
#[derive(Default)]
struct Minutes {
    real: String,
    embedded: String,
}

impl Minutes {
    fn note(&mut self, command: &Command, pair: &Pair) {
        for (minutes, said) in [&mut self.real, &mut self.embedded].into_iter().zip(&pair.said) {
            // Writing to a string does not fail.
            let _ = writeln!(minutes, "$ {}\n{said}", command.line);
        }
    }

    fn keep(&self) -> anyhow::Result<()> {
        let Some(folder) = logs() else { return Ok(()) };
        std::fs::write(folder.join("said-real.txt"), &self.real)?;
        Ok(std::fs::write(folder.join("said-embedded.txt"), &self.embedded)?)
    }
}

/// Where logs are kept, if they are.
fn logs() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("KELEUSTES_LOGS")?).join("kubectl"))
}
