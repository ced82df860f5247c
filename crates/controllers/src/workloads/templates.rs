//! Semantic comparison of pod templates.

use std::cell::OnceCell;

use keleustes_objects::{PodTemplate, template};
use serde_json::{Map, Value};

/// The label that distinguishes the pods of one template from those of another.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";

/// A template, parsed once and compared with many others.
pub(crate) struct NormalizedTemplate<'a> {
    template: &'a PodTemplate,
    /// Computed on first use: there may be nothing to compare with.
    tree: OnceCell<Map<String, Value>>,
}

impl<'a> NormalizedTemplate<'a> {
    pub(crate) fn of(template: &'a PodTemplate) -> Self {
        Self { template, tree: OnceCell::new() }
    }

    /// Whether a Deployment takes both templates for the same. The pod-template-hash label is ignored.
    pub(crate) fn semantically_equal(&self, other: &PodTemplate) -> bool {
        self.template == other
            || template::semantically_equal(
                self.tree.get_or_init(|| without_template_hash(self.template)),
                &without_template_hash(other),
            )
    }
}

/// The template as JSON, without its hash label.
pub(crate) fn without_template_hash(template: &PodTemplate) -> Map<String, Value> {
    let mut tree = template.json();
    let labels = tree.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"));
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    tree
}

#[cfg(test)]
mod tests {
    use keleustes_objects::template::safe_encode;

    use super::*;

    fn template(text: &str) -> PodTemplate {
        PodTemplate::parse(text).unwrap()
    }

    /// Proves DEP-17.
    #[test]
    fn empty_values_and_the_hash_label_do_not_matter_for_equality() {
        let plain = template(r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"}]}}"#);
        for same in [
            r#"{"metadata":{"labels":{"a":"b","pod-template-hash":"x"}},"spec":{"containers":[{"name":"c"}]}}"#,
            r#"{"metadata":{"creationTimestamp":null,"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","env":[]}],"volumes":null}}"#,
        ] {
            assert!(NormalizedTemplate::of(&plain).semantically_equal(&template(same)), "{same}");
        }
        for other in [
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"}],"securityContext":{}}}"#,
            r#"{"metadata":{"labels":{"a":"c"}},"spec":{"containers":[{"name":"c"}]}}"#,
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"},{"name":"d"}]}}"#,
        ] {
            assert!(!NormalizedTemplate::of(&plain).semantically_equal(&template(other)), "{other}");
        }
        let hashed = template(r#"{"metadata":{"labels":{"pod-template-hash":"x"}}}"#);
        assert!(NormalizedTemplate::of(&template("{}")).semantically_equal(&hashed));
    }

    /// Proves DEP-17.
    #[test]
    fn templates_are_equal_by_value_and_not_by_text() {
        let with = |container: &str| {
            template(&format!(r#"{{"spec":{{"containers":[{{"name":"c",{container}}}]}}}}"#))
        };
        let (limits, probe) = (
            |memory: &str| with(&format!(r#""resources":{{"limits":{{"memory":{memory}}}}}"#)),
            |port: &str| with(&format!(r#""livenessProbe":{{"httpGet":{{"port":{port}}}}}"#)),
        );
        let equal =
            |one: &PodTemplate, other: &PodTemplate| NormalizedTemplate::of(one).semantically_equal(other);
        for (one, other) in
            [("1Gi", "1073741824"), ("1Gi", "1024Mi"), ("0.5", "500m"), ("1e3", "1k"), ("0", "0Ki")]
        {
            let quoted = |text| limits(&format!("{text:?}"));
            assert!(equal(&quoted(one), &quoted(other)), "{one} = {other}");
        }
        assert!(!equal(&limits(r#""1Gi""#), &limits(r#""1G""#)));
        // A number and a string are different ports, even if they look alike.
        assert!(equal(&probe("80"), &probe("80")));
        assert!(!equal(&probe("80"), &probe(r#""80""#)));
        let created = |time: &str| template(&format!(r#"{{"metadata":{{"creationTimestamp":{time}}}}}"#));
        assert!(equal(&created(r#""2026-01-01T00:00:00Z""#), &created(r#""2026-01-01T01:00:00+01:00""#)));
        assert!(equal(&created("null"), &template("{}")));
        // Absent and empty are the same for values, and not the same for pointers.
        assert!(equal(&with(r#""resources":{"limits":{}},"stdin":false,"image":"""#), &with(r#""env":[]"#)));
        assert!(!equal(&with(r#""securityContext":{}"#), &with(r#""env":[]"#)));
        assert!(!equal(&with(r#""securityContext":{"privileged":false}"#), &with(r#""securityContext":{}"#)));
    }

    /// Proves REV-47, REV-76.
    #[test]
    fn fields_that_the_original_does_not_know_do_not_count() {
        let plain = template(
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","resources":{}}]}}"#,
        );
        let newer = template(
            r#"{"metadata":{"labels":{"a":"b"},"invented":1},"invented":{},"spec":{"invented":"x",
               "containers":[{"name":"c","resources":{"invented":[{"name":"y"}]},"invented":false}]}}"#,
        );
        assert!(NormalizedTemplate::of(&plain).semantically_equal(&newer));
        assert_eq!(plain.pod_template_hash(None), newer.pod_template_hash(None));
        assert_eq!(plain.pod_template_hash(Some(3)), newer.pod_template_hash(Some(3)));
    }

    /// Proves REV-18, REV-46, REV-47, INF-147.
    #[test]
    fn pod_template_hash_depends_on_template_and_collision_count_only() {
        let one = template(r#"{"metadata":{"labels":{"a":"b"}}}"#);
        let other_words =
            template(r#"{ "spec":{"containers":null},"metadata":{"labels":{"a":"b"},"annotations":{}}}"#);
        assert_eq!(one.pod_template_hash(None), other_words.pod_template_hash(None));
        assert_ne!(one.pod_template_hash(None), one.pod_template_hash(Some(0)));
        assert_ne!(one.pod_template_hash(Some(1)), one.pod_template_hash(Some(2)));
        assert_ne!(one.pod_template_hash(None), template("{}").pod_template_hash(None));
        assert!(one.pod_template_hash(None).len() <= 10);
        // Equal to the original's encoding.
        assert_eq!(safe_encode(3_325_552_446), "776999688b");
    }
}
