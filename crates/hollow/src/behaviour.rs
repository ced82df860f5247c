//! Behaviour of pods and nodes configured by annotations.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use keleustes_objects::ArcStr;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::curve::Curve;
use crate::duration;

/// The annotations of hollow nodes. Durations are written as `1m30s`, `1.5s` or `200ms`.
pub mod annotations {
    /// Prefix of all annotations.
    pub const PREFIX: &str = "hollow.keleustes.io/";
    /// On a pod: delay before the first container starts.
    pub const START_DELAY: &str = "hollow.keleustes.io/start-delay";
    /// On a pod: `true` keeps it in `ContainerCreating`.
    pub const NEVER_START: &str = "hollow.keleustes.io/never-start";
    /// On a pod: how long each init container runs.
    pub const INIT_RUN_FOR: &str = "hollow.keleustes.io/init-run-for";
    /// On a pod: how long its containers run until they are ready.
    pub const READY_AFTER: &str = "hollow.keleustes.io/ready-after";
    /// On a pod: the interval at which a running pod alternates between ready and not ready.
    pub const READINESS_FLIPS: &str = "hollow.keleustes.io/readiness-flips";
    /// On a pod: `false` keeps it not ready.
    pub const READY: &str = "hollow.keleustes.io/ready";
    /// On a pod: how long its containers run before they exit.
    pub const RUN_FOR: &str = "hollow.keleustes.io/run-for";
    /// On a pod: exit code of its containers; default 0 for an exit, 1 for a crash.
    pub const EXIT_CODE: &str = "hollow.keleustes.io/exit-code";
    /// On a pod: how long after each start its containers crash.
    pub const CRASH_AFTER: &str = "hollow.keleustes.io/crash-after";
    /// On a pod: how often they crash before they keep running.
    pub const CRASH_TIMES: &str = "hollow.keleustes.io/crash-times";
    /// On a pod: how long its containers take to terminate, up to the grace period.
    pub const TERMINATION_DELAY: &str = "hollow.keleustes.io/termination-delay";
    /// On a PersistentVolume: how long attaching it takes.
    pub const ATTACH_DELAY: &str = "hollow.keleustes.io/attach-delay";
    /// On a PersistentVolume: the error with which attaching it fails.
    pub const ATTACH_ERROR: &str = "hollow.keleustes.io/attach-error";
    /// On a PersistentVolume: how long detaching it takes.
    pub const DETACH_DELAY: &str = "hollow.keleustes.io/detach-delay";
    /// On a PersistentVolume: the error with which detaching it fails.
    pub const DETACH_ERROR: &str = "hollow.keleustes.io/detach-error";
    /// On a pod: what `kubectl logs` prints.
    pub const LOG: &str = "hollow.keleustes.io/log";
    /// On a pod: the CPU that it uses, a quantity or a curve such as `0s=100m,2m=1,4m=100m` from its start.
    pub const CPU: &str = "hollow.keleustes.io/cpu";
    /// On a pod: the memory that it uses, a quantity or a curve.
    pub const MEMORY: &str = "hollow.keleustes.io/memory";
    /// On a workload: the CPU that its ready pods use together, a quantity or a curve from its creation.
    pub const CPU_LOAD: &str = "hollow.keleustes.io/cpu-load";
    /// On a workload: the memory that its ready pods use together, a quantity or a curve.
    pub const MEMORY_LOAD: &str = "hollow.keleustes.io/memory-load";
    /// On a ConfigMap: `true` makes each entry of its data an external metric of its namespace.
    pub const EXTERNAL_METRICS: &str = "hollow.keleustes.io/external-metrics";
    /// On a node: `true` stops all its writes, as if its machine had lost power.
    pub const FAILED: &str = "hollow.keleustes.io/failed";
}

/// All annotations, by their names without the prefix.
const NAMES: [&str; 22] = [
    "attach-delay",
    "attach-error",
    "cpu",
    "cpu-load",
    "crash-after",
    "crash-times",
    "detach-delay",
    "detach-error",
    "exit-code",
    "external-metrics",
    "failed",
    "init-run-for",
    "log",
    "memory",
    "memory-load",
    "never-start",
    "readiness-flips",
    "ready",
    "ready-after",
    "run-for",
    "start-delay",
    "termination-delay",
];

