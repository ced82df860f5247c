//! Data of Secrets appears in no log line, event, journal entry or reason of a write, whatever controller reads it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_apiserver::{FaultRule, InjectedFault};
use keleustes_controllers::bootstrap_signer::BootstrapSignerOptions;
use keleustes_controllers::certificatesigningrequest_signing::{
    BuiltInSigner, CertificateSigningRequestSigningOptions,
};
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher::{
    ClusterTrustBundlePublisherOptions, ClusterTrustBundleVersion,
};
use keleustes_controllers::serviceaccount_token::ServiceAccountTokenOptions;
use keleustes_controllers::{ControllersOptions, all_controllers, names};
use keleustes_plan::Controller;
use keleustes_runtime::journal::{Decision, JournalEntry, WriteOutcome};
use keleustes_runtime::signing::hmac_sha256;
use keleustes_test_log::TestLog;
use serde_json::{Value, json};
use tracing::Level;

use crate::test_cluster::{TestCluster, wait};

/// The data of every Secret.
const MARKER: &str = "m4rk3r-of-secret-data";
/// The tokens that are signed.
const SIGNED: &str = "m4rk3r-of-signed-token";

/// Those whose Secrets the test below has; a new one needs a Secret there.
const READERS_OF_SECRETS: [&str; 4] = [
    "bootstrap-signer-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "serviceaccount-token-controller",
    "token-cleaner-controller",
];

/// Options with which every controller runs.
fn options() -> ControllersOptions {
    let mut options = ControllersOptions {
        serviceaccount_token: Some(ServiceAccountTokenOptions {
            sign: Arc::new(|_| Ok(SIGNED.to_owned())),
            ca: Arc::from(*b"ca"),
            workers: 1,
        }),
        bootstrap_signer: Some(BootstrapSignerOptions { hmac_sha256 }),
        certificatesigningrequest_signing: Some(CertificateSigningRequestSigningOptions {
            signers: vec![BuiltInSigner {
                name: "kubernetes.io/kube-apiserver-client",
                sign: Arc::new(|_| Box::pin(std::future::ready(Err("unused".to_owned())))),
            }],
            duration_nanoseconds: 1,
        }),
        kube_apiserver_serving_clustertrustbundle_publisher: ClusterTrustBundlePublisherOptions {
            ca: "ca".into(),
            ca_hash: [0; 12],
            version: ClusterTrustBundleVersion::V1,
        },
        storageversion_garbage_collector: true,
        ..ControllersOptions::default()
    };
    options.node_ipam.allocate_node_cidrs = true;
    options.node_ipam.cluster_cidr = "10.244.0.0/22".to_owned();
    options.podgroup_protection.enable_generic_workload = true;
    options.resourcepoolstatusrequest.enabled = true;
    options.legacy_serviceaccount_token_cleaner.clean_up_period = Duration::ZERO;
    options
}

fn reads_secrets(controller: &Controller) -> bool {
    let mut kinds = controller.loops.iter().flat_map(|one| &one.reads);
    kinds.any(|kind| kind.resource().plural == "secrets")
        || controller.grants.iter().any(|grant| grant.resource == "secrets")
}

fn encoded(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

fn token_of(account: &str, name: &str, labels: &Value, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"namespace": "a", "name": name, "labels": labels,
                     "annotations": {"kubernetes.io/service-account.name": account}},
        "data": data,
    })
}

