//! Type-checks the CEL expressions of ValidatingAdmissionPolicies and reports warnings in their status.
//!
//! The expressions of `spec.validations` are checked against the schemas of the kinds that a policy matches, once for each
//! generation. The warnings only inform: a policy is enforced as it is written.
//!
//! All types come from the OpenAPI documents of the API server. The original uses the definitions that it was compiled with
//! for built-in kinds, and so does not know the fields of a newer server. While the document of a built-in kind cannot be read,
//! its policies are checked again and have no status; without that, one failed request would lose their warnings for good.
//!
//! Parity: pkg/controller/validatingadmissionpolicystatus/.

mod documents;
mod kinds;
mod warnings;

use std::sync::Arc;

use keleustes_objects::{Key, ValidatingAdmissionPolicy};
use keleustes_plan::{
    Change, Context, Controller, Effects, Grant, Loop, Memory, Plan, ReconcileError, Reconciler, Requeue,
    View, Write,
};
use serde_json::{Value, json};

use self::documents::{Documents, Kept};

pub use self::kinds::{GroupVersionKind, Lookup, kinds};
pub use self::warnings::{ExpressionWarning, KindType, params_kind, warnings};

/// Options of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyStatusOptions {
    /// How many policies are checked at a time.
    pub workers: usize,
}

impl Default for PolicyStatusOptions {
    fn default() -> Self {
        Self { workers: 5 }
    }
}

/// Builds the controller.
#[must_use]
pub fn controller(options: PolicyStatusOptions) -> Controller {
    Controller::new(NAME)
        .service_account(NAME)
        .may_write(&[
            Grant { group: GROUP, resource: "validatingadmissionpolicies", verbs: &["get", "list", "watch"] },
            Grant {
                group: GROUP,
                resource: "validatingadmissionpolicies/status",
                verbs: &["get", "patch", "update"],
            },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            Loop::reconciling(QUEUE, TypeChecker::default())
                .workers(options.workers)
                .keyed_by::<ValidatingAdmissionPolicy>()
                .enqueue_on::<ValidatingAdmissionPolicy>(policy_changed),
        )
}

const NAME: &str = "validatingadmissionpolicy-status-controller";
const GROUP: &str = "admissionregistration.k8s.io";
/// The name of the queue and of the field manager.
const QUEUE: &str = "validatingadmissionpolicy-status";

fn policy_changed(change: &Change<ValidatingAdmissionPolicy>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_deletion() {
        enqueue.add(&change.latest().meta.key);
    }
}

#[derive(Default)]
struct TypeChecker {
    kept: Memory<Kept>,
}

impl Reconciler for TypeChecker {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let is_new =
            |policy: &&Arc<ValidatingAdmissionPolicy>| policy.meta.generation > policy.observed_generation;
        let gathered = cx.gather(|view| {
            let policy = view.get::<ValidatingAdmissionPolicy>(item).filter(is_new).cloned();
            policy.map(|policy| (policy, view.now().wall_subsecond_nanoseconds))
        });
        let Some((policy, nanoseconds)) = gathered else { return Ok(Requeue::Forget) };
        let found = self.check(cx, &policy, nanoseconds).await?;
        let write = Write::apply(&*policy, QUEUE, status(&policy, &found))
            .on_subresource("status")
            .because("its expressions were type-checked");
        cx.apply(Plan::of(write)).await.all_done().map(|()| Requeue::Forget)
    }
}

impl TypeChecker {
    /// The warnings of a policy. What cannot be resolved is not checked: the policy has been checked all the same.
    ///
    /// # Errors
    /// The type of a built-in kind cannot be read now.
    async fn check(
        &self,
        cx: &mut Context<'_>,
        policy: &ValidatingAdmissionPolicy,
        nanoseconds: u32,
    ) -> Result<Vec<ExpressionWarning>, ReconcileError> {
        let mut documents = Documents::new(&self.kept);
        let mut typed = Vec::new();
        for kind in kinds_of(cx, policy).await {
            let type_name = format!("{}{nanoseconds}", kind.kind);
            if let Some(object) = documents.type_of(cx, &kind, &type_name).await? {
                typed.push((kind, object));
            }
        }
        let mut params = None;
        if let Some(kind) = params_kind(policy.param_kind.as_ref()).filter(|_| !typed.is_empty()) {
            // Not the name of the type of objects: these types are never the same.
            let type_name = format!("{}{}", kind.kind, nanoseconds + 1);
            params = Some(documents.type_of(cx, &kind, &type_name).await?.flatten());
        }
        Ok(warnings(policy, &typed, params.as_ref().map(Option::as_ref)))
    }
}

/// The kinds that a policy matches. Discovery is repeated if the cached one lacks a resource, which may be new.
async fn kinds_of(cx: &mut Context<'_>, policy: &ValidatingAdmissionPolicy) -> Vec<GroupVersionKind> {
    let rules = &policy.resource_rules;
    if let Ok(discovered) = cx.cached_discovery().await
        && let Lookup::Kinds(found) = kinds(rules, &discovered, false)
    {
        return found;
    }
    match cx.discover().await {
        Ok(discovered) => match kinds(rules, &discovered, true) {
            Lookup::Kinds(found) => found,
            Lookup::NotFound => Vec::new(),
        },
        Err(_) => Vec::new(),
    }
}

fn status(policy: &ValidatingAdmissionPolicy, found: &[ExpressionWarning]) -> Value {
    // The list is left out, not empty, if there are no warnings.
    let type_checking = if found.is_empty() { json!({}) } else { json!({"expressionWarnings": found}) };
    json!({"status": {"observedGeneration": policy.meta.generation, "typeChecking": type_checking}})
}

#[cfg(test)]
mod tests;
