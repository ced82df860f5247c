//! Decision tables of the token controller.

use keleustes_plan::rehearsal::is_retried_because;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_objects::{ApiError, ServiceAccount, Uid};
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_plan::{Change, Loop, RateLimiter};
use serde_json::json;

use super::accounts::AccountItem;
use super::secrets::SecretItem;
use super::*;

const CA: &str = "-----BEGIN CERTIFICATE-----";

fn options() -> ServiceAccountTokenOptions {
    ServiceAccountTokenOptions {
        sign: Arc::new(|claims| Ok(format!("signed {claims}"))),
        ca: Arc::from(CA.as_bytes()),
        workers: 5,
    }
}

fn accounts() -> Loop {
    controller(&options()).loops.remove(0)
}

fn secrets() -> Loop {
    controller(&options()).loops.remove(1)
}

fn account(uid: &str) -> Value {
    json!({"metadata": {"name": "builder", "namespace": "a", "uid": uid, "resourceVersion": "7"}})
}

/// A token Secret with only the annotation that a user writes.
fn secret(name: &str, account_uid: &str) -> Value {
    let mut secret = json!({
        "metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}"), "resourceVersion": "9",
                     "annotations": {"kubernetes.io/service-account.name": "builder"}},
        "type": "kubernetes.io/service-account-token",
    });
    if !account_uid.is_empty() {
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] = json!(account_uid);
    }
    secret
}

fn complete(name: &str) -> Value {
    let mut secret = secret(name, "u1");
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    secret["data"] = json!({"token": encode("t"), "namespace": encode("a"), "ca.crt": encode(CA)});
    secret
}

fn account_item(uid: &str) -> AccountItem {
    AccountItem { key: Key::namespaced("a", "builder"), uid: uid.into() }
}

fn secret_item(name: &str, account_uid: &str) -> SecretItem {
    let (key, uid) = (Key::namespaced("a", name), Uid::from(format!("uid-{name}").as_str()));
    SecretItem { key, uid, account: "builder".into(), account_uid: account_uid.into() }
}

fn refused(reason: ErrorReason) -> ApiError {
    ApiError::transport(reason, "refused")
}

/// Reconciles one Secret and returns the transcript and the resulting Secret.
fn fill(cluster: impl FnOnce(RehearsalCluster) -> RehearsalCluster, item: SecretItem) -> (String, Value) {
    let a_loop = secrets();
    let (mut cluster, key) = (cluster(RehearsalCluster::of(&a_loop)), item.key.clone());
    let transcript = cluster.reconcile(&a_loop, item);
    (transcript, cluster.live_object::<TokenSecret>(&key).cloned().unwrap_or_default())
}

fn decoded(secret: &Value, name: &str) -> String {
    let bytes = BASE64_STANDARD.decode(secret["data"][name].as_str().unwrap_or_default()).unwrap();
    String::from_utf8(bytes).unwrap()
}

const FILLS: &str = "edit secrets a/t because it lacks its token, its namespace or the cluster's CA\n";

/// Proves SAT-7.
#[test]
fn account_event_enqueues_every_uid_it_contains() {
    let a_loop = accounts();
    let cluster = RehearsalCluster::of(&a_loop);
    let decode =
        |uid: &str| -> Arc<ServiceAccount> { Arc::new(serde_json::from_value(account(uid)).unwrap()) };
    assert_eq!(cluster.enqueued_by(&a_loop, Change::added(decode("u1"))), ["a/builder uid=u1"]);
    assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(decode("u1"))), ["a/builder uid=u1"]);
    let mut table = keleustes_plan::Store::default();
    table.apply(decode("u1"));
    let recreated = table.apply(decode("u2"));
    assert_eq!(cluster.enqueued_by(&a_loop, recreated), ["a/builder uid=u1", "a/builder uid=u2"]);
}

