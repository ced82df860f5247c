//! User actions on CertificateSigningRequests.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keleustes_client::{Call, PatchType};
use keleustes_controllers::certificates::{KUBE_APISERVER_CLIENT, KUBE_APISERVER_CLIENT_KUBELET};
use keleustes_objects::{CertificateSigningRequest, Key, Kind as _, Resource};
use keleustes_x509::builder::RequestBuilder;
use serde_json::{Value, json};

use crate::actions::CertificateRequestChange;
use crate::user::SimulatedUser;

const REQUESTS: Resource = CertificateSigningRequest::RESOURCE;

/// A request for the key that this number selects.
fn body(name: &str, signer: &str, key: u8, expiration_seconds: Option<u32>) -> Value {
    let request = RequestBuilder::for_ed25519(&[key; 32]).kubelet(name).to_pem_unsigned();
    let mut body = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"signerName": signer, "request": BASE64_STANDARD.encode(request),
                 "usages": ["digital signature", "client auth"]},
    });
    if let Some(seconds) = expiration_seconds {
        body["spec"]["expirationSeconds"] = json!(seconds);
    }
    body
}

impl SimulatedUser {
    pub(crate) async fn change_certificate_request(&self, name: &str, change: CertificateRequestChange) {
        let key = Key::cluster(name);
        match change {
            CertificateRequestChange::CreateForKubelet(key, seconds) => {
                let body = body(name, KUBE_APISERVER_CLIENT_KUBELET, key, seconds);
                self.create(&REQUESTS, "", &body).await;
            }
            CertificateRequestChange::CreateForUser(key) => {
                self.create(&REQUESTS, "", &body(name, KUBE_APISERVER_CLIENT, key, None)).await;
            }
            CertificateRequestChange::Decide(approves) => {
                let r#type = if approves { "Approved" } else { "Denied" };
                let condition = json!({"type": r#type, "status": "True", "reason": "User"});
                let change = json!({"status": {"conditions": [condition]}});
                let call = Call::patch(&REQUESTS, &key, PatchType::Merge, &change);
                self.send(&call.subresource("approval")).await;
            }
            CertificateRequestChange::Delete => self.delete(&REQUESTS, &key).await,
        }
    }
}
