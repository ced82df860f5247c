//! The scheduling constraints of a pod template: node name, node selector, required node affinity, tolerations.

use serde::Deserialize;

use crate::meta::{null_is_default, null_is_empty};
use crate::selector::{Expression, Matcher};
use crate::{InternedStr, Labels, Toleration};

/// The fields of a pod spec that decide on which nodes it may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// `nodeName`; empty for any node.
    pub node_name: InternedStr,
    /// `nodeSelector`.
    pub node_selector: Labels,
    /// The terms of the required node affinity, of which one must match; `None` if there is no such affinity.
    pub required: Option<Box<[NodeSelectorTerm]>>,
    /// `tolerations`.
    pub tolerations: Box<[Toleration]>,
    /// `hostNetwork`.
    pub host_network: bool,
}

/// A node selector term: all its requirements must match. An empty term matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    #[serde(deserialize_with = "null_is_empty")]
    match_expressions: Box<[Expression]>,
    #[serde(deserialize_with = "null_is_empty")]
    match_fields: Box<[Expression]>,
}

impl NodeSelectorTerm {
    /// Whether the term matches a node. An invalid term matches no node.
    #[must_use]
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let is_not_empty = !self.match_expressions.is_empty() || !self.match_fields.is_empty();
        is_not_empty
            && Matcher::of_node_expressions(&self.match_expressions)
                .is_ok_and(|matcher| matcher.matches(labels))
            && self.match_fields.iter().all(|field| field_matches(field, name))
    }

    /// The node names of the first `metadata.name In` field requirement.
    pub(crate) fn named_nodes(&self) -> Option<&[InternedStr]> {
        let field = self.match_fields.iter().find(|field| field.is_on_name() && field.operator == "In")?;
        Some(&field.values)
    }
}

impl Expression {
    fn is_on_name(&self) -> bool {
        self.key == "metadata.name"
    }
}

/// `matchFields` supports `metadata.name` with exactly one value.
fn field_matches(field: &Expression, name: &str) -> bool {
    match (field.operator.as_str(), &*field.values) {
        ("In", [value]) => field.is_on_name() && value == name,
        ("NotIn", [value]) => field.is_on_name() && value != name,
        _ => false,
    }
}

impl Placement {
    /// Whether node name, node selector and required node affinity match a node. Taints are not checked.
    #[must_use]
    pub fn matches_node(&self, name: &str, labels: &Labels) -> bool {
        (self.node_name.is_empty() || self.node_name == name)
            && self.node_selector.is_subset_of(labels)
            && self.required.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(name, labels)))
    }
}

/// The scheduling constraints as decoded from a pod spec.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WirePlacement {
    node_name: InternedStr,
    node_selector: Labels,
    affinity: Option<WireAffinity>,
    #[serde(deserialize_with = "null_is_empty")]
    tolerations: Box<[Toleration]>,
    #[serde(deserialize_with = "null_is_default")]
    host_network: bool,
}

/// `spec.affinity`: the required node affinity, and the namespaces of pod affinities.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WireAffinity {
    node_affinity: Option<WireNodeAffinity>,
    pod_affinity: Option<WirePodAffinity>,
    pod_anti_affinity: Option<WirePodAffinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePodAffinity {
    #[serde(deserialize_with = "null_is_empty")]
    required_during_scheduling_ignored_during_execution: Box<[WirePodAffinityTerm]>,
    #[serde(deserialize_with = "null_is_empty")]
    preferred_during_scheduling_ignored_during_execution: Box<[WireWeightedTerm]>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireWeightedTerm {
    #[serde(deserialize_with = "null_is_default")]
    pod_affinity_term: WirePodAffinityTerm,
}

/// A term of a pod affinity, of which only the choice of namespaces is read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePodAffinityTerm {
    #[serde(deserialize_with = "null_is_empty")]
    namespaces: Box<[serde::de::IgnoredAny]>,
    namespace_selector: Option<serde::de::IgnoredAny>,
}

impl WireAffinity {
    /// Whether a term of the pod affinity or anti-affinity has namespaces, or a namespace selector, even an empty one.
    pub(crate) fn is_cross_namespace(&self) -> bool {
        let crosses =
            |term: &WirePodAffinityTerm| !term.namespaces.is_empty() || term.namespace_selector.is_some();
        [&self.pod_affinity, &self.pod_anti_affinity].into_iter().flatten().any(|affinity| {
            affinity.required_during_scheduling_ignored_during_execution.iter().any(crosses)
                || affinity
                    .preferred_during_scheduling_ignored_during_execution
                    .iter()
                    .any(|weighted| crosses(&weighted.pod_affinity_term))
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireNodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<WireTerms>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerms {
    #[serde(deserialize_with = "null_is_empty")]
    node_selector_terms: Box<[NodeSelectorTerm]>,
}

impl WireAffinity {
    pub(crate) fn required(self) -> Option<Box<[NodeSelectorTerm]>> {
        Some(self.node_affinity?.required_during_scheduling_ignored_during_execution?.node_selector_terms)
    }
}

impl From<WirePlacement> for Placement {
    fn from(wire: WirePlacement) -> Self {
        Self {
            node_name: wire.node_name,
            node_selector: wire.node_selector,
            required: wire.affinity.and_then(WireAffinity::required),
            tolerations: wire.tolerations,
            host_network: wire.host_network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(spec: &str) -> bool {
        let labels: Labels = serde_json::from_str(r#"{"disk":"ssd","cores":"16"}"#).unwrap();
        let wire: WirePlacement = serde_json::from_str(spec).unwrap();
        Placement::from(wire).matches_node("n1", &labels)
    }

    fn affinity(terms: &str) -> String {
        format!(
            r#"{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":
               {{"nodeSelectorTerms":{terms}}}}}}}}}"#
        )
    }

    #[test]
    fn node_name_selector_and_affinity_must_all_match() {
        for (spec, fits) in [
            ("{}", true),
            (r#"{"nodeName":"n1"}"#, true),
            (r#"{"nodeName":"n2"}"#, false),
            (r#"{"nodeSelector":{"disk":"ssd"}}"#, true),
            (r#"{"nodeSelector":{"disk":"hdd"}}"#, false),
            (r#"{"affinity":{"nodeAffinity":{}}}"#, true),
        ] {
            assert_eq!(admits(spec), fits, "{spec}");
        }
        for (terms, fits) in [
            ("[]", false),
            ("null", false),
            ("[{}]", false),
            (r#"[{"matchExpressions":[{"key":"disk","operator":"In","values":["ssd"]}]}]"#, true),
            (r#"[{},{"matchExpressions":[{"key":"disk","operator":"Exists"}]}]"#, true),
            (r#"[{"matchExpressions":[{"key":"cores","operator":"Gt","values":["8"]}]}]"#, true),
            (r#"[{"matchExpressions":[{"key":"cores","operator":"Lt","values":["8"]}]}]"#, false),
            (r#"[{"matchExpressions":[{"key":"cores","operator":"Gt","values":["many"]}]}]"#, false),
            (r#"[{"matchExpressions":[{"key":"disk","operator":"Near","values":["ssd"]}]}]"#, false),
            (r#"[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]"#, true),
            (r#"[{"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n1"]}]}]"#, false),
            (r#"[{"matchFields":[{"key":"metadata.uid","operator":"In","values":["n1"]}]}]"#, false),
        ] {
            assert_eq!(admits(&affinity(terms)), fits, "{terms}");
        }
    }
}
