//! CertificateSigningRequests and PodCertificateRequests: only those that have been there for long are deleted.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_apiserver::ApiServer;
use keleustes_x509::builder::RequestBuilder;
use keleustes_x509::{Certificate, pem};
use serde_json::{Value, json};

use super::Checker;
use super::cronjob::wall_seconds;
use super::objects::describe;
use crate::recorder::{ObservedWrite, text};

const NAMESPACE: &str = "kube-system";
const REQUESTS: &str = "certificatesigningrequests";
const POD_REQUESTS: &str = "podcertificaterequests";
/// Prefix of the names of requests that are to be deleted.
const OLD: &str = "old-";
/// Of a year that no clock of a storm leaves behind.
const LONG_AGO: &str = "2020-01-01T00:00:00Z";
/// Of a year that no clock of a storm reaches.
const FUTURE: &str = "2098-01-01T00:00:00Z";

/// The clocks of managers and of the API server jump by up to five minutes each.
const CLOCKS_DIFFER_BY_SECONDS: i64 = 600;

/// Follows the deletions of requests.
#[derive(Default)]
pub struct OldRequests {
    /// A delete that failed is repeated only by the next pass, up to an hour later.
    had_fault: bool,
}

/// Old and new requests of a signer that no manager signs for, as they are when a storm begins.
pub(crate) fn initial_objects() -> Vec<Value> {
    let pem = RequestBuilder::for_ed25519(&[1; 32]).attribute(3, "a user").to_pem_unsigned();
    let request = |name: &str, created: &str, denied: Option<&str>| {
        let conditions: Vec<_> = denied
            .map(|at| json!({"type": "Denied", "status": "True", "lastUpdateTime": at, "lastTransitionTime": at}))
            .into_iter()
            .collect();
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"signerName": "example.com/own", "request": BASE64_STANDARD.encode(&pem),
                     "usages": ["client auth"]},
            "status": {"conditions": conditions},
        })
    };
    let pod_request = |name: &str, created: &str| {
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
            "metadata": {"namespace": NAMESPACE, "name": name, "creationTimestamp": created},
            "spec": {"signerName": "example.com/own", "podName": "p", "podUID": "1", "serviceAccountName": "s",
                     "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "maxExpirationSeconds": 86_400,
                     "stubPKCS10Request": "AAAA"},
        })
    };
    vec![
        request("old-pending", LONG_AGO, None),
        request("old-denied", FUTURE, Some(LONG_AGO)),
        request("new-pending", FUTURE, None),
        request("new-denied", LONG_AGO, Some(FUTURE)),
        pod_request("old-request", LONG_AGO),
        pod_request("new-request", FUTURE),
    ]
}

impl Checker for OldRequests {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-cleaner-controller and podcertificaterequest-cleaner-controller"
    }

    fn on_fault(&mut self, _: std::time::Duration) {
        self.had_fault = true;
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let is_request = [REQUESTS, POD_REQUESTS].contains(&write.request.resource.as_str());
        let deleted = write.before.as_ref().filter(|_| is_request && write.after.is_none());
        let deleted = deleted.filter(|_| write.by_manager() && write.succeeded());
        let is_due = |before: &Value| {
            text(before, "/metadata/name").starts_with(OLD) || is_expired(before, wall_seconds(write.at))
        };
        match deleted.filter(|before| !is_due(before)) {
            Some(before) => Err(format!("{} was deleted, which is not old", describe(before))),
            None => Ok(()),
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for object in initial_objects() {
            let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            let resource = if namespace.is_empty() { REQUESTS } else { POD_REQUESTS };
            let exists = server.object(&format!("{resource}.certificates.k8s.io"), namespace, name).is_some();
            match name.starts_with(OLD) {
                true if exists && !self.had_fault => return Err(format!("{name} is old and is left")),
                false if !exists => return Err(format!("{name} is gone")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether a request has a certificate that is no longer valid, by any clock of a storm.
fn is_expired(request: &Value, now: i64) -> bool {
    let certificate = BASE64_STANDARD.decode(text(request, "/status/certificate")).unwrap_or_default();
    let certificate = pem::blocks(&certificate).next().map(|block| Certificate::from_der(&block.bytes));
    matches!(certificate, Some(Ok(certificate)) if certificate.not_after <= now + CLOCKS_DIFFER_BY_SECONDS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;

    #[test]
    fn deletion_of_a_new_request_is_reported() {
        let server = ApiServer::builder().build();
        for object in initial_objects() {
            let name = text(&object, "/metadata/name").to_owned();
            let path = match text(&object, "/metadata/namespace") {
                "" => format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}"),
                namespace => {
                    format!(
                        "/apis/certificates.k8s.io/v1/namespaces/{namespace}/podcertificaterequests/{name}"
                    )
                }
            };
            let deletion = ObservedWrite {
                before: Some(Arc::new(object)),
                after: None,
                ..ObservedWrite::of_manager("cleaner", &Method::DELETE, &path)
            };
            let judged = OldRequests::default().on_write(&deletion, &server);
            assert_eq!(judged.is_ok(), name.starts_with(OLD), "{judged:?}");
            let by_user = ObservedWrite { party: "user".into(), ..deletion };
            assert_eq!(OldRequests::default().on_write(&by_user, &server), Ok(()));
        }
    }

    #[test]
    fn old_requests_are_left_only_after_faults_and_new_ones_always() {
        let server = ApiServer::builder().build();
        initial_objects().into_iter().for_each(|object| drop(server.seed(object).unwrap()));
        let error = OldRequests::default().check_converged(&server).unwrap_err();
        assert_eq!(error, "old-pending is old and is left");
        assert_eq!(OldRequests { had_fault: true }.check_converged(&server), Ok(()));
        for name in ["old-pending", "old-denied"] {
            assert!(server.remove("certificatesigningrequests.certificates.k8s.io", "", name));
        }
        let pod_requests = "podcertificaterequests.certificates.k8s.io";
        assert!(server.remove(pod_requests, NAMESPACE, "old-request"));
        assert_eq!(OldRequests::default().check_converged(&server), Ok(()));
        assert!(server.remove(pod_requests, NAMESPACE, "new-request"));
        let error = OldRequests { had_fault: true }.check_converged(&server).unwrap_err();
        assert_eq!(error, "new-request is gone");
    }
}