/// Proves SAT-8.
#[test]
fn secret_event_enqueues_it_with_its_account_attributes() {
    let a_loop = secrets();
    let cluster = RehearsalCluster::of(&a_loop);
    let decode = |json| -> Arc<TokenSecret> { Arc::new(serde_json::from_value(json).unwrap()) };
    let wanted = ["a/t uid=uid-t account=builder account-uid=u1"];
    assert_eq!(cluster.enqueued_by(&a_loop, Change::added(decode(secret("t", "u1")))), wanted);
    assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(decode(secret("t", "u1")))), wanted);
    assert!(cluster.enqueued_by(&a_loop, Change::resync(decode(secret("t", "u1")))).is_empty());
}

/// Proves SAT-6, SAT-10, SAT-11, SAT-55.
#[test]
fn controller_has_upstreams_names_and_numbers() {
    let controller = controller(&options());
    assert_eq!(controller.name, "serviceaccount-token-controller");
    assert_eq!(crate::names::aliases_of(controller.name), ["serviceaccount-token"]);
    assert_eq!((controller.service_account, controller.event_component), (None, None));
    assert_eq!(controller.loops.len(), 2);
    for a_loop in &controller.loops {
        assert_eq!(a_loop.queue, "serviceaccount_tokens_service");
        assert_eq!((a_loop.workers, a_loop.max_retries), (5, Some(10)));
        assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
    }
}

/// Proves SAT-20.
#[test]
fn incomplete_account_items_are_dropped() {
    let a_loop = accounts();
    for item in [
        account_item(""),
        AccountItem { key: Key::cluster("builder"), ..account_item("u1") },
        AccountItem { key: Key::namespaced("a", ""), ..account_item("u1") },
    ] {
        let mut cluster = RehearsalCluster::of(&a_loop).with::<TokenSecret>(secret("t", ""));
        assert_eq!(cluster.reconcile(&a_loop, item), "");
    }
}

/// Proves SAT-21, SAT-67.
#[test]
fn existing_account_needs_no_writes() {
    let a_loop = accounts();
    let mut listed = account("u1");
    listed["secrets"] = json!([{"name": "dangling"}]);
    let mut cluster =
        RehearsalCluster::of(&a_loop).with::<ServiceAccount>(listed).with::<TokenSecret>(secret("t", "u1"));
    assert_eq!(cluster.reconcile(&a_loop, account_item("u1")), "");
}

/// Proves SAT-22, SAT-62.
#[test]
fn secrets_of_a_deleted_account_are_deleted_if_their_uid_matches_or_is_missing() {
    let a_loop = accounts();
    let mut elsewhere = secret("elsewhere", "u1");
    elsewhere["metadata"]["namespace"] = json!("b");
    let mut others = secret("others", "u1");
    others["metadata"]["annotations"]["kubernetes.io/service-account.name"] = json!("other");
    let cluster = || {
        let cluster = RehearsalCluster::of(&a_loop).with::<TokenSecret>(secret("mine", "u1"));
        let cluster =
            cluster.with::<TokenSecret>(secret("newer", "u2")).with::<TokenSecret>(secret("without-uid", ""));
        cluster.with::<TokenSecret>(elsewhere.clone()).with::<TokenSecret>(others.clone())
    };
    let wanted = "delete secrets a/mine because its ServiceAccount is deleted\n\
                  delete secrets a/without-uid because its ServiceAccount is deleted\n";
    assert_eq!(cluster().reconcile(&a_loop, account_item("u1")), wanted, "no account");
    let mut recreated = cluster().with::<ServiceAccount>(account("u2"));
    assert_eq!(recreated.reconcile(&a_loop, account_item("u1")), wanted, "another UID");
}

