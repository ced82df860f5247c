//! Validation. All errors are reported at once, in the order and wording of the original.

use crate::{CommandLineContext, controllers};

use super::Options;

/// The bounds of a flag's value.
struct Bounds {
    flag: &'static str,
    value: i32,
    limit: Limit,
}

enum Limit {
    /// At least one, with one of the original's three wordings.
    Positive(&'static str),
    /// From one to this maximum.
    UpTo(i32),
}

impl Bounds {
    fn problem(&self) -> Option<String> {
        let (flag, value) = (self.flag, self.value);
        match self.limit {
            Limit::Positive(words) if value < 1 => Some(format!("{flag} must be {words} {value}")),
            Limit::UpTo(_) if value < 1 => Some(format!("{flag} must not be less than 1, but got {value}")),
            Limit::UpTo(max) if value > max => {
                Some(format!("{flag} must not be more than {max}, but got {value}"))
            }
            _ => None,
        }
    }
}

const fn positive(flag: &'static str, value: i32) -> Bounds {
    Bounds { flag, value, limit: Limit::Positive("greater than 0, but got") }
}

const fn worded(flag: &'static str, value: i32, words: &'static str) -> Bounds {
    Bounds { flag, value, limit: Limit::Positive(words) }
}

const fn up_to(flag: &'static str, value: i32, max: i32) -> Bounds {
    Bounds { flag, value, limit: Limit::UpTo(max) }
}

impl Options {
    /// The validation errors.
    pub(super) fn problems(&mut self, known: &CommandLineContext<'_>) -> Vec<String> {
        let mut problems = self.versions.problems();
        if self.leader_election.leader_elect && self.leader_election.resource_lock != "leases" {
            problems.push("resourceLock value must be \"leases\"".to_owned());
        }
        problems.extend(controllers::problems(&self.values.list("controllers"), known.controllers));
        if self.attach_detach.reconcile_sync_period < crate::GoDuration::seconds(1) {
            let text = "duration time must be greater than one second as set via command line option";
            problems.push(format!("{text} reconcile-sync-loop-period"));
        }
        if self.debugging.shadow_window < crate::GoDuration::seconds(1) {
            problems
                .push(format!("shadow-window must be at least 1s, but got {}", self.debugging.shadow_window));
        }
        problems.extend(self.cluster_signing.problems());
        problems.extend(self.bounds().iter().filter_map(Bounds::problem));
        if self.node_ipam.service_cluster_ip_range.split(',').count() > 2 {
            problems.push("--service-cluster-ip-range can not contain more than two entries".to_owned());
        }
        problems.extend(self.serving.problems());
        let uid_headers_allowed = self.gates.enabled("RemoteRequestHeaderUID");
        problems.extend(self.authentication.request_header.problems(uid_headers_allowed));
        problems.extend(self.metrics.problems(self.versions.binary, known));
        problems.extend(self.cloud_problems());
        problems
    }

    /// The bounds. The original does not check other worker counts either.
    fn bounds(&self) -> [Bounds; 12] {
        let workers = &self.workers;
        [
            positive("concurrent-daemonset-syncs", workers.daemon_set),
            worded(
                "concurrent-device-taint-eviction-syncs",
                workers.device_taint_eviction,
                "greater than zero, got",
            ),
            worded("concurrent-resourceclaim-syncs", workers.resource_claim, "larger than 0, got"),
            positive("concurrent-statefulset-syncs", workers.stateful_set),
            up_to("concurrent-service-endpoint-syncs", workers.endpoint_slice, 50),
            up_to("max-endpoints-per-slice", self.endpoint_slice.max_endpoints_per_slice, 1000),
            up_to("mirroring-concurrent-service-endpoint-syncs", workers.endpoint_slice_mirroring, 50),
            up_to(
                "mirroring-max-endpoints-per-subset",
                self.endpoint_slice_mirroring.max_endpoints_per_subset,
                1000,
            ),
            positive("concurrent-ephemeralvolume-syncs", workers.ephemeral_volume),
            positive("concurrent-horizontal-pod-autoscaler-syncs", workers.horizontal_pod_autoscaler),
            positive("concurrent-job-syncs", workers.job),
            positive("concurrent-cron-job-syncs", workers.cron_job),
        ]
    }

    fn cloud_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let provider = crate::go_text::quote(&self.cloud.cloud_provider);
        if !["", "external"].contains(&self.cloud.cloud_provider.as_str()) {
            problems.push(format!(
                "cloud provider {provider} was specified, but built-in cloud providers are disabled. \
                 Please set --cloud-provider=external and migrate to an external cloud provider"
            ));
        }
        let allocator = &self.cloud.cidr_allocator_type;
        if !["", "RangeAllocator"].contains(&allocator.as_str()) {
            problems.push(format!(
                "built-in cloud providers are disabled. The ipam {allocator} is not available"
            ));
        }
        problems
    }

    /// Validation warnings, which do not prevent the start.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.authentication.request_header.warnings();
        warnings.extend(self.values.warnings());
        warnings.extend(self.client.warning());
        warnings
    }

    /// The checks that the original makes when it builds its server; skipped if the port is disabled.
    pub(super) fn check_applied(&self) -> Result<(), String> {
        if !self.serving.is_enabled() {
            return Ok(());
        }
        self.serving.check_applied()?;
        self.authorization.check_applied()
    }
}
