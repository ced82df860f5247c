//! Templates as revisions: the bytes that stand for a template, as the original writes them, and the order
//! of history.
//!
//! Both managers look for a revision with equal bytes before they make one, so equal bytes are what lets a
//! cluster change managers without a pod noticing.

use std::sync::Arc;

use keleustes_objects::{ControllerRevision, Template, Time};
use keleustes_plan::{PatchForm, Write};
use serde_json::{Value, json};

use super::templates::encode;

/// The tree of a revision's data: a patch that puts the whole template in place of another.
pub(crate) fn data(template: &Template) -> Value {
    let mut template = template.json();
    template.insert("$patch".to_owned(), json!("replace"));
    json!({"spec": {"template": template}})
}

/// The bytes of a revision's data: no spaces, sorted keys, and the escapes of Go's encoder. Maps of this
/// program's JSON library are sorted already.
pub(crate) fn canonical(data: &Value) -> String {
    let mut text = String::new();
    for character in data.to_string().chars() {
        match character {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            other => text.push(other),
        }
    }
    text
}

/// Whether a revision holds this data. The original compares bytes; here other spellings of the same count,
/// too, because a revision made anew for every spelling would pile up without end.
pub(crate) fn holds(revision: &ControllerRevision, data: &Value) -> bool {
    let text = revision.data.as_str();
    text == canonical(data) || serde_json::from_str::<Value>(text).is_ok_and(|there| there == *data)
}

/// Sorts history, the oldest first.
pub(crate) fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by(|one, other| place(one).cmp(&place(other)));
}

fn place(revision: &ControllerRevision) -> (i64, Option<Time>, &str) {
    (revision.revision, revision.meta.created_at, &revision.meta.key.name)
}

/// The template that a revision's data puts in place; nothing if it holds none.
pub(crate) fn template_in(data: &str) -> Option<Template> {
    let mut data: Value = serde_json::from_str(data).ok()?;
    let template = data.get_mut("spec")?.get_mut("template")?.as_object_mut()?;
    template.remove("$patch");
    Template::parse(&Value::Object(std::mem::take(template)).to_string()).ok()
}

/// A short name for data, another one after each collision: the original's, digit by digit, so that both
/// managers give equal templates equal names.
pub(crate) fn name_of(data: &Value, collisions: Option<i32>) -> String {
    let count = collisions.unwrap_or(0).to_string();
    encode(fnv1(canonical(data).bytes().chain(count.bytes())))
}

/// The 32-bit hash of Fowler, Noll and Vo that multiplies before it mixes.
fn fnv1(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(2_166_136_261, |hash: u32, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte))
}

/// Gives a revision another number. A patch leaves its data alone, byte for byte.
pub(crate) fn renumber(revision: &ControllerRevision, number: i64) -> Write {
    Write::patch(revision, PatchForm::Merge, json!({"revision": number}))
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

    #[test]
    fn data_is_written_as_the_original_writes_it() {
        let template = Template::parse(
            r#"{"spec":{"terminationGracePeriodSeconds":30,"securityContext":{},"schedulerName":"default-scheduler",
               "restartPolicy":"Always","dnsPolicy":"ClusterFirst","containers":[{"name":"test","image":"test",
               "imagePullPolicy":"Always","resources":{},"terminationMessagePolicy":"File",
               "terminationMessagePath":"/dev/termination-log"}]},
               "metadata":{"labels":{"app":"foo"},"annotations":{"test":"value"}}}"#,
        )
        .unwrap();
        assert_eq!(canonical(&data(&template)), D1);
        assert_eq!(name_of(&data(&template), None), "776999688b");
        assert_eq!(name_of(&data(&template), Some(1)), "776999688c");
        assert_eq!(template_in(D1).unwrap().json(), template.json());
        assert!(template_in("{}").is_none() && template_in("[]").is_none());
    }

    #[test]
    fn letters_that_could_be_markup_are_escaped() {
        let text = canonical(&json!({"a": "<b> & \u{2028}\u{2029}\u{7f}/é\u{1}\n\"\\"}));
        assert_eq!(text, "{\"a\":\"\\u003cb\\u003e \\u0026 \\u2028\\u2029\u{7f}/é\\u0001\\n\\\"\\\\\"}");
    }
}
