//! Which tokens sign, what is written, and what is left alone. The signatures themselves are compared with kubeadm's in
//! the tests of the runtime, which has HMAC-SHA256.

use base64::prelude::BASE64_STANDARD;
use keleustes_objects::{ApiError, Kind as _};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Action, RateLimiter, Step};
use serde_json::Value;

use super::*;

/// Any function of key and message will do.
fn fake_hmac(key: &SecretBytes, message: &[u8]) -> [u8; 32] {
    let mut hash = [0_u8; 32];
    for (at, byte) in key.expose().iter().chain(message).enumerate() {
        hash[at % 32] = hash[at % 32].wrapping_mul(31).wrapping_add(*byte);
    }
    hash
}

fn the_loop() -> Loop {
    controller(BootstrapSignerOptions { hmac_sha256: fake_hmac }).loops.remove(0)
}

/// A usable token with this id.
fn token(id: &str) -> Value {
    let data = [
        ("token-id", id),
        ("token-secret", "0123456789abcdef"),
        ("expiration", "2027-01-15T08:00:01Z"),
        ("usage-bootstrap-signing", "true"),
        ("usage-bootstrap-authentication", "true"),
    ];
    let data: BTreeMap<_, _> =
        data.into_iter().map(|(key, value)| (key, BASE64_STANDARD.encode(value))).collect();
    json!({
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system", "uid": id},
        "type": "bootstrap.kubernetes.io/token", "data": data,
    })
}

/// The token `abcdef` with another value of one key; `None` removes it.
fn token_with(key: &str, value: Option<&[u8]>) -> Value {
    let mut token = token("abcdef");
    match value {
        Some(value) => token["data"][key] = json!(BASE64_STANDARD.encode(value)),
        None => drop(token["data"].as_object_mut().unwrap().remove(key)),
    }
    token
}

