//! Permissions of signers: who may approve, sign and attest in the name of a signer, and which subjects a signer never
//! certifies.
//!
//! Parity: plugin/pkg/admission/certificates, pkg/certauthorization, pkg/registry/certificates/podcertificaterequest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use keleustes_x509::CertificateRequest;
use serde_json::{Value, json};

use super::Kernel;
use super::metadata::meta_str;
use super::rbac::Attributes;
use super::request::Target;
use super::resources::Strategy;
use super::status::{ApiResult, FieldError, Status};
use super::users::User;

/// A certificate of a pod begins within this time of now.
const BEGINS_WITHIN: SignedDuration = SignedDuration::from_secs(300);

/// A write: what it changes, who sent it, and when.
pub(crate) struct SignerWrite<'a> {
    pub(crate) target: &'a Target,
    pub(crate) user: &'a User,
    pub(crate) now: Timestamp,
}

impl Kernel {
    /// The admission of a new object.
    pub(crate) fn check_signer_of_create(&self, write: &SignerWrite<'_>, object: &Value) -> ApiResult<()> {
        let resource = write.target.resource;
        if resource.strategy == Strategy::CertificateSigningRequest && is_for_masters(object) {
            let why =
                "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
            return Err(Status::forbidden(resource, meta_str(object, "name"), why));
        }
        if resource.kind == "ClusterTrustBundle" { self.check_attester(write, object) } else { Ok(()) }
    }

    /// The admission of a changed object.
    pub(crate) fn check_signer_of_update(
        &self,
        write: &SignerWrite<'_>,
        old: &Value,
        new: &Value,
    ) -> ApiResult<()> {
        let resource = write.target.resource;
        let is_request = resource.strategy == Strategy::CertificateSigningRequest;
        match write.target.subresource.as_deref() {
            Some("approval") if is_request => self.check_request_signer(write, old, "approve"),
            Some("status") if is_request && old["status"] != new["status"] => {
                self.check_request_signer(write, old, "sign")
            }
            Some("status") if resource.kind == "PodCertificateRequest" && old["status"] != new["status"] => {
                self.check_pod_request(write, old, new)
            }
            None if resource.kind == "ClusterTrustBundle" && !changes_only_owners(old, new) => {
                self.check_attester(write, new)
            }
            _ => Ok(()),
        }
    }

    fn check_request_signer(&self, write: &SignerWrite<'_>, request: &Value, verb: &str) -> ApiResult<()> {
        let signer = signer_of(request);
        if self.may_act_for_signer(write.user, verb, signer) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
        Err(Status::forbidden(write.target.resource, meta_str(request, "name"), &why))
    }

    fn check_attester(&self, write: &SignerWrite<'_>, bundle: &Value) -> ApiResult<()> {
        let signer = signer_of(bundle);
        if signer.is_empty() || self.may_act_for_signer(write.user, "attest", signer) {
            return Ok(());
        }
        let why = format!("user not permitted to attest for signerName {signer:?}");
        Err(Status::forbidden(write.target.resource, meta_str(bundle, "name"), &why))
    }

    /// kube-apiserver reports these two as errors of validation.
    fn check_pod_request(&self, write: &SignerWrite<'_>, old: &Value, new: &Value) -> ApiResult<()> {
        let (resource, signer, user) = (write.target.resource, signer_of(old), write.user);
        let error = if !begins_now(new, write.now) {
            let why = "must be set to within 5 minutes of kube-apiserver's current time";
            FieldError::invalid("status.notBefore", &new["status"]["notBefore"], why)
        } else if self.may_act_for_signer(user, "sign", signer) {
            return Ok(());
        } else {
            let why = format!("User {:?} is not permitted to \"sign\" for signer {signer:?}", user.name);
            FieldError::forbidden("spec.signerName", &why)
        };
        Err(Status::invalid(resource.group, resource.kind, meta_str(new, "name"), &[error]))
    }

    /// Whether the user has this verb for the signer, or for all signers of its domain.
    fn may_act_for_signer(&self, user: &User, verb: &str, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        let is_allowed = |name: &str| {
            let attributes = Attributes {
                verb,
                group: "certificates.k8s.io",
                resource: "signers",
                name,
                namespace: "",
                path: "",
            };
            self.allows(user, &attributes).is_some()
        };
        !self.options.rbac || is_allowed(signer) || is_allowed(&format!("{domain}/*"))
    }
}

fn signer_of(object: &Value) -> &str {
    object.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a request for a client certificate asks for the group whose members may do everything.
fn is_for_masters(request: &Value) -> bool {
    if signer_of(request) != "kubernetes.io/kube-apiserver-client" {
        return false;
    }
    let pem = request.pointer("/spec/request").and_then(Value::as_str).unwrap_or_default();
    let pem = STANDARD.decode(pem).unwrap_or_default();
    let parsed = CertificateRequest::from_pem(&pem);
    parsed.is_ok_and(|request| request.subject.organization.iter().any(|group| group == "system:masters"))
}

/// Whether a status that names a certificate's beginning names one that is near.
fn begins_now(request: &Value, now: Timestamp) -> bool {
    let begins = request.pointer("/status/notBefore").and_then(Value::as_str).unwrap_or_default();
    begins.parse::<Timestamp>().is_err()
        || begins.parse::<Timestamp>().is_ok_and(|time| now.duration_since(time).abs() < BEGINS_WITHIN)
}

/// Whether an update changes owner references and finalizers alone, as the garbage collector does.
fn changes_only_owners(old: &Value, new: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "selfLink"] {
            object["metadata"][field] = json!(null);
        }
        object
    };
    without(old) == without(new)
}
