//! Bootstrap tokens on the embedded API server: they sign cluster-info, expire, and appear in no log.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use keleustes_apiserver::{ApiServer, FaultRule, InjectedFault};
use keleustes_controllers::bootstrap_signer::{self, BootstrapSignerOptions};
use keleustes_controllers::token_cleaner;
use keleustes_plan::Controller;
use keleustes_runtime::signing::hmac_sha256;
use keleustes_test_log::TestLog;
use serde_json::{Value, json};
use tracing::Level;

use crate::test_cluster::{TestCluster, settle, wait};

/// What kubeadm's own code signs.
const VECTORS: &str = include_str!("data/jws.json");

fn signer() -> Controller {
    bootstrap_signer::controller(BootstrapSignerOptions { hmac_sha256 })
}

/// A token that signs, in a namespace, of a type.
fn token_in(namespace: &str, r#type: &str, id: &str, secret: &[u8], expiration: &str) -> Value {
    let encode = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": r#type,
        "metadata": {"namespace": namespace, "name": format!("bootstrap-token-{id}")},
        "data": {"token-id": encode(id.as_bytes()), "token-secret": encode(secret),
                 "expiration": encode(expiration.as_bytes()), "usage-bootstrap-signing": encode(b"true")},
    })
}

const TYPE: &str = "bootstrap.kubernetes.io/token";

fn token(id: &str, expiration: &str) -> Value {
    token_in("kube-system", TYPE, id, b"0123456789abcdef", expiration)
}

fn info_in(namespace: &str, name: &str, kubeconfig: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name},
           "data": {"kubeconfig": kubeconfig}})
}

fn seed(cluster: &TestCluster, objects: impl IntoIterator<Item = Value>) {
    objects.into_iter().for_each(|object| drop(cluster.server.seed(object).unwrap()));
}

fn cluster(objects: impl IntoIterator<Item = Value>) -> TestCluster {
    let cluster = TestCluster::new();
    seed(&cluster, objects);
    cluster
}

fn tokens(server: &ApiServer) -> Vec<String> {
    let secrets = server.objects("secrets");
    let key = |secret: &Value| {
        let text = |pointer| secret.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"))
    };
    secrets.iter().map(|secret| key(secret)).filter(|key| key.contains("bootstrap-token")).collect()
}

fn data(cluster: &TestCluster) -> Value {
    cluster.server.object("configmaps", "kube-public", "cluster-info").unwrap()["data"].clone()
}

fn signed_by(cluster: &TestCluster) -> Vec<String> {
    let data = data(cluster);
    let keys = data.as_object().unwrap().keys().filter_map(|key| key.strip_prefix("jws-kubeconfig-"));
    keys.map(str::to_owned).collect()
}

/// Proves BSS-24.
#[tokio::test(start_paused = true)]
async fn signatures_are_those_of_kubeadm() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for vector in vectors.as_array().unwrap() {
        let text = |field: &str| vector[field].as_str().unwrap();
        let secret = BASE64_STANDARD.decode(text("secret")).unwrap();
        let cluster = cluster([
            token_in("kube-system", TYPE, text("id"), &secret, ""),
            info_in("kube-public", "cluster-info", text("content")),
        ]);
        let running = cluster.start(signer()).await;
        settle().await;
        assert_eq!(data(&cluster)[format!("jws-kubeconfig-{}", text("id"))], vector["jws"], "{vector}");
        cluster.stop(running).await;
    }
}

/// Proves BSS-48, BSS-3, BSS-42.
#[tokio::test(start_paused = true)]
async fn only_the_one_config_map_and_tokens_of_the_type_in_kube_system_count() {
    let cluster = cluster([
        info_in("kube-public", "cluster-info", "k"),
        info_in("kube-system", "cluster-info", "k"),
        info_in("kube-public", "cluster-info-2", "k"),
        token_in("default", TYPE, "aaaaaa", b"s", ""),
        token_in("kube-system", "Opaque", "bbbbbb", b"s", ""),
        token_in("kube-public", TYPE, "cccccc", b"s", ""),
        token("dddddd", ""),
    ]);
    let _running = cluster.start(signer()).await;
    settle().await;
    assert_eq!(signed_by(&cluster), ["dddddd"]);
    wait(Duration::from_secs(600)).await;
    let puts = cluster.writes();
    let targets: Vec<_> = puts.iter().map(|request| request.target.as_str()).collect();
    assert_eq!(
        targets,
        ["/api/v1/namespaces/kube-public/configmaps/cluster-info"],
        "its own update causes none"
    );
    assert!(cluster.server.remove("secrets", "kube-system", "bootstrap-token-dddddd"));
    seed(&cluster, [token_in("kube-system", "Opaque", "dddddd", b"0123456789abcdef", "")]);
    settle().await;
    assert_eq!(signed_by(&cluster), [""; 0], "the name has another type now");
    for request in cluster.server.requests().iter().filter(|request| request.method == Method::GET) {
        let allowed = ["/namespaces/kube-system/secrets?", "/namespaces/kube-public/configmaps?"];
        assert!(allowed.iter().any(|path| request.target.contains(path)), "{}", request.target);
    }
}

