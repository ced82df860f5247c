//! A scenario that is played with either manager comes to the same states, or the difference is listed.
//!
//! Two worlds play it at once, each on a control plane of its own. Wherever the scenario says that its world stands
//! still, and at its end, both are looked at until they are alike. What may differ is in
//! `docs/differences/controllers.md`.

mod sight;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use futures::future::LocalBoxFuture;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use self::sight::Sight;
use crate::accepted::Accepted;
use crate::differences::matches;
use crate::real::{Manager, Real};
use crate::world::Stop;
use crate::{ALL, Scenario, Stage, World};

/// How long one world may be behind the other.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it takes until both are looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A world with our manager, and one with the original.
pub struct Worlds {
    ours: World,
    original: World,
    accepted: Accepted,
    played: BTreeSet<&'static str>,
}

impl Worlds {
    /// Starts both.
    ///
    /// # Errors
    /// If anything does not start.
    pub async fn start(ours: Manager, flags: &[&str]) -> anyhow::Result<Self> {
        let mut worlds = Vec::new();
        for manager in [ours, Manager::Original] {
            worlds.push(Real::start(manager, flags)?.into_world().await?);
        }
        let [ours, original] = <[World; 2]>::try_from(worlds).map_err(|_| anyhow::anyhow!("two worlds"))?;
        let accepted = Accepted::read("controllers.md")?;
        Ok(Self { ours, original, accepted, played: BTreeSet::new() })
    }

    /// Whether the states that a scenario comes to can be compared: the original must be able to play it.
    #[must_use]
    pub fn can_play(scenario: &Scenario) -> bool {
        matches!(scenario.stage, Stage::Anywhere | Stage::Real)
    }

    /// Plays a scenario in both worlds and compares what they come to.
    ///
    /// # Errors
    /// If it fails in one of them, or if there are differences that are not listed.
    pub async fn play(&mut self, scenario: &Scenario) -> anyhow::Result<()> {
        self.played.insert(scenario.name);
        let mut ours = Side::begin(scenario, &self.ours).await?;
        let mut original = Side::begin(scenario, &self.original).await?;
        let (mut problems, mut is_over) = (Vec::<String>::new(), false);
        let (mut moments, mut lines) = (0, 0);
        while !is_over {
            let (here, there) = tokio::join!(ours.next(), original.next());
            let what = match (&here, &there) {
                (Reached::Stop(here), Reached::Stop(there)) if here.what == there.what => here.what.clone(),
                (Reached::End(Ok(())), Reached::End(Ok(()))) => {
                    is_over = true;
                    "the end".to_owned()
                }
                _ => {
                    let before = problems.join("\n");
                    bail!("ours: {}; the original: {}\n{before}", here.tell(), there.tell())
                }
            };
            let (here, there) = self.settled(scenario, &ours, &original).await?;
            (moments, lines) = (moments + 1, lines + there.len());
            self.keep(&format!("{}: {what}", scenario.name), &here, &there)?;
            let unlisted = self.accepted.unlisted(scenario.name, &difference(&there, &here));
            problems.extend(unlisted.map(|lines| format!("{what}: {lines}")));
        }
        println!("        {lines} lines compared at {moments} moments");
        ensure!(problems.is_empty(), "not alike (- the original, + ours)\n{}", problems.join("\n"));
        Ok(())
    }

    /// What is seen of both worlds once they do not come any closer to each other.
    async fn settled(
        &self,
        scenario: &Scenario,
        ours: &Side<'_>,
        original: &Side<'_>,
    ) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (here, there) = tokio::try_join!(ours.sight.lines(), original.sight.lines())?;
            let is_accepted = self.accepted.allows(scenario.name, &difference(&there, &here));
            if is_accepted || Instant::now() > deadline {
                return Ok((here, there));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Keeps what was seen for people who want to read it, where `KELEUSTES_LOGS` says.
    fn keep(&self, moment: &str, here: &[String], there: &[String]) -> anyhow::Result<()> {
        let Some(folder) = std::env::var_os("KELEUSTES_LOGS").map(PathBuf::from) else { return Ok(()) };
        for (name, lines) in [("states-ours.txt", here), ("states-original.txt", there)] {
            let mut file = OpenOptions::new().create(true).append(true).open(folder.join(name))?;
            writeln!(file, "{moment}\n  {}", lines.join("\n  "))?;
        }
        Ok(())
    }

    /// Rows of the list for which nothing that was played gives a reason.
    #[must_use]
    pub fn stale(&self) -> Vec<String> {
        let can_show = |row: &str| {
            let mut shown = ALL.iter().filter(|one| Self::can_play(one) && matches(row, one.name));
            shown.all(|one| self.played.contains(one.name))
        };
        self.accepted.stale(can_show)
    }
}

/// A scenario in one of the worlds.
struct Side<'w> {
    sight: Sight<'w>,
    play: LocalBoxFuture<'w, anyhow::Result<()>>,
    stops: UnboundedReceiver<Stop>,
}

/// How far a scenario has come.
enum Reached {
    Stop(Stop),
    End(anyhow::Result<()>),
}

impl Reached {
    fn tell(&self) -> String {
        match self {
            Self::Stop(stop) => stop.what.clone(),
            Self::End(Ok(())) => "the end".to_owned(),
            Self::End(Err(error)) => format!("{error:#}"),
        }
    }
}

impl<'w> Side<'w> {
    async fn begin(scenario: &Scenario, world: &'w World) -> anyhow::Result<Self> {
        let sight = Sight::begin(world).await?;
        let stops = world.look_on();
        Ok(Self { sight, play: (scenario.play)(world), stops })
    }

    async fn next(&mut self) -> Reached {
        tokio::select! {
            biased;
            Some(stop) = self.stops.recv() => Reached::Stop(stop),
            end = &mut self.play => Reached::End(end),
        }
    }
}

/// The lines that only one of two sorted lists has: `- ` in front of the first one's, `+ ` in front of the second's.
fn difference(first: &[String], second: &[String]) -> Vec<String> {
    let (mut first, mut second) = (first.iter().peekable(), second.iter().peekable());
    let mut lines = Vec::new();
    loop {
        let order = match (first.peek(), second.peek()) {
            (None, None) => return lines,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(one), Some(other)) => one.cmp(other),
        };
        if order.is_le()
            && let Some(line) = first.next()
            && order.is_ne()
        {
            lines.push(format!("- {line}"));
        }
        if order.is_ge()
            && let Some(line) = second.next()
            && order.is_ne()
        {
            lines.push(format!("+ {line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_not_only_looked_for() {
        let lines = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(difference(&lines("a b b c"), &lines("a b c d")), ["- b", "+ d"]);
        assert_eq!(difference(&lines("a b"), &lines("a b")), [""; 0]);
        assert_eq!(difference(&lines(""), &lines("a a")), ["+ a", "+ a"]);
    }
}