fn info(data: impl Into<Value>) -> Value {
    let data: Value = data.into();
    json!({
        "metadata": {"name": "cluster-info", "namespace": "kube-public", "uid": "i", "resourceVersion": "5",
                     "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "data": data,
    })
}

fn cluster(info: Option<Value>, tokens: Vec<Value>) -> RehearsalCluster {
    let cluster = RehearsalCluster::of(&the_loop());
    let cluster = tokens.into_iter().fold(cluster, RehearsalCluster::with::<BootstrapToken>);
    info.into_iter().fold(cluster, RehearsalCluster::with::<ClusterInfo>)
}

/// The body of the only PUT; `None` if nothing is written.
fn put(info: Option<Value>, tokens: Vec<Value>) -> Option<Value> {
    let mut bodies = cluster(info, tokens).bodies(&the_loop(), cluster_info(), "put");
    assert!(bodies.len() <= 1);
    bodies.pop().map(|(_, body)| body)
}

/// The signature keys after a reconcile with these tokens, of a ConfigMap without signatures.
fn signed_by(tokens: Vec<Value>) -> Vec<String> {
    let body = put(Some(info(json!({"kubeconfig": "k"}))), tokens).unwrap_or_default();
    let data = body["data"].as_object().cloned().unwrap_or_default();
    data.keys().filter_map(|key| key.strip_prefix(SIGNATURE_PREFIX)).map(str::to_owned).collect()
}

fn signature(content: &str, id: &str) -> String {
    let secret: SecretBytes =
        serde_json::from_value(json!(BASE64_STANDARD.encode("0123456789abcdef"))).unwrap();
    detached_jws(content, id, &secret, fake_hmac)
}

/// Proves BSS-1, BSS-2, BSS-4.
#[test]
fn config_map_and_token_events_enqueue_the_one_key() {
    let (a_loop, key) = (the_loop(), ["kube-public/cluster-info"]);
    let mut cluster = cluster(None, vec![]);
    let mut changed = info(json!({"kubeconfig": "k"}));
    assert_eq!(cluster.put::<ClusterInfo>(&a_loop, changed.clone()), key);
    changed["metadata"]["resourceVersion"] = json!("6");
    assert_eq!(cluster.put::<ClusterInfo>(&a_loop, changed), key);
    let cached = cluster.view().get::<ClusterInfo>(&cluster_info()).unwrap().clone();
    assert!(cluster.enqueued_by(&a_loop, Change::resync(cached)).is_empty());
    assert!(cluster.take::<ClusterInfo>(&a_loop, &cluster_info()).is_empty(), "no deletion");

    let name = Key::namespaced("kube-system", "bootstrap-token-abcdef");
    assert_eq!(cluster.put::<BootstrapToken>(&a_loop, token("abcdef")), key);
    let mut changed = token("abcdef");
    changed["metadata"]["resourceVersion"] = json!("9");
    assert_eq!(cluster.put::<BootstrapToken>(&a_loop, changed), key);
    let cached = cluster.view().get::<BootstrapToken>(&name).unwrap().clone();
    assert!(cluster.enqueued_by(&a_loop, Change::resync(cached)).is_empty());
    assert_eq!(cluster.take::<BootstrapToken>(&a_loop, &name), key);
    assert_eq!((a_loop.queue, a_loop.workers), ("bootstrap_signer_queue", 1));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    assert!(a_loop.starts_without.is_empty(), "it waits for both caches");
}

/// Proves BSS-10, BSS-11, BSS-57, BSS-58.
#[test]
fn nothing_is_written_without_config_map_or_kubeconfig() {
    assert_eq!(put(None, vec![token("abcdef")]), None);
    let stale = json!({"jws-kubeconfig-abcdef": "old", "other": "x"});
    assert_eq!(put(Some(info(stale)), vec![token("abcdef")]), None, "signatures without kubeconfig stay");
    assert_eq!(put(Some(info(Value::Null)), vec![token("abcdef")]), None);
    let empty = put(Some(info(json!({"kubeconfig": ""}))), vec![token("abcdef")]).unwrap();
    assert_eq!(empty["data"]["jws-kubeconfig-abcdef"], signature("", "abcdef"), "empty counts as present");
    assert_eq!(signed_by(vec![token("abcdef"), token("fedcba")]), ["abcdef", "fedcba"], "re-created");
}

/// Proves BSS-50.
#[test]
fn binary_data_does_not_count_and_is_kept() {
    let mut binary = info(json!({}));
    binary["binaryData"] = json!({"kubeconfig": "aw==", "jws-kubeconfig-zzzzzz": "eA=="});
    assert_eq!(put(Some(binary.clone()), vec![token("abcdef")]), None);
    binary["data"] = json!({"kubeconfig": "k"});
    let body = put(Some(binary.clone()), vec![token("abcdef")]).unwrap();
    assert_eq!(body["binaryData"], binary["binaryData"]);
}

/// Proves BSS-13, BSS-44.
#[test]
fn name_must_be_the_prefix_and_six_lower_case_letters_or_digits() {
    assert_eq!(signed_by(vec![token("a1b2c3")]), ["a1b2c3"]);
    for id in ["ABCDEF", "abcde", "abcdefg", "abc-ef", "", "abcdeé"] {
        assert_eq!(signed_by(vec![token(id)]), [""; 0], "{id}");
    }
    let mut named = token("abcdef");
    named["metadata"]["name"] = json!("my-token-abcdef");
    assert_eq!(signed_by(vec![named]), [""; 0]);
}

/// Proves BSS-14, BSS-15, BSS-43.
#[test]
fn id_must_be_that_of_the_name_and_the_secret_not_empty() {
    for id in [Some(&b"fedcba"[..]), Some(b"abcdef\n"), Some(b""), Some(b"\xff"), None] {
        assert_eq!(signed_by(vec![token_with("token-id", id)]), [""; 0], "{id:?}");
    }
    for secret in [Some(&b""[..]), None] {
        assert_eq!(signed_by(vec![token_with("token-secret", secret)]), [""; 0]);
    }
    for secret in [&b"x"[..], b"Any LENGTH, any character \xff\n"] {
        assert_eq!(signed_by(vec![token_with("token-secret", Some(secret))]), ["abcdef"]);
    }
    let mut copy = token("abcdef");
    copy["metadata"]["name"] = json!("bootstrap-token-fedcba");
    assert_eq!(signed_by(vec![copy, token("abcdef")]), ["abcdef"], "the name decides between two of one id");
}

/// Proves BSS-16.
#[test]
fn expired_tokens_do_not_sign() {
    for expiration in [None, Some(&b""[..]), Some(b"2027-01-15T08:00:00.1Z"), Some(b"2027-01-15T9:00:00Z")] {
        assert_eq!(signed_by(vec![token_with("expiration", expiration)]), ["abcdef"], "{expiration:?}");
    }
    for expiration in
        [&b"2027-01-15T08:00:00Z"[..], b"2020-01-01T00:00:00Z", b"2099-01-01", b"2099-01-01T00:00:00Z\n"]
    {
        assert_eq!(signed_by(vec![token_with("expiration", Some(expiration))]), [""; 0], "{expiration:?}");
    }
}

/// Proves BSS-17, BSS-47.
#[test]
fn token_that_is_not_for_signing_loses_its_signature() {
    for usage in [Some(&b"True"[..]), Some(b"1"), Some(b"true\n"), Some(b"false"), None] {
        let old = json!({"kubeconfig": "k", "jws-kubeconfig-abcdef": signature("k", "abcdef")});
        let body = put(Some(info(old)), vec![token_with("usage-bootstrap-signing", usage)]).unwrap();
        assert_eq!(body["data"], json!({"kubeconfig": "k"}), "{usage:?}");
    }
}

/// Proves BSS-51.
#[test]
fn other_properties_of_a_token_do_not_matter() {
    let mut terminating = token("abcdef");
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    terminating["metadata"]["finalizers"] = json!(["example.com/x"]);
    terminating["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(signed_by(vec![terminating]), ["abcdef"]);
    assert_eq!(signed_by(vec![token_with("usage-bootstrap-authentication", Some(b"false"))]), ["abcdef"]);
    assert_eq!(signed_by(vec![token_with("auth-extra-groups", Some(b"nonsense"))]), ["abcdef"]);
}

/// Proves BSS-12, BSS-18, BSS-19, BSS-53.
#[test]
fn one_put_adds_changes_and_removes_signatures_and_keeps_the_rest() {
    let old = json!({
        "kubeconfig": "k\n", "other": "kept", "jws-other": "kept", "jws-kubeconfig-": "x", "jws-kubeconfig-zzzzzz": "x",
        "jws-kubeconfig-anything else": "x", "jws-kubeconfig-abcdef": "outdated",
    });
    let body = put(Some(info(old)), vec![token("abcdef"), token("fedcba")]).unwrap();
    let wanted = json!({
        "kubeconfig": "k\n", "other": "kept", "jws-other": "kept",
        "jws-kubeconfig-abcdef": signature("k\n", "abcdef"), "jws-kubeconfig-fedcba": signature("k\n", "fedcba"),
    });
    assert_eq!(body["data"], wanted);
    let metadata = &body["metadata"];
    assert_eq!((&metadata["labels"], &metadata["annotations"]), (&json!({"a": "b"}), &json!({"c": "d"})));
    assert_eq!((&metadata["resourceVersion"], &metadata["uid"]), (&json!("5"), &json!("i")));
    assert!(body.get("binaryData").is_none() && body.get("immutable").is_none());
}

/// Proves BSS-20, BSS-23, BSS-42, BSS-59.
#[test]
fn signed_config_map_is_not_written_again() {
    let data = json!({"kubeconfig": "k", "jws-kubeconfig-abcdef": signature("k", "abcdef")});
    assert_eq!(put(Some(info(data.clone())), vec![token("abcdef")]), None);
    let expired = token_with("expiration", Some(b"2027-01-15T08:00:00Z"));
    let body = put(Some(info(data)), vec![expired]).unwrap();
    assert_eq!(body["data"], json!({"kubeconfig": "k"}), "a token expired while no manager ran");
}

/// Proves BSS-21, BSS-22.
#[test]
fn detached_jws_has_a_fixed_header_and_no_payload() {
    let jws = signature("content", "abcdef");
    let [header, payload, mac] = jws.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(header).unwrap(), br#"{"alg":"HS256","kid":"abcdef"}"#);
    assert_eq!(payload, "");
    let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode("content"));
    let secret: SecretBytes =
        serde_json::from_value(json!(BASE64_STANDARD.encode("0123456789abcdef"))).unwrap();
    assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(mac).unwrap(), fake_hmac(&secret, signed.as_bytes()));
}

