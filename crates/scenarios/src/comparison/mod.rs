//! A scenario that is played with either manager comes to the same states, or the difference is listed.
//!
//! Two worlds play it at once, each on a control plane of its own. Wherever the scenario says that its world stands
//! still, and at its end, both are looked at until they are alike, or until neither of them moves any more. A
//! scenario that fails or ends in a difference is played once more, in namespaces of its own again: what counts is
//! what differs both times. What may differ is in `docs/differences/controllers.md`.

mod sight;

use std::collections::{BTreeMap, BTreeSet};
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

/// How long neither world may have moved before a difference between them is believed; longer than the original waits
/// before it tries anything again.
const QUIET: Duration = Duration::from_secs(90);
/// How long worlds may move at most, so that two that never rest end the comparison, too.
const RESTLESS: Duration = Duration::from_secs(600);
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

    /// Plays a scenario in both worlds and compares what they come to; plays it once more if that is not the same.
    ///
    /// # Errors
    /// If it fails in one of them, or if there are differences that are not listed, and both happens again.
    pub async fn play(&mut self, scenario: &Scenario) -> anyhow::Result<()> {
        self.played.insert(scenario.name);
        let first = self.play_once(scenario).await;
        match &first {
            Ok(lines) if lines.is_empty() => return Ok(()),
            Ok(lines) => println!("again   {}: not alike{}", scenario.name, told(lines)),
            Err(error) => println!("again   {}: {error:#}", scenario.name),
        }
        self.put_right().await?;
        let second = self.play_once(scenario).await;
        if !second.as_ref().is_ok_and(BTreeSet::is_empty) {
            self.put_right().await?;
        }
        let mut lines = second?;
        if let Ok(first) = first {
            lines.retain(|line| first.contains(line));
        }
        ensure!(lines.is_empty(), "not alike, twice (- the original, + ours){}", told(&lines));
        Ok(())
    }

    /// Takes away what a scenario that was not played to its end left in the way of the next.
    async fn put_right(&self) -> anyhow::Result<()> {
        self.ours.put_right().await?;
        self.original.put_right().await
    }

    /// The lines in which both worlds differ although that is not listed, at the first moment at which they do.
    async fn play_once(&mut self, scenario: &Scenario) -> anyhow::Result<BTreeSet<String>> {
        let mut ours = Side::begin(scenario, &self.ours).await?;
        let mut original = Side::begin(scenario, &self.original).await?;
        let mut is_over = false;
        let (mut moments, mut lines) = (0, 0);
        while !is_over {
            let (here, there) = tokio::join!(ours.next(), original.next());
            let what = match (&here, &there) {
                (Reached::Stop(here), Reached::Stop(there)) if here.what == there.what => here.what.clone(),
                (Reached::End(Ok(())), Reached::End(Ok(()))) => {
                    is_over = true;
                    "the end".to_owned()
                }
                _ => bail!("ours: {}; the original: {}", here.tell(), there.tell()),
            };
            let seen = self.settled(scenario, &ours, &original).await?;
            (moments, lines) = (moments + 1, lines + seen.original.len());
            self.keep(&format!("{}: {what}", scenario.name), &seen)?;
            let unlisted = self.accepted.unlisted(scenario.name, &seen.differing);
            if !unlisted.is_empty() {
                return Ok(unlisted.into_iter().map(|line| format!("{what}: {line}")).collect());
            }
        }
        println!("        {lines} lines compared at {moments} moments");
        Ok(BTreeSet::new())
    }

    /// What is seen of both worlds once they are alike, or once they stand still without being so.
    async fn settled(
        &self,
        scenario: &Scenario,
        ours: &Side<'_>,
        original: &Side<'_>,
    ) -> anyhow::Result<Seen> {
        let began = Instant::now();
        let (mut last, mut moved_at) = (None, began);
        loop {
            let (here, there) = tokio::try_join!(ours.sight.lines(), original.sight.lines())?;
            let seen = Seen { differing: difference(&there, &here), ours: here, original: there };
            if last.as_ref() != Some(&seen) {
                moved_at = Instant::now();
            }
            let stands_still = moved_at.elapsed() > QUIET || began.elapsed() > RESTLESS;
            if stands_still || self.accepted.allows(scenario.name, &seen.differing) {
                return Ok(seen);
            }
            last = Some(seen);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Keeps what was seen for people who want to read it, where `KELEUSTES_LOGS` says.
    fn keep(&self, moment: &str, seen: &Seen) -> anyhow::Result<()> {
        let Some(folder) = std::env::var_os("KELEUSTES_LOGS").map(PathBuf::from) else { return Ok(()) };
        for (name, lines) in [("states-ours.txt", &seen.ours), ("states-original.txt", &seen.original)] {
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

/// What was seen at one moment, line by line.
#[derive(PartialEq)]
struct Seen {
    ours: Vec<String>,
    original: Vec<String>,
    /// What only one of them has: `- ` in front of the original's, `+ ` in front of ours.
    differing: Vec<String>,
}

/// Lines below each other.
fn told(lines: &BTreeSet<String>) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
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

/// The lines that only one of two lists has: `- ` in front of the first one's, `+ ` in front of the second's.
fn difference(first: &[String], second: &[String]) -> Vec<String> {
    let mut surplus = BTreeMap::<&str, isize>::new();
    first.iter().for_each(|line| *surplus.entry(line).or_default() += 1);
    second.iter().for_each(|line| *surplus.entry(line).or_default() -= 1);
    let told = |(line, count): (&str, isize)| {
        let side = if count > 0 { '-' } else { '+' };
        std::iter::repeat_n(format!("{side} {line}"), count.unsigned_abs())
    };
    surplus.into_iter().flat_map(told).collect()
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
