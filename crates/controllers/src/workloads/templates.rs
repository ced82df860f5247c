//! Semantic comparison of pod templates, and the pod-template-hash.

use std::cell::OnceCell;

use keleustes_objects::{PodTemplate, defaults};
use serde_json::{Map, Value};

/// The label that distinguishes the pods of one template from those of another.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";

/// A template, normalized once and compared with many others.
pub(crate) struct NormalizedTemplate<'a> {
    template: &'a PodTemplate,
    /// Computed on first use: usually the texts are equal.
    tree: OnceCell<Value>,
}

impl<'a> NormalizedTemplate<'a> {
    pub(crate) fn of(template: &'a PodTemplate) -> Self {
        Self { template, tree: OnceCell::new() }
    }

    /// Whether both templates produce the same pods. The pod-template-hash label is ignored.
    pub(crate) fn semantically_equal(&self, other: &PodTemplate) -> bool {
        self.template == other
            || *self.tree.get_or_init(|| normalized(self.template.json())) == normalized(other.json())
    }

    /// Whether both templates produce the same pods once the API server's defaults are filled in. A template
    /// stored by an older API server lacks the defaults of newer fields.
    pub(crate) fn semantically_equal_with_defaults(&self, other: &PodTemplate) -> bool {
        self.semantically_equal(other)
            || normalized(with_defaults(self.template)) == normalized(with_defaults(other))
    }
}

fn with_defaults(template: &PodTemplate) -> Map<String, Value> {
    let mut tree = Value::Object(template.json());
    defaults::template(&mut tree);
    match tree {
        Value::Object(tree) => tree,
        _ => Map::new(),
    }
}

/// A template without its hash label and without null and empty list values.
///
/// The API server writes both templates, so quantities and times have the same spelling. An empty object
/// stays: for some fields absent and empty differ.
fn normalized(mut tree: Map<String, Value>) -> Value {
    drop_hash(&mut tree);
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        for map in ["labels", "annotations"] {
            if metadata.get(map).is_some_and(|map| map.as_object().is_some_and(Map::is_empty)) {
                metadata.remove(map);
            }
        }
        if metadata.values().all(Value::is_null) {
            tree.remove("metadata");
        }
    }
    let mut tree = Value::Object(tree);
    drop_empty_values(&mut tree);
    tree
}

/// The template as JSON, without its hash label.
pub(crate) fn without_template_hash(template: &PodTemplate) -> Map<String, Value> {
    let mut tree = template.json();
    drop_hash(&mut tree);
    tree
}

fn drop_hash(tree: &mut Map<String, Value>) {
    let labels = tree.get_mut("metadata").and_then(|metadata| metadata.get_mut("labels"));
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
}

fn drop_empty_values(value: &mut Value) {
    let is_empty_value = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !is_empty_value(value));
            map.values_mut().for_each(drop_empty_values);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty_values),
        _ => {}
    }
}

/// The hash of a template for a collision count; equal in every process.
///
/// It only has to be unused. Existing objects are found by their templates, never by this hash.
pub(crate) fn pod_template_hash(template: &PodTemplate, collisions: Option<i32>) -> String {
    let tree = Value::Object(without_template_hash(template));
    let salt = collisions.map(|count| count.to_string()).unwrap_or_default();
    safe_encode(fnv1a(tree.to_string().bytes().chain(salt.bytes())))
}

/// The 32-bit FNV-1a hash.
pub(crate) fn fnv1a(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(2_166_136_261, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

/// A number in letters and digits without vowels, so that no offensive word can appear.
pub(crate) fn safe_encode(hash: u32) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
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

    /// Proves REV-38.
    #[test]
    fn defaulted_fields_do_not_matter_for_equality() {
        let live = template(
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Always","dnsPolicy":"ClusterFirst",
                "schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30,
                "containers":[{"name":"c","image":"i:1","imagePullPolicy":"IfNotPresent",
                  "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
                  "ports":[{"containerPort":80,"protocol":"TCP"}],
                  "livenessProbe":{"httpGet":{"port":80,"path":"/","scheme":"HTTP"},"timeoutSeconds":1,
                    "periodSeconds":10,"successThreshold":1,"failureThreshold":3}}],
                "volumes":[{"name":"v","secret":{"secretName":"s","defaultMode":420}}]}}"#,
        );
        let stored = |container: &str| {
            let spec = format!(
                r#"{{"containers":[{container}],"volumes":[{{"name":"v","secret":{{"secretName":"s"}}}}]}}"#
            );
            template(&format!(
                r#"{{ "spec":{spec}, "metadata":{{"creationTimestamp":null,"labels":{{"a":"b"}}}}}}"#
            ))
        };
        let probe = r#""livenessProbe":{"httpGet":{"port":80}}"#;
        let brief = stored(&format!(
            r#"{{"name":"c","image":"i:1","ports":[{{"containerPort":80}}],{probe},"env":null}}"#
        ));
        let normalized = NormalizedTemplate::of(&live);
        assert!(
            normalized.semantically_equal_with_defaults(&brief) && !normalized.semantically_equal(&brief)
        );
        for other in [
            stored(&format!(r#"{{"name":"c","image":"i:2","ports":[{{"containerPort":80}}],{probe}}}"#)),
            stored(&format!(
                r#"{{"name":"c","image":"i:1","imagePullPolicy":"Always","ports":[{{"containerPort":80}}],{probe}}}"#
            )),
            stored(r#"{"name":"c","image":"i:1","ports":[{"containerPort":80}]}"#),
        ] {
            assert!(!normalized.semantically_equal_with_defaults(&other), "{other:?}");
        }
    }

    /// Proves REV-18, REV-46, REV-47, INF-147.
    #[test]
    fn pod_template_hash_depends_on_template_and_collision_count_only() {
        let one = template(r#"{"metadata":{"labels":{"a":"b"}}}"#);
        let hashed = template(r#"{"metadata":{"labels":{"a":"b","pod-template-hash":"x"}}}"#);
        assert_eq!(pod_template_hash(&one, None), pod_template_hash(&hashed, None));
        assert_ne!(pod_template_hash(&one, None), pod_template_hash(&one, Some(0)));
        assert_ne!(pod_template_hash(&one, Some(1)), pod_template_hash(&one, Some(2)));
        assert_ne!(pod_template_hash(&one, None), pod_template_hash(&template("{}"), None));
        assert!(pod_template_hash(&one, None).len() <= 10);
        // Equal to the original's encoding.
        assert_eq!(safe_encode(3_325_552_446), "776999688b");
    }
}
