//! Storms as tests: the same seed gives the same storm, and a bounded number of them converges.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_sim::actions::{
    Action, DeviceChange, DriverFault, FaultEffect, Kind, LeaseTampering, ListedKind, ObjectRef, ObjectSpec,
    PodBehaviour, ReclaimPolicy, Schedule, StorageChange, TimedAction, UserAction, VolumeChange,
};
use keleustes_sim::generate::generate_schedule;
use keleustes_sim::soak::Soak;
use keleustes_sim::storm::{StormOptions, play};

/// Compares every line of the transcripts of two runs.
#[test]
fn two_runs_of_one_seed_are_the_same() {
    let options = StormOptions { transcript: true, ..StormOptions::default() };
    for seed in [2, 3] {
        let (one, two) = (play(&generate_schedule(seed), &options), play(&generate_schedule(seed), &options));
        assert_eq!(one.lines, two.lines);
        assert_eq!((one.digest, one.requests), (two.digest, two.requests));
    }
}

#[test]
fn two_hundred_seeds_hold() {
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let soak = Soak { first: 1, seeds: 200, threads, twice: false, all: false };
    let tally = soak.run(&StormOptions::default(), |_| {});
    if let Some((seed, violations)) = tally.failed.first_key_value() {
        panic!("cargo xtask storm --seed {seed}\n{}", violations.join("\n"));
    }
}

/// The name of a fault, for those that controllers and managers have failed to survive.
fn fault_name(action: &Action) -> Option<&'static str> {
    match action {
        Action::User(UserAction::CreateWithOwnerElsewhere(..)) => Some("an owner in another namespace"),
        Action::User(UserAction::TamperWithLease(LeaseTampering::Delete)) => Some("the Lease is deleted"),
        Action::User(UserAction::TamperWithLease(LeaseTampering::ClearHolder)) => {
            Some("the Lease has no holder")
        }
        Action::User(UserAction::LeadAsOriginal(..)) => Some("the original leads"),
        Action::User(UserAction::SetQuota(_, _, Some(_))) => Some("a quota refuses objects"),
        Action::User(UserAction::ChangeVolumes(_, _, change)) => volume_name(*change),
        Action::User(UserAction::ChangeStorage(_, _, change)) => storage_name(*change),
        Action::User(UserAction::ChangeDevices(_, _, change)) => device_name(*change),
        Action::FailDriver(_, fault, _) => Some(match fault {
            DriverFault::Refuse => "the storage refuses",
            DriverFault::LoseResponse => "the driver loses a response",
            DriverFault::Partial => "the driver stops halfway",
            DriverFault::Hang(_) => "the driver hangs",
        }),
        Action::FailLists(_) => Some("lists of one kind fail"),
        Action::Fault(fault) => match fault.effect {
            FaultEffect::DropResponse => Some("a response is lost"),
            FaultEffect::ApplyThenReject(_) => Some("a request takes effect and is refused"),
            _ => None,
        },
        _ => None,
    }
}

/// What only some volumes need.
fn volume_name(change: VolumeChange) -> Option<&'static str> {
    match change {
        VolumeChange::CreateHostPath(ReclaimPolicy::Retain) => Some("a volume on the host is retained"),
        VolumeChange::CreateHostPath(ReclaimPolicy::Delete) => Some("a volume on the host is deleted"),
        VolumeChange::CreateHostPath(ReclaimPolicy::Recycle) => Some("a volume on the host is recycled"),
        VolumeChange::SetReclaimPolicy(ReclaimPolicy::Retain) => Some("a reclaim policy becomes Retain"),
        _ => None,
    }
}

fn storage_name(change: StorageChange) -> Option<&'static str> {
    match change {
        StorageChange::SetAttributes(_) => Some("a claim names a VolumeAttributesClass"),
        StorageChange::ModifyVolume => Some("a volume gets a VolumeAttributesClass"),
        StorageChange::SetAttributesClass(_, false) => Some("a VolumeAttributesClass is deleted"),
        _ => None,
    }
}

fn device_name(change: DeviceChange) -> Option<&'static str> {
    match change {
        DeviceChange::AllocateShared => Some("a shared claim is allocated"),
        DeviceChange::FinishSharingPod(_) => Some("a pod with a shared claim ends"),
        DeviceChange::DeleteSharingPod(_) => Some("a pod with a shared claim is deleted"),
        DeviceChange::DeleteSharedClaim => Some("a shared claim is deleted"),
        _ => None,
    }
}

/// The seeds that every `cargo test` plays contain each of these faults more than once.
#[test]
fn two_hundred_seeds_draw_every_fault() {
    let mut storms: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 1..=200 {
        let actions = generate_schedule(seed).actions;
        let mut names: BTreeSet<_> = actions.iter().filter_map(|timed| fault_name(&timed.action)).collect();
        let stops = actions.iter().filter(|timed| timed.action == Action::StopLeader);
        let stops: Vec<_> = stops.map(|timed| timed.at_ms).collect();
        if stops.windows(2).any(|two| two[1] - two[0] < 3_000) {
            names.insert("two handovers in a row");
        }
        for name in names {
            *storms.entry(name).or_default() += 1;
        }
    }
    let wanted = [
        "a VolumeAttributesClass is deleted",
        "a claim names a VolumeAttributesClass",
        "a pod with a shared claim ends",
        "a pod with a shared claim is deleted",
        "a quota refuses objects",
        "a reclaim policy becomes Retain",
        "a request takes effect and is refused",
        "a response is lost",
        "a shared claim is allocated",
        "a shared claim is deleted",
        "a volume gets a VolumeAttributesClass",
        "a volume on the host is deleted",
        "a volume on the host is recycled",
        "a volume on the host is retained",
        "an owner in another namespace",
        "lists of one kind fail",
        "the Lease has no holder",
        "the Lease is deleted",
        "the driver hangs",
        "the driver loses a response",
        "the driver stops halfway",
        "the original leads",
        "the storage refuses",
        "two handovers in a row",
    ];
    assert!(storms.keys().eq(&wanted) && storms.values().all(|count| *count > 1), "{storms:?}");
}

