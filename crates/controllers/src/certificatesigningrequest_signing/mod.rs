//! Issues certificates for approved CertificateSigningRequests of the four built-in signers.
//!
//! Each signer with a CA has a loop of its own. A request that violates a rule of its signer gets the condition
//! `Failed`; any other problem is an error that is retried. The CA's key is not in this crate: the process signs, on
//! another thread, so that a flood of requests delays neither reconciles nor the renewal of the lease.
//!
//! Parity: pkg/controller/certificates/signer.

use std::sync::Arc;

use keleustes_objects::{CertificateSigningRequest, FullMeta as _, Key, TRUE};
use keleustes_plan::{
    BoxFuture, Context, Controller, Loop, Plan, ReconcileError, Reconciler, Requeue, View, Write, WriteDraft,
};
use keleustes_x509::SigningJob;
use serde_json::{Value, json};

use crate::certificates::{
    APPROVED, DENIED, FAILED, GRANTS, QUEUE, RATE_LIMITER, WORKERS, check_rules, has_condition, parse,
    request_changed,
};

/// Verifies the signature of a request and signs a certificate; returns it as PEM.
pub type SignCertificate =
    Arc<dyn Fn(SigningJob) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Options of the signing controller.
#[derive(Clone)]
pub struct CertificateSigningRequestSigningOptions {
    /// The signers that have a CA. Without any, the controller does not run.
    pub signers: Vec<BuiltInSigner>,
    /// The longest life of a certificate in nanoseconds. It is not validated.
    pub duration_nanoseconds: i128,
}

/// A signer and its CA.
#[derive(Clone)]
pub struct BuiltInSigner {
    /// `spec.signerName` of its requests.
    pub name: &'static str,
    /// Signs with its CA.
    pub sign: SignCertificate,
}

/// A shorter life is not granted.
const MIN_LIFE: i128 = 600 * NANOSECONDS;
const NANOSECONDS: i128 = 1_000_000_000;

/// Builds the controller; `None` if no signer has a CA.
#[must_use]
pub fn controller(options: &CertificateSigningRequestSigningOptions) -> Option<Controller> {
    let controller = Controller::new("certificatesigningrequest-signing-controller")
        .service_account("certificate-controller")
        .may_write(GRANTS);
    let add_loop = |controller: Controller, signer: &BuiltInSigner| {
        let signer = SignerLoop { signer: signer.clone(), duration: options.duration_nanoseconds };
        controller.with_loop(
            Loop::reconciling(QUEUE, signer)
                .keyed_by::<CertificateSigningRequest>()
                .enqueue_on::<CertificateSigningRequest>(request_changed)
                .rate_limited_by(RATE_LIMITER)
                .workers(WORKERS),
        )
    };
    let any = !options.signers.is_empty();
    any.then(|| options.signers.iter().fold(controller, add_loop))
}

struct SignerLoop {
    signer: BuiltInSigner,
    duration: i128,
}

/// What is to be done for a request.
enum Step {
    Nothing,
    /// It cannot be parsed.
    Retry(String),
    /// It violates a rule.
    Fail(Box<Write>),
    Sign(Arc<CertificateSigningRequest>, Box<SigningJob>),
}

impl Reconciler for SignerLoop {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let (write, wrapped) = match cx.gather(|view| self.decide(view, item)) {
            Step::Nothing => return Ok(Requeue::Forget),
            Step::Retry(error) => return Err(ReconcileError::because(error)),
            Step::Fail(write) => (*write, "error adding failure condition for csr"),
            Step::Sign(request, job) => {
                let signed = (self.signer.sign)(*job).await;
                let certificate = signed
                    .map_err(|error| ReconcileError::because(format!("error auto signing csr: {error}")))?;
                (put_certificate(&request, &certificate), "error updating signature for csr")
            }
        };
        let written = cx.apply(Plan::of(write)).await.all_done();
        written
            .map(|()| Requeue::Forget)
            .map_err(|error| ReconcileError { because: format!("{wrapped}: {}", error.because), ..error })
    }
}

impl SignerLoop {
    fn decide(&self, view: &View<'_>, item: &Key) -> Step {
        let request = view.get::<CertificateSigningRequest>(item);
        let Some(request) = request.filter(|request| is_to_be_signed(request, self.signer.name)) else {
            return Step::Nothing;
        };
        let (spec, parsed) = match parse(request) {
            Ok(found) => found,
            Err(error) => return Step::Retry(error),
        };
        if let Err(violation) = check_rules(self.signer.name, &parsed, &spec.usages) {
            return Step::Fail(Box::new(put_failure(request, &violation, view)));
        }
        let life = life(spec.expiration_seconds, self.duration);
        let now = view.now().wall_nanoseconds();
        let job = SigningJob { request: parsed, usages: spec.usages, life, now };
        Step::Sign(request.clone(), Box::new(job))
    }
}

/// Whether a request is approved, waits for a certificate and belongs to the signer.
fn is_to_be_signed(request: &CertificateSigningRequest, signer: &str) -> bool {
    let failed = |condition: &keleustes_objects::CertificateSigningRequestCondition| {
        condition.r#type == FAILED && (condition.status == TRUE || condition.status.is_empty())
    };
    !request.is_issued
        && has_condition(request, APPROVED)
        && !has_condition(request, DENIED)
        && !request.conditions.iter().any(failed)
        && request.signer_name == signer
}

/// The life of a certificate in nanoseconds. Parity: `signer.duration`.
fn life(requested_seconds: Option<i32>, configured: i128) -> i128 {
    match requested_seconds.map(|seconds| i128::from(seconds) * NANOSECONDS) {
        None => configured,
        Some(requested) if requested > configured => configured,
        Some(requested) => requested.max(MIN_LIFE),
    }
}

fn put_certificate(request: &CertificateSigningRequest, certificate: &str) -> Write {
    use base64::Engine as _;
    let conditions: Value = request.conditions_and(Value::Null);
    let conditions: Vec<Value> =
        conditions.as_array().into_iter().flatten().filter(|one| !one.is_null()).cloned().collect();
    let certificate = base64::prelude::BASE64_STANDARD.encode(certificate);
    let status = json!({"conditions": conditions, "certificate": certificate});
    put_status(request, &status).because("it is approved and has no certificate")
}

fn put_failure(request: &CertificateSigningRequest, violation: &str, view: &View<'_>) -> Write {
    let condition = json!({
        "type": FAILED,
        "status": TRUE,
        "reason": "SignerValidationFailure",
        "message": violation,
        "lastUpdateTime": view.now().wall,
    });
    let status = json!({"conditions": request.conditions_and(condition)});
    put_status(request, &status).because("it violates a rule of its signer")
}

/// The cached object with another status. Its resourceVersion makes the server refuse it if the request was denied,
/// changed or re-created meanwhile.
fn put_status(request: &CertificateSigningRequest, status: &Value) -> WriteDraft {
    let spec: Value = serde_json::from_str(request.raw_spec.as_str()).unwrap_or_default();
    let body = json!({"metadata": request.full_meta_json(), "spec": spec, "status": status});
    Write::put(request, "status", body)
}

#[cfg(test)]
mod tests;