/// Proves BSS-49.
#[tokio::test(start_paused = true)]
async fn nothing_is_signed_while_a_list_fails_and_other_controllers_run() {
    for resource in ["secrets", "configmaps"] {
        let cluster = cluster([info_in("kube-public", "cluster-info", "k"), token("abcdef", "")]);
        let refused = InjectedFault::status(403, "Forbidden", "no");
        let rule = cluster.faults.add(FaultRule::new(refused).resource(resource).verbs(&["list", "watch"]));
        let account = keleustes_controllers::serviceaccount::controller();
        let (_other, started) = (
            cluster.start(account).await,
            tokio::time::timeout(Duration::from_secs(600), cluster.start(signer())).await,
        );
        assert!(started.is_err(), "{resource}");
        assert_eq!(signed_by(&cluster), [""; 0]);
        assert!(!cluster.server.objects("serviceaccounts").is_empty());
        cluster.faults.disable(rule);
        let _running = cluster.start(signer()).await;
        settle().await;
        assert_eq!(signed_by(&cluster), ["abcdef"], "{resource}");
    }
}

/// Proves BSS-41, BSS-55, BSS-5.
#[tokio::test(start_paused = true)]
async fn refused_update_waits_for_the_next_event_and_an_outage_is_retried() {
    let puts = |cluster: &TestCluster| cluster.writes().iter().filter(|r| r.method == Method::PUT).count();
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid"), (409, "Conflict"), (404, "NotFound")] {
        let cluster = cluster([info_in("kube-public", "cluster-info", "k"), token("abcdef", "")]);
        let refused = InjectedFault::status(code, reason, "no");
        let rule = cluster.faults.add(FaultRule::new(refused).method(Method::PUT));
        let _running = cluster.start(signer()).await;
        wait(Duration::from_secs(3600)).await;
        assert_eq!((signed_by(&cluster), cluster.faults.hits(rule)), (vec![], 1), "{reason} is not retried");
        cluster.faults.disable(rule);
        seed(&cluster, [token("fedcba", "")]);
        wait(Duration::from_secs(1)).await;
        assert_eq!(
            (signed_by(&cluster).len(), puts(&cluster)),
            (2, 1),
            "{reason}: the next event repairs it"
        );
    }
    let cluster = cluster([info_in("kube-public", "cluster-info", "k"), token("abcdef", "")]);
    let outage = InjectedFault::status(500, "InternalError", "boom");
    cluster.faults.add(FaultRule::new(outage).method(Method::PUT).times(3));
    let _running = cluster.start(signer()).await;
    wait(Duration::from_secs(60)).await;
    assert_eq!(signed_by(&cluster), ["abcdef"]);
}

/// Proves BSS-56, BSS-2.
#[tokio::test(start_paused = true)]
async fn token_deleted_during_a_gap_of_the_watch_loses_its_signature() {
    let cluster =
        cluster([info_in("kube-public", "cluster-info", "k"), token("abcdef", ""), token("fedcba", "")]);
    let _running = cluster.start(signer()).await;
    settle().await;
    assert_eq!(signed_by(&cluster).len(), 2);
    cluster.tap.lag("secrets");
    assert!(cluster.server.remove("secrets", "kube-system", "bootstrap-token-abcdef"));
    let cache = cluster.synced_cache::<keleustes_objects::BootstrapToken>().await;
    cache.progress().request_relist();
    wait(Duration::from_secs(1)).await;
    cluster.tap.catch_up();
    wait(Duration::from_secs(1)).await;
    assert_eq!(signed_by(&cluster), ["fedcba"]);
}

