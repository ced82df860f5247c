//! Storms as tests: the same seed gives the same storm, and a bounded number of them is calm in the end.

use keleustes_sim::deeds::Schedule;
use keleustes_sim::script::drawn;
use keleustes_sim::soak::Soak;
use keleustes_sim::storm::{Stage, play};

/// Every line, in two runs.
#[test]
fn two_runs_of_one_seed_are_the_same() {
    let stage = Stage { transcript: true, ..Stage::default() };
    for seed in [2, 3] {
        let (one, two) = (play(&drawn(seed), &stage), play(&drawn(seed), &stage));
        assert_eq!(one.lines, two.lines);
        assert_eq!((one.digest, one.requests), (two.digest, two.requests));
    }
}

#[test]
fn seeds_hold() {
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let soak = Soak { first: 1, seeds: 200, threads, twice: false, all: false };
    let tally = soak.run(&Stage::default(), |_| {});
    if let Some((seed, broken)) = tally.failed.first_key_value() {
        panic!("cargo xtask storm --seed {seed}\n{}", broken.join("\n"));
    }
}

/// What once went wrong, cut down to what it took.
#[test]
fn what_once_went_wrong_holds() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "json")) {
        let schedule: Schedule = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let report = play(&schedule, &Stage::default());
        assert!(report.broken.is_empty(), "{}\n{}", file.display(), report.broken.join("\n"));
    }
}
