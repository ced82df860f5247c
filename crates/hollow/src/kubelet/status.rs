//! The pod status as a kubelet reports it.

use std::net::Ipv4Addr;

use keleustes_objects::{InternedStr, Key, Uid};
use serde_json::{Value, json};

use super::lifecycle::{ConditionState, Exit, PodLifecycle, PodStage};
use crate::clock::stamp;
use crate::projections::Phase;

/// Identity and IPs of a pod for its status.
#[derive(Clone, Debug)]
pub(crate) struct PodPlacement<'a> {
    pub(crate) key: &'a Key,
    pub(crate) uid: &'a Uid,
    pub(crate) host_ip: Ipv4Addr,
    pub(crate) pod_ip: Option<Ipv4Addr>,
}

impl PodLifecycle {
    /// A strategic merge patch of the status. Conditions of other writers are kept; the UID in the patch
    /// makes it fail for a recreated pod of the same name.
    pub(crate) fn patch(&self, placement: &PodPlacement<'_>) -> Value {
        let mut status = json!({
            "observedGeneration": self.generation,
            "phase": self.phase(),
            "startTime": stamp(self.start_time),
            "hostIP": placement.host_ip,
            "hostIPs": [{"ip": placement.host_ip}],
            "conditions": self.condition_list(),
            "containerStatuses": self.containers(placement),
        });
        if !self.template.init_containers.is_empty() {
            status["initContainerStatuses"] = self.init_containers(placement);
        }
        let has_address = !matches!(self.stage, PodStage::Creating);
        if let Some(ip) = placement.pod_ip.filter(|_| has_address || self.template.host_network) {
            status["podIP"] = json!(ip);
            status["podIPs"] = json!([{"ip": ip}]);
        }
        if let PodStage::Terminated { past_deadline: true, .. } = self.stage {
            status["reason"] = json!("DeadlineExceeded");
            status["message"] = json!("Pod was active on the node longer than the specified deadline");
        }
        json!({"metadata": {"uid": placement.uid}, "status": status})
    }

    fn phase(&self) -> &'static str {
        match &self.stage {
            PodStage::Creating | PodStage::Initializing => "Pending",
            PodStage::Running { .. } | PodStage::BackingOff { .. } => "Running",
            PodStage::Terminated { phase: Phase::Succeeded, .. } => "Succeeded",
            PodStage::Terminated { .. } => "Failed",
        }
    }

    fn condition_list(&self) -> Value {
        let conditions = &self.conditions;
        let terminated_reason = match &self.stage {
            PodStage::Terminated { phase: Phase::Succeeded, .. } => Some("PodCompleted"),
            PodStage::Terminated { .. } => Some("PodFailed"),
            _ => None,
        };
        let unready = || match terminated_reason {
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
        switch: ConditionState,
        reason_if_false: impl Fn() -> (&'static str, Option<String>),
    ) -> Value {
        let status = if switch.on { "True" } else { "False" };
        let (reason, message) = if switch.on { ("", None) } else { reason_if_false() };
        let mut condition = json!({
            "type": name,
            "status": status,
            "observedGeneration": self.generation,
            "lastProbeTime": null,
            "lastTransitionTime": switch.since,
        });
        // A patch keeps fields that it does not mention, so an earlier reason or message must be set to null.
        let mut set_field = |field: &str, text: Option<String>| match text {
            Some(text) => condition[field] = json!(text),
            None if self.was_reported => condition[field] = Value::Null,
            None => {}
        };
        set_field("reason", (!reason.is_empty()).then(|| reason.to_owned()));
        set_field("message", message);
        condition
    }

    fn unready_message(&self) -> String {
        let names: Vec<&str> = self.template.containers.iter().map(|one| &*one.name).collect();
        format!("containers with unready status: [{}]", names.join(" "))
    }

    fn uninitialized_message(&self) -> String {
        let waiting = self.template.init_containers.iter().enumerate();
        let waiting = waiting
            .filter(|(at, _)| self.init_runs.get(*at).is_none_or(|(_, terminate)| terminate.is_none()));
        let names: Vec<&str> = waiting.map(|(_, one)| &*one.name).collect();
        format!("containers with incomplete status: [{}]", names.join(" "))
    }

    fn containers(&self, placement: &PodPlacement<'_>) -> Value {
        let each = self.template.containers.iter().map(|container| {
            let (state, last) = self.state(&container.name, placement);
            let is_running = matches!(self.stage, PodStage::Running { .. });
            let was_started = match &self.stage {
                PodStage::Running { .. } | PodStage::BackingOff { .. } => true,
                PodStage::Terminated { exit, .. } => exit.is_some(),
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
                status["containerID"] = json!(container_id(placement, &container.name, self.restarts));
            }
            status
        });
        each.collect()
    }

    /// The state and the last state of a container.
    fn state(&self, name: &InternedStr, placement: &PodPlacement<'_>) -> (Value, Value) {
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        // During the backoff, the last run is the one that crashed.
        let is_waiting = matches!(self.stage, PodStage::BackingOff { .. });
        let last_run = self.restarts.saturating_sub(u32::from(!is_waiting));
        let last = self
            .last_exit
            .as_ref()
            .map_or_else(|| json!({}), |exit| terminated(exit, &container_id(placement, name, last_run)));
        match &self.stage {
            PodStage::Creating | PodStage::Initializing if !self.template.init_containers.is_empty() => {
                (waiting("PodInitializing"), json!({}))
            }
            PodStage::Creating | PodStage::Initializing => (waiting("ContainerCreating"), json!({})),
            PodStage::Running { since } => (json!({"running": {"startedAt": stamp(*since)}}), last),
            PodStage::BackingOff { wait, .. } => {
                let message = format!(
                    "back-off {}s restarting failed container={name} pod={}_{}({})",
                    wait.as_secs(),
                    placement.key.name,
                    placement.key.namespace,
                    placement.uid
                );
                (json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}), last)
            }
            PodStage::Terminated { exit: Some(exit), .. } => {
                (terminated(exit, &container_id(placement, name, self.restarts)), last)
            }
            PodStage::Terminated { .. } => (waiting("ContainerCreating"), json!({})),
        }
    }

    fn init_containers(&self, placement: &PodPlacement<'_>) -> Value {
        let each = self.template.init_containers.iter().enumerate().map(|(at, container)| {
            let run = self.init_runs.get(at);
            let ended_at = match &self.stage {
                PodStage::Terminated { exit, .. } => exit.as_ref().map(|exit| exit.finished_at),
                _ => None,
            };
            let (state, is_ready) = match run {
                None => (json!({"waiting": {"reason": "PodInitializing"}}), false),
                Some((started_at, finished)) => match finished.or(ended_at) {
                    Some(finished_at) => {
                        let exit = Exit { code: 0, started_at: *started_at, finished_at };
                        (terminated(&exit, &container_id(placement, &container.name, 0)), true)
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
                status["containerID"] = json!(container_id(placement, &container.name, 0));
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

/// A unique ID per run of a container.
fn container_id(placement: &PodPlacement<'_>, container: &str, restarts: u32) -> String {
    format!("hollow://{}/{container}/{restarts}", placement.uid)
}
