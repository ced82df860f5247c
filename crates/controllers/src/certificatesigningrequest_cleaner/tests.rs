//! Which requests are deleted, and that nothing else of a request matters.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_objects::{ApiError, ErrorReason, Key};
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::*;

/// notAfter is 2020-01-02T00:00:00Z.
const EXPIRED: &str = include_str!("../../../objects/src/kinds/testdata/expired.pem");
/// notAfter is 2100-01-01T00:00:00Z.
const VALID: &str = include_str!("../../../objects/src/kinds/testdata/valid.pem");

fn the_loop() -> Loop {
    controller().loops.remove(0)
}

/// The time this long before the clock of a rehearsal.
fn ago(seconds: i64) -> Value {
    json!(Time::from_unix_seconds(1_800_000_000 - seconds))
}

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

/// A request of this age with these conditions, each with its age, and this certificate.
fn request(age: i64, conditions: &[(&str, i64)], certificate: &str) -> Value {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(r#type, age)| json!({"type": r#type, "status": "True", "lastUpdateTime": ago(*age)}))
        .collect();
    json!({
        "metadata": {"name": "r", "uid": "u", "resourceVersion": "3", "creationTimestamp": ago(age)},
        "spec": {"signerName": "example.com/custom", "request": "eA=="},
        "status": {"conditions": conditions, "certificate": BASE64_STANDARD.encode(certificate)},
    })
}

fn pass(requests: Vec<Value>) -> String {
    let cluster = RehearsalCluster::of(&the_loop());
    let mut cluster = requests.into_iter().fold(cluster, RehearsalCluster::with::<CertificateSigningRequest>);
    let transcript = cluster.reconcile(&the_loop(), Pass);
    transcript.strip_suffix("requeue after 3600s\n").expect("the next pass in an hour").to_owned()
}

fn is_deleted(request: Value) -> bool {
    let transcript = pass(vec![request]);
    assert!(transcript.lines().count() <= 1, "{transcript}");
    transcript.starts_with("delete certificatesigningrequests.certificates.k8s.io r because")
}

/// Proves CSRC-11, CSRC-42, CSRC-46.
#[test]
fn issued_request_is_deleted_an_hour_after_its_approval() {
    assert!(is_deleted(request(99 * HOUR, &[("Approved", 2 * HOUR)], VALID)));
    assert!(!is_deleted(request(99 * HOUR, &[("Approved", 50 * MINUTE)], VALID)), "whatever its age");
    assert!(is_deleted(request(99 * HOUR, &[("Approved", 2 * HOUR)], "no PEM")));
    assert!(!is_deleted(request(99 * HOUR, &[("Approved", 2 * HOUR)], "")), "not issued");
    let beside = [("Approved", 50 * MINUTE), ("Denied", 2 * HOUR)];
    assert!(is_deleted(request(99 * HOUR, &beside, VALID)));
}

/// Proves CSRC-12, CSRC-13.
#[test]
fn denied_or_failed_request_is_deleted_after_an_hour() {
    for r#type in ["Denied", "Failed"] {
        for certificate in ["", VALID] {
            assert!(is_deleted(request(99 * HOUR, &[(r#type, 2 * HOUR)], certificate)), "{type}");
            assert!(!is_deleted(request(99 * HOUR, &[(r#type, 50 * MINUTE)], certificate)), "{type}");
        }
    }
}

/// Proves CSRC-14, CSRC-43, CSRC-57.
#[test]
fn request_without_conditions_is_deleted_after_a_day() {
    assert!(is_deleted(request(25 * HOUR, &[], "")));
    assert!(!is_deleted(request(23 * HOUR, &[], "")));
    assert!(is_deleted(request(25 * HOUR, &[], VALID)));
    assert!(!is_deleted(request(23 * HOUR, &[], EXPIRED)), "the certificate does not matter");
    assert!(!is_deleted(request(72 * HOUR, &[("Unheard-of", 72 * HOUR)], "")));
}

/// Proves CSRC-15, CSRC-56.
#[test]
fn approved_request_with_expired_certificate_is_deleted() {
    assert!(is_deleted(request(MINUTE, &[("Approved", MINUTE)], EXPIRED)));
    assert!(!is_deleted(request(MINUTE, &[("Approved", MINUTE)], VALID)));
    assert!(!is_deleted(request(MINUTE, &[("Unheard-of", 99 * HOUR)], EXPIRED)));
    let expires_now =
        |nanoseconds: u64| {
            let cluster = RehearsalCluster::of(&the_loop())
                .with_cached::<CertificateSigningRequest>(request(0, &[("Approved", 0)], EXPIRED));
            let view = cluster.view();
            let mut request = (**view.all::<CertificateSigningRequest>().next().unwrap()).clone();
            request.not_after = Some(view.now().wall);
            obsolete_because(
                &request,
                Now { wall_subsecond_nanoseconds: u32::try_from(nanoseconds).unwrap(), ..view.now() },
            )
        };
    assert_eq!(expires_now(0), None, "it is valid at notAfter");
    assert_eq!(expires_now(1), Some("its certificate has expired"));
}

/// Proves CSRC-16, CSRC-40.
#[test]
fn approved_request_that_is_not_issued_is_deleted_after_a_day() {
    assert!(is_deleted(request(99 * HOUR, &[("Approved", 25 * HOUR)], "")));
    assert!(!is_deleted(request(99 * HOUR, &[("Approved", 2 * HOUR)], "")));
    let both = [("Failed", 50 * MINUTE), ("Approved", 2 * HOUR)];
    assert!(!is_deleted(request(99 * HOUR, &both, "")));
}

/// Proves CSRC-17, CSRC-19.
#[test]
fn any_rule_suffices_for_one_delete_and_the_condition_status_does_not_matter() {
    let all = [("Approved", 99 * HOUR), ("Denied", 99 * HOUR), ("Failed", 99 * HOUR)];
    assert!(is_deleted(request(99 * HOUR, &all, EXPIRED)), "and by one delete");
    let mut untrue = request(99 * HOUR, &[("Denied", 2 * HOUR)], "");
    untrue["status"]["conditions"][0]["status"] = json!("False");
    assert!(is_deleted(untrue));
    assert!(!is_deleted(request(0, &[], "")));
}

/// Proves CSRC-10, CSRC-41, CSRC-45, CSRC-55.
#[test]
fn age_is_strict_and_unset_or_future_times_are_never_old() {
    for (age, conditions) in [(24 * HOUR, vec![]), (0, vec![("Denied", HOUR)])] {
        let deleted_after = |by: Duration| {
            let mut cluster = RehearsalCluster::of(&the_loop())
                .with::<CertificateSigningRequest>(request(age, &conditions, ""))
                .with_clock_advanced(by);
            cluster.reconcile(&the_loop(), Pass).starts_with("delete")
        };
        assert!(!deleted_after(Duration::ZERO), "exactly the limit");
        assert!(deleted_after(Duration::from_nanos(1)), "one tick more");
    }
    for r#type in ["Approved", "Denied", "Failed"] {
        for certificate in ["", VALID] {
            let mut unset = request(99 * HOUR, &[(r#type, 0)], certificate);
            unset["status"]["conditions"][0]["lastUpdateTime"] = Value::Null;
            assert!(!is_deleted(unset.clone()), "{type}");
            unset["status"]["conditions"][0]["lastTransitionTime"] = ago(99 * HOUR);
            assert!(!is_deleted(unset), "{type}");
            assert!(!is_deleted(request(-99 * HOUR, &[(r#type, -99 * HOUR)], certificate)), "{type}");
        }
    }
    let mut unset = request(0, &[("Approved", 0)], EXPIRED);
    unset["status"]["conditions"][0]["lastUpdateTime"] = Value::Null;
    assert!(is_deleted(unset), "the expiry rule needs no time");
    assert!(!is_deleted(request(-99 * HOUR, &[], "")));
}

/// Proves CSRC-50.
#[test]
fn any_single_old_condition_of_a_type_suffices() {
    assert!(is_deleted(request(0, &[("Denied", MINUTE), ("Denied", 2 * HOUR)], "")));
    let mut transitioned = request(99 * HOUR, &[("Denied", MINUTE)], "");
    transitioned["status"]["conditions"][0]["lastTransitionTime"] = ago(99 * HOUR);
    assert!(!is_deleted(transitioned));
}

/// Proves CSRC-44, CSRC-51, CSRC-58.
#[test]
fn signer_labels_finalizers_owners_and_deletion_do_not_matter() {
    let mut odd = request(0, &[("Denied", 2 * HOUR)], "");
    odd["metadata"]["deletionTimestamp"] = ago(HOUR);
    odd["metadata"]["finalizers"] = json!(["example.com/x"]);
    odd["metadata"]["labels"] = json!({"a": "b"});
    odd["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]);
    assert!(is_deleted(odd.clone()));
    let mut cluster = RehearsalCluster::of(&the_loop()).with::<CertificateSigningRequest>(odd);
    for _ in 0..2 {
        let transcript = cluster.reconcile(&the_loop(), Pass);
        assert!(transcript.starts_with("delete"), "again in each pass: {transcript}");
    }
    let live = cluster.live_object::<CertificateSigningRequest>(&Key::cluster("r")).unwrap();
    assert_eq!(live["metadata"]["finalizers"], json!(["example.com/x"]));
    for signer in ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving", "x.y/z"] {
        let mut request = request(0, &[("Denied", 2 * HOUR)], "");
        request["spec"]["signerName"] = json!(signer);
        assert!(is_deleted(request), "{signer}");
    }
}

/// Proves CSRC-25, CSRC-59.
#[test]
fn failed_delete_does_not_stop_the_others_and_is_not_retried() {
    let named = |name: &str| {
        let mut request = request(0, &[("Denied", 2 * HOUR)], "");
        request["metadata"]["name"] = json!(name);
        request
    };
    for reason in [ErrorReason::Forbidden, ErrorReason::Other, ErrorReason::NotFound] {
        let mut cluster = ["a", "b", "c"]
            .into_iter()
            .fold(RehearsalCluster::of(&the_loop()), |cluster, name| {
                cluster.with::<CertificateSigningRequest>(named(name))
            })
            .failing::<CertificateSigningRequest>(
                "delete",
                &Key::cluster("b"),
                ApiError::transport(reason, "refused"),
            );
        let transcript = cluster.reconcile(&the_loop(), Pass);
        assert_eq!(transcript.matches("delete ").count(), 3, "{transcript}");
        assert_eq!(transcript.matches("FAILED").count(), 1, "{transcript}");
        assert!(transcript.ends_with("requeue after 3600s\n"), "{transcript}");
    }
}

/// Proves CSRC-30, CSRC-1.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller();
    assert_eq!(controller.name, "certificatesigningrequest-cleaner-controller");
    assert_eq!(crate::names::aliases_of(controller.name), ["csrcleaner"]);
    assert_eq!(controller.service_account, Some("certificate-controller"));
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.workers, a_loop.watches.len(), a_loop.initial_items.len()), (1, 0, 1));
}
