//! The kept inputs, and mutations of them that are the same in every run.

use std::time::{Duration, Instant};

use keleustes_fuzz::mutate::mutated;
use keleustes_fuzz::{INPUT_BYTES_MAX, TARGETS, Target};

/// Mutations of each kept input; more are found by `cargo xtask fuzz`.
const MUTATIONS: usize = 400;
/// No input may take longer, even on a busy machine; most take microseconds.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What the repository takes for all targets together.
const CORPUS_BYTES_MAX: usize = 1 << 20;

fn run(target: &Target, name: &str, input: &[u8]) {
    let began = Instant::now();
    let outcome = std::panic::catch_unwind(|| (target.run)(input));
    let shown = input.escape_ascii();
    assert!(outcome.is_ok(), "{} fails with {name}: b\"{shown}\"", target.name);
    assert!(began.elapsed() < TIMEOUT, "{} takes too long with {name}: b\"{shown}\"", target.name);
}

fn replay_and_mutate(target: &Target) {
    let corpus = target.corpus().expect("a corpus that can be read");
    assert!(corpus.len() >= 3, "{} has {} kept inputs", target.name, corpus.len());
    let mut rng = fastrand::Rng::with_seed(1);
    for (path, input) in &corpus {
        run(target, &path.display().to_string(), input);
    }
    for number in 0..MUTATIONS {
        let [one, other] = [&corpus[rng.usize(..corpus.len())], &corpus[rng.usize(..corpus.len())]];
        let input = mutated(&mut rng, &one.1, &other.1);
        run(target, &format!("mutation {number} of {}", one.0.display()), &input);
    }
}

#[test]
fn kept_inputs_and_mutations_of_them_fail_nowhere() {
    // In threads of their own: some targets take much longer than others.
    std::thread::scope(|scope| {
        for target in TARGETS {
            scope.spawn(|| replay_and_mutate(target));
        }
    });
}

#[test]
fn corpus_is_small_and_belongs_to_targets() {
    let mut total = 0;
    for target in TARGETS {
        for (path, input) in target.corpus().unwrap() {
            assert!(input.len() <= INPUT_BYTES_MAX, "{} is too long", path.display());
            total += input.len();
        }
    }
    assert!(total <= CORPUS_BYTES_MAX, "the corpus has {total} bytes");
    let folders = std::fs::read_dir(TARGETS[0].corpus_dir().parent().unwrap()).unwrap();
    for folder in folders {
        let name = folder.unwrap().file_name();
        assert!(TARGETS.iter().any(|target| name == target.name), "no target for the corpus {name:?}");
    }
}

#[test]
fn mutations_depend_on_the_seed_alone() {
    let of = |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        (0..20).map(|_| mutated(&mut rng, b"app in (a, b)", b"!x")).collect::<Vec<_>>()
    };
    assert_eq!(of(7), of(7));
    assert_ne!(of(7), of(8));
}