/// Proves TOK-34, TOK-44, TOK-33, TOK-41.
#[tokio::test(start_paused = true)]
async fn expired_tokens_are_deleted_and_all_others_kept() {
    let old = "2020-01-01T00:00:00Z";
    let cluster = cluster([
        token("expire", old),
        token("soon00", "2026-01-01T00:01:00.5Z"),
        token("never0", ""),
        token("far000", "9999-12-31T23:59:59Z"),
        token_in("default", TYPE, "abcdef", b"s", old),
        token_in("kube-system", "Opaque", "opaque", b"s", old),
    ]);
    let running = cluster.start(token_cleaner::controller()).await;
    settle().await;
    let kept = [
        "default/bootstrap-token-abcdef",
        "kube-system/bootstrap-token-far000",
        "kube-system/bootstrap-token-never0",
        "kube-system/bootstrap-token-opaque",
    ];
    let with_soon = [&kept[..], &["kube-system/bootstrap-token-soon00"]].concat();
    assert_eq!(tokens(&cluster.server), with_soon, "expired before the start");
    running.stop().await;
    let running = cluster.start(token_cleaner::controller()).await;
    wait(Duration::from_millis(60_400)).await;
    assert_eq!(tokens(&cluster.server), with_soon);
    wait(Duration::from_millis(200)).await;
    assert_eq!(tokens(&cluster.server), kept, "a restart arms the timers again");
    assert_eq!(cluster.reads("secrets", "/namespaces/kube-system/"), cluster.reads("secrets", ""));
    wait(Duration::from_secs(6 * 3600)).await;
    assert_eq!(tokens(&cluster.server), kept);
    cluster.stop(running).await;
}

/// Proves TOK-47, TOK-20, TOK-16.
#[tokio::test(start_paused = true)]
async fn refused_delete_is_not_repeated_and_an_outage_is_retried() {
    for code in [403, 422] {
        let cluster = cluster([token("expire", "2020-01-01T00:00:00Z")]);
        let refused = InjectedFault::status(code, "Forbidden", "no");
        let rule = cluster.faults.add(FaultRule::new(refused).method(Method::DELETE));
        let _running = cluster.start(token_cleaner::controller()).await;
        wait(Duration::from_secs(2 * 3600)).await;
        assert_eq!((tokens(&cluster.server).len(), cluster.faults.hits(rule)), (1, 1), "{code}");
        cluster.faults.disable(rule);
        wait(Duration::from_secs(2 * 3600)).await;
        assert_eq!(tokens(&cluster.server).len(), 1, "no timer is left");
        seed(&cluster, [token("expire", "2021-01-01T00:00:00Z")]);
        settle().await;
        assert!(tokens(&cluster.server).is_empty(), "the next event");
    }
    let cluster = cluster([token("expire", "2020-01-01T00:00:00Z")]);
    let outage = InjectedFault::status(500, "InternalError", "boom");
    cluster.faults.add(FaultRule::new(outage).method(Method::DELETE).times(3));
    let _running = cluster.start(token_cleaner::controller()).await;
    wait(Duration::from_secs(60)).await;
    assert!(tokens(&cluster.server).is_empty());
}

/// Proves TOK-32.
#[tokio::test(start_paused = true)]
async fn token_recreated_while_the_delete_is_in_flight_is_kept() {
    let cluster = cluster([token("abcdef", "2026-01-01T00:00:10Z")]);
    let slow = InjectedFault::DelayThen(Duration::from_secs(5), Box::new(InjectedFault::Pass));
    cluster.faults.add(FaultRule::new(slow).method(Method::DELETE));
    let _running = cluster.start(token_cleaner::controller()).await;
    wait(Duration::from_secs(12)).await;
    assert!(cluster.server.remove("secrets", "kube-system", "bootstrap-token-abcdef"));
    seed(&cluster, [token("abcdef", "2026-01-02T00:00:00Z")]);
    wait(Duration::from_secs(600)).await;
    assert_eq!(tokens(&cluster.server), ["kube-system/bootstrap-token-abcdef"]);
}

#[tokio::test(start_paused = true)]
async fn token_secret_is_in_no_log_line() {
    let marker = b"m4rk3r-of-a-token-secret";
    let (log, _capturing) = TestLog::capture(Level::TRACE);
    let cluster = cluster([
        info_in("kube-public", "cluster-info", "k"),
        token_in("kube-system", TYPE, "abcdef", marker, "2026-01-01T00:01:00Z"),
    ]);
    let refused = InjectedFault::status(500, "InternalError", "boom");
    cluster.faults.add(FaultRule::new(refused).writes(true).times(2));
    let _running = (cluster.start(signer()).await, cluster.start(token_cleaner::controller()).await);
    wait(Duration::from_secs(120)).await;
    assert_eq!(signed_by(&cluster), [""; 0], "signed, expired and removed");
    let text = log.text();
    assert!(text.contains("bootstrap-token-abcdef"), "the log is captured: {text}");
    for secret in ["m4rk3r", &BASE64_STANDARD.encode(marker)] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}
