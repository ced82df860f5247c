//! A pod's container statuses: kept only where somebody could read something from them.

use serde::Deserialize;

use super::PodSpec;
use crate::meta::null_is_default;
use crate::{InternedStr, Pod, Time};

/// What became of a container so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its name.
    pub name: InternedStr,
    /// How often it was started again.
    pub restart_count: i32,
    /// Whether it is an init container.
    pub is_init: bool,
    /// Whether it is an init container that runs beside the others.
    pub is_sidecar: bool,
    /// How it ended, if it has ended and was not started again.
    pub terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Its exit code.
    pub exit_code: i32,
    /// When it ended.
    pub finished_at: Option<Time>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireContainerStatus {
    name: InternedStr,
    restart_count: i32,
    #[serde(deserialize_with = "null_is_default")]
    state: WireState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireState {
    terminated: Option<Terminated>,
}

/// The statuses of a pod's containers, then those of its init containers; none at all if no container
/// was ever restarted and none has ended but init containers that did their work.
pub(super) fn noteworthy(
    containers: Box<[WireContainerStatus]>,
    init_containers: Box<[WireContainerStatus]>,
    spec: &PodSpec,
) -> Box<[ContainerStatus]> {
    let read = |wire: WireContainerStatus, is_init: bool| ContainerStatus {
        is_sidecar: is_init && spec.sidecars.iter().any(|sidecar| sidecar.name == wire.name),
        name: wire.name,
        restart_count: wire.restart_count,
        is_init,
        terminated: wire.state.terminated,
    };
    let statuses: Box<[ContainerStatus]> = (containers.into_iter().map(|wire| read(wire, false)))
        .chain(init_containers.into_iter().map(|wire| read(wire, true)))
        .collect();
    let is_plain = |status: &ContainerStatus| {
        let ended = status.terminated.as_ref();
        let only_did_its_work = status.is_init && !status.is_sidecar;
        status.restart_count == 0 && ended.is_none_or(|end| only_did_its_work && end.exit_code == 0)
    };
    if statuses.iter().all(is_plain) { Box::default() } else { statuses }
}

impl Pod {
    /// The largest restart count of its containers, and that of its sidecars.
    #[must_use]
    pub fn max_restarts(&self) -> (i32, i32) {
        let most = |of: fn(&&ContainerStatus) -> bool| {
            self.container_statuses().iter().filter(of).map(|status| status.restart_count).max().unwrap_or(0)
        };
        (most(|status| !status.is_init), most(|status| status.is_sidecar))
    }

    /// How often its containers and init containers were restarted, all together.
    #[must_use]
    pub fn restarts(&self) -> i32 {
        self.container_statuses().iter().fold(0, |sum: i32, status| sum.saturating_add(status.restart_count))
    }

    /// When the last of its containers and sidecars ended, if all have and say when.
    #[must_use]
    pub fn containers_finished_at(&self) -> Option<Time> {
        let counts = |status: &&ContainerStatus| !status.is_init || status.is_sidecar;
        let ends = self.container_statuses().iter().filter(counts);
        let times: Option<Vec<Time>> = ends.map(|status| status.terminated.as_ref()?.finished_at).collect();
        times?.into_iter().max()
    }
}
