//! What admission finds in a namespace: Pod Security labels, a LimitRange, a ResourceQuota. They exist before the first
//! object of a sequence and stay, because kube-apiserver reads them from caches that lag behind.

use serde::Deserialize;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::{SequenceBuilder, create_request};
use crate::sequence::{Content, Edit};

/// `data/admission.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionTable {
    /// Pod Security labels of a namespace.
    labels: Vec<Value>,
    /// Changes that Pod Security cares about, below a pod's spec.
    pod_security_edits: Vec<Vec<Value>>,
    /// What makes a pod fit the restricted level.
    hardened: Vec<Vec<Value>>,
    /// The limits of a LimitRange.
    limit_ranges: Vec<Value>,
    /// Changes that LimitRanges care about, below a pod's spec.
    limit_range_edits: Vec<Vec<Value>>,
    /// `hard`, `used` and `scopes` of a ResourceQuota.
    quotas: Vec<Value>,
}

/// Reads the table.
///
/// # Panics
/// If the embedded table is malformed; a test reads it.
#[must_use]
pub(super) fn table() -> AdmissionTable {
    // Embedded in the program and read by a test.
    serde_json::from_str(include_str!("../../data/admission.json")).expect("the table of admission")
}

/// The changes that fit what a namespace has.
#[derive(Debug, Default)]
pub(super) struct AdmissionEdits<'a> {
    /// To choose from, below a pod's spec.
    edits: Vec<&'a Vec<Value>>,
    /// Made to every new pod.
    base: Vec<&'a Vec<Value>>,
}

impl<'a> SequenceBuilder<'a> {
    /// Draws Pod Security labels for the namespace.
    pub(super) fn pod_security_labels(&mut self, table: &'a AdmissionTable) -> Option<Value> {
        let concerned = self.chosen.iter().any(|kind| kind.pod_spec().is_some());
        if !concerned || !self.percent_chance(40) {
            return None;
        }
        self.admission.edits.extend(&table.pod_security_edits);
        if self.percent_chance(60) {
            self.admission.base.extend(&table.hardened);
        }
        let at = self.rng.usize(..table.labels.len());
        Some(table.labels[at].clone())
    }

    /// Creates a LimitRange, a ResourceQuota, or neither.
    pub(super) fn prepare_limits(&mut self, table: &'a AdmissionTable) {
        let is_limited = |kind: &&Kind| matches!(kind.kind.as_str(), "Pod" | "PersistentVolumeClaim");
        if self.chosen.iter().any(is_limited) && self.percent_chance(35) {
            let limits = &table.limit_ranges[self.rng.usize(..table.limit_ranges.len())];
            let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits"}, "spec": {"limits": limits}});
            self.push("create", "limitranges", create_request("/api/v1/namespaces/{ns}/limitranges", range));
            self.admission.edits.extend(&table.limit_range_edits);
        }
        let is_exclusive = self.chosen.iter().any(|kind| kind.exclusive);
        if !is_exclusive && self.percent_chance(12) {
            let quota = &table.quotas[self.rng.usize(..table.quotas.len())];
            self.prepare_quota(quota);
        }
    }

    /// A ResourceQuota with the status that the controller would have published.
    fn prepare_quota(&mut self, quota: &Value) {
        let (path, name) = ("/api/v1/namespaces/{ns}/resourcequotas", "quota");
        let mut object = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
            "spec": {"hard": quota["hard"], "scopes": quota["scopes"]}});
        self.push("create", "resourcequotas", create_request(path, object.clone()));
        object["status"] = json!({"hard": quota["hard"], "used": quota["used"]});
        let mut request = create_request(&format!("{path}/{name}/status"), Value::Null);
        request.method = http::Method::PUT;
        request.content = Content::Json(object);
        let step = self.push("update", "resourcequotas/status", request);
        self.steps[step].settles = true;
    }

    /// A change that the namespace's settings care about.
    pub(super) fn admission_edit(&mut self, kind: &Kind) -> Option<Edit> {
        let spec = kind.pod_spec()?;
        if self.admission.edits.is_empty() || !self.percent_chance(60) {
            return None;
        }
        let edits: Vec<Vec<Value>> = self.admission.edits.iter().copied().cloned().collect();
        Some(below(spec, super::kinds::choose(&edits, &mut self.rng)))
    }

    /// The changes made to every new object.
    pub(super) fn base_edits(&self, kind: &Kind) -> Vec<Edit> {
        let Some(spec) = kind.pod_spec() else { return Vec::new() };
        let edit = |edit: &&Vec<Value>| match edit.as_slice() {
            [pointer, value] => {
                let pointer = pointer.as_str().unwrap_or_default().to_owned();
                Some(below(spec, Edit { pointer, value: Some(value.clone()) }))
            }
            _ => None,
        };
        self.admission.base.iter().filter_map(edit).collect()
    }
}

fn below(spec: &str, edit: Edit) -> Edit {
    Edit { pointer: format!("{spec}{}", edit.pointer), ..edit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Generator;

    #[test]
    fn table_can_be_read_and_every_edit_has_a_value() {
        let table = table();
        for edit in table.pod_security_edits.iter().chain(&table.limit_range_edits).chain(&table.hardened) {
            assert!(edit.len() > 1 && edit[0].is_string(), "{edit:?}");
        }
    }

    #[test]
    fn all_settings_occur() {
        let generator = Generator::new(1, &["pods".to_owned()]);
        let steps: Vec<String> =
            (0..100).flat_map(|n| generator.sequence(n).steps).map(|step| step.to_string()).collect();
        for words in ["pod-security.kubernetes.io/enforce", "LimitRange", "resourcequotas/quota/status"] {
            assert!(steps.iter().any(|step| step.contains(words)), "{words}");
        }
    }
}
