//! Which requests are handed to the signer, with what, and what is written.

use parking_lot::Mutex;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_objects::{ApiError, ErrorReason, Key};
use keleustes_plan::rehearsal::{RehearsalCluster, is_retried_because};
use keleustes_x509::builder::{RequestBuilder, alt_name};

use super::*;
use crate::certificates::{
    KUBE_APISERVER_CLIENT, KUBE_APISERVER_CLIENT_KUBELET, KUBELET_SERVING, LEGACY_UNKNOWN,
};

const HOUR: i128 = 3600 * NANOSECONDS;
const CLIENT: [&str; 2] = ["digital signature", "client auth"];
const SERVING: [&str; 2] = ["digital signature", "server auth"];

type Jobs = Arc<Mutex<Vec<SigningJob>>>;

/// A loop of a signer that records its jobs and returns `signed`.
fn recording(name: &'static str, signed: Result<&'static str, &'static str>) -> (Loop, Jobs) {
    let jobs = Jobs::default();
    let seen = jobs.clone();
    let sign: SignCertificate = Arc::new(move |job| {
        seen.lock().push(job);
        Box::pin(async move { signed.map(str::to_owned).map_err(str::to_owned) })
    });
    let options = CertificateSigningRequestSigningOptions {
        signers: vec![BuiltInSigner { name, sign }],
        duration_nanoseconds: 8760 * HOUR,
    };
    (controller(&options).unwrap().loops.remove(0), jobs)
}

fn kubelet() -> RequestBuilder {
    RequestBuilder::for_ed25519(&[1; 32]).kubelet("n")
}

/// An approved request of a signer.
fn approved(signer: &str, pem: &str, usages: &[&str]) -> Value {
    json!({
        "metadata": {"name": "r", "uid": "u", "resourceVersion": "3", "labels": {"a": "b"}},
        "spec": {"signerName": signer, "request": BASE64_STANDARD.encode(pem), "usages": usages, "username": "x"},
        "status": {"conditions": [{"type": "Approved", "status": "True", "unknown": 1}]},
    })
}

fn client(request: &RequestBuilder, usages: &[&str]) -> Value {
    approved(KUBE_APISERVER_CLIENT_KUBELET, &request.to_pem_unsigned(), usages)
}

fn reconcile(a_loop: &Loop, request: Value) -> String {
    let mut cluster = RehearsalCluster::of(a_loop).with::<CertificateSigningRequest>(request);
    cluster.reconcile(a_loop, Key::cluster("r"))
}

/// The transcript of one request with a signer that succeeds, and how often it was asked.
fn signed(signer: &'static str, request: Value) -> (String, usize) {
    let (a_loop, jobs) = recording(signer, Ok("PEM"));
    let transcript = reconcile(&a_loop, request);
    let asked = jobs.lock().len();
    (transcript, asked)
}

fn body(transcript: &str) -> Value {
    let json = &transcript[transcript.find(": {").unwrap() + 2..];
    serde_json::Deserializer::from_str(json).into_iter::<Value>().next().unwrap().unwrap()
}

/// The message of the condition Failed; empty if the request is signed.
fn violation(signer: &'static str, request: &RequestBuilder, usages: &[&str]) -> String {
    let (transcript, asked) = signed(signer, approved(signer, &request.to_pem_unsigned(), usages));
    let conditions = body(&transcript)["status"]["conditions"].clone();
    assert_eq!(conditions.as_array().unwrap().len(), 2 - asked, "{transcript}");
    conditions[1]["message"].as_str().unwrap_or_default().to_owned()
}

