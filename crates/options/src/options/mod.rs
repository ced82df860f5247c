//! The typed options, by area.

mod access;
mod configz;
mod controllers;
mod observing;
mod running;
mod validate;

use std::collections::BTreeMap;

pub use access::{Authentication, Authorization, RequestHeader, Serving, TlsVersion};
pub use controllers::{
    AttachDetach, CloudShared, ClusterSigning, ConcurrentSyncs, EndpointSlice, EndpointSliceMirroring,
    Endpoints, GarbageCollector, HorizontalPodAutoscaler, Namespace, NodeIpam, NodeLifecycle, Recycler,
    ResourceQuota, ServiceAccount, SignerFiles, VolumeBinder,
};
pub use observing::{LogFormat, Logs, Metrics, Stream};
pub use running::{ClientConnection, Debugging, Generic, LeaderElection, Throttle};

use crate::gates::FeatureGates;
use crate::go_text::{GoDuration, quote};
use crate::leader_migration::LeaderMigration;
use crate::parser::Values;
use crate::versions::EffectiveVersion;
use crate::{CommandLineContext, aggregate};

/// The validated options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Printed on stderr before anything else.
    pub notices: Vec<String>,
    /// Logged once logging is set up.
    pub warnings: Vec<String>,
    /// The connection to the API server.
    pub client: ClientConnection,
    /// Options of all controllers.
    pub generic: Generic,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// Leader migration, if it is enabled.
    pub leader_migration: Option<LeaderMigration>,
    /// Profiling.
    pub debugging: Debugging,
    /// Secure serving.
    pub serving: Serving,
    /// Authentication.
    pub authentication: Authentication,
    /// Authorization.
    pub authorization: Authorization,
    /// Logging.
    pub logs: Logs,
    /// Metrics.
    pub metrics: Metrics,
    /// Feature gates.
    pub gates: FeatureGates,
    /// Binary, emulation and minimum compatibility version.
    pub versions: EffectiveVersion,
    /// The version to report.
    pub reported_version: String,
    /// Options shared by cloud and node controllers.
    pub cloud: CloudShared,
    /// The number of workers of each controller.
    pub workers: ConcurrentSyncs,
    /// The attach-detach controller.
    pub attach_detach: AttachDetach,
    /// The CSR signing controller.
    pub cluster_signing: ClusterSigning,
    /// The endpoints controller.
    pub endpoints: Endpoints,
    /// The EndpointSlice controller.
    pub endpoint_slice: EndpointSlice,
    /// The EndpointSlice mirroring controller.
    pub endpoint_slice_mirroring: EndpointSliceMirroring,
    /// The garbage collector.
    pub garbage_collector: GarbageCollector,
    /// The horizontal pod autoscaler.
    pub horizontal_pod_autoscaler: HorizontalPodAutoscaler,
    /// How long an unused legacy token Secret is kept.
    pub legacy_token_clean_up_period: GoDuration,
    /// The namespace controller.
    pub namespace: Namespace,
    /// The node IPAM controller.
    pub node_ipam: NodeIpam,
    /// The node lifecycle controller.
    pub node_lifecycle: NodeLifecycle,
    /// The PersistentVolume binder.
    pub volume_binder: VolumeBinder,
    /// The number of terminated pods above which the pod garbage collector deletes.
    pub terminated_pod_gc_threshold: i32,
    /// The resource quota controller.
    pub resource_quota: ResourceQuota,
    /// The CA and signing key of ServiceAccount tokens.
    pub service_account: ServiceAccount,
    values: Values,
}

impl Options {
    /// Types and validates the values; the error is the message for the operator.
    pub(crate) fn read(
        values: Values,
        gates: FeatureGates,
        versions: EffectiveVersion,
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
            workers: ConcurrentSyncs::read(&values),
            attach_detach: AttachDetach::read(&values),
            cluster_signing: ClusterSigning::read(&values),
            endpoints: Endpoints::read(&values),
            endpoint_slice: EndpointSlice::read(&values),
            endpoint_slice_mirroring: EndpointSliceMirroring::read(&values),
            garbage_collector: GarbageCollector::read(&values),
            horizontal_pod_autoscaler: HorizontalPodAutoscaler::read(&values),
            legacy_token_clean_up_period: values.duration("legacy-service-account-token-clean-up-period"),
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
        options.warnings.extend(options.warnings());
        options.client.check()?;
        options.leader_migration = options.read_leader_migration(known)?;
        options.check_applied()?;
        Ok(options)
    }

    /// Whether the command line sets the flag.
    #[must_use]
    pub fn is_set(&self, flag: &str) -> bool {
        self.values.given(flag)
    }

    /// Every flag with its effective value, as in `/flagz`.
    #[must_use]
    pub fn flagz(&self) -> BTreeMap<String, String> {
        // `help` is included, as in the original.
        self.values.formatted().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The page `/flagz` as text. The original picks the separator at random to discourage parsing.
    #[must_use]
    pub fn flagz_text(&self, separator: &str) -> String {
        let mut page = String::from(
            "\nkube-controller-manager flagz\nWarning: This endpoint is not meant to be machine parseable, \
             has no formatting compatibility guarantees and is for debugging purposes only.\n",
        );
        for (name, value) in self.values.formatted() {
            page.push_str(&format!("{name}{separator}{value}\n"));
        }
        page
    }

    /// One log line for each flag.
    #[must_use]
    pub fn flag_lines(&self) -> Vec<String> {
        self.values.formatted().map(|(name, value)| format!("FLAG: --{name}={}", quote(&value))).collect()
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
        crate::value::VersionFlag::Report(version) => version,
        _ => known.build.git_version.to_owned(),
    }
}
