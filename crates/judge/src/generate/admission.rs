//! What admission finds in a namespace: Pod Security labels, a LimitRange, a ResourceQuota. They exist before the first
//! object of a sequence and stay, because kube-apiserver reads them from caches that lag behind.

use serde::Deserialize;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::{SequenceBuilder, ask, create_request};
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
    /// `hard`, `used`, `scopes` and `scopeSelector` of a ResourceQuota, and `edits` that concern it: the kind, a
    /// pointer, and values.
    quotas: Vec<Value>,
    /// The same, with limits that no sequence reaches: which of two exceeded quotas is reported is random.
    generous_quotas: Vec<Value>,
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
    /// The names of the quotas.
    quotas: Vec<&'static str>,
    /// Changes that the quotas care about.
    quota_edits: Vec<&'a Value>,
}

const QUOTAS: &str = "/api/v1/namespaces/{ns}/resourcequotas";

/// Whether quotas measure more of the kind than its number.
fn is_charged(kind: &&Kind) -> bool {
    matches!(kind.kind.as_str(), "Pod" | "PersistentVolumeClaim" | "Service" | "ResourceClaim")
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
        // Without others, quotas are of the kinds that they limit.
        let quota_chance = if self.chosen.iter().any(is_charged) { 30 } else { 8 };
        if !is_exclusive && self.percent_chance(quota_chance) {
            let quota = &table.quotas[self.rng.usize(..table.quotas.len())];
            self.prepare_quota("quota", quota);
            if self.percent_chance(30) {
                let generous = &table.generous_quotas[self.rng.usize(..table.generous_quotas.len())];
                self.prepare_quota("more", generous);
            }
        }
    }

    /// A ResourceQuota with the status that the controller would have published.
    fn prepare_quota(&mut self, name: &'static str, quota: &'a Value) {
        let mut object = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
            "spec": {"hard": quota["hard"], "scopes": quota["scopes"], "scopeSelector": quota["scopeSelector"]}});
        self.push("create", "resourcequotas", create_request(QUOTAS, object.clone()));
        object["status"] = json!({"hard": quota["hard"], "used": quota["used"]});
        let mut request = create_request(&format!("{QUOTAS}/{name}/status"), Value::Null);
        request.method = http::Method::PUT;
        request.content = Content::Json(object);
        let step = self.push("update", "resourcequotas/status", request);
        self.steps[step].settles = true;
        self.admission.quotas.push(name);
        self.admission.quota_edits.extend(quota["edits"].as_array().into_iter().flatten());
    }

    /// Reads what the objects of the sequence were charged.
    pub(super) fn read_quotas(&mut self) {
        for name in std::mem::take(&mut self.admission.quotas) {
            let request = ask(http::Method::GET, &format!("{QUOTAS}/{name}"), Content::Nothing);
            self.push("get", "resourcequotas", request);
        }
    }

    /// A change that the namespace's settings care about.
    pub(super) fn admission_edit(&mut self, kind: &Kind) -> Option<Edit> {
        if let Some(edit) = self.quota_edit(kind) {
            return Some(edit);
        }
        let spec = kind.pod_spec()?;
        if self.admission.edits.is_empty() || !self.percent_chance(60) {
            return None;
        }
        let edits: Vec<Vec<Value>> = self.admission.edits.iter().copied().cloned().collect();
        Some(below(spec, super::kinds::choose(&edits, &mut self.rng)))
    }

    /// A change that the quotas care about, if it is one of this kind.
    fn quota_edit(&mut self, kind: &Kind) -> Option<Edit> {
        let is_own = |edit: &&&Value| edit[0] == kind.kind;
        let edits: Vec<Vec<Value>> = self
            .admission
            .quota_edits
            .iter()
            .filter(is_own)
            .map(|edit| edit.as_array().into_iter().flatten().skip(1).cloned().collect())
            .collect();
        (!edits.is_empty() && self.percent_chance(50)).then(|| super::kinds::choose(&edits, &mut self.rng))
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
        for quota in table.quotas.iter().chain(&table.generous_quotas) {
            assert!(quota["hard"].is_object() && quota["used"].is_object(), "{quota}");
            for edit in quota["edits"].as_array().into_iter().flatten() {
                let edit = edit.as_array().unwrap();
                assert!(edit.len() > 2 && edit[0].is_string() && edit[1].is_string(), "{edit:?}");
            }
        }
    }

    #[test]
    fn all_settings_occur() {
        let generator = Generator::new(1, &["pods".to_owned()]);
        let steps: Vec<String> =
            (0..100).flat_map(|n| generator.sequence(n).steps).map(|step| step.to_string()).collect();
        for words in [
            "pod-security.kubernetes.io/enforce",
            "LimitRange",
            "resourcequotas/quota/status",
            "resourcequotas/more/status",
            "PriorityClass",
            "NotTerminating",
        ] {
            assert!(steps.iter().any(|step| step.contains(words)), "{words}");
        }
    }
}
