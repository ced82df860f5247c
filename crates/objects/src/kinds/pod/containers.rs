//! Container statuses, stored only if they report a restart or a termination.

use serde::Deserialize;

use super::PodSpec;
use crate::meta::null_is_default;
use crate::{InternedStr, Pod, Time};

/// The status of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its name.
    pub name: InternedStr,
    /// `restartCount`.
    pub restart_count: i32,
    /// Whether it is an init container.
    pub is_init: bool,
    /// Whether it is a sidecar.
    pub is_sidecar: bool,
    /// `state.terminated`.
    pub terminated: Option<Terminated>,
}

/// The termination of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// Its exit code.
    pub exit_code: i32,
    /// `finishedAt`.
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

/// The statuses of containers, then of init containers; none at all if no container has restarted or terminated, apart
/// from init containers that exited with 0.
pub(super) fn informative(
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
    let is_uninformative = |status: &ContainerStatus| {
        let terminated = status.terminated.as_ref();
        let runs_to_completion = status.is_init && !status.is_sidecar;
        status.restart_count == 0 && terminated.is_none_or(|end| runs_to_completion && end.exit_code == 0)
    };
    if statuses.iter().all(is_uninformative) { Box::default() } else { statuses }
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

    /// The sum of the restart counts of its containers and init containers.
    #[must_use]
    pub fn restarts(&self) -> i32 {
        self.container_statuses().iter().fold(0, |sum: i32, status| sum.saturating_add(status.restart_count))
    }

    /// When the last of its containers and sidecars terminated, if all have and report the time.
    #[must_use]
    pub fn containers_finished_at(&self) -> Option<Time> {
        let counts = |status: &&ContainerStatus| !status.is_init || status.is_sidecar;
        let ends = self.container_statuses().iter().filter(counts);
        let times: Option<Vec<Time>> = ends.map(|status| status.terminated.as_ref()?.finished_at).collect();
        times?.into_iter().max()
    }
}
