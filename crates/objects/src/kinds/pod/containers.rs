//! Container statuses, stored only if they report a restart or a termination.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::PodSpec;
use super::reported_resources::{ReportedResources, WireReported};
use crate::meta::null_is_default;
use crate::{ArcStr, InternedStr, Pod, ResourceList, Time};

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
    allocated_resources: Option<ResourceList>,
    resources: Option<WireReported>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireState {
    waiting: Option<IgnoredAny>,
    terminated: Option<Terminated>,
}

impl WireContainerStatus {
    /// The resources that it reports, if it reports any.
    pub(super) fn take_resources(&mut self) -> Option<ReportedResources> {
        let (allocated, resources) = (self.allocated_resources.take(), self.resources.take());
        let is_reported = allocated.is_some() || resources.is_some();
        is_reported.then(|| resources.unwrap_or_default().of_container(self.name.clone(), allocated))
    }

    /// Whether the container runs. A status with neither state counts as running.
    ///
    /// Parity: `notRunning` of `pkg/volume/util`.
    pub(super) fn is_running(&self) -> bool {
        self.state.waiting.is_none() && self.state.terminated.is_none()
    }
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
    /// Whether its volumes are unused: it is terminal, or it is terminating and no container runs.
    ///
    /// Parity: `IsPodTerminated` of `pkg/volume/util`.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.is_terminal() || (self.is_terminating() && !self.terminating_with_running_containers())
    }

    /// The names of the PVCs that its volumes use: those it names and those of its generic ephemeral volumes. Part
    /// [`PodParts::VOLUME_CLAIMS`](super::PodParts::VOLUME_CLAIMS).
    pub fn used_claims(&self) -> impl Iterator<Item = ArcStr> {
        let named = self.persistent_volume_claims().map(|(_, claim)| claim.clone());
        let ephemeral = self.spec.ephemeral_volumes().iter();
        named.chain(ephemeral.map(|volume| format!("{}-{volume}", self.meta.key.name).into()))
    }

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
