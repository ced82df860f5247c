//! The status of a pod in the words of a kubelet.

use std::net::Ipv4Addr;

use keleustes_objects::{InternedStr, Key, Uid};
use serde_json::{Value, json};

use super::life::{Exit, Life, Stage, Switch};
use crate::clock::stamp;
use crate::seen::Phase;

/// Where a pod is, as far as its status tells.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) key: &'a Key,
    pub(crate) uid: &'a Uid,
    pub(crate) host_ip: Ipv4Addr,
    pub(crate) pod_ip: Option<Ipv4Addr>,
}

impl Life {
    /// A strategic merge patch of the status. Conditions of others stay as they are; a pod of the same
    /// name in another life refuses the patch, because the uid cannot change.
    pub(crate) fn patch(&self, place: &Place<'_>) -> Value {
        let mut status = json!({
            "observedGeneration": self.generation,
            "phase": self.phase(),
            "startTime": stamp(self.accepted_at),
            "hostIP": place.host_ip,
            "hostIPs": [{"ip": place.host_ip}],
            "conditions": self.condition_list(),
            "containerStatuses": self.containers(place),
        });
        if !self.template.init_containers.is_empty() {
            status["initContainerStatuses"] = self.init_containers(place);
        }
        let has_address = !matches!(self.stage, Stage::Creating);
        if let Some(ip) = place.pod_ip.filter(|_| has_address || self.template.host_network) {
            status["podIP"] = json!(ip);
            status["podIPs"] = json!([{"ip": ip}]);
        }
        if let Stage::Ended { past_deadline: true, .. } = self.stage {
            status["reason"] = json!("DeadlineExceeded");
            status["message"] = json!("Pod was active on the node longer than the specified deadline");
        }
        json!({"metadata": {"uid": place.uid}, "status": status})
    }

