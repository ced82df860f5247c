//! CertificateSigningRequests, PodCertificateRequests and ClusterTrustBundles: what is refused, and who may act for a
//! signer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

use super::*;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";
const POD_REQUESTS: &str = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";

fn params(organization: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params
}

fn pem_request(organization: &str) -> String {
    let request = params(organization).serialize_request(&KeyPair::generate().unwrap()).unwrap();
    STANDARD.encode(request.pem().unwrap())
}

fn signing_request(name: &str, signer: &str) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"request": pem_request("team"), "signerName": signer, "usages": ["client auth"]}})
}

fn ca(is_ca: bool) -> String {
    let mut params = params("ca");
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

/// The fields and messages of a refusal.
fn causes(refusal: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = refusal["details"]["causes"].as_array().into_iter().flatten();
    causes.map(|cause| (text(&cause["field"]), text(&cause["message"]))).collect()
}

fn with_rbac() -> TestServer {
    TestServer::with(KernelOptions { rbac: true, ..KernelOptions::default() })
}

/// Lets everyone read and write the three kinds, and `name` use a verb for one name of a signer.
fn allow(server: &mut TestServer, name: &str, verb: &str, signer: &str) {
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let admin = User::new("admin", &["system:masters"]);
    let role = json!({"metadata": {"name": name}, "rules": [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["get", "create", "update"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [signer], "verbs": [verb]},
    ]});
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let (code, answer) = server.send_as(&admin, Method::POST, &format!("{roles}/{plural}"), &object);
        assert_eq!(code, 201, "{answer}");
    }
}