/// What is wrong with the annotations of an object that begin with [`annotations::PREFIX`]: one sentence for each that is
/// unknown or malformed, and so without effect.
#[must_use]
pub fn annotation_problems(annotations: &serde_json::Value) -> Vec<String> {
    let behaviour: Behaviour = serde_json::from_value(annotations.clone()).unwrap_or_default();
    let problem = |annotation: &ArcStr| {
        let (name, value) = annotation.split_once('=').unwrap_or((annotation, ""));
        let short = name.strip_prefix(annotations::PREFIX).unwrap_or(name);
        if NAMES.contains(&short) {
            return format!(
                "annotation {name} has no effect: {value:?} is not a valid value, see docs/playground.md"
            );
        }
        let letters = |text: &str| text.chars().filter(char::is_ascii_alphabetic).collect::<String>();
        let given = letters(short);
        let difference = |known: &str| {
            let known = letters(known);
            let begins = known.starts_with(&given) || given.starts_with(&known);
            // Half a name is a good guess, but one that differs in a letter is a better one.
            if begins { known.len().abs_diff(given.len()).min(3) } else { distance(&known, &given) }
        };
        let closest = NAMES.iter().min_by_key(|known| (difference(known), known.len()));
        match closest.filter(|known| difference(known) <= 3) {
            Some(known) => {
                format!("annotation {name} is unknown, did you mean {}{known}?", annotations::PREFIX)
            }
            None => format!("annotation {name} is unknown; known ones: {}", NAMES.join(", ")),
        }
    };
    behaviour.invalid_annotations.iter().map(problem).collect()
}

/// What a container of a pod has logged: the pod's annotation [`annotations::LOG`], or an explanation.
#[must_use]
pub fn container_log(pod: &serde_json::Value, container: &str) -> String {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or("no node yet");
    match pod["metadata"]["annotations"][annotations::LOG].as_str() {
        Some(text) if text.ends_with('\n') => text.to_owned(),
        Some(text) => format!("{text}\n"),
        None => format!(
            "hollow node {node}: container {container} runs no program, so it logs nothing; the annotation {} sets this text\n",
            annotations::LOG
        ),
    }
}

/// How many letters differ between two words, each at its place, with the difference of their lengths.
fn distance(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).filter(|(a, b)| a != b).count() + one.len().abs_diff(other.len())
}

/// The configured behaviour of one pod; `None` means the default of all pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Behaviour {
    pub(crate) start_delay: Option<Duration>,
    pub(crate) never_start: bool,
    pub(crate) init_run_for: Option<Duration>,
    pub(crate) ready_after: Option<Duration>,
    pub(crate) readiness_flips: Option<Duration>,
    pub(crate) never_ready: bool,
    pub(crate) run_for: Option<Duration>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) crash_after: Option<Duration>,
    pub(crate) crash_times: Option<u32>,
    pub(crate) termination_delay: Option<Duration>,
    /// On a PersistentVolume.
    pub(crate) volume: VolumeBehaviour,
    /// On a node: it is failed.
    pub(crate) failed: bool,
    /// Annotations with this prefix that could not be parsed.
    pub(crate) invalid_annotations: Vec<ArcStr>,
}

/// The configured behaviour of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct VolumeBehaviour {
    pub(crate) attach_delay: Option<Duration>,
    pub(crate) attach_error: Option<ArcStr>,
    pub(crate) detach_delay: Option<Duration>,
    pub(crate) detach_error: Option<ArcStr>,
}

impl Behaviour {
    fn read_annotation(&mut self, name: &str, value: &str) {
        let duration_value = || duration::parse(value);
        let boolean = || value.parse::<bool>().ok();
        let is_valid = match name {
            annotations::START_DELAY => set(&mut self.start_delay, duration_value()),
            annotations::INIT_RUN_FOR => set(&mut self.init_run_for, duration_value()),
            annotations::READY_AFTER => set(&mut self.ready_after, duration_value()),
            // A lower bound, because a tiny interval would keep a core busy.
            annotations::READINESS_FLIPS => set(
                &mut self.readiness_flips,
                duration_value().filter(|time| *time >= Duration::from_millis(100)),
            ),
            annotations::RUN_FOR => set(&mut self.run_for, duration_value()),
            annotations::CRASH_AFTER => set(&mut self.crash_after, duration_value()),
            annotations::TERMINATION_DELAY => set(&mut self.termination_delay, duration_value()),
            annotations::ATTACH_DELAY => set(&mut self.volume.attach_delay, duration_value()),
            annotations::ATTACH_ERROR => set(&mut self.volume.attach_error, Some(value.into())),
            annotations::DETACH_DELAY => set(&mut self.volume.detach_delay, duration_value()),
            annotations::DETACH_ERROR => set(&mut self.volume.detach_error, Some(value.into())),
            annotations::EXIT_CODE => set(&mut self.exit_code, value.parse().ok()),
            annotations::CRASH_TIMES => set(&mut self.crash_times, value.parse().ok()),
            annotations::NEVER_START => boolean().map(|boolean| self.never_start = boolean).is_some(),
            annotations::READY => boolean().map(|boolean| self.never_ready = !boolean).is_some(),
            annotations::FAILED => boolean().map(|boolean| self.failed = boolean).is_some(),
            annotations::LOG => true,
            // Read by the metrics APIs, from the objects themselves.
            annotations::CPU | annotations::MEMORY | annotations::CPU_LOAD | annotations::MEMORY_LOAD => {
                Curve::parse(value).is_some_and(|curve| curve.lowest() >= 0)
            }
            annotations::EXTERNAL_METRICS => boolean().is_some(),
            _ => false,
        };
        if !is_valid {
            self.invalid_annotations.push(ArcStr::from(format!("{name}={value}")));
        }
    }
}

