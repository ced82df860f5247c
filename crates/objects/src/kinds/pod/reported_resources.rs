//! The resources that container statuses report, stored only if they differ from the spec.

use serde::Deserialize;

use super::{Container, PodParts, PodSpec};
use crate::{InternedStr, Pod, ResourceList};

/// The resources that a container status reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedResources {
    /// The name of the container.
    pub name: InternedStr,
    /// `allocatedResources`.
    pub allocated: Option<ResourceList>,
    /// `resources.requests`.
    pub requests: Option<ResourceList>,
    /// `resources.limits`.
    pub limits: Option<ResourceList>,
}

/// The quality of service class of a pod, as its status states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Not set.
    #[default]
    Unset,
    /// `BestEffort`.
    BestEffort,
    /// `Burstable`, `Guaranteed`, or a class that this program does not know.
    Other,
}

impl From<&str> for QosClass {
    fn from(text: &str) -> Self {
        match text {
            "" => Self::Unset,
            "BestEffort" => Self::BestEffort,
            _ => Self::Other,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireReported {
    requests: Option<ResourceList>,
    limits: Option<ResourceList>,
}

impl WireReported {
    pub(super) fn of_container(
        self,
        name: InternedStr,
        allocated: Option<ResourceList>,
    ) -> ReportedResources {
        ReportedResources { name, allocated, requests: self.requests, limits: self.limits }
    }
}

#[expect(clippy::box_collection, reason = "one word in every pod with rare fields; a boxed slice has two")]
/// The reports that have to be kept: none if every container has what the spec requests, as nearly all have, unless a
/// resize is pending, because then the spec may not count.
pub(super) fn to_keep(
    reports: Vec<ReportedResources>,
    spec: &PodSpec,
    is_resize_pending: bool,
) -> Option<Box<Vec<ReportedResources>>> {
    let differs = |reported: &Option<ResourceList>, wanted: &ResourceList| {
        reported
            .iter()
            .flat_map(ResourceList::iter)
            .any(|(name, amount)| wanted.amount(name) != Some(*amount))
    };
    let is_informative = |report: &ReportedResources| {
        spec.container(&report.name).is_some_and(|container| {
            differs(&report.allocated, container.requests())
                || differs(&report.requests, container.requests())
                || differs(&report.limits, container.limits())
        })
    };
    let is_kept = is_resize_pending || reports.iter().any(is_informative);
    // One pointer is all that pods with other rare fields pay for this one.
    (is_kept && !reports.is_empty()).then(|| Box::new(reports))
}

impl PodSpec {
    /// The container or init container with this name; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers().iter().chain(self.init_containers()).find(|container| container.name == name)
    }
}

impl Pod {
    /// What container statuses report about resources. Empty if every container has what the spec requests and no
    /// resize is pending. Part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn reported_resources(&self) -> &[ReportedResources] {
        self.spec.parts().require(PodParts::RESOURCES);
        self.rare.as_deref().and_then(|rare| rare.reported_resources.as_deref()).map_or(&[], Vec::as_slice)
    }

    /// The requests and limits that a container status reports, or those of the spec; part [`PodParts::RESOURCES`].
    #[must_use]
    pub fn actual_resources<'a>(&'a self, container: &'a Container) -> (&'a ResourceList, &'a ResourceList) {
        let report = self.reported_resources().iter().find(|report| report.name == container.name);
        let requests = report.and_then(|report| report.requests.as_ref());
        let limits = report.and_then(|report| report.limits.as_ref());
        (requests.unwrap_or(container.requests()), limits.unwrap_or(container.limits()))
    }

    /// Whether the last resize was found to be infeasible. The status of the condition does not matter.
    #[must_use]
    pub fn is_resize_infeasible(&self) -> bool {
        self.full_condition("PodResizePending").is_some_and(|condition| condition.reason == "Infeasible")
    }
}
