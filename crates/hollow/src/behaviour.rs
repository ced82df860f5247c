//! What a person asks of one pod through its annotations.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use keleustes_objects::ArcStr;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::duration;

/// The annotations that hollow nodes heed. Durations are written as `1m30s`, `1.5s` or `200ms`.
pub mod annotations {
    /// How the names of all of them start.
    pub const PREFIX: &str = "hollow.keleustes.io/";
    /// On a pod: how long images and volumes take before the first container starts.
    pub const START_DELAY: &str = "hollow.keleustes.io/start-delay";
    /// On a pod: `true` keeps it in `ContainerCreating`.
    pub const NEVER_START: &str = "hollow.keleustes.io/never-start";
    /// On a pod: how long each init container runs.
    pub const INIT_RUN_FOR: &str = "hollow.keleustes.io/init-run-for";
    /// On a pod: how long its containers run until they are ready.
    pub const READY_AFTER: &str = "hollow.keleustes.io/ready-after";
    /// On a pod: the time after which a ready pod is unready, and after as long again ready.
    pub const READINESS_FLIPS: &str = "hollow.keleustes.io/readiness-flips";
    /// On a pod: `false` keeps it from being ready.
    pub const READY: &str = "hollow.keleustes.io/ready";
    /// On a pod: how long its containers run before they exit by themselves.
    pub const RUN_FOR: &str = "hollow.keleustes.io/run-for";
    /// On a pod: what its containers exit with, by themselves (0 if not said) or in a crash (1).
    pub const EXIT_CODE: &str = "hollow.keleustes.io/exit-code";
    /// On a pod: how long after each start its containers crash.
    pub const CRASH_AFTER: &str = "hollow.keleustes.io/crash-after";
    /// On a pod: how often they crash before they behave.
    pub const CRASH_TIMES: &str = "hollow.keleustes.io/crash-times";
    /// On a pod: how long its containers take to end when it is deleted, up to the grace period.
    pub const TERMINATION_DELAY: &str = "hollow.keleustes.io/termination-delay";
    /// On a node: `true` makes it fall silent as if its machine had lost power.
    pub const FAILED: &str = "hollow.keleustes.io/failed";
}

/// The wishes of one pod; what is not wished for is left to the defaults of all pods.
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
    /// On a node: it plays dead.
    pub(crate) failed: bool,
    /// Annotations of ours that say nothing we understand.
    pub(crate) unreadable: Vec<ArcStr>,
}

impl Behaviour {
    fn note(&mut self, name: &str, value: &str) {
        let time = || duration::parse(value);
        let truth = || value.parse::<bool>().ok();
        let understood = match name {
            annotations::START_DELAY => set(&mut self.start_delay, time()),
            annotations::INIT_RUN_FOR => set(&mut self.init_run_for, time()),
            annotations::READY_AFTER => set(&mut self.ready_after, time()),
            // Without a lower bound one annotation could keep a core busy.
            annotations::READINESS_FLIPS => {
                set(&mut self.readiness_flips, time().filter(|time| *time >= Duration::from_millis(100)))
            }
            annotations::RUN_FOR => set(&mut self.run_for, time()),
            annotations::CRASH_AFTER => set(&mut self.crash_after, time()),
            annotations::TERMINATION_DELAY => set(&mut self.termination_delay, time()),
            annotations::EXIT_CODE => set(&mut self.exit_code, value.parse().ok()),
            annotations::CRASH_TIMES => set(&mut self.crash_times, value.parse().ok()),
            annotations::NEVER_START => truth().map(|truth| self.never_start = truth).is_some(),
            annotations::READY => truth().map(|truth| self.never_ready = !truth).is_some(),
            annotations::FAILED => truth().map(|truth| self.failed = truth).is_some(),
            _ => false,
        };
        if !understood {
            self.unreadable.push(ArcStr::from(format!("{name}={value}")));
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
                        behaviour.note(&name, &map.next_value::<Name<'_>>()?.0);
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

/// A string that is borrowed from the text where it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Behaviour {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn wishes_are_read_and_other_annotations_skipped() {
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
    fn what_is_not_understood_is_kept_to_be_told() {
        let behaviour = read(
            r#"{"hollow.keleustes.io/run-for":"30","hollow.keleustes.io/runs-for":"30s","hollow.keleustes.io/readiness-flips":"1ms"}"#,
        );
        assert_eq!(behaviour.unreadable.len(), 3);
        assert_eq!(behaviour.unreadable[0], "hollow.keleustes.io/run-for=30");
        assert_eq!((behaviour.run_for, behaviour.readiness_flips), (None, None));
    }
}
