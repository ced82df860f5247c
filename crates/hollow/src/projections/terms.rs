//! Tolerations, node affinity and pod affinity.

use std::sync::Arc;

use keleustes_objects::{InternedStr, Key, LabelSelector, Labels, Matcher};
use serde::Deserialize;

use super::node::{Effect, Taint};
use super::nullable;

/// A toleration of taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct Toleration {
    key: InternedStr,
    operator: InternedStr,
    value: InternedStr,
    effect: Option<Effect>,
}

impl Toleration {
    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        let value_matches = match &*self.operator {
            "Exists" => true,
            "Lt" | "Gt" => compare(&taint.value, &self.operator, &self.value),
            _ => self.value == taint.value,
        };
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && value_matches
    }
}

/// A node selector term: all its requirements must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeTerm {
    #[serde(deserialize_with = "nullable")]
    match_expressions: Box<[NodeRequirement]>,
    #[serde(deserialize_with = "nullable")]
    match_fields: Box<[NodeRequirement]>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
struct NodeRequirement {
    key: InternedStr,
    operator: InternedStr,
    #[serde(deserialize_with = "nullable")]
    values: Box<[InternedStr]>,
}

impl NodeTerm {
    /// Whether a node matches. An empty term matches no node.
    pub(crate) fn matches(&self, name: &InternedStr, labels: &Labels) -> bool {
        let has_requirements = !self.match_expressions.is_empty() || !self.match_fields.is_empty();
        has_requirements
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.matches(labels.value(&requirement.key)))
            && self
                .match_fields
                .iter()
                .all(|requirement| &*requirement.key == "metadata.name" && requirement.matches(Some(name)))
    }
}

impl NodeRequirement {
    fn matches(&self, value: Option<&InternedStr>) -> bool {
        match &*self.operator {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            operator @ ("Gt" | "Lt") => match (value, &*self.values) {
                (Some(value), [bound]) => compare(value, operator, bound),
                _ => false,
            },
            _ => false,
        }
    }
}

/// Whether both are integers and the first is greater or less than the second.
fn compare(value: &str, operator: &str, bound: &str) -> bool {
    match (value.parse::<i64>(), bound.parse::<i64>()) {
        (Ok(value), Ok(bound)) if operator == "Gt" => value > bound,
        (Ok(value), Ok(bound)) => value < bound,
        _ => false,
    }
}

/// Required pod affinity and anti-affinity; most pods have neither.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodTerms {
    /// Affinity terms: each must select a pod in the node's domain.
    pub(crate) affinity: Box<[PodTerm]>,
    /// Anti-affinity terms: none may select a pod in the node's domain.
    pub(crate) anti_affinity: Box<[PodTerm]>,
}

/// One pod affinity term.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodTerm {
    /// The label whose value is the domain of a node.
    pub(crate) topology_key: InternedStr,
    /// The namespaces it applies to; empty for all.
    namespaces: Box<[InternedStr]>,
    /// `None` if the selector is missing or invalid; then it selects no pod.
    selector: Option<Matcher>,
}

