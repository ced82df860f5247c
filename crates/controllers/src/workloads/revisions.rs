//! ControllerRevisions: the revision data of a template, byte for byte as the original encodes it, and the
//! order of revisions.
//!
//! This program and the original both look for a revision with equal data before they create one, so equal
//! bytes let a cluster switch between them without restarting pods.

use std::sync::Arc;

use keleustes_objects::template::{drop_unknown_fields, safe_encode, typed};
use keleustes_objects::{
    ControllerRevision, FullMeta, Key, Labels, PodTemplate, Time, defaults, escape_html,
};
use keleustes_plan::{PatchKind, Write};
use serde_json::{Map, Value, json};

use super::owners::controller_ref;

/// The data of a revision: a patch that replaces the whole template. It has the fields of v1.37 only, so that a
/// field that a newer API server sets does not make another revision.
pub(crate) struct RevisionData {
    tree: Value,
    /// The JSON without spaces, with sorted keys and with the escapes of Go's encoder.
    text: String,
}

impl RevisionData {
    /// The data of a template, with exact numbers.
    pub(crate) fn of(template: &PodTemplate) -> Self {
        Self::from(Value::Object(template.typed_json()))
    }

    /// The data of a template, with integers rounded to 64-bit floats: the original decodes the templates of
    /// StatefulSets through float64.
    pub(crate) fn with_float64_numbers(template: &PodTemplate) -> Self {
        Self::rounded(template.typed_json())
    }

    /// The data of a StatefulSet's template once the API server's defaults are filled in. A template stored by an
    /// older API server lacks the defaults of newer fields.
    fn with_defaults(template: &PodTemplate) -> Self {
        let mut tree = Value::Object(template.typed_json());
        defaults::template(&mut tree);
        Self::rounded(match tree {
            Value::Object(tree) => typed(tree),
            _ => Map::new(),
        })
    }

    fn rounded(template: Map<String, Value>) -> Self {
        let mut tree = Value::Object(template);
        round_to_float64(&mut tree);
        Self::from(tree)
    }

    fn from(mut template: Value) -> Self {
        template["$patch"] = json!("replace");
        let tree = json!({"spec": {"template": template}});
        // `serde_json` maps are sorted.
        let text = escape_html(tree.to_string());
        Self { tree, text }
    }

    /// Whether a revision has this data. The original compares bytes; here other spellings of the same JSON
    /// are equal, too, because a new revision for every spelling would accumulate without limit. Earlier versions
    /// of this program wrote fields that v1.37 does not have, which do not count.
    pub(crate) fn equals_data_of(&self, revision: &ControllerRevision) -> bool {
        let text = revision.data.as_str();
        text == self.text
            || serde_json::from_str(text).is_ok_and(|there| there == self.tree || known(there) == self.tree)
    }

    /// The hash of the data for a collision count, equal to the original's, so that both programs give equal
    /// templates equal names.
    pub(crate) fn hash(&self, collisions: i32) -> String {
        safe_encode(fnv1(self.text.bytes().chain(collisions.to_string().bytes())))
    }

    /// Creates a revision with this data and number, controlled by its owner.
    pub(crate) fn creation<O: FullMeta>(&self, owner: &O, key: &Key, labels: &Labels, number: i64) -> Write {
        let body = json!({
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": labels,
                "annotations": owner.annotations(),
                "ownerReferences": [controller_ref::<O>(owner.meta())],
            },
            "data": self.tree,
            "revision": number,
        });
        Write::create::<ControllerRevision>(key.clone(), body).because("its template has no revision")
    }
}

/// The data without the fields that v1.37 does not have.
fn known(mut data: Value) -> Value {
    if let Some(template) = data.pointer_mut("/spec/template").and_then(Value::as_object_mut) {
        let patch = template.remove("$patch");
        drop_unknown_fields(template);
        template.extend(patch.map(|patch| ("$patch".to_owned(), patch)));
    }
    data
}

