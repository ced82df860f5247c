//! Names of Workloads and PodGroups: the same after a restart, and different for a Job of the same name.

use keleustes_objects::Job;
use keleustes_objects::template::safe_encode;

/// The longest name of an object.
const NAME_MAX: usize = 253;

/// `<Job>-<hash of its UID>`.
pub(super) fn workload(job: &Job) -> String {
    let hash = hash(["(types.UID)", &job.meta.uid.to_string()]);
    let name = &job.meta.key.name;
    format!("{}-{hash}", cut(name, NAME_MAX - hash.len() - 1))
}

/// `<Workload>-<template>-<hash of both>`. If they are too long, the longer one is cut first.
pub(in crate::job) fn pod_group(workload: &str, template: &str) -> String {
    let hash = hash([workload, template]);
    let room = NAME_MAX - hash.len() - 2;
    let half = room / 2;
    let (first, second) = match (workload.len(), template.len()) {
        (first, second) if first + second <= room => (first, second),
        (first, _) if first <= half => (first, room - first),
        (_, second) if second <= half => (room - second, second),
        _ => (room - half, half),
    };
    format!("{}-{}-{hash}", cut(workload, first), cut(template, second))
}

fn cut(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

/// FNV-1a with 32 bits of all texts, as characters that are safe in names.
fn hash<const N: usize>(texts: [&str; N]) -> String {
    let bytes = texts.into_iter().flat_map(str::bytes);
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    safe_encode(hash)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, uid: &str) -> Job {
        serde_json::from_value(json!({"metadata": {"namespace": "a", "name": name, "uid": uid}})).unwrap()
    }

    /// The expected names were computed by the original's functions.
    ///
    /// Proves JOB-129.
    #[test]
    fn names_are_those_of_the_original() {
        let short = workload(&job("train", "2b0c9b1e-6c3f-4a83-9f0e-0d7c4c8a1f11"));
        assert_eq!(short, "train-79fff9b58b");
        assert_eq!(pod_group(&short, "train-pgt-0"), "train-79fff9b58b-train-pgt-0-c8b4dd59f");
        let long = "j".repeat(253);
        let cut = workload(&job(&long, "2b0c9b1e-6c3f-4a83-9f0e-0d7c4c8a1f11"));
        assert_eq!((cut.len(), &cut[..3]), (253, "jjj"));
        assert!(cut.ends_with(short.strip_prefix("train").unwrap()), "the same UID, the same hash");
        assert_ne!(workload(&job("train", "another")), short);
        let lengths = |first: usize, second: usize| {
            let name = pod_group(&"w".repeat(first), &"t".repeat(second));
            let count = |letter: char| name[..name.rfind('-').unwrap()].matches(letter).count();
            assert!(name.len() <= 253);
            (count('w'), count('t'))
        };
        assert_eq!(lengths(10, 20), (10, 20));
        let room = 253 - 2 - hash(["w".repeat(10).as_str(), "t".repeat(253).as_str()]).len();
        assert_eq!(lengths(10, 253), (10, room - 10));
        let room = 253 - 2 - hash(["w".repeat(253).as_str(), "t".repeat(10).as_str()]).len();
        assert_eq!(lengths(253, 10), (room - 10, 10));
        let room = 253 - 2 - hash(["w".repeat(253).as_str(), "t".repeat(253).as_str()]).len();
        assert_eq!(lengths(253, 253), (room - room / 2, room / 2));
    }
}
