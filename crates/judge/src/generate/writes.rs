//! Creates and updates, of objects and of their status.

use http::Method;
use serde_json::json;

use super::{Making, ask, edited, post};
use crate::sequence::{Content, Edit};

impl Making<'_> {
    pub(super) fn create(&mut self) {
        let kind = self.kind();
        let object = self.object_of(kind);
        let edits = self.edits(kind);
        let name = self.objects[object].name.clone();
        let mut document = edited(kind.good(&name), &edits);
        if self.often(6) && kind.name.is_none() {
            let prefix = kind.object_name(&format!("gen{}-", self.steps.len()));
            document["metadata"]["generateName"] = json!(prefix);
            document["metadata"].as_object_mut().and_then(|metadata| metadata.remove("name"));
        }
        if self.often(4) {
            self.mar(&mut document);
        }
        let nameless = document["metadata"]["name"] == "";
        let mut asked = post(&kind.collection(), document);
        asked.query = self.write_options(kind.dry || (kind.drawn && nameless));
        if self.often(5) {
            asked.accept = self.representation();
        }
        self.push_about("create", object, asked);
    }

    /// Spoils the types or the place of a document.
    fn mar(&mut self, document: &mut serde_json::Value) {
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
        if kind.dry {
            return self.create();
        }
        let mut edits = self.edits(kind);
        if self.often(10) {
            let version = self.one_of(&[None, None, Some("1"), Some("x"), Some("0")]);
            edits.push(Edit {
                pointer: "/metadata/resourceVersion".to_owned(),
                value: version.map(|v| json!(v)),
            });
        }
        let content = self.updated(object, edits);
        let mut asked = ask(Method::PUT, &self.path(object), content);
        if self.often(4)
            && let Content::Json(document) = &mut asked.content
        {
            self.mar(document);
        }
        asked.query = self.write_options(false);
        self.push_about("update", object, asked);
    }

    /// The stored object, changed; now and then a new one in its place.
    pub(super) fn updated(&mut self, object: usize, edits: Vec<Edit>) -> Content {
        let good = self.objects[object].kind.good(&self.objects[object].name);
        match self.answer(object) {
            Some(of) if self.often(85) => {
                let otherwise = edited(good, &edits);
                Content::Answer { of, edits, otherwise }
            }
            _ => Content::Json(edited(good, &edits)),
        }
    }

    pub(super) fn write_status(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        if !kind.has_status() || kind.dry {
            return self.update();
        }
        let count = self.one_of(&[1, 1, 2, 3]);
        let mut edits: Vec<Edit> = (0..count).map(|_| kind.status_edit(&mut self.chance)).collect();
        if self.often(20) {
            // What does not belong to the status is ignored, or is it?
            edits.extend(self.edits(kind));
        }
        if self.often(40) {
            let path = format!("{}/status", self.path(object));
            return self.patch_at(object, &path, "/status", &edits);
        }
        let content = self.updated(object, edits);
        let mut asked = ask(Method::PUT, &format!("{}/status", self.path(object)), content);
        asked.query = self.write_options(false);
        self.push_sub("update", object, "/status", asked);
    }

    /// Adds a step about a part of an object that is answered with the whole.
    pub(super) fn push_sub(
        &mut self,
        verb: &'static str,
        object: usize,
        part: &str,
        asked: crate::sequence::Ask,
    ) {
        let resource = format!("{}{part}", self.objects[object].kind.qualified());
        let id = self.push(verb, &resource, asked);
        self.objects[object].answers.push(id);
    }
}