/// Proves CSRS-27, CSRS-60, CSRS-82, CSRS-95, CSRS-108.
#[test]
fn approved_request_is_signed_and_written_back_whole() {
    let mut request = client(&kubelet(), &CLIENT);
    request["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    request["metadata"]["finalizers"] = json!(["example.com/x"]);
    let (transcript, asked) = signed(KUBE_APISERVER_CLIENT_KUBELET, request.clone());
    assert_eq!(asked, 1);
    let begins = "put certificatesigningrequests.certificates.k8s.io/status r because it is approved";
    assert!(transcript.starts_with(begins), "{transcript}");
    let sent = body(&transcript);
    request["status"]["certificate"] = json!(BASE64_STANDARD.encode("PEM"));
    assert_eq!(sent["spec"], request["spec"]);
    assert_eq!(sent["status"], request["status"], "conditions are sent back unchanged");
    for (field, value) in [("resourceVersion", "3"), ("uid", "u")] {
        assert_eq!(sent["metadata"][field], value);
    }
    assert_eq!(sent["metadata"]["labels"], json!({"a": "b"}));
}

/// Proves CSRS-20, CSRS-21, CSRS-22, CSRS-23, CSRS-73, CSRS-78, CSRS-81, CSRS-111, CSRS-116.
#[test]
fn only_approved_and_unfinished_requests_of_the_signer_are_signed() {
    let is_signed = |change: &dyn Fn(&mut Value)| {
        let mut request = client(&kubelet(), &CLIENT);
        change(&mut request);
        let (transcript, asked) = signed(KUBE_APISERVER_CLIENT_KUBELET, request);
        assert_eq!(asked, usize::from(!transcript.is_empty()), "{transcript}");
        asked == 1
    };
    let conditions =
        |found: Value| move |request: &mut Value| request["status"]["conditions"] = found.clone();
    assert!(is_signed(&|_| ()));
    assert!(is_signed(&conditions(json!([{"type": "Approved", "status": "False"}]))));
    assert!(!is_signed(&conditions(json!([]))));
    assert!(!is_signed(&conditions(json!([{"type": "approved"}]))));
    assert!(!is_signed(&conditions(json!([{"type": "Approved"}, {"type": "Denied", "status": "False"}]))));
    for (status, signed) in [("True", false), ("", false), ("False", true), ("Unknown", true)] {
        let failed = json!([{"type": "Approved"}, {"type": "Failed", "status": status}]);
        assert_eq!(is_signed(&conditions(failed)), signed, "Failed={status}");
    }
    assert!(!is_signed(&|request| request["status"]["certificate"] = json!("eA==")));
    for other in ["example.com/custom", KUBELET_SERVING, "kubernetes.io/kube-apiserver-client-kubelet "] {
        assert!(!is_signed(&|request| request["spec"]["signerName"] = json!(other)), "{other}");
    }
    let (a_loop, jobs) = recording(KUBE_APISERVER_CLIENT_KUBELET, Ok("PEM"));
    assert_eq!(RehearsalCluster::of(&a_loop).reconcile(&a_loop, Key::cluster("r")), "");
    assert!(jobs.lock().is_empty(), "an absent request");
}

/// Proves CSRS-24, CSRS-93.
#[test]
fn malformed_request_is_retried_without_a_condition() {
    let error = |pem: &str| {
        let request = approved(KUBE_APISERVER_CLIENT_KUBELET, pem, &CLIENT);
        let (transcript, asked) = signed(KUBE_APISERVER_CLIENT_KUBELET, request);
        assert!(asked == 0 && !transcript.contains("put "), "{transcript}");
        assert!(transcript.contains("unable to parse csr \"r\": "), "{transcript}");
        transcript
    };
    let label = "PEM block type must be CERTIFICATE REQUEST";
    let good = kubelet().to_pem_unsigned();
    assert!(error("no PEM").contains(label));
    assert!(error(&good.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST")).contains(label));
    assert!(
        error("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
            .contains("asn1")
    );
    let twice = kubelet().extension(&[1, 2], false, &[]).extension(&[1, 2], false, &[]);
    assert!(error(&twice.to_pem_unsigned()).contains("duplicate requested extensions"));
    for (tag, content, text) in [
        (alt_name::DNS, &b"\xff"[..], "x509: SAN dNSName is malformed"),
        (alt_name::EMAIL, b"\xff", "x509: SAN rfc822Name is malformed"),
        (alt_name::IP, b"12345", "x509: cannot parse IP address of length 5"),
        (alt_name::URI, b":", "x509: cannot parse URI"),
        (alt_name::URI, b"http://a..b/", "invalid domain"),
    ] {
        assert!(error(&kubelet().alt_name(tag, content).to_pem_unsigned()).contains(text), "{text}");
    }
    let der = keleustes_x509::pem::blocks(good.as_bytes()).next().unwrap().bytes;
    let trailing = keleustes_x509::pem::encode("CERTIFICATE REQUEST", &[der, vec![5, 0]].concat());
    assert!(error(&trailing).contains("trailing data"));
}

/// Proves CSRS-25, CSRS-61, CSRS-94.
#[test]
fn violation_sets_the_condition_failed_without_retry() {
    let request = client(&RequestBuilder::for_ed25519(&[1; 32]), &CLIENT);
    let (transcript, asked) = signed(KUBE_APISERVER_CLIENT_KUBELET, request);
    assert!(asked == 0 && !transcript.contains("retry"), "the bad signature is not examined: {transcript}");
    let conditions = &body(&transcript)["status"]["conditions"];
    assert_eq!(conditions[0], json!({"type": "Approved", "status": "True", "unknown": 1}));
    let wanted = json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure",
        "message": "subject organization is not system:nodes", "lastUpdateTime": "2027-01-15T08:00:00Z"});
    assert_eq!(conditions[1], wanted);
    assert!(body(&transcript)["status"].get("certificate").is_none());
}

/// Proves CSRS-30, CSRS-31, CSRS-32, CSRS-33, CSRS-34, CSRS-80, CSRS-96.
#[test]
fn rules_of_kubelet_serving_are_checked_in_order() {
    let check = |request: &RequestBuilder, usages: &[&str]| violation(KUBELET_SERVING, request, usages);
    let good = kubelet().alt_name(alt_name::DNS, b"n");
    assert_eq!(check(&good, &SERVING), "");
    assert_eq!(check(&kubelet().alt_name(alt_name::IP, &[1, 2, 3, 4]), &SERVING), "");
    assert_eq!(check(&good, &["server auth", "key encipherment", "digital signature"]), "");
    let nodes = "subject organization is not system:nodes";
    let nothing = RequestBuilder::for_ed25519(&[1; 32]);
    assert_eq!(check(&nothing, &[]), nodes);
    for extra in ["system:nodes", "other"] {
        assert_eq!(check(&good.clone().attribute(10, extra), &SERVING), nodes, "{extra}");
    }
    let required = "DNS or IP subjectAltName is required";
    assert_eq!(check(&kubelet().alt_name(alt_name::EMAIL, b"a@b"), &[]), required);
    assert_eq!(check(&kubelet().alt_name(alt_name::OTHER, &[6, 1, 42]), &SERVING), required);
    let email = good.clone().alt_name(alt_name::EMAIL, b"a@b");
    assert_eq!(check(&email.alt_name(alt_name::URI, b"a:b"), &[]), "Email subjectAltNames are not allowed");
    assert_eq!(check(&good.alt_name(alt_name::URI, b"a:b"), &[]), "URI subjectAltNames are not allowed");
    let text = "usages did not match [digital signature key encipherment server auth]";
    let stranger = nothing.attribute(10, "system:nodes").attribute(3, "x").alt_name(alt_name::DNS, b"n");
    for usages in [
        &CLIENT[..],
        &["server auth"],
        &["digital signature", "server auth", "x"],
        &["signing", "server auth"],
    ] {
        assert_eq!(check(&stranger, usages), text, "{usages:?}");
    }
    assert_eq!(check(&stranger, &SERVING), "subject common name does not begin with system:node:");
}

/// Proves CSRS-35, CSRS-36, CSRS-97, CSRS-98.
#[test]
fn rules_of_kubelet_clients_are_checked_in_order() {
    let check =
        |request: &RequestBuilder, usages: &[&str]| violation(KUBE_APISERVER_CLIENT_KUBELET, request, usages);
    assert_eq!(check(&kubelet(), &CLIENT), "");
    assert_eq!(
        check(&kubelet(), &["client auth", "client auth", "digital signature", "key encipherment"]),
        ""
    );
    let odd = kubelet().alt_name(alt_name::OTHER, &[6, 1, 42]).extension(
        &[0x55, 0x1d, 19],
        true,
        &[0x30, 3, 1, 1, 0xff],
    );
    assert_eq!(check(&odd, &CLIENT), "", "other names and CA:TRUE are ignored");
    let mut request = RequestBuilder::for_ed25519(&[1; 32]).attribute(3, "x");
    assert_eq!(check(&request, &[]), "subject organization is not system:nodes");
    request = request.attribute(10, "system:nodes");
    for (tag, content, text) in [
        (alt_name::URI, &b"a:b"[..], "URI subjectAltNames are not allowed"),
        (alt_name::IP, &[1, 2, 3, 4], "IP subjectAltNames are not allowed"),
        (alt_name::EMAIL, b"a@b", "Email subjectAltNames are not allowed"),
        (alt_name::DNS, b"n", "DNS subjectAltNames are not allowed"),
    ] {
        let names = request.alt_names.clone();
        request = request.alt_name(tag, content);
        assert_eq!(check(&request, &[]), text, "the earlier rule of {names:?}");
    }
    request.alt_names.clear();
    assert_eq!(check(&request, &[]), "subject common name does not begin with system:node:");
    let last = kubelet().attribute(3, "y");
    assert_eq!(
        check(&last, &CLIENT),
        "subject common name does not begin with system:node:",
        "the last counts"
    );
    let text = "usages did not match [client auth digital signature key encipherment]";
    assert_eq!(check(&request.attribute(3, "system:node:"), &SERVING), text);
}

/// Proves CSRS-37, CSRS-38, CSRS-39, CSRS-52.
#[test]
fn other_signers_check_usages_or_nothing() {
    let masters =
        RequestBuilder::for_ed25519(&[1; 32]).attribute(10, "system:masters").alt_name(alt_name::DNS, b"n");
    let check = |usages: &[&str]| violation(KUBE_APISERVER_CLIENT, &masters, usages);
    assert_eq!(check(&["client auth"]), "", "subject and names are free");
    assert_eq!(check(&["key encipherment", "client auth", "digital signature"]), "");
    assert_eq!(check(&["client auth", "b", "a"]), "invalid usage for client certificate: b");
    assert_eq!(check(&["signing"]), "invalid usage for client certificate: signing");
    assert_eq!(check(&["digital signature"]), "missing required usage for client certificate: client auth");
    assert_eq!(check(&[]), "missing required usage for client certificate: client auth");
    assert_eq!(violation(LEGACY_UNKNOWN, &masters, &["unheard of"]), "");
}

/// Proves CSRS-40, CSRS-70, CSRS-71.
#[test]
fn life_is_the_requested_one_within_limits() {
    let seconds = |requested, configured: i128| life(requested, configured * NANOSECONDS) / NANOSECONDS;
    assert_eq!(seconds(None, 3600), 3600);
    assert_eq!(seconds(Some(3601), 3600), 3600);
    assert_eq!(seconds(Some(3600), 3600), 3600);
    assert_eq!(seconds(Some(601), 3600), 601);
    for tiny in [599, 0, -1, i32::MIN] {
        assert_eq!(seconds(Some(tiny), 3600), 600, "{tiny}");
    }
    assert_eq!([seconds(Some(300), 300), seconds(Some(301), 300), seconds(None, 300)], [600, 300, 300]);
    let (a_loop, jobs) = recording(KUBE_APISERVER_CLIENT_KUBELET, Ok("PEM"));
    let mut request = client(&kubelet(), &CLIENT);
    request["spec"]["expirationSeconds"] = json!(7200);
    reconcile(&a_loop, request);
    let job = jobs.lock().remove(0);
    assert_eq!((job.life, job.now), (2 * HOUR, 1_800_000_000 * NANOSECONDS));
    assert_eq!(
        (job.usages, job.request.subject.common_name),
        (CLIENT.map(str::to_owned).to_vec(), "system:node:n".to_owned())
    );
}

/// Proves CSRS-26, CSRS-110, CSRS-114.
#[test]
fn signing_that_fails_is_retried_without_a_condition() {
    let error = "unable to verify certificate request signature: x509: Ed25519 verification failure";
    let (a_loop, _) = recording(KUBE_APISERVER_CLIENT_KUBELET, Err(error));
    let transcript = reconcile(&a_loop, client(&kubelet(), &CLIENT));
    assert!(is_retried_because(&transcript, &format!("error auto signing csr: {error}")), "{transcript}");
    assert!(!transcript.contains("put "), "{transcript}");
}

/// Proves CSRS-74, CSRS-109, CSRS-110, CSRS-112, CSRS-118.
#[test]
fn refused_update_is_retried_and_signed_again() {
    for (request, text) in [
        (client(&kubelet(), &CLIENT), "error updating signature for csr: "),
        (client(&kubelet(), &SERVING), "error adding failure condition for csr: "),
    ] {
        for (code, reason) in
            [(403, "Forbidden"), (409, "Conflict"), (422, "Invalid"), (500, "InternalError")]
        {
            let (a_loop, jobs) = recording(KUBE_APISERVER_CLIENT_KUBELET, Ok("PEM"));
            let refused = ApiError::from_status(code, reason, "refused", [], 0);
            let mut cluster = RehearsalCluster::of(&a_loop)
                .with::<CertificateSigningRequest>(request.clone())
                .failing::<CertificateSigningRequest>("update", &Key::cluster("r"), refused);
            for times in 1..=2 {
                let transcript = cluster.reconcile(&a_loop, Key::cluster("r"));
                assert!(transcript.contains(text) && transcript.contains("refused"), "{code}: {transcript}");
                assert!(transcript.contains("retry"), "{transcript}");
                let asked = jobs.lock().len();
                assert!(asked == times || text.contains("failure"), "{asked}");
            }
        }
    }
    let lost = ApiError::transport(ErrorReason::ConnectionLost, "lost");
    let (a_loop, _) = recording(KUBE_APISERVER_CLIENT_KUBELET, Ok("PEM"));
    let transcript = RehearsalCluster::of(&a_loop)
        .with::<CertificateSigningRequest>(client(&kubelet(), &CLIENT))
        .failing::<CertificateSigningRequest>("update", &Key::cluster("r"), lost)
        .reconcile(&a_loop, Key::cluster("r"));
    assert!(transcript.contains("retry"), "{transcript}");
}

/// Proves CSRS-6, CSRS-7, CSRS-8, CSRS-65.
#[test]
fn each_signer_with_a_ca_has_a_loop_of_its_own() {
    let sign: SignCertificate = Arc::new(|_| Box::pin(async { Err(String::new()) }));
    let all = [KUBELET_SERVING, KUBE_APISERVER_CLIENT_KUBELET, KUBE_APISERVER_CLIENT, LEGACY_UNKNOWN];
    let options = |names: &[&'static str]| CertificateSigningRequestSigningOptions {
        signers: names.iter().map(|name| BuiltInSigner { name, sign: sign.clone() }).collect(),
        duration_nanoseconds: 0,
    };
    assert!(controller(&options(&[])).is_none());
    assert_eq!(controller(&options(&all[..1])).unwrap().loops.len(), 1);
    let controller = controller(&options(&all)).unwrap();
    assert_eq!(controller.name, "certificatesigningrequest-signing-controller");
    assert_eq!(
        (crate::names::aliases_of(controller.name), controller.service_account),
        (&["csrsigning"][..], Some("certificate-controller"))
    );
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
    assert_eq!(controller.loops.len(), 4);
    for a_loop in &controller.loops {
        assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("certificate", 5, None));
        let limiter = a_loop.rate_limiter;
        assert_eq!((limiter.base_delay.as_millis(), limiter.max_delay.as_secs()), (200, 1000));
        assert_eq!((limiter.retries_per_second, limiter.retries_burst), (10.0, 100));
        let request: CertificateSigningRequest = serde_json::from_value(client(&kubelet(), &CLIENT)).unwrap();
        let request = Arc::new(request);
        let cluster = RehearsalCluster::of(a_loop);
        let mut store = keleustes_plan::Store::<CertificateSigningRequest>::default();
        assert_eq!(cluster.enqueued_by(a_loop, store.apply(request.clone())), ["r"]);
        assert_eq!(cluster.enqueued_by(a_loop, keleustes_plan::Change::resync(request.clone())), ["r"]);
        assert_eq!(cluster.enqueued_by(a_loop, keleustes_plan::Change::deleted(request)), ["r"]);
    }
}