impl PodTerm {
    /// Whether the term selects a pod.
    pub(crate) fn selects(&self, key: &Key, labels: &Labels) -> bool {
        (self.namespaces.is_empty() || self.namespaces.contains(&key.namespace))
            && self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireAffinity {
    #[serde(deserialize_with = "nullable")]
    node_affinity: WireNodeAffinity,
    #[serde(deserialize_with = "nullable")]
    pod_affinity: WirePodAffinity,
    #[serde(deserialize_with = "nullable")]
    pod_anti_affinity: WirePodAffinity,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<WireNodeTerms>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireNodeTerms {
    #[serde(deserialize_with = "nullable")]
    pub(super) node_selector_terms: Box<[NodeTerm]>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WirePodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", deserialize_with = "nullable")]
    required: Vec<WirePodTerm>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePodTerm {
    topology_key: InternedStr,
    label_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    namespaces: Box<[InternedStr]>,
    /// Namespaces are not watched, so a namespace selector is treated as all namespaces.
    namespace_selector: Option<serde::de::IgnoredAny>,
}

impl WireAffinity {
    pub(super) fn node_terms(&mut self) -> Option<Box<[NodeTerm]>> {
        self.node_affinity.required.take().map(|required| required.node_selector_terms)
    }

    pub(super) fn pod_terms(self, own_namespace: &InternedStr) -> Option<Arc<PodTerms>> {
        let read = |wire: WirePodAffinity| -> Box<[PodTerm]> {
            wire.required.into_iter().map(|term| term.read(own_namespace)).collect()
        };
        let terms =
            PodTerms { affinity: read(self.pod_affinity), anti_affinity: read(self.pod_anti_affinity) };
        (!terms.affinity.is_empty() || !terms.anti_affinity.is_empty()).then(|| Arc::new(terms))
    }
}

impl WirePodTerm {
    fn read(self, own_namespace: &InternedStr) -> PodTerm {
        let namespaces = match (self.namespace_selector, self.namespaces) {
            (Some(_), _) => Box::default(),
            (None, named) if named.is_empty() => Box::new([own_namespace.clone()]) as Box<[InternedStr]>,
            (None, named) => named,
        };
        let selector = self.label_selector.and_then(|selector| selector.matcher().ok());
        PodTerm { topology_key: self.topology_key, namespaces, selector }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (InternedStr::from(*key), InternedStr::from(*value))).collect()
    }

    #[test]
    fn node_terms_match_by_operator() {
        let node = labels(&[("zone", "a"), ("cores", "8")]);
        for (term, wanted) in [
            (r#"{"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["a"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"disk","operator":"NotIn","values":["a"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchExpressions":[{"key":"cores","operator":"Gt","values":["7"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"cores","operator":"Gt","values":["8"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"cores","operator":"Lt","values":["9"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"Lt","values":["9"]}]}"#, false),
            (r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}"#, true),
            (r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["m"]}]}"#, false),
            (
                r#"{"matchExpressions":[{"key":"zone","operator":"Exists"},{"key":"gpu","operator":"Exists"}]}"#,
                false,
            ),
            ("{}", false),
        ] {
            let read: NodeTerm = serde_json::from_str(term).unwrap();
            assert_eq!(read.matches(&InternedStr::from("n"), &node), wanted, "{term}");
        }
    }

    #[test]
    fn tolerations_match_by_operator() {
        let taint =
            Taint { key: "k".into(), value: "v".into(), effect: Effect::NoSchedule, time_added: None };
        for (toleration, wanted) in [
            (r#"{"key":"k","operator":"Equal","value":"v","effect":"NoSchedule"}"#, true),
            (r#"{"key":"k","value":"v"}"#, true),
            (r#"{"key":"k","value":"w"}"#, false),
            (r#"{"key":"k","operator":"Exists"}"#, true),
            (r#"{"operator":"Exists"}"#, true),
            (r#"{"operator":"Exists","effect":"NoExecute"}"#, false),
            (r#"{"key":"l","operator":"Exists"}"#, false),
        ] {
            let read: Toleration = serde_json::from_str(toleration).unwrap();
            assert_eq!(read.tolerates(&taint), wanted, "{toleration}");
        }
    }

    #[test]
    fn pod_terms_default_to_their_own_namespace() {
        let affinity = |term: &str| {
            let text = format!(
                r#"{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{term}]}}}}"#
            );
            let wire: WireAffinity = serde_json::from_str(&text).unwrap();
            wire.pod_terms(&InternedStr::from("own")).unwrap().anti_affinity[0].clone()
        };
        let pod = labels(&[("app", "x")]);
        let (own, other) = (Key::namespaced("own", "p"), Key::namespaced("other", "p"));
        let default_namespace = affinity(r#"{"labelSelector":{"matchLabels":{"app":"x"}}}"#);
        assert!(default_namespace.selects(&own, &pod) && !default_namespace.selects(&other, &pod));
        assert!(!default_namespace.selects(&own, &Labels::default()));
        let named = affinity(r#"{"labelSelector":{},"namespaces":["other"]}"#);
        assert!(!named.selects(&own, &pod) && named.selects(&other, &pod));
        assert!(affinity(r#"{"labelSelector":{},"namespaceSelector":{}}"#).selects(&other, &pod));
        assert!(!affinity("{}").selects(&own, &pod), "no selector selects nothing");
    }
}