/// Whether a StatefulSet keeps its newest revision: both templates have the same data once the API server's defaults
/// are filled in. Quantities and other values are compared as text.
///
/// Parity: setMatchesLatestExistingRevision in pkg/controller/statefulset/stateful_set_control.go.
pub(crate) fn equal_with_defaults(template: &PodTemplate, revision: &ControllerRevision) -> bool {
    template_from_data(revision.data.as_str()).is_some_and(|existing| {
        RevisionData::with_defaults(template).text == RevisionData::with_defaults(&existing).text
    })
}

fn round_to_float64(value: &mut Value) {
    /// Up to this value every integer is exact as a float64.
    const EXACT_MAX: u64 = 1 << 53;
    match value {
        Value::Object(map) => map.values_mut().for_each(round_to_float64),
        Value::Array(list) => list.iter_mut().for_each(round_to_float64),
        Value::Number(number) => {
            let Some(exact) = number.as_i64().filter(|exact| exact.unsigned_abs() > EXACT_MAX) else {
                return;
            };
            #[expect(clippy::cast_precision_loss, reason = "to lose what a float cannot hold is the point")]
            let with_float64_numbers = (exact as f64).to_string();
            *value = serde_json::from_str(&with_float64_numbers).unwrap_or(Value::Null);
        }
        _ => {}
    }
}

/// Sorts revisions, the oldest first.
pub(crate) fn sort_by_revision(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
}

fn sort_key(revision: &ControllerRevision) -> (i64, Option<Time>, &str) {
    (revision.revision, revision.meta.creation_timestamp, &revision.meta.key.name)
}

/// The template in the data of a revision; `None` if there is none.
pub(crate) fn template_from_data(data: &str) -> Option<PodTemplate> {
    let mut data: Value = serde_json::from_str(data).ok()?;
    let template = data.get_mut("spec")?.get_mut("template")?.as_object_mut()?;
    template.remove("$patch");
    PodTemplate::parse(&Value::Object(std::mem::take(template)).to_string()).ok()
}

/// The 32-bit FNV-1 hash.
fn fnv1(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(2_166_136_261, |hash: u32, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte))
}

/// Sets the number of a revision. A patch leaves its data unchanged, byte for byte.
pub(crate) fn renumber(revision: &ControllerRevision, number: i64) -> Write {
    Write::patch(revision, PatchKind::Merge, json!({"revision": number}))
        .because("its template is the newest again")
}

#[cfg(test)]
mod tests {
    use super::*;

    const D1: &str = concat!(
        r#"{"spec":{"template":{"$patch":"replace","metadata":{"annotations":{"test":"value"},"labels":{"app":"foo"}},"spec":"#,
        r#"{"containers":[{"image":"test","imagePullPolicy":"Always","name":"test","resources":{},"#,
        r#""terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"#,
        r#""dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}}}"#,
    );

    fn parse(template: &str) -> PodTemplate {
        PodTemplate::parse(template).unwrap()
    }

    fn data(template: &str) -> RevisionData {
        RevisionData::of(&parse(template))
    }

