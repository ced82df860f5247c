//! Looks at objects as they lie in the server.

use std::sync::Arc;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use crate::witness::text;

/// A name for messages.
#[must_use]
pub fn named(object: &Value) -> String {
    let kind = text(object, "/kind");
    format!("{kind} {}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Its uid.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// A number in it; 0 if there is none.
#[must_use]
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Whether it is on its way out.
#[must_use]
pub fn going(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// The reference to the controller of an object.
#[must_use]
pub fn controller(object: &Value) -> Option<&Value> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// The pods whose controller has this uid.
#[must_use]
pub fn pods_of(server: &ApiServer, owner: &str) -> Vec<Arc<Value>> {
    let controlled =
        |pod: &Arc<Value>| controller(pod).is_some_and(|owner_ref| text(owner_ref, "/uid") == owner);
    server.objects("pods").into_iter().filter(controlled).collect()
}

/// Whether a pod has neither ended nor been told to.
#[must_use]
pub fn active(pod: &Value) -> bool {
    !going(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a condition is true.
#[must_use]
pub fn holds(object: &Value, condition: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|there| there["type"] == condition && there["status"] == "True")
}

/// Says what differs, if something does.
///
/// # Errors
/// The name of the object, what was looked at, and both sides.
pub fn same(object: &Value, what: &str, is: i64, should_be: i64) -> Result<(), String> {
    if is == should_be { Ok(()) } else { Err(format!("{}: {what} is {is}, not {should_be}", named(object))) }
}

/// Whether the controller has seen the object as it is now.
///
/// # Errors
/// If it has not.
pub fn observed(object: &Value) -> Result<(), String> {
    let (seen, is) = (number(object, "/status/observedGeneration"), number(object, "/metadata/generation"));
    same(object, "status.observedGeneration", seen, is)
}