    fn phase(&self) -> &'static str {
        match &self.stage {
            Stage::Creating | Stage::Initializing => "Pending",
            Stage::Running { .. } | Stage::BackingOff { .. } => "Running",
            Stage::Ended { phase: Phase::Succeeded, .. } => "Succeeded",
            Stage::Ended { .. } => "Failed",
        }
    }

    fn condition_list(&self) -> Value {
        let conditions = &self.conditions;
        let ended = match &self.stage {
            Stage::Ended { phase: Phase::Succeeded, .. } => Some("PodCompleted"),
            Stage::Ended { .. } => Some("PodFailed"),
            _ => None,
        };
        let unready = || match ended {
            Some(reason) => (reason, None),
            None => ("ContainersNotReady", Some(self.unready_message())),
        };
        let ready = || match conditions.containers_ready.on {
            true => ("ReadinessGatesNotReady", Some("not all readiness gates hold".to_owned())),
            false => unready(),
        };
        let waiting = || ("ContainersNotInitialized", Some(self.uninitialized_message()));
        json!([
            self.condition("PodScheduled", conditions.scheduled, || ("", None)),
            self.condition("PodReadyToStartContainers", conditions.sandboxed, || ("", None)),
            self.condition("Initialized", conditions.initialized, waiting),
            self.condition("ContainersReady", conditions.containers_ready, unready),
            self.condition("Ready", conditions.ready, ready),
        ])
    }

    fn condition(
        &self,
        name: &str,
        switch: Switch,
        why_not: impl Fn() -> (&'static str, Option<String>),
    ) -> Value {
        let status = if switch.on { "True" } else { "False" };
        let (reason, message) = if switch.on { ("", None) } else { why_not() };
        let mut condition = json!({
            "type": name,
            "status": status,
            "observedGeneration": self.generation,
            "lastProbeTime": null,
            "lastTransitionTime": switch.since,
        });
        // A patch leaves alone what it does not name, so what was said before must be taken back.
        let mut say = |field: &str, words: Option<String>| match words {
            Some(words) => condition[field] = json!(words),
            None if self.was_reported => condition[field] = Value::Null,
            None => {}
        };
        say("reason", (!reason.is_empty()).then(|| reason.to_owned()));
        say("message", message);
        condition
    }

    fn unready_message(&self) -> String {
        let names: Vec<&str> = self.template.containers.iter().map(|one| &*one.name).collect();
        format!("containers with unready status: [{}]", names.join(" "))
    }

    fn uninitialized_message(&self) -> String {
        let waiting = self.template.init_containers.iter().enumerate();
        let waiting = waiting.filter(|(at, _)| self.inits.get(*at).is_none_or(|(_, end)| end.is_none()));
        let names: Vec<&str> = waiting.map(|(_, one)| &*one.name).collect();
        format!("containers with incomplete status: [{}]", names.join(" "))
    }

    fn containers(&self, place: &Place<'_>) -> Value {
        let each = self.template.containers.iter().map(|container| {
            let (state, last) = self.state(&container.name, place);
            let is_running = matches!(self.stage, Stage::Running { .. });
            let was_started = match &self.stage {
                Stage::Running { .. } | Stage::BackingOff { .. } => true,
                Stage::Ended { exit, .. } => exit.is_some(),
                _ => false,
            };
            let mut status = json!({
                "name": container.name,
                "image": container.image,
                "imageID": if was_started { image_id(&container.image) } else { String::new() },
                "ready": self.conditions.containers_ready.on,
                "started": is_running,
                "restartCount": self.restarts,
                "state": state,
                "lastState": last,
            });
            if was_started {
                status["containerID"] = json!(container_id(place, &container.name, self.restarts));
            }
            status
        });
        each.collect()
    }

    /// The state of a container, and the one before.
    fn state(&self, name: &InternedStr, place: &Place<'_>) -> (Value, Value) {
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        // A container that waits for its restart still goes by the run that crashed.
        let is_waiting = matches!(self.stage, Stage::BackingOff { .. });
        let last_run = self.restarts.saturating_sub(u32::from(!is_waiting));
        let last = self
            .last_exit
            .as_ref()
            .map_or_else(|| json!({}), |exit| terminated(exit, &container_id(place, name, last_run)));
        match &self.stage {
            Stage::Creating | Stage::Initializing if !self.template.init_containers.is_empty() => {
                (waiting("PodInitializing"), json!({}))
            }
            Stage::Creating | Stage::Initializing => (waiting("ContainerCreating"), json!({})),
            Stage::Running { since } => (json!({"running": {"startedAt": stamp(*since)}}), last),
            Stage::BackingOff { wait, .. } => {
                let message = format!(
                    "back-off {}s restarting failed container={name} pod={}_{}({})",
                    wait.as_secs(),
                    place.key.name,
                    place.key.namespace,
                    place.uid
                );
                (json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}), last)
            }
            Stage::Ended { exit: Some(exit), .. } => {
                (terminated(exit, &container_id(place, name, self.restarts)), last)
            }
            Stage::Ended { .. } => (waiting("ContainerCreating"), json!({})),
        }
    }

    fn init_containers(&self, place: &Place<'_>) -> Value {
        let each = self.template.init_containers.iter().enumerate().map(|(at, container)| {
            let run = self.inits.get(at);
            let ended_at = match &self.stage {
                Stage::Ended { exit, .. } => exit.as_ref().map(|exit| exit.finished_at),
                _ => None,
            };
            let (state, is_ready) = match run {
                None => (json!({"waiting": {"reason": "PodInitializing"}}), false),
                Some((started_at, finished)) => match finished.or(ended_at) {
                    Some(finished_at) => {
                        let exit = Exit { code: 0, started_at: *started_at, finished_at };
                        (terminated(&exit, &container_id(place, &container.name, 0)), true)
                    }
                    None => (json!({"running": {"startedAt": stamp(*started_at)}}), container.is_sidecar),
                },
            };
            let mut status = json!({
                "name": container.name,
                "image": container.image,
                "imageID": if run.is_some() { image_id(&container.image) } else { String::new() },
                "ready": is_ready,
                "started": container.is_sidecar && run.is_some() && ended_at.is_none(),
                "restartCount": 0,
                "state": state,
                "lastState": {},
            });
            if run.is_some() {
                status["containerID"] = json!(container_id(place, &container.name, 0));
            }
            status
        });
        each.collect()
    }
}

fn terminated(exit: &Exit, container_id: &str) -> Value {
    json!({"terminated": {
        "exitCode": exit.code,
        "reason": if exit.code == 0 { "Completed" } else { "Error" },
        "startedAt": stamp(exit.started_at),
        "finishedAt": stamp(exit.finished_at),
        "containerID": container_id,
    }})
}

fn image_id(image: &str) -> String {
    format!("hollow://{image}")
}

/// Each run of a container has an id of its own, which tells whose it is.
fn container_id(place: &Place<'_>, container: &str, restarts: u32) -> String {
    format!("hollow://{}/{container}/{restarts}", place.uid)
}
