//! Templates as revisions: the bytes that stand for a template, as the original writes them, and the order
//! of history.
//!
//! Both managers look for a revision with equal bytes before they make one, so equal bytes are what lets a
//! cluster change managers without a pod noticing.

use std::sync::Arc;

use keleustes_objects::{ControllerRevision, Key, Labels, Template, Time, Whole, escape_markup};
use keleustes_plan::{PatchForm, Write};
use serde_json::{Value, json};

use super::owners::manager_reference;
use super::templates::encode;

/// The data of a revision: a patch that puts the whole template in place of another.
pub(crate) struct Data {
    tree: Value,
    /// The tree without spaces, with sorted keys and with the escapes of Go's encoder.
    text: String,
}

impl Data {
    pub(crate) fn of(template: &Template) -> Self {
        let mut template = template.json();
        template.insert("$patch".to_owned(), json!("replace"));
        let tree = json!({"spec": {"template": template}});
        // Maps of this program's JSON library are sorted already.
        let text = escape_markup(tree.to_string());
        Self { tree, text }
    }

    /// Whether a revision holds this data. The original compares bytes; here other spellings of the same
    /// count, too, because a revision made anew for every spelling would pile up without end.
    pub(crate) fn is_in(&self, revision: &ControllerRevision) -> bool {
        let text = revision.data.as_str();
        text == self.text || serde_json::from_str::<Value>(text).is_ok_and(|there| there == self.tree)
    }

    /// A short name, another one after each collision: the original's, digit by digit, so that both managers
    /// give equal templates equal names.
    pub(crate) fn short_name(&self, collisions: i32) -> String {
        encode(fnv1(self.text.bytes().chain(collisions.to_string().bytes())))
    }

    /// Creates a revision with this data and number, which its owner manages.
    pub(crate) fn creation<O: Whole>(&self, owner: &O, key: &Key, labels: &Labels, number: i64) -> Write {
        let body = json!({
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": labels,
                "annotations": owner.annotations(),
                "ownerReferences": [manager_reference::<O>(owner.meta())],
            },
            "data": self.tree,
            "revision": number,
        });
        Write::create::<ControllerRevision>(key.clone(), body).because("its template is new")
    }
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
        let data = Data::of(&template);
        assert_eq!(data.text, D1);
        assert_eq!(data.short_name(0), "776999688b");
        assert_eq!(data.short_name(1), "776999688c");
        assert_eq!(template_in(D1).unwrap().json(), template.json());
        assert!(template_in("{}").is_none() && template_in("[]").is_none());
    }

    #[test]
    fn letters_that_could_be_markup_are_escaped() {
        let text = escape_markup(json!({"a": "<b> & \u{2028}\u{2029}\u{7f}/é\u{1}\n\"\\"}).to_string());
        assert_eq!(text, "{\"a\":\"\\u003cb\\u003e \\u0026 \\u2028\\u2029\u{7f}/é\\u0001\\n\\\"\\\\\"}");
    }
}
