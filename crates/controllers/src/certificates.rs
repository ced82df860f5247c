//! What the built-in signers of certificates require of a request.
//!
//! Parity: pkg/apis/certificates/helpers.go.

use std::collections::BTreeSet;

use keleustes_objects::{CertificateSigningRequest, CertificateSigningRequestSpec};
use keleustes_plan::{Change, Effects, Grant, RateLimiter, View};
use keleustes_x509::{CertificateRequest, quoted};

pub(crate) const APPROVED: &str = "Approved";
pub(crate) const DENIED: &str = "Denied";
pub(crate) const FAILED: &str = "Failed";

/// The signer of the kubelets' serving certificates.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signer of the certificates with which kubelets authenticate to the API server.
pub const KUBE_APISERVER_CLIENT_KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of other client certificates for the API server.
pub const KUBE_APISERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// The signer of requests that old API servers stored without a signer.
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

const CLIENT_AUTH: &str = "client auth";
const DIGITAL_SIGNATURE: &str = "digital signature";
const KEY_ENCIPHERMENT: &str = "key encipherment";
const SERVER_AUTH: &str = "server auth";

/// The role of the service account that the approving, the signing and the cleaner controller share.
pub(crate) const GRANTS: &[Grant] = &[
    Grant {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        verbs: &["delete", "get", "list", "watch"],
    },
    Grant {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests/approval",
        verbs: &["update"],
    },
    Grant { group: "certificates.k8s.io", resource: "certificatesigningrequests/status", verbs: &["update"] },
    Grant { group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: &["create"] },
    Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
];

/// The queue of each loop that signs or approves.
pub(crate) const QUEUE: &str = "certificate";
pub(crate) const WORKERS: usize = 5;

/// The rate limiter of these queues.
pub(crate) const RATE_LIMITER: RateLimiter =
    RateLimiter { base_delay: std::time::Duration::from_millis(200), ..RateLimiter::DEFAULT };

/// Every change of a request enqueues it.
pub(crate) fn request_changed(
    change: &Change<CertificateSigningRequest>,
    _: &View<'_>,
    enqueue: &mut Effects,
) {
    enqueue.add(&change.latest().meta.key);
}

/// Whether a request has a condition of this type, whatever its status.
pub(crate) fn has_condition(request: &CertificateSigningRequest, wanted: &str) -> bool {
    request.conditions.iter().any(|condition| condition.r#type == wanted)
}

/// The spec of a request and what its PEM text contains.
///
/// # Errors
/// The original's message.
pub(crate) fn parse(
    request: &CertificateSigningRequest,
) -> Result<(CertificateSigningRequestSpec, CertificateRequest), String> {
    let cannot = |cause: &dyn std::fmt::Display| {
        format!("unable to parse csr {}: {cause}", quoted(&request.meta.key.name))
    };
    let spec = request.spec().map_err(|cause| cannot(&cause))?;
    let parsed = CertificateRequest::from_pem(&spec.request.0).map_err(|cause| cannot(&cause))?;
    Ok((spec, parsed))
}

/// Checks a request against the rules of a built-in signer.
///
/// # Errors
/// The rule that it violates.
pub fn check_rules(signer: &str, request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    match signer {
        KUBELET_SERVING => check_kubelet_serving(request, usages).map_err(str::to_owned),
        KUBE_APISERVER_CLIENT_KUBELET => check_kubelet_client(request, usages).map_err(str::to_owned),
        KUBE_APISERVER_CLIENT => check_client_usages(usages),
        _ => Ok(()),
    }
}

const NOT_NODES: &str = "subject organization is not system:nodes";
const NOT_A_NODE: &str = "subject common name does not begin with system:node:";
const NO_EMAILS: &str = "Email subjectAltNames are not allowed";
const NO_URIS: &str = "URI subjectAltNames are not allowed";

fn check_kubelet_serving(request: &CertificateRequest, usages: &[String]) -> Result<(), &'static str> {
    let names = &request.alt_names;
    require(request.subject.organization == [NODES], NOT_NODES)?;
    require(!names.dns.is_empty() || !names.ips.is_empty(), "DNS or IP subjectAltName is required")?;
    require(names.emails.is_empty(), NO_EMAILS)?;
    require(names.uris.is_empty(), NO_URIS)?;
    let text = "usages did not match [digital signature key encipherment server auth]";
    require(are_usages_for(usages, SERVER_AUTH), text)?;
    require(request.subject.common_name.starts_with(NODE_PREFIX), NOT_A_NODE)
}

/// Checks a request for a kubelet's client certificate.
pub(crate) fn check_kubelet_client(
    request: &CertificateRequest,
    usages: &[String],
) -> Result<(), &'static str> {
    let names = &request.alt_names;
    require(request.subject.organization == [NODES], NOT_NODES)?;
    require(names.dns.is_empty(), "DNS subjectAltNames are not allowed")?;
    require(names.emails.is_empty(), NO_EMAILS)?;
    require(names.ips.is_empty(), "IP subjectAltNames are not allowed")?;
    require(names.uris.is_empty(), NO_URIS)?;
    require(request.subject.common_name.starts_with(NODE_PREFIX), NOT_A_NODE)?;
    let text = "usages did not match [client auth digital signature key encipherment]";
    require(are_usages_for(usages, CLIENT_AUTH), text)
}

fn require(holds: bool, text: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(text) }
}

/// Whether the usages are those of a kubelet: digital signatures, this one, and possibly key encipherment.
fn are_usages_for(usages: &[String], auth: &str) -> bool {
    let mut found: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    found.remove(KEY_ENCIPHERMENT);
    found == BTreeSet::from([DIGITAL_SIGNATURE, auth])
}

fn check_client_usages(usages: &[String]) -> Result<(), String> {
    let allowed = [DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, CLIENT_AUTH];
    if let Some(usage) = usages.iter().find(|usage| !allowed.contains(&usage.as_str())) {
        return Err(format!("invalid usage for client certificate: {usage}"));
    }
    if !usages.iter().any(|usage| usage == CLIENT_AUTH) {
        return Err(format!("missing required usage for client certificate: {CLIENT_AUTH}"));
    }
    Ok(())
}
