//! Kinds behind feature gates that are off by default. kube-apiserver serves them with the gates and `--runtime-config`.

use super::super::resources::{Resource, StatusField};

pub(super) const KINDS: &[Resource] = &[
    Resource { generation: true, ..Resource::built_in("scheduling.k8s.io", "Workload") },
    Resource {
        status: StatusField::ResetOnCreate,
        generation: true,
        ..Resource::built_in("scheduling.k8s.io", "PodGroup")
    },
    Resource {
        status: StatusField::ResetOnCreate,
        generation: true,
        ..Resource::built_in("resource.k8s.io", "ResourcePoolStatusRequest")
    },
];