    fn revision(data: &str) -> ControllerRevision {
        let text =
            format!(r#"{{"metadata":{{"name":"r","labels":{{"x":"y"}}}},"data":{data},"revision":7}}"#);
        serde_json::from_str(&text).unwrap()
    }

    /// The template spec in the data of a revision.
    fn data_of_spec(spec: &str) -> String {
        let text = data(&format!(r#"{{"metadata":{{}},"spec":{spec}}}"#)).text;
        let spec = text.strip_prefix(r#"{"spec":{"template":{"$patch":"replace","metadata":{},"spec":"#);
        spec.and_then(|spec| spec.strip_suffix("}}}")).unwrap().to_owned()
    }

    /// Proves REV-5, REV-6, REV-15, REV-17, REV-19, REV-52, REV-65.
    #[test]
    fn revision_data_and_hash_equal_the_original_s() {
        let template = |stamp: &str| {
            format!(
                r#"{{"spec":{{"terminationGracePeriodSeconds":30,"securityContext":{{}},"schedulerName":"default-scheduler",
                   "restartPolicy":"Always","dnsPolicy":"ClusterFirst","containers":[{{"name":"test","image":"test",
                   "imagePullPolicy":"Always","resources":{{}},"terminationMessagePolicy":"File",
                   "terminationMessagePath":"/dev/termination-log"}}]}},
                   "metadata":{{{stamp}"labels":{{"app":"foo"}},"annotations":{{"test":"value"}}}}}}"#
            )
        };
        let now = data(&template(""));
        assert_eq!(now.text, D1);
        assert_eq!((now.hash(0), now.hash(1)), ("776999688b".to_owned(), "776999688c".to_owned()));
        let parsed = PodTemplate::parse(&template("")).unwrap();
        assert_eq!(RevisionData::with_float64_numbers(&parsed).text, D1);
        assert_eq!(template_from_data(D1).unwrap().json(), parsed.json());
        assert!(template_from_data("{}").is_none() && template_from_data("[]").is_none());
        // Data of 1.33 and earlier.
        let before = D1.replace(r#""labels""#, r#""creationTimestamp":null,"labels""#);
        assert_eq!(safe_encode(fnv1(before.bytes().chain(*b"0"))), "c77f6d978");
    }

    /// Proves REV-7, REV-8, REV-9, REV-10, REV-16.
    #[test]
    fn revision_data_keeps_the_template_unchanged() {
        for spec in [
            r#"{"containers":null}"#,
            r#"{"containers":[{"name":"","resources":{}}]}"#,
            r#"{"containers":[{"env":[{"name":"e","valueFrom":{"resourceFieldRef":{"divisor":"0","resource":"r"}}}],"name":"c","resources":{}}]}"#,
            r#"{"containers":null,"volumes":[{"name":"p","projected":{"sources":null}}]}"#,
            r#"{"containers":[{"livenessProbe":{"httpGet":{"port":"http"}},"name":"c","resources":{"limits":{"cpu":"0.5","memory":"1024Mi"}}}]}"#,
            r#"{"containers":[{"livenessProbe":{"httpGet":{"port":80}},"name":"c","resources":{"limits":{"cpu":"500m"}}}]}"#,
        ] {
            assert_eq!(data_of_spec(spec), spec);
        }
        let empty = r#"{"spec":{"template":{"$patch":"replace","metadata":{},"spec":{"containers":null}}}}"#;
        assert_eq!(data("{}").text, empty);
    }

    /// Proves REV-76.
    #[test]
    fn revision_data_has_the_fields_of_this_version_only() {
        let newer = r#"{"invented":1,"metadata":{"invented":{}},"spec":{"invented":[],
            "containers":[{"name":"c","resources":{},"invented":"x"}]}}"#;
        let plain = r#"{"metadata":{},"spec":{"containers":[{"name":"c","resources":{}}]}}"#;
        let known = data(plain);
        assert_eq!(data(newer).text, known.text);
        assert_eq!(data(newer).hash(0), known.hash(0));
        // The data that earlier versions of this program wrote.
        let written = newer.replacen('{', r#"{"$patch":"replace","#, 1);
        assert!(known.equals_data_of(&revision(&format!(r#"{{"spec":{{"template":{written}}}}}"#))));
        let other = written.replace(r#""name":"c""#, r#""name":"d""#);
        assert!(!known.equals_data_of(&revision(&format!(r#"{{"spec":{{"template":{other}}}}}"#))));
    }

    /// Proves REV-36, REV-39.
    #[test]
    fn revision_data_is_compared_as_text() {
        let with = |container: &str| {
            parse(&format!(r#"{{"spec":{{"containers":[{{"name":"c","resources":{{}},{container}}}]}}}}"#))
        };
        let limit = |text: &str| with(&format!(r#""resources":{{"limits":{{"memory":"{text}"}}}}"#));
        let port = |text: &str| with(&format!(r#""livenessProbe":{{"httpGet":{{"port":{text}}}}}"#));
        for (one, other) in
            [(limit("1Gi"), limit("1073741824")), (limit("0.5"), limit("500m")), (port("80"), port("\"80\""))]
        {
            let revision = revision(&RevisionData::of(&one).text);
            assert!(RevisionData::of(&one).equals_data_of(&revision) && equal_with_defaults(&one, &revision));
            assert!(!RevisionData::of(&other).equals_data_of(&revision), "{other:?}");
            assert!(!equal_with_defaults(&other, &revision), "{other:?}");
        }
    }

    /// Proves REV-38.
    #[test]
    fn defaulted_fields_do_not_matter_for_equality() {
        let live = parse(
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
            parse(&format!(
                r#"{{ "spec":{spec}, "metadata":{{"creationTimestamp":null,"labels":{{"a":"b"}}}}}}"#
            ))
        };
        let probe = r#""livenessProbe":{"httpGet":{"port":80}}"#;
        let brief = stored(&format!(
            r#"{{"name":"c","image":"i:1","ports":[{{"containerPort":80}}],{probe},"env":null}}"#
        ));
        let equal =
            |stored: &PodTemplate| equal_with_defaults(&live, &revision(&RevisionData::of(stored).text));
        assert!(
            equal(&brief)
                && !RevisionData::of(&live).equals_data_of(&revision(&RevisionData::of(&brief).text))
        );
        for other in [
            stored(&format!(r#"{{"name":"c","image":"i:2","ports":[{{"containerPort":80}}],{probe}}}"#)),
            stored(&format!(
                r#"{{"name":"c","image":"i:1","imagePullPolicy":"Always","ports":[{{"containerPort":80}}],{probe}}}"#
            )),
            stored(r#"{"name":"c","image":"i:1","ports":[{"containerPort":80}]}"#),
        ] {
            assert!(!equal(&other), "{other:?}");
        }
    }

    /// Proves REV-12, REV-13.
    #[test]
    fn html_characters_are_escaped() {
        let text = escape_html(json!({"a": "<b> & \u{2028}\u{2029}\u{7f}/é\u{1}\n\"\\"}).to_string());
        assert_eq!(text, "{\"a\":\"\\u003cb\\u003e \\u0026 \\u2028\\u2029\u{7f}/é\\u0001\\n\\\"\\\\\"}");
        let short = escape_html(json!("\u{8}\u{c}\r\t\u{1f}").to_string());
        assert_eq!(short, r#""\b\f\r\t\u001f""#);
        assert_eq!(
            data_of_spec(r#"{"containers":null,"hostname":"<&>"}"#),
            r#"{"containers":null,"hostname":"\u003c\u0026\u003e"}"#
        );
    }

    /// Proves REV-14.
    #[test]
    fn numbers_are_exact_or_rounded_to_float64() {
        let template = |number: &str| {
            parse(&format!(
                r#"{{"spec":{{"activeDeadlineSeconds":{number},"securityContext":{{"supplementalGroups":[{number}]}}}}}}"#
            ))
        };
        let numbers = |data: &RevisionData| {
            let spec = &data.tree["spec"]["template"]["spec"];
            assert_eq!(spec["activeDeadlineSeconds"], spec["securityContext"]["supplementalGroups"][0]);
            spec["activeDeadlineSeconds"].to_string()
        };
        for (number, rounded) in [
            ("9007199254740993", "9007199254740992"),
            ("-9007199254740993", "-9007199254740992"),
            ("9223372036854775807", "9223372036854776000"),
            ("9007199254740992", "9007199254740992"),
        ] {
            assert_eq!(numbers(&RevisionData::of(&template(number))), number);
            assert_eq!(numbers(&RevisionData::with_float64_numbers(&template(number))), rounded);
        }
    }

    /// Proves REV-35.
    #[test]
    fn revision_data_is_equal_whatever_its_spelling() {
        let data = data(r#"{"spec":{"hostname":"<","priority":1}}"#);
        assert!(data.equals_data_of(&revision(&data.text)));
        assert!(data.equals_data_of(&revision(
            r#"{ "spec": {"template": {"metadata":{}, "spec": {"priority":1, "hostname":"<","containers":null}, "$patch":"replace"}}}"#
        )));
        assert!(!data.equals_data_of(&revision(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{},"spec":{"containers":null,"hostname":"<","priority":2}}}}"#
        )));
        assert!(!data.equals_data_of(&revision("{}")));
    }
}