fn seed(cluster: &TestCluster) {
    let (none, marked) = (json!({}), json!({"kubernetes.io/legacy-token-invalid-since": "2021-01-01"}));
    let token = json!({"token": encoded(MARKER)});
    for object in [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"kubeconfig": "k"},
            "metadata": {"namespace": "kube-public", "name": "cluster-info"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"namespace": "kube-system", "name": "bootstrap-token-abcdef"},
            "data": {"token-id": encoded("abcdef"), "token-secret": encoded(MARKER),
                     "expiration": encoded("2026-01-01T00:01:00Z"), "usage-bootstrap-signing": encoded("true")}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"since": "2020-01-01"},
            "metadata": {"namespace": "kube-system", "name": "kube-apiserver-legacy-service-account-token-tracking"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "a", "name": "builder"},
            "secrets": [{"name": "unused"}, {"name": "invalid"}]}),
        token_of("builder", "without-token", &none, &json!({})),
        token_of("builder", "without-ca", &none, &token),
        token_of("builder", "unused", &none, &token),
        token_of("builder", "invalid", &marked, &token),
        token_of("absent", "orphan", &none, &token),
    ] {
        cluster.server.seed(object).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn data_of_secrets_is_in_no_log_line_journal_entry_or_reason() {
    let (log, _capturing) = TestLog::capture(Level::TRACE);
    let cluster = TestCluster::new();
    seed(&cluster);
    let all = all_controllers(&options());
    let known: BTreeSet<_> = names::UPSTREAM_CONTROLLERS.iter().map(|listed| listed.name).collect();
    assert_eq!(
        all.iter().map(|one| one.name).collect::<BTreeSet<_>>(),
        known,
        "every controller is examined"
    );
    let readers: Vec<Controller> = all.into_iter().filter(reads_secrets).collect();
    let reader_names: BTreeSet<_> = readers.iter().map(|one| one.name).collect();
    assert_eq!(reader_names, BTreeSet::from(READERS_OF_SECRETS));
    // The legacy token cleaner compares ages in seconds.
    wait(Duration::from_secs(2)).await;
    let outage = InjectedFault::status(500, "InternalError", "boom");
    cluster.faults.add(FaultRule::new(outage).writes(true).times(3));
    // A webhook or a proxy may quote what it refuses.
    let quoting = format!("admission webhook denied {{\"token\": \"{}\", {MARKER}}}", encoded(SIGNED));
    let refusal = InjectedFault::status(403, "Forbidden", &quoting);
    cluster.faults.add(FaultRule::new(refusal).resource("secrets").writes(true).skip(3).times(12));
    let _running = cluster.start_all(readers).await;
    wait(Duration::from_secs(25 * 3600)).await;

    let secret = |name: &str| cluster.server.object("secrets", "a", name);
    assert_eq!(secret("without-token").unwrap()["data"]["token"], encoded(SIGNED));
    let completed = secret("without-ca").unwrap()["data"].clone();
    assert_eq!((&completed["token"], &completed["ca.crt"]), (&json!(encoded(MARKER)), &json!(encoded("ca"))));
    let is_marked =
        |it: &Value| it["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"].is_string();
    assert!(
        secret("unused").is_none_or(|it| is_marked(&it)),
        "the legacy token cleaner has marked or deleted it"
    );
    assert!(secret("orphan").is_none() && secret("invalid").is_none());
    assert!(cluster.server.object("secrets", "kube-system", "bootstrap-token-abcdef").is_none(), "expired");
    let journal = cluster.context.inspection.journal().latest(10_000, |_| true);
    let has_written = |entry: &&JournalEntry| {
        matches!(&entry.decision, Decision::Write { outcome: WriteOutcome::Done, .. })
    };
    let writers: BTreeSet<_> = journal.iter().filter(has_written).map(|entry| &*entry.controller).collect();
    assert_eq!(writers, BTreeSet::from(READERS_OF_SECRETS));
    let journal = serde_json::to_string(&journal).unwrap();

    let text = format!("{}\n{journal}\n{:?}", log.text(), cluster.events.lock());
    assert!(text.contains("without-token"), "the log is captured");
    assert!(text.contains("message not kept"), "a write was refused");
    for marker in ["m4rk3r", &encoded(MARKER), &encoded(SIGNED)] {
        let line = text.lines().find(|line| line.contains(marker));
        assert_eq!(line, None, "{marker} is visible");
    }
}