fn set<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    *slot = value;
    slot.is_some()
}

impl<'de> Deserialize<'de> for Behaviour {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Annotations;
        impl<'de> Visitor<'de> for Annotations {
            type Value = Behaviour;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Behaviour, M::Error> {
                let mut behaviour = Behaviour::default();
                while let Some(Name(name)) = map.next_key()? {
                    if name.starts_with(annotations::PREFIX) {
                        behaviour.read_annotation(&name, &map.next_value::<Name<'_>>()?.0);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(behaviour)
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<Behaviour, E> {
                Ok(Behaviour::default())
            }
        }
        deserializer.deserialize_any(Annotations)
    }
}

/// A string, borrowed from the input if it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn read(text: &str) -> Behaviour {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn behaviour_annotations_are_parsed_and_others_skipped() {
        let behaviour = read(
            r#"{"hollow.keleustes.io/run-for":"30s","hollow.keleustes.io/exit-code":"3","hollow.keleustes.io/ready":"false",
                "hollow.keleustes.io/never-start":"true","kubectl.kubernetes.io/x":"{\"a\": 1}"}"#,
        );
        let wanted = Behaviour {
            run_for: Some(Duration::from_secs(30)),
            exit_code: Some(3),
            never_ready: true,
            never_start: true,
            ..Behaviour::default()
        };
        assert_eq!(behaviour, wanted);
        assert_eq!(read("null"), Behaviour::default());
    }

    #[test]
    fn invalid_annotations_are_kept_for_the_log() {
        let behaviour = read(
            r#"{"hollow.keleustes.io/run-for":"30","hollow.keleustes.io/runs-for":"30s","hollow.keleustes.io/readiness-flips":"1ms"}"#,
        );
        assert_eq!(behaviour.invalid_annotations.len(), 3);
        assert_eq!(behaviour.invalid_annotations[0], "hollow.keleustes.io/run-for=30");
        assert_eq!((behaviour.run_for, behaviour.readiness_flips), (None, None));
    }

    #[test]
    fn unknown_and_malformed_annotations_are_explained() {
        let problems = |text: &str| annotation_problems(&serde_json::from_str(text).unwrap());
        let none: [String; 0] = [];
        assert_eq!(problems(r#"{"hollow.keleustes.io/crash-after":"5s","other/x":"y"}"#), none);
        assert_eq!(problems("null"), none);
        for (given, meant) in [
            ("crashafter", "crash-after"),
            ("run_for", "run-for"),
            ("redy", "ready"),
            ("exit-cod", "exit-code"),
            ("cpu-laod", "cpu-load"),
            ("term", "termination-delay"),
        ] {
            let text = format!("{{\"hollow.keleustes.io/{given}\":\"1\"}}");
            let wanted = format!("did you mean hollow.keleustes.io/{meant}?");
            assert!(problems(&text)[0].ends_with(&wanted), "{given}: {:?}", problems(&text));
        }
        let sink = problems(r#"{"hollow.keleustes.io/sink":"true"}"#);
        assert!(sink[0].contains("known ones: attach-delay, "), "{sink:?}");
        for name in ["run-for", "attach-delay", "detach-delay"] {
            let malformed = problems(&format!("{{\"hollow.keleustes.io/{name}\":\"soon\"}}"));
            assert!(malformed[0].contains("\"soon\" is not a valid value"), "{malformed:?}");
        }
    }

    /// The annotations as the module declares them.
    fn declared() -> BTreeSet<&'static str> {
        let lines = include_str!("behaviour.rs").lines().map(str::trim);
        let constants = lines.filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = \""));
        let values = constants.map(|(_, value)| value.trim_end_matches("\";"));
        values.filter_map(|value| value.strip_prefix(annotations::PREFIX)).filter(|n| !n.is_empty()).collect()
    }

    #[test]
    fn list_of_names_is_complete() {
        assert_eq!(declared(), BTreeSet::from(NAMES));
        assert!(NAMES.is_sorted(), "the list is printed");
        for name in NAMES {
            let mut accepted = false;
            for value in ["1s", "1", "true"] {
                let text = format!("{{\"{}{name}\":\"{value}\"}}", annotations::PREFIX);
                accepted |= read(&text).invalid_annotations.is_empty();
            }
            assert!(accepted, "{name} is no annotation");
        }
    }

    /// The page lists every annotation.
    #[test]
    fn page_of_the_playground_lists_every_annotation() {
        let page = include_str!("../../../docs/playground.md");
        for name in NAMES {
            assert!(page.contains(&format!("| `{name}` |")), "docs/playground.md does not list {name}");
        }
    }
}
