//! Whatever fails, hangs, dies or freezes: never two leaders, and one again when it is calm.

use std::time::Duration;

use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;

/// The promise itself, under storms: whatever fails, hangs, dies or freezes, never do two guards hold at
/// once, and somebody leads again when it is calm.
#[tokio::test(start_paused = true)]
async fn never_do_two_processes_believe_to_lead() {
    for seed in 0..20 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let server = server();
        let mut crew: Vec<Option<Member>> = (0..3).map(|_| None).collect();
        // The guards of all processes that ever were: one that is frozen still has its own.
        let mut guards = Vec::new();
        let mut terms = 0;
        for round in 0..600 {
            for (seat, member) in crew.iter_mut().enumerate() {
                let killed = round < 500 && chance.u8(..) == 0;
                if killed || member.as_ref().is_none_or(|member| member.life.is_finished()) {
                    let joined = member.insert(join(&server, &format!("{seat}-{round}"), round, &mut chance));
                    guards.push(joined.leadership.clone());
                }
            }
            stir(&crew, &mut chance, round < 500);
            for _ in 0..10 {
                sleep(Duration::from_millis(chance.u64(1..200))).await;
                let held = guards.iter().filter(|guard| guard.still_held()).count();
                assert!(held <= 1, "seed {seed}, round {round}: {held} leaders");
                terms += held;
            }
        }
        let held = guards.iter().filter(|guard| guard.still_held()).count();
        assert!(held == 1 && terms > 500, "seed {seed}: nobody leads in calm weather ({terms})");
    }
}

struct Member {
    life: JoinHandle<()>,
    leadership: Leadership,
    faults: Faults,
}

impl Drop for Member {
    fn drop(&mut self) {
        // A kill -9, or a freeze for good: nothing is given back.
        self.life.abort();
    }
}

fn join(server: &ApiServer, name: &str, round: usize, chance: &mut fastrand::Rng) -> Member {
    let contestant = contestant(server, name, chance.i64(-999..999));
    let stay = Duration::from_secs(if round < 400 { chance.u64(1..600) } else { 9_999 });
    let election = contestant.election;
    let life = tokio::spawn(async move {
        if let Some(leading) = election.acquire(sleep(stay)).await {
            leading.hold(sleep(stay)).await;
        }
    });
    Member { life, leadership: contestant.leadership, faults: contestant.faults }
}

/// Changes the weather for each process by chance.
fn stir(crew: &[Option<Member>], chance: &mut fastrand::Rng, stormy: bool) {
    for member in crew.iter().flatten() {
        if !stormy {
            member.faults.disable_all();
        } else if chance.u8(..) < 24 {
            member.faults.disable_all();
            let verdict = match chance.u8(..6) {
                0 => InjectedFault::Hang,
                1 => InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionReset),
                2 => InjectedFault::ApplyThen(Box::new(InjectedFault::ConnectionError(
                    std::io::ErrorKind::ConnectionReset,
                ))),
                3 => InjectedFault::DelayThen(
                    Duration::from_millis(chance.u64(1..6_000)),
                    Box::new(InjectedFault::Pass),
                ),
                4 => InjectedFault::CutStream { after_events: chance.usize(..3), cleanly: chance.bool() },
                _ => InjectedFault::Pass,
            };
            member.faults.add(FaultRule::new(verdict));
        }
    }
}
