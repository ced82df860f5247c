//! Creates and updates, of objects and of their status.

use http::Method;
use serde_json::{Value, json};

use super::{SequenceBuilder, ask, create_request, edited};
use crate::sequence::{Content, Edit};

impl SequenceBuilder<'_> {
    pub(super) fn create(&mut self) {
        let kind = self.kind();
        let object = self.object_of(kind);
        let mut edits = self.base_edits(kind);
        edits.extend(self.edits(kind));
        let name = self.objects[object].name.clone();
        let mut document = edited(kind.valid_object(&name), &edits);
        if self.percent_chance(6) && kind.name.is_none() {
            let prefix = kind.object_name(&format!("gen{}-", self.steps.len()));
            document["metadata"]["generateName"] = json!(prefix);
            document["metadata"].as_object_mut().and_then(|metadata| metadata.remove("name"));
        }
        if self.percent_chance(4) {
            self.corrupt(&mut document);
        }
        let nameless = document["metadata"]["name"] == "";
        let mut request = create_request(&kind.collection_path(), document);
        request.query = self.write_options(kind.dry_run_only || (kind.generates_name && nameless));
        if self.percent_chance(5) {
            request.accept = self.representation();
        }
        self.push_about("create", object, request);
    }

    /// Corrupts the type or the metadata of a document.
    fn corrupt(&mut self, document: &mut serde_json::Value) {
        let (pointer, value) = self.one_of(&[
            ("/kind", "Odd"),
            ("/apiVersion", "v9"),
            ("/kind", ""),
            ("/apiVersion", ""),
            ("/metadata/name", "Bad_{ns}"),
            ("/metadata/name", "{ns}-other"),
            ("/metadata/name", ""),
            ("/metadata/namespace", "elsewhere"),
            ("/metadata/uid", "00000000-0000-0000-0000-000000000000"),
            ("/metadata/resourceVersion", "1"),
            ("/metadata/resourceVersion", "x"),
            ("/metadata", "text"),
            ("/metadata/labels", "text"),
        ]);
        Edit { pointer: pointer.to_owned(), value: Some(json!(value)) }.make(document);
    }

    pub(super) fn update(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        if kind.dry_run_only {
            return self.create();
        }
        let mut edits = self.edits(kind);
        if self.percent_chance(10) {
            let version = self.one_of(&[None, None, Some("1"), Some("x"), Some("0")]);
            edits.push(Edit {
                pointer: "/metadata/resourceVersion".to_owned(),
                value: version.map(|v| json!(v)),
            });
        }
        let content = self.updated(object, edits);
        let mut request = ask(Method::PUT, &self.path(object), content);
        if self.percent_chance(4)
            && let Content::Json(document) = &mut request.content
        {
            self.corrupt(document);
        }
        request.query = self.write_options(false);
        self.push_about("update", object, request);
    }

    /// The stored object with changes; in 15 of 100 cases a new one in its place.
    pub(super) fn updated(&mut self, object: usize, edits: Vec<Edit>) -> Content {
        let valid_object = self.objects[object].kind.valid_object(&self.objects[object].name);
        match self.answer(object) {
            Some(of) if self.percent_chance(85) => {
                let fallback = edited(valid_object, &edits);
                Content::Answer { of, edits, fallback }
            }
            _ => Content::Json(edited(valid_object, &edits)),
        }
    }

    pub(super) fn write_status(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        if !kind.has_status() || kind.dry_run_only {
            return self.update();
        }
        let count = self.one_of(&[1, 1, 2, 3]);
        let mut edits: Vec<Edit> = if kind.kind == "PodCertificateRequest" && self.percent_chance(60) {
            self.issue()
        } else {
            (0..count).map(|_| kind.status_edit(&mut self.rng)).collect()
        };
        if self.percent_chance(20) {
            // Changes outside of the status are ignored by the status subresource, or should be.
            edits.extend(self.edits(kind));
        }
        if self.percent_chance(40) {
            let path = format!("{}/status", self.path(object));
            return self.patch_at(object, &path, "/status", &edits);
        }
        let content = self.updated(object, edits);
        let mut request = ask(Method::PUT, &format!("{}/status", self.path(object)), content);
        request.query = self.write_options(false);
        self.push_sub("update", object, "/status", request);
    }

    /// Issues a certificate, with a mistake in half of the cases.
    fn issue(&mut self) -> Vec<Edit> {
        let condition = json!([{"type": "Issued", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let mut values = [
            ("/status/conditions", condition),
            ("/status/certificateChain", json!("{chain}")),
            ("/status/notBefore", json!("{now}")),
            ("/status/notAfter", json!("{later}")),
            ("/status/beginRefreshAt", json!("{refresh}")),
        ];
        match self.rng.u8(..20) {
            0 => values[1].1 = Value::Null,
            1 => values[2].1 = self.one_of(&["2026-01-02T03:04:05Z", "{early}"]).into(),
            2 => values[3].1 = self.one_of(&["{soon}", "2026-01-02T03:04:05Z"]).into(),
            3 | 4 => values[4].1 = self.one_of(&["{early}", "{late}", "2026-01-02T03:04:05Z"]).into(),
            5 => (values[1].1, values[3].1) = (json!("{short-chain}"), json!("{soon}")),
            6 => (values[1].1, values[3].1) = (json!("{long-chain}"), json!("{much-later}")),
            7 | 8 => values[self.rng.usize(2..5)].1 = Value::Null,
            9 => values[0].1 = json!([]),
            _ => {}
        }
        let edit = |(pointer, value): (&str, Value)| Edit {
            pointer: pointer.to_owned(),
            value: Some(value).filter(|value| !value.is_null()),
        };
        values.into_iter().map(edit).collect()
    }

    /// Adds a step on a subresource whose response is the whole object.
    pub(super) fn push_sub(
        &mut self,
        verb: &'static str,
        object: usize,
        part: &str,
        request: crate::sequence::RequestTemplate,
    ) {
        let resource = format!("{}{part}", self.objects[object].kind.qualified());
        let id = self.push(verb, &resource, request);
        self.objects[object].answers.push(id);
    }
}
