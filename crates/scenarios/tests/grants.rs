//! Every grant that a controller declares is one that the API server's bootstrap policy gives its service account.
//!
//! With `--use-service-account-credentials` a verb that the role lacks is a 403 on every real cluster, for every object.

use std::sync::Arc;

use keleustes_apiserver::ApiServer;
use keleustes_controllers::certificates::KUBELET_SERVING;
use keleustes_controllers::certificatesigningrequest_signing::{
    BuiltInSigner, CertificateSigningRequestSigningOptions,
};
use keleustes_controllers::job::JobOptions;
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher::ClusterTrustBundlePublisherOptions;
use keleustes_controllers::node_ipam::NodeIpamOptions;
use keleustes_controllers::podgroup_protection::PodGroupProtectionOptions;
use keleustes_controllers::resourceclaim::ResourceClaimOptions;
use keleustes_controllers::resourcepoolstatusrequest::ResourcePoolStatusOptions;
use keleustes_controllers::{ControllersOptions, all_controllers, bootstrap_signer, serviceaccount_token};
use serde_json::Value;

/// One rule of a bootstrapped role.
struct Rule {
    groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

impl Rule {
    fn new(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            rule[field]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        Self { groups: texts("apiGroups"), resources: texts("resources"), verbs: texts("verbs") }
    }

    fn allows(&self, group: &str, resource: &str, verb: &str) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|one| one == "*" || one == wanted);
        has(&self.groups, group) && has(&self.resources, resource) && has(&self.verbs, verb)
    }
}

/// The rules that the bootstrap policy binds to a service account in kube-system, or to the manager's own user.
fn bound_rules(server: &ApiServer, service_account: Option<&str>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (bindings, namespaced) in [("clusterrolebindings", false), ("rolebindings", true)] {
        for binding in server.objects(bindings) {
            let names_it =
                binding["subjects"].as_array().into_iter().flatten().any(|subject| match service_account {
                    Some(account) => subject["kind"] == "ServiceAccount" && subject["name"] == account,
                    None => subject["kind"] == "User" && subject["name"] == "system:kube-controller-manager",
                });
            let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
            let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
            let plural =
                if namespaced && binding["roleRef"]["kind"] == "Role" { "roles" } else { "clusterroles" };
            let namespace = if plural == "roles" { namespace } else { "" };
            let role = server.object(plural, namespace, role).filter(|_| names_it);
            rules.extend(
                role.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten().map(Rule::new)),
            );
        }
    }
    rules
}

/// Options with which every controller runs, also those behind feature gates, with all that gates add.
fn options() -> ControllersOptions {
    ControllersOptions {
        serviceaccount_token: Some(serviceaccount_token::ServiceAccountTokenOptions {
            sign: Arc::new(|_| Err("nothing is signed here".to_owned())),
            ca: Arc::new([]),
            workers: 1,
        }),
        bootstrap_signer: Some(bootstrap_signer::BootstrapSignerOptions { hmac_sha256: |_, _| [0; 32] }),
        certificatesigningrequest_signing: Some(CertificateSigningRequestSigningOptions {
            signers: vec![BuiltInSigner {
                name: KUBELET_SERVING,
                sign: Arc::new(|_| Box::pin(async { Err("nothing is signed".to_owned()) })),
            }],
            duration_nanoseconds: 1,
        }),
        kube_apiserver_serving_clustertrustbundle_publisher: ClusterTrustBundlePublisherOptions {
            ca: "x".into(),
            ..ClusterTrustBundlePublisherOptions::default()
        },
        node_ipam: NodeIpamOptions {
            allocate_node_cidrs: true,
            cluster_cidr: "10.0.0.0/8".to_owned(),
            ..NodeIpamOptions::default()
        },
        podgroup_protection: PodGroupProtectionOptions { enable_generic_workload: true },
        resourcepoolstatusrequest: ResourcePoolStatusOptions {
            enabled: true,
            ..ResourcePoolStatusOptions::default()
        },
        storageversion_garbage_collector: true,
        resourceclaim: ResourceClaimOptions {
            enable_generic_workload: true,
            enable_workload_claims: true,
            ..ResourceClaimOptions::default()
        },
        job: JobOptions { enable_workloads: true, ..JobOptions::default() },
        ..ControllersOptions::default()
    }
}

/// The grants that no role of the bootstrap policy gives.
fn missing_grants(options: &ControllersOptions, gated_kinds: bool) -> Vec<String> {
    let server = ApiServer::builder().bootstrap(true).gated_kinds(gated_kinds).build();
    let mut missing = Vec::new();
    for controller in all_controllers(options) {
        let rules = bound_rules(&server, controller.service_account);
        for grant in controller.grants {
            for verb in grant.verbs {
                if !rules.iter().any(|rule| rule.allows(grant.group, grant.resource, verb)) {
                    missing.push(format!("{}: {verb} {}/{}", controller.name, grant.group, grant.resource));
                }
            }
        }
    }
    missing
}

#[test]
fn every_grant_is_part_of_the_bootstrapped_role() {
    let controllers = all_controllers(&options());
    for name in [
        "podgroup-protection-controller",
        "resourcepoolstatusrequest-controller",
        "storageversion-garbage-collector-controller",
    ] {
        assert!(controllers.iter().any(|controller| controller.name == name), "{name} does not run");
    }
    let missing = missing_grants(&options(), true);
    assert!(missing.is_empty(), "no role grants:\n{}", missing.join("\n"));
}

#[test]
fn controllers_without_gates_need_no_role_of_a_gate() {
    let gated = options();
    let without = ControllersOptions {
        podgroup_protection: PodGroupProtectionOptions::default(),
        resourcepoolstatusrequest: ResourcePoolStatusOptions::default(),
        storageversion_garbage_collector: false,
        resourceclaim: ResourceClaimOptions::default(),
        job: JobOptions::default(),
        ..gated
    };
    let missing = missing_grants(&without, false);
    assert!(missing.is_empty(), "no role grants:\n{}", missing.join("\n"));
    assert!(!missing_grants(&options(), false).is_empty(), "a server without the gates lacks their roles");
}

#[test]
fn a_verb_that_the_role_lacks_is_noticed() {
    let server = ApiServer::builder().bootstrap(true).build();
    let rules = bound_rules(&server, Some("replicaset-controller"));
    let allowed = |verb: &str| rules.iter().any(|rule| rule.allows("", "pods", verb));
    assert!(allowed("create"));
    assert!(!allowed("update"), "the role of replicaset-controller has patch and not update on pods");
}