/// Proves SAT-23, SAT-50.
#[test]
fn failed_deletion_is_retried_and_does_not_stop_others() {
    let a_loop = accounts();
    let failing = |reason| {
        let cluster = RehearsalCluster::of(&a_loop)
            .with::<TokenSecret>(secret("t1", "u1"))
            .with::<TokenSecret>(secret("t2", "u1"));
        let key = Key::namespaced("a", "t1");
        cluster.failing::<TokenSecret>("delete", &key, refused(reason)).reconcile(&a_loop, account_item("u1"))
    };
    let transcript = failing(ErrorReason::Unavailable);
    assert!(transcript.contains("a/t1 because its ServiceAccount is deleted FAILED"), "{transcript}");
    // Who refuses it may quote the Secret.
    let reason = "Unavailable (message not kept, it may quote the Secret)";
    assert!(
        transcript.contains("delete secrets a/t2") && is_retried_because(&transcript, reason),
        "{transcript}"
    );
    for fine in [ErrorReason::NotFound, ErrorReason::Conflict] {
        assert!(!failing(fine).contains("retry"), "{fine:?}");
    }
    let write = delete(&serde_json::from_value(secret("t", "")).unwrap(), "it is unused");
    assert_eq!(write.target.uid.to_string(), "uid-t", "the UID is a precondition");
}

/// Proves SAT-30.
#[test]
fn secret_without_account_is_not_changed() {
    let mut nameless = secret("t", "");
    nameless["metadata"]["annotations"] = json!({});
    let item = SecretItem { account: "".into(), ..secret_item("t", "") };
    let (transcript, _) = fill(|cluster| cluster.with::<TokenSecret>(nameless), item);
    assert_eq!(transcript, "");
    for item in [
        SecretItem { uid: Uid::default(), ..secret_item("t", "") },
        SecretItem { key: Key::cluster("t"), ..secret_item("t", "") },
    ] {
        assert_eq!(fill(|cluster| cluster, item).0, "");
    }
}

/// Proves SAT-31, SAT-52.
#[test]
fn deleted_secret_is_removed_from_its_accounts_list() {
    let a_loop = secrets();
    let mut listing = account("u1");
    listing["secrets"] = json!([{"name": "first"}, {"name": "t"}, {"name": "last"}, {"name": "t"}]);
    let run = |listing: &Value, item| {
        let mut cluster = RehearsalCluster::of(&a_loop).with::<ServiceAccount>(listing.clone());
        let transcript = cluster.reconcile(&a_loop, item);
        (
            transcript,
            cluster.live_object::<ServiceAccount>(&Key::namespaced("a", "builder")).unwrap()["secrets"]
                .clone(),
        )
    };
    let edits = "edit serviceaccounts a/builder because its token Secret t is deleted";
    let (transcript, left) = run(&listing, secret_item("t", "u1"));
    assert_eq!((transcript, left), (format!("{edits}\n"), json!([{"name": "first"}, {"name": "last"}])));
    let (transcript, _) = run(&listing, secret_item("t", ""));
    assert_eq!(transcript, format!("{edits}\n"), "without UID, any account of the name");
    let (transcript, left) = run(&listing, secret_item("t", "another"));
    assert_eq!((transcript.as_str(), &left), ("", &listing["secrets"]), "not its account");
    let (transcript, _) = run(&account("u1"), secret_item("t", "u1"));
    assert_eq!(transcript, format!("{edits} (unneeded)\n"), "not on the list");
}

/// Proves SAT-32.
#[test]
fn failed_list_update_is_not_retried() {
    let a_loop = secrets();
    let mut listing = account("u1");
    listing["secrets"] = json!([{"name": "t"}]);
    let cluster = RehearsalCluster::of(&a_loop).with::<ServiceAccount>(listing);
    let key = Key::namespaced("a", "builder");
    let transcript = cluster
        .failing::<ServiceAccount>("update", &key, refused(ErrorReason::Forbidden))
        .reconcile(&a_loop, secret_item("t", "u1"));
    assert!(transcript.contains("FAILED") && !transcript.contains("retry"), "{transcript}");
}

