//! CertificateSigningRequests: no certificate without approval, none for another key than the request's, none that
//! lives longer than was asked; in the end every approved request has its certificate.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_apiserver::ApiServer;
use keleustes_controllers::certificates::KUBE_APISERVER_CLIENT_KUBELET;
use keleustes_x509::{Certificate, CertificateRequest, pem};
use serde_json::Value;

use super::Checker;
use super::objects::describe;
use crate::recorder::{ObservedWrite, text};
use crate::signer::LONGEST_LIFE_SECONDS;

const RESOURCE: &str = "certificatesigningrequests";
/// A certificate begins this long before it is signed.
const BACKDATED_SECONDS: i64 = 300;
/// A shorter life is not granted.
const SHORTEST_LIFE_SECONDS: i64 = 600;

/// Follows the writes to requests.
pub struct Certificates;

impl Checker for Certificates {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-approving-controller and certificatesigningrequest-signing-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let (Some(before), Some(after)) = (&write.before, &write.after) else { return Ok(()) };
        if write.request.resource != RESOURCE || !write.by_manager() || !write.succeeded() {
            return Ok(());
        }
        let is_new = |kind: &str| has_condition(after, kind) && !has_condition(before, kind);
        if is_new("Denied") {
            return Err(format!("{} is denied by a manager", describe(after)));
        }
        if is_new("Approved") && text(after, "/spec/signerName") != KUBE_APISERVER_CLIENT_KUBELET {
            return Err(format!("{} is approved, which waits for an operator", describe(after)));
        }
        let certificate = text(after, "/status/certificate");
        if certificate == text(before, "/status/certificate") {
            return Ok(());
        }
        // The decisions are those that were stored when the write arrived.
        if !has_condition(before, "Approved") || has_condition(before, "Denied") {
            return Err(format!("{} gets a certificate without approval", describe(after)));
        }
        check_certificate(after, certificate)
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for request in server.objects(&format!("{RESOURCE}.certificates.k8s.io")) {
            let is_kubelets = text(&request, "/spec/signerName") == KUBE_APISERVER_CLIENT_KUBELET;
            let is_denied = has_condition(&request, "Denied");
            if is_kubelets && !is_denied && !has_condition(&request, "Approved") {
                return Err(format!("{} is not approved", describe(&request)));
            }
            let certificate = text(&request, "/status/certificate");
            match (has_condition(&request, "Approved"), is_denied, certificate.is_empty()) {
                (true, false, true) => return Err(format!("{} has no certificate", describe(&request))),
                (_, _, false) => check_certificate(&request, certificate)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn has_condition(request: &Value, kind: &str) -> bool {
    let conditions = request.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| condition["type"] == kind)
}

/// The certificate is for the key of the request, and lives no longer than was asked.
fn check_certificate(request: &Value, certificate: &str) -> Result<(), String> {
    let decoded = |text: &str| BASE64_STANDARD.decode(text).unwrap_or_default();
    let unreadable = |what: &str, cause: String| format!("{}: {what}: {cause}", describe(request));
    let certificate = decoded(certificate);
    let block =
        pem::blocks(&certificate).next().ok_or_else(|| unreadable("certificate", "no PEM".to_owned()))?;
    let certificate =
        Certificate::from_der(&block.bytes).map_err(|cause| unreadable("certificate", cause))?;
    let requested = CertificateRequest::from_pem(&decoded(text(request, "/spec/request")))
        .map_err(|cause| unreadable("request", cause.to_string()))?;
    if certificate.public_key != requested.public_key {
        return Err(format!("the certificate of {} is for another key", describe(request)));
    }
    let asked = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    let longest = asked.unwrap_or(LONGEST_LIFE_SECONDS).clamp(SHORTEST_LIFE_SECONDS, LONGEST_LIFE_SECONDS);
    let life = certificate.not_after - certificate.not_before - BACKDATED_SECONDS;
    if life > longest {
        return Err(format!("the certificate of {} lives {life} s, not {longest} s", describe(request)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::{Method, Uri};
    use keleustes_x509::SigningJob;
    use keleustes_x509::builder::RequestBuilder;
    use serde_json::json;

    use super::*;
    use crate::recorder::RequestInfo;
    use crate::signer;

    /// A request for the first key with a certificate for this one, of this many seconds.
    fn request(conditions: &[&str], certificate: Option<(u8, i128)>) -> Value {
        let pem_of = |key: u8| RequestBuilder::for_ed25519(&[key; 32]).kubelet("n").to_pem_unsigned();
        let conditions: Vec<_> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let mut object = json!({
            "kind": "CertificateSigningRequest", "metadata": {"name": "r"},
            "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "expirationSeconds": 3600,
                     "request": BASE64_STANDARD.encode(pem_of(1))},
            "status": {"conditions": conditions},
        });
        if let Some((key, seconds)) = certificate {
            let request = CertificateRequest::from_pem(pem_of(key).as_bytes()).unwrap();
            let (life, now) = (seconds * 1_000_000_000, 1_800_000_000_000_000_000);
            let job = SigningJob { request, usages: vec!["client auth".to_owned()], life, now };
            let signed = signer::sign_now(&job).unwrap();
            object["status"]["certificate"] = json!(BASE64_STANDARD.encode(signed));
        }
        object
    }

    fn judged(before: Value, after: Value) -> Result<(), String> {
        let uri: Uri = "/apis/certificates.k8s.io/v1/certificatesigningrequests/r/status".parse().unwrap();
        let write = ObservedWrite {
            at: Duration::ZERO,
            party: "manager-0".into(),
            process_instance: 0,
            component: "certificate-controller".to_owned(),
            request: RequestInfo::parse(&Method::PUT, &uri),
            body: Value::Null,
            response_lost: false,
            send_context: crate::recorder::SendContext::default(),
            code: 200,
            before: Some(Arc::new(before)),
            after: Some(Arc::new(after)),
        };
        Certificates.on_write(&write, &ApiServer::builder().build())
    }

    #[test]
    fn wrong_certificates_and_decisions_are_reported() {
        let approved = || request(&["Approved"], None);
        assert_eq!(judged(approved(), request(&["Approved"], Some((1, 3600)))), Ok(()));
        for (before, after, words) in [
            (request(&[], None), request(&[], Some((1, 3600))), "without approval"),
            (
                request(&["Approved", "Denied"], None),
                request(&["Approved", "Denied"], Some((1, 3600))),
                "without approval",
            ),
            (approved(), request(&["Approved"], Some((2, 3600))), "another key"),
            (approved(), request(&["Approved"], Some((1, 3601))), "lives 3601 s, not 3600 s"),
            (request(&[], None), request(&["Denied"], None), "is denied by a manager"),
            (request(&[], None), request(&["Approved"], None), "waits for an operator"),
        ] {
            let error = judged(before, after).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn approved_request_without_certificate_has_not_converged() {
        let server = ApiServer::builder().build();
        let seed = |mut object: Value| {
            object["apiVersion"] = json!("certificates.k8s.io/v1");
            server.seed(object).unwrap();
        };
        seed(request(&[], None));
        assert_eq!(Certificates.check_converged(&server), Ok(()), "it waits for an operator");
        seed(request(&["Approved"], None));
        assert!(Certificates.check_converged(&server).unwrap_err().ends_with("has no certificate"));
        let mut kubelets = request(&[], None);
        kubelets["spec"]["signerName"] = json!(KUBE_APISERVER_CLIENT_KUBELET);
        seed(kubelets);
        assert!(Certificates.check_converged(&server).unwrap_err().ends_with("is not approved"));
    }
}
