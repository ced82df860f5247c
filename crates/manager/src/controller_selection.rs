//! Selects the controllers that run in this process.

use std::collections::BTreeSet;
use std::sync::Arc;

use keleustes_controllers::bootstrap_signer::BootstrapSignerOptions;
use keleustes_controllers::certificates::KUBELET_SERVING;
use keleustes_controllers::certificatesigningrequest_signing::{
    BuiltInSigner, CertificateSigningRequestSigningOptions, SignCertificate,
};
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher::ClusterTrustBundlePublisherOptions;
use keleustes_controllers::names::{self, UPSTREAM_CONTROLLERS};
use keleustes_controllers::node_ipam::NodeIpamOptions;
use keleustes_controllers::{ControllersOptions, all_controllers, enabled_controllers};
use keleustes_options::Options;
use keleustes_plan::{ConstructionError, Controller};
use keleustes_runtime::signing::hmac_sha256;

/// The controller that others need for their service account credentials.
pub(crate) const FIRST: &str = "serviceaccount-token-controller";

/// The canonical names of all implemented controllers.
pub(crate) fn implemented_controllers() -> Vec<&'static str> {
    let mut options = ControllersOptions {
        bootstrap_signer: Some(BootstrapSignerOptions { hmac_sha256 }),
        node_ipam: NodeIpamOptions {
            allocate_node_cidrs: true,
            cluster_cidr: "10.0.0.0/8".to_owned(),
            ..NodeIpamOptions::default()
        },
        storageversion_garbage_collector: true,
        certificatesigningrequest_signing: Some(some_signer()),
        kube_apiserver_serving_clustertrustbundle_publisher: ClusterTrustBundlePublisherOptions {
            ca: "x".into(),
            ..ClusterTrustBundlePublisherOptions::default()
        },
        ..ControllersOptions::default()
    };
    options.podgroup_protection.enable_generic_workload = true;
    options.resourcepoolstatusrequest.enabled = true;
    let written = all_controllers(&options).into_iter().map(|controller| controller.name);
    std::iter::once(FIRST).chain(written).collect()
}

/// A signer that signs nothing, so that the signing controller is listed.
fn some_signer() -> CertificateSigningRequestSigningOptions {
    let sign: SignCertificate = Arc::new(|_| Box::pin(async { Err("no CA".to_owned()) }));
    let signers = vec![BuiltInSigner { name: KUBELET_SERVING, sign }];
    CertificateSigningRequestSigningOptions { signers, duration_nanoseconds: 0 }
}

/// The controllers that the options enable.
pub(crate) struct ControllerSelection {
    /// Enabled and implemented.
    pub(crate) members: Vec<Controller>,
    /// Enabled and not implemented yet.
    pub(crate) missing: Vec<&'static str>,
}

impl ControllerSelection {
    /// Selects by `--controllers` and logs which controllers do not run, and why.
    ///
    /// # Errors
    /// If the options do not allow an enabled controller to be constructed.
    pub(crate) fn choose(
        options: &Options,
        settings: &ControllersOptions,
    ) -> Result<Self, ConstructionError> {
        let landed = implemented_controllers();
        let mut wanted = BTreeSet::new();
        for known in &UPSTREAM_CONTROLLERS {
            let by_default = known.default != names::DefaultState::Disabled;
            if known.name == FIRST {
                // Only a missing key disables the token controller.
                wanted.insert(FIRST);
            } else if !options.generic.controllers.enables(known.name, by_default) {
                tracing::info!(controller = known.name, "Warning: controller is disabled");
            } else if let Some(gate) = known.gates.iter().find(|gate| !options.gates.enabled(gate)) {
                tracing::info!(controller = known.name, gate, "Controller is disabled by a feature gate");
            } else {
                wanted.insert(known.name);
            }
        }
        let members = enabled_controllers(settings, &|name| wanted.contains(name)).inspect_err(|error| {
            tracing::error!(controller = error.controller, %error, "Error initializing a controller");
        })?;
        for skipped in landed.iter().filter(|name| wanted.contains(*name)) {
            if !members.iter().any(|controller| controller.name == *skipped) {
                tracing::info!(controller = skipped, "Warning: skipping controller");
            }
        }
        let missing: Vec<_> = UPSTREAM_CONTROLLERS
            .iter()
            .map(|known| known.name)
            .filter(|name| wanted.contains(name) && !landed.contains(name))
            .collect();
        if !missing.is_empty() {
            tracing::warn!(
                controllers = missing.join(","),
                "controllers not implemented yet and not running"
            );
        }
        Ok(Self { members, missing })
    }
}

#[cfg(test)]
mod tests;
