//! Pod Security admission: the level that a namespace's labels name is enforced on its pods, and warned about for pods and
//! their templates.
//!
//! Parity: k8s.io/pod-security-admission with its default configuration: no exemptions, and without labels everything is
//! allowed. Audit annotations are not written, because there is no audit log.

mod baseline;
mod checks;
mod policy;
mod restricted;

use std::collections::BTreeMap;

use serde_json::Value;

use self::checks::{PodView, details, reasons, violations};
use self::policy::{Level, LevelVersion, Policy};
use super::Kernel;
use super::metadata::meta_str;
use super::resources::{self, Resource, Strategy};
use super::status::{ApiResult, Status};

/// How many pods are compared with a namespace's new level.
const PODS_CHECKED_MAX: usize = 3000;

impl Kernel {
    /// Refuses what the namespace forbids, and warns about what it warns of. `old` is given for an update.
    pub(crate) fn check_pod_security(
        &mut self,
        resource: &Resource,
        old: Option<&Value>,
        new: &Value,
    ) -> ApiResult<()> {
        match (resource.strategy, old) {
            (Strategy::Namespace, _) => self.check_namespace_labels(resource, old, new),
            (Strategy::Pod, Some(old)) if !is_image_changed(old, new) => Ok(()),
            (Strategy::Pod, _) => self.check_pod(resource, new),
            _ => {
                if let Some(template) = template_of(resource.strategy, new) {
                    let policy = self.pod_security_policy(meta_str(new, "namespace"));
                    self.warn(policy.warn, view(template));
                }
                Ok(())
            }
        }
    }

    fn check_pod(&mut self, resource: &Resource, pod: &Value) -> ApiResult<()> {
        let policy = self.pod_security_policy(meta_str(pod, "namespace"));
        let found = violations(policy.enforce, view(pod));
        if found.is_empty() {
            self.warn(policy.warn, view(pod));
            return Ok(());
        }
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&found));
        Err(Status::forbidden(resource, meta_str(pod, "name"), &why))
    }

    fn warn(&mut self, level: LevelVersion, pod: PodView<'_>) {
        let found = violations(level, pod);
        if !found.is_empty() {
            self.warnings.push(format!("would violate PodSecurity \"{level}\": {}", details(&found)));
        }
    }

    fn pod_security_policy(&self, namespace: &str) -> Policy {
        let namespaces = resources::by_path("", "v1", "namespaces");
        let namespace = namespaces.and_then(|kind| self.store.get(kind, "", namespace));
        namespace.map_or_else(|| policy_of(&Value::Null), |namespace| policy_of(&namespace))
    }

    /// New labels must be valid, and existing pods that a new level forbids are named in a warning.
    fn check_namespace_labels(
        &mut self,
        resource: &Resource,
        old: Option<&Value>,
        new: &Value,
    ) -> ApiResult<()> {
        let (policy, errors) = Policy::of_labels(&new["metadata"]["labels"]);
        let before = old.map(|old| Policy::of_labels(&old["metadata"]["labels"]));
        let is_known = before.as_ref().is_some_and(|(_, known)| *known == errors);
        if !errors.is_empty() && !is_known {
            return Err(Status::invalid(resource.group, resource.kind, meta_str(new, "name"), &errors));
        }
        let (Some((before, _)), after) = (before, policy.enforce) else { return Ok(()) };
        let is_relaxed = after.version == before.enforce.version && after.level <= before.enforce.level;
        if after.level != Level::Privileged && !is_relaxed {
            let warnings = self.pods_that_violate(meta_str(new, "name"), after);
            self.warnings.extend(warnings);
        }
        Ok(())
    }

    fn pods_that_violate(&self, namespace: &str, level: LevelVersion) -> Vec<String> {
        let Some(kind) = resources::by_path("", "v1", "pods") else { return Vec::new() };
        let pods = self.store.values(kind, Some(namespace));
        let mut warnings = Vec::new();
        if pods.len() > PODS_CHECKED_MAX {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {PODS_CHECKED_MAX} of {} existing pods",
                pods.len()
            ));
        }
        // The pods with the same reasons, in order of their names.
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in pods.iter().take(PODS_CHECKED_MAX) {
            let why = reasons(&violations(level, view(pod)));
            if !why.is_empty() {
                found.entry(why).or_default().push(meta_str(pod, "name").to_owned());
            }
        }
        if !found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
            ));
        }
        let mut named: Vec<String> =
            found.iter().map(|(why, pods)| format!("{}: {why}", group(pods))).collect();
        named.sort();
        warnings.extend(named);
        warnings
    }
}

/// The first of these pods, and how many there are besides.
fn group(pods: &[String]) -> String {
    let first = pods.iter().min().map(String::as_str).unwrap_or_default();
    match pods.len() {
        0 | 1 => first.to_owned(),
        2 => format!("{first} (and 1 other pod)"),
        count => format!("{first} (and {} other pods)", count - 1),
    }
}

fn policy_of(namespace: &Value) -> Policy {
    Policy::of_labels(&namespace["metadata"]["labels"]).0
}

/// A pod or template as the checks see it.
fn view(pod: &Value) -> PodView<'_> {
    PodView { annotations: &pod["metadata"]["annotations"], spec: &pod["spec"] }
}

/// The pod template of a workload.
fn template_of(strategy: Strategy, object: &Value) -> Option<&Value> {
    let template = match strategy {
        Strategy::PodTemplate => &object["template"],
        Strategy::CronJob => &object["spec"]["jobTemplate"]["spec"]["template"],
        Strategy::Deployment
        | Strategy::ReplicaSet
        | Strategy::StatefulSet
        | Strategy::DaemonSet
        | Strategy::Job
        | Strategy::ReplicationController => &object["spec"]["template"],
        _ => return None,
    };
    template.is_object().then_some(template)
}

/// Whether an update changes an image, or the containers; nothing else that checks look at can be changed.
fn is_image_changed(old: &Value, new: &Value) -> bool {
    let images = |pod: &Value, list: &str| -> Vec<Value> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(|container| container["image"].clone()).collect()
    };
    ["containers", "initContainers", "ephemeralContainers"]
        .into_iter()
        .any(|list| images(old, list) != images(new, list))
}