/// The original leads between two managers.
#[test]
fn storms_with_a_term_of_the_original_hold() {
    let is_term = |timed: &TimedAction| matches!(timed.action, Action::User(UserAction::LeadAsOriginal(..)));
    let schedules = (201..).map(generate_schedule);
    for schedule in schedules.filter(|schedule| schedule.actions.iter().any(is_term)).take(5) {
        let violations = play(&schedule, &StormOptions::default()).violations;
        assert!(
            violations.is_empty(),
            "cargo xtask storm --seed {}\n{}",
            schedule.seed,
            violations.join("\n")
        );
    }
}

/// Quotas refuse pods, Services and custom objects.
#[test]
fn storms_with_quotas_hold() {
    let is_quota = |timed: &TimedAction| matches!(timed.action, Action::User(UserAction::SetQuota(..)));
    let schedules = (201..).map(generate_schedule);
    for schedule in schedules.filter(|schedule| schedule.actions.iter().any(is_quota)).take(5) {
        let violations = play(&schedule, &StormOptions::default()).violations;
        let seed = schedule.seed;
        assert!(violations.is_empty(), "cargo xtask storm --seed {seed}\n{}", violations.join("\n"));
    }
}

/// Seconds after the start at which a line of the transcript contains these words for the first time, not before a time.
fn first_time(lines: &[String], words: &str, not_before: f64) -> f64 {
    let time_of =
        |line: &String| line.split_once("s  ").and_then(|(time, _)| time.trim().parse::<f64>().ok());
    let times = lines.iter().filter(|line| line.contains(words)).filter_map(time_of);
    times.into_iter().find(|time| *time >= not_before).unwrap_or(f64::INFINITY)
}

/// The only manager crashes. With a lease lock file the next process on its machine leads at once, without one when the
/// lease has expired.
#[test]
fn successor_with_a_lease_lock_file_does_not_wait_for_the_lease() {
    let first_write_after_crash = |lease_lock_files| {
        let object = |name: &str| ObjectRef {
            kind: Kind::Deployment,
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let spec =
            ObjectSpec { replicas: 2, template_version: 0, pods: PodBehaviour::Healthy, alternative: false };
        let actions = vec![
            TimedAction {
                at_ms: 3_000,
                action: Action::User(UserAction::Create(object("oar"), spec.clone())),
            },
            TimedAction { at_ms: 20_000, action: Action::CrashManager(0) },
            TimedAction { at_ms: 20_100, action: Action::User(UserAction::Create(object("sail"), spec)) },
        ];
        let schedule =
            Schedule { seed: 11, managers: 1, nodes: 1, lease_lock_files, actions, ..Schedule::default() };
        let report = play(&schedule, &StormOptions { transcript: true, ..StormOptions::default() });
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        let restarted_at = first_time(&report.lines, "manager-0 restarts", 20.0);
        let written_at = first_time(&report.lines, "POST replicasets", 20.0);
        (restarted_at, written_at)
    };
    // The lease was renewed at most two seconds before the crash and is valid for fifteen.
    let (restarted_at, written_at) = first_write_after_crash(true);
    assert!(written_at < restarted_at + 1.0 && written_at < 30.0, "{restarted_at} s, {written_at} s");
    let (restarted_at, written_at) = first_write_after_crash(false);
    assert!(restarted_at < 30.0 && written_at > 33.0, "{restarted_at} s, {written_at} s");
}

/// Lists of one kind fail until everything else has converged.
#[test]
fn storms_with_failing_lists_hold() {
    let mut kinds = BTreeSet::new();
    for seed in (1..200).step_by(8) {
        let schedule = generate_schedule(seed);
        let failing = |timed: &TimedAction| match timed.action {
            Action::FailLists(kind) => Some(kind),
            _ => None,
        };
        let Some(kind) = schedule.actions.iter().find_map(failing) else { continue };
        if !kinds.insert(kind) {
            continue;
        }
        let violations = play(&schedule, &StormOptions::default()).violations;
        assert!(violations.is_empty(), "cargo xtask storm --seed {seed}\n{}", violations.join("\n"));
    }
    assert_eq!(kinds.len(), ListedKind::ALL.len(), "every kind fails once: {kinds:?}");
}

/// Replays the shrunk schedules of failures that were fixed.
#[test]
fn corpus_schedules_hold() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "json")) {
        let schedule: Schedule = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let report = play(&schedule, &StormOptions::default());
        assert!(report.violations.is_empty(), "{}\n{}", file.display(), report.violations.join("\n"));
    }
}
