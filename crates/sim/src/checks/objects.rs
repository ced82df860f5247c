//! Reads objects as the API server stores them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use crate::recorder::{ObservedWrite, text};

/// Kind, namespace and name, for messages.
#[must_use]
pub fn describe(object: &Value) -> String {
    let kind = text(object, "/kind");
    format!("{kind} {}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// The UID.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The number at a JSON pointer; 0 if there is none.
#[must_use]
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Whether it has a deletionTimestamp.
#[must_use]
pub fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// The controllerRef of an object.
#[must_use]
pub fn controller_ref(object: &Value) -> Option<&Value> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// The namespace; empty for cluster-scoped objects.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// The objects of a kind in the owner's namespace whose controllerRef has its UID. An object in another
/// namespace has no owner there, whatever it claims.
#[must_use]
pub fn controlled_by(
    server: &ApiServer,
    resource: &str,
    owner_namespace: &str,
    owner: &str,
) -> Vec<Arc<Value>> {
    let its = |there: &Arc<Value>| {
        namespace(there) == owner_namespace
            && controller_ref(there).is_some_and(|its| text(its, "/uid") == owner)
    };
    server.objects(resource).into_iter().filter(its).collect()
}

/// The pods in the owner's namespace whose controllerRef has its UID.
#[must_use]
pub fn pods_of(server: &ApiServer, owner_namespace: &str, owner: &str) -> Vec<Arc<Value>> {
    controlled_by(server, "pods", owner_namespace, owner)
}

/// Whether a user removed the controllerRef of an object.
#[must_use]
pub fn released_by_user(write: &ObservedWrite) -> bool {
    !write.by_manager() && loses_controller_ref(write)
}

/// Whether the write removed the controllerRef.
#[must_use]
pub fn loses_controller_ref(write: &ObservedWrite) -> bool {
    let (Some(before), Some(after)) = (&write.before, &write.after) else { return false };
    write.succeeded() && controller_ref(before).is_some() && controller_ref(after).is_none()
}

/// The UID of the owner, if the write is a manager's successful create of a pod controlled by one of these
/// kinds.
#[must_use]
pub fn pod_created_for<'a>(write: &'a ObservedWrite, kinds: &[&str]) -> Option<&'a str> {
    let request = &write.request;
    let made = write.by_manager()
        && write.succeeded()
        && request.resource == "pods"
        && request.method == Method::POST;
    let owner = controller_ref(&write.body).filter(|_| made)?;
    kinds.contains(&text(owner, "/kind")).then(|| text(owner, "/uid"))
}

/// How many objects match.
pub fn count<'a>(objects: impl IntoIterator<Item = &'a Arc<Value>>, fits: impl Fn(&Value) -> bool) -> i64 {
    let fitting = objects.into_iter().filter(|object| fits(object)).count();
    i64::try_from(fitting).unwrap_or(i64::MAX)
}

/// Compares a number of the status with the expected one.
///
/// # Errors
/// As [`expect_equal`].
pub fn expect_status(object: &Value, field: &str, expected: i64) -> Result<(), String> {
    expect_equal(object, &format!("status.{field}"), number(object, &format!("/status/{field}")), expected)
}

/// By UID: the highest spec.replicas ever seen.
#[derive(Default)]
pub struct MaxReplicas(BTreeMap<String, i64>);

impl MaxReplicas {
    /// Takes an object into account.
    pub fn observe(&mut self, object: &Value) {
        let max_wanted = self.0.entry(uid(object).to_owned()).or_default();
        *max_wanted = (*max_wanted).max(number(object, "/spec/replicas"));
    }

    /// Takes the object before and after a write into account.
    pub fn observe_write(&mut self, write: &ObservedWrite) {
        [&write.before, &write.after].into_iter().flatten().for_each(|object| self.observe(object));
    }

    /// The highest spec.replicas of the object with this UID, if it was ever seen.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<i64> {
        self.0.get(uid).copied()
    }
}

/// Whether a pod has neither finished nor a deletionTimestamp.
#[must_use]
pub fn is_active(pod: &Value) -> bool {
    !is_terminating(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a condition is true.
#[must_use]
pub fn condition_is_true(object: &Value, condition: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|there| there["type"] == condition && there["status"] == "True")
}

/// Compares two numbers.
///
/// # Errors
/// The object, what was compared, and both numbers.
pub fn expect_equal(object: &Value, what: &str, is: i64, expected: i64) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{}: {what} is {is}, not {expected}", describe(object))) }
}

/// Compares status.observedGeneration with metadata.generation.
///
/// # Errors
/// If they differ.
pub fn expect_observed(object: &Value) -> Result<(), String> {
    let (seen, is) = (number(object, "/status/observedGeneration"), number(object, "/metadata/generation"));
    expect_equal(object, "status.observedGeneration", seen, is)
}