/// Proves BSS-52.
#[test]
fn key_is_the_raw_value_with_a_trailing_newline() {
    let sign = |secret: &[u8]| {
        let token = token_with("token-secret", Some(secret));
        put(Some(info(json!({"kubeconfig": "k"}))), vec![token]).unwrap()["data"]["jws-kubeconfig-abcdef"]
            .clone()
    };
    assert_ne!(sign(b"0123456789abcdef\n"), sign(b"0123456789abcdef"));
    assert_ne!(sign(b"\xff"), sign(b"\xfe"));
}

/// Proves BSS-45, BSS-46.
#[test]
fn removed_tokens_lose_their_signatures_and_an_edit_signs_again() {
    let old = json!({"kubeconfig": "new", "jws-kubeconfig-abcdef": signature("old", "abcdef"),
                     "jws-kubeconfig-fedcba": signature("old", "fedcba")});
    let body = put(Some(info(old.clone())), vec![]).unwrap();
    assert_eq!(body["data"], json!({"kubeconfig": "new"}));
    let body = put(Some(info(old)), vec![token("abcdef"), token("fedcba")]).unwrap();
    assert_eq!(body["data"]["jws-kubeconfig-abcdef"], signature("new", "abcdef"));
    assert_eq!(body["data"]["jws-kubeconfig-fedcba"], signature("new", "fedcba"));
}

