//! Whatever fails, hangs, dies or is suspended: never two leaders, and one leader again after the faults end.

use std::time::Duration;

use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;

/// Under random faults, crashes and suspensions, `still_held` is never true in two processes at once, and a
/// process leads again after the faults end.
#[tokio::test(start_paused = true)]
async fn two_processes_never_lead_at_once() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let server = server();
        let mut processes: Vec<Option<Process>> = (0..3).map(|_| None).collect();
        // The leadership checks of all processes so far: a suspended one still has its own.
        let mut leaderships = Vec::new();
        let mut terms = 0;
        for round in 0..600 {
            for (slot, process) in processes.iter_mut().enumerate() {
                let killed = round < 500 && random.u8(..) == 0;
                if killed || process.as_ref().is_none_or(|process| process.task.is_finished()) {
                    let started =
                        process.insert(start(&server, &format!("{slot}-{round}"), round, &mut random));
                    leaderships.push(started.leadership.clone());
                }
            }
            change_faults(&processes, &mut random, round < 500);
            for _ in 0..10 {
                sleep(Duration::from_millis(random.u64(1..200))).await;
                let held = leaderships.iter().filter(|leadership| leadership.still_held()).count();
                assert!(held <= 1, "seed {seed}, round {round}: {held} leaders");
                terms += held;
            }
        }
        let held = leaderships.iter().filter(|leadership| leadership.still_held()).count();
        assert!(held == 1 && terms > 500, "seed {seed}: no leader after the faults end ({terms})");
    }
}

struct Process {
    task: JoinHandle<()>,
    leadership: Leadership,
    faults: Faults,
}

impl Drop for Process {
    fn drop(&mut self) {
        // A kill -9, or a permanent suspension: nothing is released.
        self.task.abort();
    }
}

fn start(server: &ApiServer, name: &str, round: usize, random: &mut fastrand::Rng) -> Process {
    let contestant = contestant(server, name, random.i64(-999..999));
    let stops_after = Duration::from_secs(if round < 400 { random.u64(1..600) } else { 9_999 });
    let election = contestant.election;
    let task = tokio::spawn(async move {
        if let Some(leading) = election.acquire(sleep(stops_after)).await {
            leading.hold(sleep(stops_after)).await;
        }
    });
    Process { task, leadership: contestant.leadership, faults: contestant.faults }
}

/// Changes the faults of each process at random.
fn change_faults(processes: &[Option<Process>], random: &mut fastrand::Rng, with_faults: bool) {
    for process in processes.iter().flatten() {
        if !with_faults {
            process.faults.disable_all();
        } else if random.u8(..) < 24 {
            process.faults.disable_all();
            let fault = match random.u8(..6) {
                0 => InjectedFault::Hang,
                1 => InjectedFault::ConnectionError(std::io::ErrorKind::ConnectionReset),
                2 => InjectedFault::ApplyThen(Box::new(InjectedFault::ConnectionError(
                    std::io::ErrorKind::ConnectionReset,
                ))),
                3 => InjectedFault::DelayThen(
                    Duration::from_millis(random.u64(1..6_000)),
                    Box::new(InjectedFault::Pass),
                ),
                4 => InjectedFault::CutStream { after_events: random.usize(..3), cleanly: random.bool() },
                _ => InjectedFault::Pass,
            };
            process.faults.add(FaultRule::new(fault));
        }
    }
}
