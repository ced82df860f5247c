//! What the command line asks for, typed and by area.

mod access;
mod configz;
mod controllers;
mod observing;
mod running;
mod validate;

use std::collections::BTreeMap;

pub use access::{Authentication, Authorization, RequestHeader, Serving, TlsVersion};
pub use controllers::{
    AttachDetach, CloudShared, ClusterSigning, EndpointSlice, EndpointSliceMirroring, Endpoints,
    GarbageCollector, HorizontalPodAutoscaler, Namespace, NodeIpam, NodeLifecycle, Recycler, ResourceQuota,
    ServiceAccount, SignerFiles, VolumeBinder, Workers,
};
pub use observing::{LogFormat, Logs, Metrics, Stream};
pub use running::{ClientConnection, Debugging, Generic, LeaderElection, Throttle};

use crate::gates::FeatureGates;
use crate::go_text::{Span, quote};
use crate::leader_migration::LeaderMigration;
use crate::parser::Values;
use crate::versions::Versions;
use crate::{CommandLineContext, aggregate};

/// Everything the command line asks for, checked.
#[derive(Clone, Debug)]
pub struct Options {
    /// To be printed on stderr before anything else.
    pub notices: Vec<String>,
    /// To be logged once logging is set up.
    pub warnings: Vec<String>,
    /// How to reach the API server.
    pub client: ClientConnection,
    /// What holds for all controllers.
    pub generic: Generic,
    /// The lease.
    pub leader_election: LeaderElection,
    /// The second lease, when controllers may move.
    pub leader_migration: Option<LeaderMigration>,
    /// Profiles.
    pub debugging: Debugging,
    /// The secure port.
    pub serving: Serving,
    /// Who asks.
    pub authentication: Authentication,
    /// Who may.
    pub authorization: Authorization,
    /// Logs.
    pub logs: Logs,
    /// Metrics.
    pub metrics: Metrics,
    /// Features.
    pub gates: FeatureGates,
    /// Releases.
    pub versions: Versions,
    /// The version to report.
    pub reported_version: String,
    /// What the controllers of clouds and nodes share.
    pub cloud: CloudShared,
    /// How many keys each controller works on at a time.
    pub workers: Workers,
    /// The attach-detach controller.
    pub attach_detach: AttachDetach,
    /// The signing controller.
    pub cluster_signing: ClusterSigning,
    /// The endpoints controller.
    pub endpoints: Endpoints,
    /// The EndpointSlice controller.
    pub endpoint_slice: EndpointSlice,
    /// The mirroring controller.
    pub endpoint_slice_mirroring: EndpointSliceMirroring,
    /// The garbage collector.
    pub garbage_collector: GarbageCollector,
    /// The autoscaler.
    pub horizontal_pod_autoscaler: HorizontalPodAutoscaler,
    /// How long an unused token Secret is kept.
    pub legacy_token_clean_up_period: Span,
    /// The namespace controller.
    pub namespace: Namespace,
    /// The node address controller.
    pub node_ipam: NodeIpam,
    /// The node health controller.
    pub node_lifecycle: NodeLifecycle,
    /// The volume binder.
    pub volume_binder: VolumeBinder,
    /// How many finished pods may stay.
    pub terminated_pod_gc_threshold: i32,
    /// The quota controller.
    pub resource_quota: ResourceQuota,
    /// Tokens and authorities of service accounts.
    pub service_account: ServiceAccount,
    values: Values,
}

impl Options {
    /// Types the values and checks them; the error is the text for the operator.
    pub(crate) fn read(
        values: Values,
        gates: FeatureGates,
        versions: Versions,
        known: &CommandLineContext<'_>,
    ) -> Result<Self, String> {
        let logs = Logs::read(&values, &gates)?;
        let mut options = Self {
            notices: values.notices.clone(),
            warnings: Vec::new(),
            client: ClientConnection::read(&values),
            generic: Generic::read(&values, known),
            leader_election: LeaderElection::read(&values),
            leader_migration: None,
            debugging: Debugging::read(&values),
            serving: Serving::read(&values),
            authentication: Authentication::read(&values),
            authorization: Authorization::read(&values),
            logs,
            metrics: Metrics::read(&values),
            gates,
            versions,
            reported_version: reported_version(&values, known),
            cloud: CloudShared::read(&values),
            workers: Workers::read(&values),
            attach_detach: AttachDetach::read(&values),
            cluster_signing: ClusterSigning::read(&values),
            endpoints: Endpoints::read(&values),
            endpoint_slice: EndpointSlice::read(&values),
            endpoint_slice_mirroring: EndpointSliceMirroring::read(&values),
            garbage_collector: GarbageCollector::read(&values),
            horizontal_pod_autoscaler: HorizontalPodAutoscaler::read(&values),
            legacy_token_clean_up_period: values.span("legacy-service-account-token-clean-up-period"),
            namespace: Namespace::read(&values),
            node_ipam: NodeIpam::read(&values),
            node_lifecycle: NodeLifecycle::read(&values),
            volume_binder: VolumeBinder::read(&values),
            terminated_pod_gc_threshold: values.int32("terminated-pod-gc-threshold"),
            resource_quota: ResourceQuota::read(&values),
            service_account: ServiceAccount::read(&values),
            values,
        };
        aggregate(options.problems(known))?;
        options.warnings.extend(options.doubts());
        options.client.check()?;
        options.leader_migration = options.read_leader_migration(known)?;
        options.check_applied()?;
        Ok(options)
    }

    /// Whether the command line has named the flag.
    #[must_use]
    pub fn is_set(&self, flag: &str) -> bool {
        self.values.given(flag)
    }

    /// Every flag with its effective value, as `/flagz` shows them.
    #[must_use]
    pub fn flagz(&self) -> BTreeMap<String, String> {
        // Help is added later than the page looks, in the original; it is on that page as well.
        self.values.shown().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The page `/flagz` as text. The original picks the separator at random, to keep programs from reading it.
    #[must_use]
    pub fn flagz_text(&self, separator: &str) -> String {
        let mut page = String::from(
            "\nkube-controller-manager flagz\nWarning: This endpoint is not meant to be machine parseable, \
             has no formatting compatibility guarantees and is for debugging purposes only.\n",
        );
        for (name, value) in self.values.shown() {
            page.push_str(&format!("{name}{separator}{value}\n"));
        }
        page
    }

    /// One log line for each flag.
    #[must_use]
    pub fn flag_lines(&self) -> Vec<String> {
        self.values.shown().map(|(name, value)| format!("FLAG: --{name}={}", quote(&value))).collect()
    }

    fn read_leader_migration(
        &self,
        known: &CommandLineContext<'_>,
    ) -> Result<Option<LeaderMigration>, String> {
        if !self.values.bool("enable-leader-migration") {
            return Ok(None);
        }
        let path = self.values.text("leader-migration-config");
        if path.is_empty() {
            return Ok(Some(LeaderMigration::without_file()));
        }
        let refuse = |error| {
            let reason = crate::file_problem(&path, &error);
            format!("unable to read leader migration configuration from {}: {reason}", quote(&path))
        };
        let text = (known.read_file)(&path).map_err(refuse)?;
        LeaderMigration::parse(&text).map(Some)
    }
}

fn reported_version(values: &Values, known: &CommandLineContext<'_>) -> String {
    match values.version("version") {
        crate::value::VersionWish::Report(version) => version,
        _ => known.build.git_version.to_owned(),
    }
}