/// Proves BSS-40.
#[test]
fn expiry_of_a_token_is_no_reason_to_requeue() {
    let mut cluster = cluster(Some(info(json!({"kubeconfig": "k"}))), vec![token("abcdef")]);
    let transcript = cluster.outline(&the_loop(), cluster_info());
    assert!(transcript.starts_with("put configmaps kube-public/cluster-info because"), "{transcript}");
    assert!(!transcript.contains("requeue"), "{transcript}");
}

/// Proves BSS-5, BSS-30, BSS-54.
#[test]
fn put_has_the_cached_version_and_neither_404_nor_409_is_an_error() {
    let tokens = || vec![token("abcdef")];
    let cluster_with = || cluster(Some(info(json!({"kubeconfig": "k"}))), tokens());
    let plan = decide(&cluster_with().view(), fake_hmac);
    let [Step::One(write)] = plan.steps() else { panic!("one write") };
    assert_eq!(write.target.resource, ClusterInfo::RESOURCE);
    assert!(matches!(write.action, Action::Put { conflict_tries: 1, .. }));
    for reason in [ErrorReason::NotFound, ErrorReason::Conflict] {
        let failure = ApiError::transport(reason, "refused");
        let mut cluster = cluster_with().failing::<ClusterInfo>("update", &cluster_info(), failure);
        let transcript = cluster.reconcile(&the_loop(), cluster_info());
        assert!(!transcript.contains("retry"), "{transcript}");
    }
    assert_eq!(the_loop().max_retries, Some(0));
}

/// Proves BSS-35.
#[test]
fn descriptor_matches_the_roles() {
    let controller = controller(BootstrapSignerOptions { hmac_sha256: fake_hmac });
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("bootstrap-signer-controller", &["bootstrapsigner"][..])
    );
    assert_eq!(controller.service_account, Some("bootstrap-signer"));
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
    let may = |verb: &str, resource: &str| {
        controller.grants.iter().any(|grant| grant.resource == resource && grant.verbs.contains(&verb))
    };
    assert!(may("update", "configmaps") && !may("create", "configmaps") && !may("patch", "configmaps"));
    assert!(!["update", "patch", "delete", "create"].iter().any(|verb| may(verb, "secrets")));
}