/// Proves SAT-33, SAT-34, SAT-61.
#[test]
fn account_is_read_live_before_its_secret_is_deleted() {
    let deletes = "get serviceaccounts a/builder\n\
                   delete secrets a/t because its ServiceAccount does not exist\n";
    let (transcript, _) = fill(|cluster| cluster.with::<TokenSecret>(secret("t", "")), secret_item("t", ""));
    assert_eq!(transcript, deletes, "no such account");
    let (transcript, _) = fill(
        |cluster| cluster.with::<TokenSecret>(secret("t", "u1")).with::<ServiceAccount>(account("u2")),
        secret_item("t", "u1"),
    );
    assert_eq!(transcript, deletes, "another UID");
    let (transcript, filled) = fill(
        |cluster| cluster.with::<TokenSecret>(secret("t", "")).with_live::<ServiceAccount>(account("u1")),
        secret_item("t", ""),
    );
    assert_eq!(transcript, format!("get serviceaccounts a/builder\n{FILLS}"), "the cache was stale");
    assert!(!decoded(&filled, "token").is_empty());
    let (transcript, _) = fill(
        |cluster| {
            let cluster = cluster.with::<TokenSecret>(secret("t", ""));
            cluster.failing::<ServiceAccount>(
                "get",
                &Key::namespaced("a", "builder"),
                refused(ErrorReason::Unavailable),
            )
        },
        secret_item("t", ""),
    );
    assert!(transcript.ends_with("retry: reading a/builder: refused\n"), "{transcript}");
    assert!(!transcript.contains("delete"), "nothing is deleted without a live read");
}

/// Proves SAT-35, SAT-64, SAT-70.
#[test]
fn complete_secret_is_not_changed() {
    let mut plain = complete("t");
    plain["metadata"]["annotations"].as_object_mut().unwrap().remove("kubernetes.io/service-account.uid");
    plain["metadata"]["labels"] = json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"});
    let (transcript, _) = fill(
        |cluster| cluster.with::<TokenSecret>(plain).with::<ServiceAccount>(account("u1")),
        secret_item("t", ""),
    );
    assert_eq!(transcript, "", "the signing key, labels and a missing annotation do not matter");
}

/// Proves SAT-36, SAT-68.
#[test]
fn secret_changed_since_the_cache_waits_for_its_watch_event() {
    let mut newer = secret("t", "");
    newer["metadata"]["resourceVersion"] = json!("10");
    let with_live = |live: Option<Value>| {
        fill(
            |cluster| {
                let cluster =
                    cluster.with::<ServiceAccount>(account("u1")).with_cached::<TokenSecret>(secret("t", ""));
                live.into_iter().fold(cluster, RehearsalCluster::with_live::<TokenSecret>)
            },
            secret_item("t", ""),
        )
        .0
    };
    assert_eq!(with_live(Some(newer)), format!("{} (resourceVersion changed)\n", FILLS.trim_end()));
    assert_eq!(with_live(None), format!("{} (gone)\n", FILLS.trim_end()));
}

/// Proves SAT-37, SAT-38, SAT-60.
#[test]
fn only_missing_data_and_account_annotations_are_set() {
    let filled = |secret: Value| {
        let (transcript, filled) = fill(
            |cluster| cluster.with::<TokenSecret>(secret).with::<ServiceAccount>(account("u1")),
            secret_item("t", ""),
        );
        assert_eq!(transcript, FILLS);
        assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.name"], "builder");
        assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"], "u1");
        (decoded(&filled, "token"), decoded(&filled, "namespace"), decoded(&filled, "ca.crt"))
    };
    let (token, namespace, ca) = filled(secret("t", ""));
    assert!(token.starts_with("signed {"));
    assert_eq!((namespace.as_str(), ca.as_str()), ("a", CA));

    let mut custom = complete("t");
    custom["data"]["namespace"] = json!(BASE64_STANDARD.encode("of my own"));
    custom["data"]["ca.crt"] = json!(BASE64_STANDARD.encode("wrong"));
    custom["data"]["note"] = json!("a2VlcA==");
    assert_eq!(filled(custom), ("t".into(), "of my own".into(), CA.into()));
}

/// Proves SAT-39.
#[test]
fn ca_in_the_secret_is_kept_without_a_configured_ca() {
    let contents = contents::Contents::new(&ServiceAccountTokenOptions { ca: Arc::from([]), ..options() });
    let account: ServiceAccount = serde_json::from_value(account("u1")).unwrap();
    let mut empty = secret("t", "");
    assert_eq!(contents.fill(&mut empty, &account.meta), keleustes_plan::Edited::Changed);
    assert_eq!(empty["data"].get("ca.crt"), None);
    let mut wrong = complete("t");
    wrong["data"]["ca.crt"] = json!("b3RoZXI=");
    assert!(!contents.is_incomplete(&serde_json::from_value(wrong.clone()).unwrap()));
    assert_eq!(contents.fill(&mut wrong, &account.meta), keleustes_plan::Edited::Unneeded);
}

