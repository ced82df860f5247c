//! Looks at objects as they lie in the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use crate::witness::{Effect, text};

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

/// The objects of a kind whose controller has this uid.
#[must_use]
pub fn controlled(server: &ApiServer, resource: &str, owner: &str) -> Vec<Arc<Value>> {
    let its = |there: &Arc<Value>| controller(there).is_some_and(|its| text(its, "/uid") == owner);
    server.objects(resource).into_iter().filter(its).collect()
}

/// The pods whose controller has this uid.
#[must_use]
pub fn pods_of(server: &ApiServer, owner: &str) -> Vec<Arc<Value>> {
    controlled(server, "pods", owner)
}

/// Whether a user took an object from its owner.
#[must_use]
pub fn disowned(effect: &Effect) -> bool {
    !effect.by_manager() && freed(effect)
}

/// Whether an object has no owner any more.
#[must_use]
pub fn freed(effect: &Effect) -> bool {
    let (Some(before), Some(after)) = (&effect.before, &effect.after) else { return false };
    effect.done() && controller(before).is_some() && controller(after).is_none()
}

/// If the effect is a pod that a manager made for an owner of one of these kinds: the uid of the owner.
#[must_use]
pub fn pod_made_for<'a>(effect: &'a Effect, kinds: &[&str]) -> Option<&'a str> {
    let route = &effect.route;
    let made =
        effect.by_manager() && effect.done() && route.resource == "pods" && route.method == Method::POST;
    let owner = controller(&effect.body).filter(|_| made)?;
    kinds.contains(&text(owner, "/kind")).then(|| text(owner, "/uid"))
}

/// How many fit.
pub fn count<'a>(objects: impl IntoIterator<Item = &'a Arc<Value>>, fits: impl Fn(&Value) -> bool) -> i64 {
    let fitting = objects.into_iter().filter(|object| fits(object)).count();
    i64::try_from(fitting).unwrap_or(i64::MAX)
}

/// Says what differs between a number of the status and what it should be, if it does.
///
/// # Errors
/// As [`same`].
pub fn status(object: &Value, field: &str, should_be: i64) -> Result<(), String> {
    same(object, &format!("status.{field}"), number(object, &format!("/status/{field}")), should_be)
}

/// By uid: the most replicas that were asked for at any time.
#[derive(Default)]
pub struct Most(BTreeMap<String, i64>);

impl Most {
    /// Looks at an object.
    pub fn see(&mut self, object: &Value) {
        let most = self.0.entry(uid(object).to_owned()).or_default();
        *most = (*most).max(number(object, "/spec/replicas"));
    }

    /// Looks at both sides of a write.
    pub fn see_both(&mut self, effect: &Effect) {
        [&effect.before, &effect.after].into_iter().flatten().for_each(|object| self.see(object));
    }

    /// What was asked for at most, of whom it is known.
    #[must_use]
    pub fn of(&self, uid: &str) -> Option<i64> {
        self.0.get(uid).copied()
    }
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
