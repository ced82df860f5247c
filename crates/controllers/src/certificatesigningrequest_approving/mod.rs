//! Approves CertificateSigningRequests for kubelet client certificates if a SubjectAccessReview allows the requester
//! to create them.
//!
//! Nothing is ever denied here. A request that no recognizer recognizes waits for an operator.
//!
//! Parity: pkg/controller/certificates/approver/sarapprove.go.

use std::sync::Arc;

use keleustes_objects::{
    CertificateSigningRequest, CertificateSigningRequestSpec, FullMeta as _, Key, SubjectAccessReview, TRUE,
};
use keleustes_plan::{
    Context, Controller, Loop, OnFailure, Outcome, Plan, ReconcileError, Reconciler, Requeue, View, Write,
};
use keleustes_x509::quoted;
use serde_json::{Value, json};

use crate::certificates::{
    APPROVED, DENIED, GRANTS, KUBE_APISERVER_CLIENT_KUBELET, QUEUE, RATE_LIMITER, WORKERS,
    check_kubelet_client, has_condition, parse, request_changed,
};

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("certificatesigningrequest-approving-controller")
        .service_account("certificate-controller")
        .may_write(GRANTS)
        .with_loop(
            Loop::reconciling(QUEUE, Approver)
                .keyed_by::<CertificateSigningRequest>()
                .enqueue_on::<CertificateSigningRequest>(request_changed)
                .rate_limited_by(RATE_LIMITER)
                .workers(WORKERS),
        )
}

/// A kind of request that is approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recognizer {
    /// A kubelet renews its own certificate.
    SelfNodeClient,
    /// Another user, such as a bootstrap token, requests a kubelet's first certificate.
    NodeClient,
}

impl Recognizer {
    /// The subresource that the SubjectAccessReview names.
    fn permission(self) -> &'static str {
        match self {
            Self::SelfNodeClient => "selfnodeclient",
            Self::NodeClient => "nodeclient",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::SelfNodeClient => {
                "Auto approving self kubelet client certificate after SubjectAccessReview."
            }
            Self::NodeClient => "Auto approving kubelet client certificate after SubjectAccessReview.",
        }
    }
}

/// A request that may be approved.
struct Recognized {
    request: Arc<CertificateSigningRequest>,
    spec: CertificateSigningRequestSpec,
    /// The recognizers that recognize it, in the order in which they are tried.
    recognizers: &'static [Recognizer],
}

struct Approver;

impl Reconciler for Approver {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let Some(found) = cx.gather(|view| gather(view, item)).map_err(ReconcileError::because)? else {
            return Ok(Requeue::Forget);
        };
        for recognizer in found.recognizers {
            if !is_allowed(cx, &found, *recognizer).await? {
                continue;
            }
            let approved = cx.apply(Plan::of(approval(&found.request, *recognizer))).await.all_done();
            return approved.map(|()| Requeue::Forget).map_err(|error| ReconcileError {
                because: format!("error updating approval for csr: {}", error.because),
                ..error
            });
        }
        let Some(_) = found.recognizers.first() else { return Ok(Requeue::Forget) };
        let tried: Vec<_> = found.recognizers.iter().map(|recognizer| recognizer.permission()).collect();
        let (name, tried) = (quoted(&found.request.meta.key.name), tried.join(" "));
        // The requester's permissions may be granted later, so this is retried without end and not logged each time.
        Err(ReconcileError::because(format!(
            "recognized csr {name} as [{tried}] but subject access review was not approved"
        ))
        .quietly())
    }
}

/// The request, if it waits for an approval.
///
/// # Errors
/// If its PEM text cannot be parsed, whatever its signer.
fn gather(view: &View<'_>, item: &Key) -> Result<Option<Recognized>, String> {
    let is_pending = |request: &&Arc<CertificateSigningRequest>| {
        !request.is_issued && !has_condition(request, APPROVED) && !has_condition(request, DENIED)
    };
    let Some(request) = view.get::<CertificateSigningRequest>(item).filter(is_pending) else {
        return Ok(None);
    };
    let (spec, parsed) = parse(request)?;
    let is_kubelet = request.signer_name == KUBE_APISERVER_CLIENT_KUBELET
        && check_kubelet_client(&parsed, &spec.usages).is_ok();
    let recognizers: &[Recognizer] = if !is_kubelet {
        &[]
    } else if spec.username == parsed.subject.common_name {
        &[Recognizer::SelfNodeClient, Recognizer::NodeClient]
    } else {
        &[Recognizer::NodeClient]
    };
    Ok(Some(Recognized { request: request.clone(), spec, recognizers }))
}

/// Asks the API server whether the requester may create such a request.
async fn is_allowed(
    cx: &mut Context<'_>,
    found: &Recognized,
    recognizer: Recognizer,
) -> Result<bool, ReconcileError> {
    let review = Write::create::<SubjectAccessReview>(Key::cluster(""), review(&found.spec, recognizer))
        .returning_object()
        .on_failure(OnFailure::StopAndRetry)
        .because("a kubelet client certificate is requested");
    let applied = cx.apply(Plan::of(review)).await;
    if let Some(error) = applied.error {
        return Err(error);
    }
    let answer = applied.outcomes.first().and_then(Outcome::stored::<SubjectAccessReview>);
    let answer = answer.ok_or_else(|| ReconcileError::because("the subject access review has no answer"))?;
    Ok(answer.allowed)
}

/// The review of the requester, as the request names it: nothing in the X.509 request is trusted.
fn review(spec: &CertificateSigningRequestSpec, recognizer: Recognizer) -> Value {
    let mut review = json!({
        "user": spec.username,
        "resourceAttributes": {
            "group": "certificates.k8s.io",
            "version": "*",
            "resource": "certificatesigningrequests",
            "verb": "create",
            "subresource": recognizer.permission(),
        },
    });
    if !spec.uid.is_empty() {
        review["uid"] = json!(spec.uid);
    }
    if !spec.groups.is_empty() {
        review["groups"] = json!(spec.groups);
    }
    if !spec.extra.is_empty() {
        review["extra"] = json!(spec.extra);
    }
    json!({"spec": review})
}

/// The cached object with an approval. Its resourceVersion makes the server refuse it if the request was decided,
/// changed or re-created meanwhile.
fn approval(request: &CertificateSigningRequest, recognizer: Recognizer) -> Write {
    let condition = json!({
        "type": APPROVED,
        "status": TRUE,
        "reason": "AutoApproved",
        "message": recognizer.message(),
    });
    let spec: Value = serde_json::from_str(request.raw_spec.as_str()).unwrap_or_default();
    let status = json!({"conditions": request.conditions_and(condition)});
    let body = json!({"metadata": request.full_meta_json(), "spec": spec, "status": status});
    Write::put(request, "approval", body).because("the requester may request kubelet client certificates")
}

#[cfg(test)]
mod tests;