/// Proves SAT-40.
#[test]
fn signing_error_is_not_retried() {
    let broken = ServiceAccountTokenOptions { sign: Arc::new(|_| Err("no entropy".into())), ..options() };
    let a_loop = controller(&broken).loops.remove(1);
    let mut cluster = RehearsalCluster::of(&a_loop)
        .with::<ServiceAccount>(account("u1"))
        .with::<TokenSecret>(secret("t", ""));
    let transcript = cluster.reconcile(&a_loop, secret_item("t", ""));
    assert!(transcript.ends_with("(impossible: the token cannot be signed: no entropy)\n"), "{transcript}");
    let untouched = cluster.live_object::<TokenSecret>(&Key::namespaced("a", "t")).unwrap();
    assert_eq!(untouched, &secret("t", ""), "nothing half-filled is written");
}

/// Proves SAT-47, SAT-48, SAT-49.
#[test]
fn token_names_account_and_secret_without_expiry_or_audience() {
    let account: ServiceAccount = serde_json::from_value(account("u1")).unwrap();
    let wanted = json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:a:builder",
        "kubernetes.io/serviceaccount/namespace": "a",
        "kubernetes.io/serviceaccount/secret.name": "t",
        "kubernetes.io/serviceaccount/service-account.name": "builder",
        "kubernetes.io/serviceaccount/service-account.uid": "u1",
    });
    assert_eq!(contents::claims("t", &account.meta), wanted);
}

/// Proves SAT-51.
#[test]
fn conflict_on_the_secret_is_no_error() {
    for (reason, retries) in
        [(ErrorReason::NotFound, false), (ErrorReason::Conflict, false), (ErrorReason::Unavailable, true)]
    {
        let (transcript, _) = fill(
            |cluster| {
                let cluster =
                    cluster.with::<TokenSecret>(secret("t", "")).with::<ServiceAccount>(account("u1"));
                cluster.failing::<TokenSecret>("update", &Key::namespaced("a", "t"), refused(reason))
            },
            secret_item("t", ""),
        );
        assert_eq!(transcript.contains("retry"), retries, "{reason:?}: {transcript}");
    }
}

/// Proves SAT-63.
#[test]
fn changed_ca_is_written_to_every_secret_and_tokens_are_kept() {
    let a_loop =
        controller(&ServiceAccountTokenOptions { ca: Arc::from(*b"new CA"), ..options() }).loops.remove(1);
    let mut cluster = RehearsalCluster::of(&a_loop)
        .with::<ServiceAccount>(account("u1"))
        .with::<TokenSecret>(complete("t"));
    assert_eq!(cluster.reconcile(&a_loop, secret_item("t", "u1")), FILLS);
    let filled = cluster.live_object::<TokenSecret>(&Key::namespaced("a", "t")).unwrap();
    assert_eq!((decoded(filled, "ca.crt").as_str(), decoded(filled, "token").as_str()), ("new CA", "t"));
}

/// Proves SAT-65.
#[test]
fn empty_token_is_signed_again() {
    for empty in [json!(""), Value::Null] {
        let mut secret = complete("t");
        secret["data"]["token"] = empty;
        let (transcript, filled) = fill(
            |cluster| cluster.with::<TokenSecret>(secret).with::<ServiceAccount>(account("u1")),
            secret_item("t", "u1"),
        );
        assert_eq!(transcript, FILLS);
        assert!(decoded(&filled, "token").starts_with("signed"));
    }
}

/// Proves SAT-66.
#[test]
fn secrets_of_other_types_are_not_watched() {
    use keleustes_objects::Kind as _;
    let wanted = "type=kubernetes.io/service-account-token";
    assert_eq!(TokenSecret::PROJECTION.field_selector, Some(wanted), "the API server filters them");
}
