//! Which requests are reviewed and approved, and in which words.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_objects::ApiError;
use keleustes_plan::rehearsal::RehearsalCluster;
use keleustes_x509::builder::{RequestBuilder, alt_name};

use super::*;

const USAGES: [&str; 2] = ["digital signature", "client auth"];
/// The path of a create, which ends in the empty name.
fn reviews_path() -> String {
    use keleustes_objects::Kind as _;
    SubjectAccessReview::RESOURCE.object_path(&Key::cluster(""))
}

fn the_loop() -> Loop {
    controller().loops.remove(0)
}

fn kubelet() -> RequestBuilder {
    RequestBuilder::for_ed25519(&[1; 32]).kubelet("n")
}

fn request(pem: &str, username: &str) -> Value {
    json!({
        "metadata": {"name": "r", "uid": "u", "resourceVersion": "3", "annotations": {"a": "b"}},
        "spec": {"signerName": KUBE_APISERVER_CLIENT_KUBELET, "request": BASE64_STANDARD.encode(pem),
                 "usages": USAGES, "username": username},
        "status": {},
    })
}

fn bootstrap(request: &RequestBuilder) -> Value {
    self::request(&request.to_pem_unsigned(), "system:bootstrap:abcdef")
}

/// A pass over a request with this answer to every review.
fn pass(request: Value, answer: &Value) -> String {
    let a_loop = the_loop();
    let answer = json!({"metadata": {}, "status": answer});
    let mut cluster = RehearsalCluster::of(&a_loop)
        .with::<CertificateSigningRequest>(request)
        .storing("create", &reviews_path(), answer.clone())
        .storing("create", &reviews_path(), answer);
    cluster.reconcile(&a_loop, Key::cluster("r"))
}

fn reviews(transcript: &str) -> usize {
    transcript.lines().filter(|line| line.starts_with("create subjectaccessreviews")).count()
}

fn bodies(transcript: &str, beginning: &str) -> Vec<Value> {
    let lines = transcript.lines().filter(|line| line.starts_with(beginning));
    lines
        .map(|line| {
            let json = &line[line.find(": {").unwrap() + 2..];
            serde_json::Deserializer::from_str(json).into_iter::<Value>().next().unwrap().unwrap()
        })
        .collect()
}

fn is_approved(transcript: &str) -> bool {
    transcript.contains("put certificatesigningrequests")
}