#[test]
fn certificate_signing_request_records_the_requester_and_separates_approval() {
    let mut server = TestServer::new();
    let mut body = signing_request("r", "example.com/s");
    body["spec"]["username"] = json!("john");
    let user = User::new("jane", &["people"]);
    let (code, request) = server.send_as(&user, Method::POST, REQUESTS, &body);
    assert_eq!((code, &request["spec"]["username"]), (201, &json!("jane")));
    assert_eq!(request["spec"]["groups"], json!(["people", "system:authenticated"]));
    let mut approved = request;
    approved["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "ok"}]);
    // The status subresource can neither add nor remove an approval.
    let (code, refusal) = server.put(&format!("{REQUESTS}/r/status"), &approved);
    assert_eq!((code, &refusal["details"]["causes"][0]["field"]), (422, &json!("status.conditions")));
    let (_, decided) = server.put(&format!("{REQUESTS}/r/approval"), &approved);
    assert_eq!(decided["status"]["conditions"][0]["lastUpdateTime"], "2026-01-02T03:04:05Z");
    let mut undecided = decided.clone();
    undecided["status"] = json!({});
    assert_eq!(server.put(&format!("{REQUESTS}/r/status"), &undecided).0, 422);
    let mut issued = decided;
    let certificate = json!(STANDARD.encode(ca(false)));
    issued["status"]["certificate"] = certificate.clone();
    let (_, mut issued) = server.put(&format!("{REQUESTS}/r/status"), &issued);
    assert_eq!(issued["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(issued["status"]["certificate"], certificate);
    issued["status"]["certificate"] = json!(STANDARD.encode(ca(false)));
    let (code, refusal) = server.put(&format!("{REQUESTS}/r/status"), &issued);
    assert_eq!(code, 422);
    let why = "Forbidden: updates may not modify existing certificate content";
    assert_eq!(causes(&refusal), [("status.certificate".to_owned(), why.to_owned())]);
}

#[test]
fn malformed_signing_requests_are_refused() {
    let mut server = TestServer::new();
    let mut refused = |signer: &str, change: &dyn Fn(&mut Value)| {
        let mut request = signing_request("r", signer);
        change(&mut request);
        let (code, answer) = server.post(REQUESTS, &request);
        assert_eq!(code, 422, "{answer}");
        causes(&answer).remove(0)
    };
    for (signer, text) in [
        ("kubernetes.io/legacy-unknown", "the legacy signerName is not allowed via this API version"),
        ("plain", "must be a fully qualified domain and path of the form 'example.com/signer-name'"),
        (
            "example.com/a/b",
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        ("example/a", "should be a domain with at least two segments separated by dots"),
        ("Example.com/a", "validating label \"Example\": a lowercase RFC 1123 label must consist of"),
        ("example.com/A", "validating label \"A\": a lowercase RFC 1123 subdomain must consist of"),
        ("", "Required value"),
    ] {
        let (field, message) = refused(signer, &|_| ());
        assert!(field == "spec.signerName" && message.contains(text), "{signer}: {message}");
    }
    let not_pem = refused("a.b/c", &|request| request["spec"]["request"] = json!("AAAA"));
    assert!(not_pem.1.contains("PEM block type must be CERTIFICATE REQUEST"), "{not_pem:?}");
    let cut = refused("a.b/c", &|request| {
        let pem = "-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n";
        request["spec"]["request"] = json!(STANDARD.encode(pem));
    });
    assert!(cut.0 == "spec.request" && cut.1.contains("asn1"), "{cut:?}");
    let short = refused("a.b/c", &|request| request["spec"]["expirationSeconds"] = json!(599));
    assert!(short.1.contains("may not specify a duration less than 600 seconds"), "{short:?}");
}

#[test]
fn client_certificates_for_masters_are_refused() {
    let mut server = TestServer::new();
    let mut request = signing_request("r", "kubernetes.io/kube-apiserver-client");
    request["spec"]["request"] = json!(pem_request("system:masters"));
    let (code, answer) = server.post(REQUESTS, &request);
    let text = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert!(code == 403 && answer["message"].as_str().unwrap().ends_with(text), "{answer}");
    request["spec"]["signerName"] = json!("example.com/other");
    assert_eq!(server.post(REQUESTS, &request).0, 201);
}

#[test]
fn approval_and_signature_need_a_permission_for_the_signer() {
    let mut server = with_rbac();
    allow(&mut server, "approver", "approve", "example.com/*");
    allow(&mut server, "signer", "sign", "example.com/s");
    let user = |name: &str| User::new(name, &[]);
    for (name, signer) in [("r", "example.com/s"), ("other", "example.org/s")] {
        let (code, answer) =
            server.send_as(&user("approver"), Method::POST, REQUESTS, &signing_request(name, signer));
        assert_eq!(code, 201, "{answer}");
    }
    let mut put = |by: &str, path: &str, change: &dyn Fn(&mut Value)| {
        let name = path.split('/').next().unwrap();
        let (_, mut request) =
            server.send_as(&user(by), Method::GET, &format!("{REQUESTS}/{name}"), &Value::Null);
        change(&mut request);
        let (code, answer) = server.send_as(&user(by), Method::PUT, &format!("{REQUESTS}/{path}"), &request);
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let approve = |request: &mut Value| {
        request["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "ok"}]);
    };
    let certificate = ca(false);
    let sign = |request: &mut Value| request["status"]["certificate"] = json!(STANDARD.encode(&certificate));
    let (code, message) = put("signer", "r/approval", &approve);
    let text = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve \
                requests with signerName \"example.com/s\"";
    assert_eq!((code, message.as_str()), (403, text));
    assert_eq!(put("approver", "other/approval", &approve).0, 403, "another domain");
    assert_eq!(put("approver", "r/approval", &approve).0, 200, "all signers of the domain");
    let (code, message) = put("approver", "r/status", &sign);
    assert!(
        code == 403 && message.ends_with("not permitted to sign requests with signerName \"example.com/s\"")
    );
    assert_eq!(put("approver", "r/status", &|_| ()).0, 200, "an unchanged status");
    assert_eq!(put("signer", "r/status", &sign).0, 200);
}

#[test]
fn bundle_has_certificates_of_cas_alone_and_the_name_of_its_signer() {
    let mut server = TestServer::new();
    let mut refused = |name: &str, signer: &str, bundle: &str| {
        let body = json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": bundle}});
        let (code, answer) = server.post(BUNDLES, &body);
        if code == 201 { Vec::new() } else { causes(&answer) }
    };
    let (one, other) = (ca(true), ca(true));
    assert_eq!(refused("example.com:s:a", "example.com/s", &format!("text\n{one}{other}")), []);
    assert_eq!(refused("plain", "", &one), []);
    let omitted = |why: &str| {
        let message = format!("Invalid value: \"<value omitted>\": {why}");
        vec![("spec.trustBundle".to_owned(), message)]
    };
    assert_eq!(refused("b", "", ""), omitted("at least one trust anchor must be provided"));
    assert_eq!(refused("b", "", &one.repeat(2)), omitted("duplicate trust anchor (indices [0 1])"));
    assert_eq!(
        refused("b", "", &format!("{one}{}", ca(false))),
        omitted("entry 1 does not have the CA bit set")
    );
    let key = KeyPair::generate().unwrap().serialize_pem();
    assert_eq!(refused("b", "", &format!("{key}{one}")), omitted("entry 0 has bad block type: PRIVATE KEY"));
    let headers = one.replace("CERTIFICATE-----\nMII", "CERTIFICATE-----\nkey: value\n\nMII");
    assert_eq!(refused("b", "", &headers), omitted("entry 0 has PEM block headers"));
    let garbage = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    assert_eq!(refused("b", "", garbage), omitted("entry 0 does not parse as X.509"));
    let long = "#".repeat((1 << 20) + 1);
    assert!(refused("b", "", &long)[0].1.contains("may not be more than 1048576 bytes"));
    let name = refused("other", "example.com/s", &one).remove(0);
    assert!(
        name.0 == "metadata.name" && name.1.contains("must be named with prefix example.com:s:"),
        "{name:?}"
    );
    let name = refused("a:b", "", &one).remove(0);
    assert!(name.1.contains("without signer name must not have \":\" in its name"), "{name:?}");
}

#[test]
fn bundle_of_a_signer_needs_the_permission_to_attest() {
    let mut server = with_rbac();
    allow(&mut server, "attester", "attest", "example.com/s");
    allow(&mut server, "other", "sign", "example.com/s");
    let user = |name: &str| User::new(name, &[]);
    let signed = json!({"metadata": {"name": "example.com:s:a"},
        "spec": {"signerName": "example.com/s", "trustBundle": ca(true)}});
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"trustBundle": ca(true)}});
    let (code, answer) = server.send_as(&user("other"), Method::POST, BUNDLES, &signed);
    let text = "user not permitted to attest for signerName \"example.com/s\"";
    assert!(code == 403 && answer["message"].as_str().unwrap().ends_with(text), "{answer}");
    assert_eq!(server.send_as(&user("other"), Method::POST, BUNDLES, &plain).0, 201, "without a signer");
    let (code, mut stored) = server.send_as(&user("attester"), Method::POST, BUNDLES, &signed);
    assert_eq!(code, 201, "{stored}");
    let path = format!("{BUNDLES}/example.com:s:a");
    stored["metadata"]["finalizers"] = json!(["example.com/x"]);
    let (code, mut stored) = server.send_as(&user("other"), Method::PUT, &path, &stored);
    assert_eq!(code, 200, "finalizers are the garbage collector's: {stored}");
    stored["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(server.send_as(&user("other"), Method::PUT, &path, &stored).0, 403);
    stored["spec"]["signerName"] = json!("example.com/t");
    let (code, answer) = server.send_as(&user("attester"), Method::PUT, &path, &stored);
    assert!(code == 422 && answer["message"].as_str().unwrap().contains("field is immutable"), "{answer}");
}

/// A request of a pod with this key.
fn pod_request(key: &KeyPair) -> Value {
    let request = CertificateParams::default().serialize_request(key).unwrap();
    json!({"metadata": {"name": "r"}, "spec": {
        "signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "s",
        "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3",
        "stubPKCS10Request": STANDARD.encode(request.der())}})
}

#[test]
fn pod_request_has_names_uids_a_life_and_a_key() {
    let mut server = TestServer::new();
    let key = KeyPair::generate().unwrap();
    let mut refused = |change: &dyn Fn(&mut Value)| {
        let mut request = pod_request(&key);
        change(&mut request["spec"]);
        let (code, answer) = server.post(POD_REQUESTS, &request);
        assert_eq!(code, 422, "{answer}");
        causes(&answer).remove(0)
    };
    let long = "u".repeat(129);
    for (field, value, text) in [
        ("signerName", json!(""), "Required value"),
        ("podName", json!("Upper"), "a lowercase RFC 1123 subdomain"),
        ("podUID", json!(""), "must not be empty"),
        ("nodeUID", json!(long), "may not be more than 128 bytes"),
        ("serviceAccountName", json!(""), "a lowercase RFC 1123 subdomain"),
        ("maxExpirationSeconds", json!(3599), "must be in the range [3600, 7862400]"),
        ("stubPKCS10Request", json!("AAAA"), "must be a valid PKCS#10 CSR"),
        ("unverifiedUserAnnotations", json!({"plain": "x"}), "must be a domain-prefixed key"),
    ] {
        let (found, message) = refused(&|spec| spec[field] = value.clone());
        assert_eq!(found, format!("spec.{field}"));
        assert!(message.contains(text), "{field}: {message}");
    }
    let kubernetes = refused(&|spec| {
        spec["signerName"] = json!("kubernetes.io/s");
        spec["maxExpirationSeconds"] = json!(86_401);
    });
    assert!(kubernetes.1.contains("must be in the range [3600, 86400]"), "{kubernetes:?}");
    let none = refused(&|spec| spec["stubPKCS10Request"] = json!(""));
    assert!(none.0 == "spec" && none.1.contains("exactly one of (stubPKCS10Request)"), "{none:?}");
    let mut stored = server.created(POD_REQUESTS, &pod_request(&key));
    assert_eq!(stored["spec"]["maxExpirationSeconds"], 86_400);
    stored["spec"]["podName"] = json!("other");
    let (code, answer) = server.put(&format!("{POD_REQUESTS}/r"), &stored);
    assert!(code == 422 && answer["message"].as_str().unwrap().contains("field is immutable"), "{answer}");
}

#[test]
fn pod_request_is_decided_once_and_its_times_are_those_of_the_certificate() {
    let mut server = TestServer::new();
    let key = KeyPair::generate().unwrap();
    let stored = server.created(POD_REQUESTS, &pod_request(&key));
    let path = format!("{POD_REQUESTS}/r/status");
    // The clock of the server is at 2026-01-02T03:04:05Z.
    let chain = |key: &KeyPair| {
        let mut params = CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2026, 1, 2) + std::time::Duration::from_secs(3 * 3600 + 240);
        params.not_after = params.not_before + std::time::Duration::from_secs(7200);
        params.self_signed(key).unwrap().pem()
    };
    let issued = json!({
        "conditions": [{"type": "Issued", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        "certificateChain": chain(&key), "notBefore": "2026-01-02T03:04:00Z", "notAfter": "2026-01-02T05:04:00Z",
        "beginRefreshAt": "2026-01-02T04:00:00Z",
    });
    let mut put = |change: &dyn Fn(&mut Value)| {
        let mut request = stored.clone();
        request["status"] = issued.clone();
        change(&mut request["status"]);
        let (code, answer) = server.put(&path, &request);
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let other = chain(&KeyPair::generate().unwrap());
    let changes: [(&str, Value, &str); 8] = [
        ("certificateChain", json!(""), "must contain at least one certificate"),
        ("certificateChain", json!(other), "was not issued to the requested public key"),
        ("notBefore", json!("2026-01-02T03:03:00Z"), "must be set to the NotBefore time encoded"),
        ("notAfter", Value::Null, "must be present and consistent with the issued certificate"),
        ("beginRefreshAt", json!("2026-01-02T03:05:00Z"), "at least 10 minutes after status.notBefore"),
        ("beginRefreshAt", json!("2026-01-02T05:00:00Z"), "at least 10 minutes before status.notAfter"),
        ("conditions", json!([]), "status is immutable unless transitioning"),
        (
            "conditions",
            json!([{"type": "Denied", "status": "True", "reason": "No", "lastTransitionTime":
            "2026-01-02T03:04:05Z"}]),
            "non-condition status fields must be empty",
        ),
    ];
    for (field, value, text) in changes {
        let (code, message) = put(&|status| status[field] = value.clone());
        assert!(code == 422 && message.contains(text), "{field}: {message}");
    }
    assert_eq!(put(&|_| ()).0, 200);
    let (_, stored) = server.get(&format!("{POD_REQUESTS}/r"));
    let mut again = stored;
    again["status"]["beginRefreshAt"] = json!("2026-01-02T04:00:01Z");
    let (code, answer) = server.put(&path, &again);
    let text = "immutable after PodCertificateRequest is issued, denied, or failed";
    assert!(code == 422 && answer["message"].as_str().unwrap().contains(text), "{answer}");
}

#[test]
fn pod_request_is_signed_by_its_signer_alone() {
    let mut server = with_rbac();
    allow(&mut server, "signer", "sign", "example.com/s");
    allow(&mut server, "other", "approve", "example.com/s");
    let user = |name: &str| User::new(name, &[]);
    let key = KeyPair::generate().unwrap();
    let (code, mut stored) = server.send_as(&user("other"), Method::POST, POD_REQUESTS, &pod_request(&key));
    assert_eq!(code, 201, "{stored}");
    stored["status"]["conditions"] = json!([{"type": "Denied", "status": "True", "reason": "No",
        "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
    let path = format!("{POD_REQUESTS}/r/status");
    let (code, answer) = server.send_as(&user("other"), Method::PUT, &path, &stored);
    let text = "spec.signerName: Forbidden: User \"other\" is not permitted to \"sign\" for signer \"example.com/s\"";
    assert!(code == 422 && answer["message"].as_str().unwrap().contains(text), "{answer}");
    assert_eq!(server.send_as(&user("signer"), Method::PUT, &path, &stored).0, 200);
}
