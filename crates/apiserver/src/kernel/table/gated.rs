//! Kinds behind feature gates that are off by default. kube-apiserver serves them with the gates and `--runtime-config`.

use super::super::resources::{Resource, StatusField};

pub(super) const KINDS: &[Resource] = &[
    Resource {
        generation: true,
        ..Resource::new("scheduling.k8s.io", "v1beta1", "workloads", "workload", "Workload", "WorkloadList")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        generation: true,
        ..Resource::new("scheduling.k8s.io", "v1beta1", "podgroups", "podgroup", "PodGroup", "PodGroupList")
    },
    Resource {
        namespaced: false,
        status: StatusField::ResetOnCreate,
        generation: true,
        ..Resource::new(
            "resource.k8s.io",
            "v1alpha3",
            "resourcepoolstatusrequests",
            "resourcepoolstatusrequest",
            "ResourcePoolStatusRequest",
            "ResourcePoolStatusRequestList",
        )
    },
];