/// Proves CSRA-10, CSRA-11, CSRA-44, CSRA-45, CSRA-46, CSRA-65.
#[test]
fn decided_and_issued_requests_are_not_reviewed() {
    let allowed = json!({"allowed": true});
    let passes = |change: &dyn Fn(&mut Value)| {
        let mut request = bootstrap(&kubelet());
        change(&mut request);
        let transcript = pass(request, &allowed);
        assert_eq!(is_approved(&transcript), reviews(&transcript) == 1, "{transcript}");
        is_approved(&transcript)
    };
    assert!(passes(&|_| ()));
    for r#type in ["Approved", "Denied"] {
        for status in ["True", "False", ""] {
            let decided = json!([{"type": r#type, "status": status}]);
            assert!(!passes(&|request| request["status"]["conditions"] = decided.clone()), "{type}={status}");
        }
    }
    for r#type in ["Failed", "Unheard-of"] {
        let other = json!([{"type": r#type, "status": "True"}]);
        assert!(passes(&|request| request["status"]["conditions"] = other.clone()), "{type}");
    }
    assert!(!passes(&|request| request["status"]["certificate"] = json!("eA==")));
    assert!(passes(&|request| {
        request["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        request["metadata"]["finalizers"] = json!(["example.com/x"]);
    }));
    let a_loop = the_loop();
    assert_eq!(RehearsalCluster::of(&a_loop).reconcile(&a_loop, Key::cluster("r")), "", "an absent request");
}

/// Proves CSRA-12, CSRA-50, CSRA-51.
#[test]
fn malformed_request_of_any_signer_is_retried() {
    let allowed = json!({"allowed": true});
    let good = kubelet().to_pem_unsigned();
    for signer in [KUBE_APISERVER_CLIENT_KUBELET, "example.com/custom"] {
        for (pem, text) in [
            ("", "PEM block type must be CERTIFICATE REQUEST"),
            (&*good.replace("CERTIFICATE", "NEW CERTIFICATE"), "PEM block type must be CERTIFICATE REQUEST"),
            ("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "asn1: "),
        ] {
            let mut request = request(pem, "x");
            request["spec"]["signerName"] = json!(signer);
            let transcript = pass(request, &allowed);
            let wanted = format!("unable to parse csr \"r\": {text}");
            assert!(transcript.contains(&wanted) && transcript.contains("retry"), "{signer}: {transcript}");
            assert_eq!(reviews(&transcript), 0);
        }
    }
    for tolerated in [
        format!("text\n{good}"),
        format!("{good}more\n{good}"),
        good.replace("REQUEST-----\nM", "REQUEST-----\nkey: value\n\nM"),
    ] {
        assert!(is_approved(&pass(request(&tolerated, "x"), &allowed)), "{tolerated}");
    }
}

/// Proves CSRA-13, CSRA-14, CSRA-15, CSRA-17, CSRA-18, CSRA-40, CSRA-41, CSRA-56.
#[test]
fn recognizers_are_reviewed_in_order() {
    let refused = json!({"allowed": false});
    let reviewed = |username: &str| {
        let transcript = pass(request(&kubelet().to_pem_unsigned(), username), &refused);
        bodies(&transcript, "create subjectaccessreviews")
    };
    let review = |username: &str, subresource: &str| {
        let attributes = json!({"group": "certificates.k8s.io", "version": "*", "verb": "create",
            "resource": "certificatesigningrequests", "subresource": subresource});
        json!({"spec": {"user": username, "resourceAttributes": attributes}})
    };
    let node = "system:node:n";
    assert_eq!(reviewed(node), [review(node, "selfnodeclient"), review(node, "nodeclient")]);
    for other in ["system:node:N", " system:node:n", "system:node:m", "system:bootstrap:abcdef"] {
        assert_eq!(reviewed(other), [review(other, "nodeclient")], "{other}");
    }
    let mut whole = bootstrap(&kubelet());
    whole["spec"]["uid"] = json!("7");
    whole["spec"]["groups"] = json!(["g", "h"]);
    whole["spec"]["extra"] = json!({"k": ["v"]});
    let transcript = pass(whole, &refused);
    let spec = bodies(&transcript, "create subjectaccessreviews").remove(0)["spec"].take();
    assert_eq!(
        (&spec["uid"], &spec["groups"], &spec["extra"]),
        (&json!("7"), &json!(["g", "h"]), &json!({"k": ["v"]}))
    );
}

/// Proves CSRA-16, CSRA-21, CSRA-22, CSRA-43, CSRA-52, CSRA-53, CSRA-54, CSRA-55.
#[test]
fn only_kubelet_client_requests_are_recognized() {
    let allowed = json!({"allowed": true});
    let outcome = |request: Value| {
        let transcript = pass(request, &allowed);
        assert!(!transcript.contains("retry") && !transcript.contains("Denied"), "{transcript}");
        is_approved(&transcript)
    };
    let of = |builder: RequestBuilder| outcome(bootstrap(&builder));
    let unnamed = || RequestBuilder::for_ed25519(&[1; 32]);
    assert!(of(kubelet()));
    assert!(of(unnamed().attribute(10, "system:nodes").attribute(3, "system:node:")));
    assert!(of(kubelet().attribute(6, "DE").extension(&[0x55, 0x1d, 19], true, &[0x30, 3, 1, 1, 0xff])));
    assert!(of(kubelet().alt_name(alt_name::OTHER, &[6, 1, 42])));
    assert!(of(unnamed().attribute(10, "system:nodes").attribute(3, "x").attribute(3, "system:node:y")));
    assert!(!of(kubelet().attribute(3, "x")), "the last common name counts");
    for organization in ["system:nodes", "system:masters"] {
        assert!(!of(kubelet().attribute(10, organization)), "{organization}");
    }
    assert!(!of(unnamed().attribute(10, "system:masters").attribute(3, "system:node:n")));
    for (tag, content) in [
        (alt_name::DNS, &b"a"[..]),
        (alt_name::EMAIL, b"a@b"),
        (alt_name::IP, &[1, 2, 3, 4]),
        (alt_name::URI, b"a:b"),
    ] {
        assert!(!of(kubelet().alt_name(tag, content)), "{tag:x}");
    }
    let with_usages = |usages: &[&str]| {
        let mut request = bootstrap(&kubelet());
        request["spec"]["usages"] = json!(usages);
        outcome(request)
    };
    assert!(with_usages(&["client auth", "key encipherment", "digital signature", "client auth"]));
    for usages in [
        &["client auth"][..],
        &["signing", "client auth"],
        &["digital signature", "client auth", "server auth"],
    ] {
        assert!(!with_usages(usages), "{usages:?}");
    }
    for signer in [
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/kube-apiserver-client",
        "kubernetes.io/legacy-unknown",
        "a.b/c",
    ] {
        let mut request = bootstrap(&kubelet());
        request["spec"]["signerName"] = json!(signer);
        assert!(!outcome(request), "{signer}");
    }
}

/// Proves CSRA-31, CSRA-32, CSRA-59, CSRA-60.
#[test]
fn approval_is_appended_to_the_cached_object() {
    let allowed = json!({"allowed": true});
    for (username, message) in [
        ("system:node:n", "Auto approving self kubelet client certificate after SubjectAccessReview."),
        ("system:bootstrap:x", "Auto approving kubelet client certificate after SubjectAccessReview."),
    ] {
        let mut request = request(&kubelet().to_pem_unsigned(), username);
        let odd = json!({"type": "Odd", "status": "True", "unknown": [1]});
        request["status"]["conditions"] = json!([odd]);
        let transcript = pass(request.clone(), &allowed);
        assert_eq!(reviews(&transcript), 1);
        let sent = bodies(&transcript, "put certificatesigningrequests").remove(0);
        let approval =
            json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message});
        assert_eq!(sent["status"], json!({"conditions": [odd, approval]}));
        assert_eq!(sent["metadata"], request["metadata"]);
        assert_eq!(sent["spec"], request["spec"]);
        assert!(
            transcript.contains("put certificatesigningrequests.certificates.k8s.io/approval r "),
            "{transcript}"
        );
    }
}

/// Proves CSRA-20, CSRA-42, CSRA-57, CSRA-58.
#[test]
fn refusal_is_retried_without_end() {
    for answer in [
        json!({"allowed": false}),
        json!({"allowed": false, "denied": true, "evaluationError": "x"}),
        json!({}),
    ] {
        let transcript = pass(request(&kubelet().to_pem_unsigned(), "system:node:n"), &answer);
        let text =
            "recognized csr \"r\" as [selfnodeclient nodeclient] but subject access review was not approved";
        assert!(transcript.contains(text) && transcript.contains("retry"), "{transcript}");
        assert!(!is_approved(&transcript));
    }
    let transcript = pass(bootstrap(&kubelet()), &json!({"allowed": false}));
    assert!(transcript.contains("as [nodeclient] but"), "{transcript}");
    let despite = json!({"allowed": true, "denied": true, "evaluationError": "x"});
    assert!(is_approved(&pass(bootstrap(&kubelet()), &despite)), "only `allowed` counts");
    assert_eq!(the_loop().max_retries, None);
}

/// Proves CSRA-19, CSRA-61.
#[test]
fn failed_requests_are_retried() {
    let a_loop = the_loop();
    let refused = |code, reason: &str| ApiError::from_status(code, reason, "refused", [], 0);
    let mut cluster = RehearsalCluster::of(&a_loop)
        .with::<CertificateSigningRequest>(request(&kubelet().to_pem_unsigned(), "system:node:n"))
        .failing_at("create", &reviews_path(), refused(500, "InternalError"), None);
    let transcript = cluster.reconcile(&a_loop, Key::cluster("r"));
    assert!(transcript.contains("retry") && transcript.contains("refused"), "{transcript}");
    assert_eq!(reviews(&transcript), 1, "the second recognizer is not tried: {transcript}");
    for (code, reason) in [(409, "Conflict"), (403, "Forbidden"), (500, "InternalError")] {
        let mut cluster = RehearsalCluster::of(&a_loop)
            .with::<CertificateSigningRequest>(bootstrap(&kubelet()))
            .storing("create", &reviews_path(), json!({"metadata": {}, "status": {"allowed": true}}))
            .failing::<CertificateSigningRequest>("update", &Key::cluster("r"), refused(code, reason));
        let transcript = cluster.reconcile(&a_loop, Key::cluster("r"));
        assert!(transcript.contains("error updating approval for csr: "), "{transcript}");
        assert!(transcript.contains("retry"), "{transcript}");
    }
}

/// Proves CSRA-1, CSRA-2, CSRA-35.
#[test]
fn controller_has_the_originals_names_and_numbers() {
    let controller = controller();
    assert_eq!(controller.name, "certificatesigningrequest-approving-controller");
    assert_eq!(
        (crate::names::aliases_of(controller.name), controller.service_account),
        (&["csrapproving"][..], Some("certificate-controller"))
    );
    assert!(controller.event_component.is_none() && controller.metrics.is_empty());
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers), ("certificate", 5));
    assert_eq!(
        (a_loop.rate_limiter.base_delay.as_millis(), a_loop.rate_limiter.max_delay.as_secs()),
        (200, 1000)
    );
    let request: Arc<CertificateSigningRequest> =
        Arc::new(serde_json::from_value(bootstrap(&kubelet())).unwrap());
    let cluster = RehearsalCluster::of(a_loop);
    let mut store = keleustes_plan::Store::<CertificateSigningRequest>::default();
    assert_eq!(cluster.enqueued_by(a_loop, store.apply(request.clone())), ["r"]);
    assert_eq!(cluster.enqueued_by(a_loop, keleustes_plan::Change::resync(request.clone())), ["r"]);
    assert_eq!(cluster.enqueued_by(a_loop, keleustes_plan::Change::deleted(request)), ["r"]);
}
