//! What objects use of a ResourceQuota: the names that each kind is charged to, the amounts, and the scopes.
//!
//! The resourcequota controller sums the usage of all objects of a namespace; the admission of the embedded API server
//! charges one object at a time. Both must agree, so both call these functions.
//!
//! Parity: pkg/quota/v1/evaluator/core and k8s.io/apiserver/pkg/quota/v1.

mod claims;
mod names;
mod pods;
mod scopes;
#[cfg(test)]
mod tests;

pub use claims::{
    DeviceClasses, OldestClaims, persistent_volume_claim_usage, resource_claim_usage, service_usage,
    verified_pod,
};
pub use names::{Evaluator, is_ignored_by_quota, object_count_alias, object_count_name};
pub use pods::{
    PodUsageOptions, is_charged, missing_resources, pod_usage, reported_resources_changed,
    total_of_containers,
};
pub use scopes::{is_terminating, persistent_volume_claim_matches_scope, pod_matches_scope};
