//! Invalid requests: malformed bodies, wrong methods, media types, paths and options.

use http::Method;
use serde_json::{Value, json};

use super::{JSON, SequenceBuilder, ask, owned_pair};
use crate::sequence::{Content, RequestTemplate};

/// Paths without a resource.
const UNKNOWN_PATHS: &[&str] = &[
    "/api/v1/odds",
    "/apis/odd.example.com/v1/odds",
    "/apis/apps/v9/deployments",
    "/apis/apps/v1/odds",
    "/api/v1/namespaces/{ns}/nodes",
    "/api/v1/pods/x",
];

impl SequenceBuilder<'_> {
    pub(super) fn invalid_request(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        let (path, collection) = (self.path(object), kind.collection_path());
        let valid = kind.valid_object(&self.objects[object].name);
        let mut request = match self.rng.u8(..12) {
            0..=4 => self.malformed_body(&path, &collection, valid),
            5 => {
                let method = self.one_of(&[&Method::PUT, &Method::PATCH, &Method::OPTIONS]).clone();
                ask(method, &collection, Content::Json(valid))
            }
            6 => ask(Method::POST, &path, Content::Json(valid)),
            7 => {
                let part = self.one_of(&["status", "odd", "scale", "status/more"]);
                ask(Method::GET, &format!("{path}/{part}"), Content::Nothing)
            }
            8 => ask(Method::GET, self.one_of(UNKNOWN_PATHS), Content::Nothing),
            9 => ask(Method::DELETE, &path, Content::Text(self.malformed_text().to_owned())),
            10 => {
                let mut request = ask(Method::POST, &collection, Content::Json(valid));
                request.query.push(owned_pair(self.one_of(&[
                    ("dryRun", "Odd"),
                    ("dryRun", ""),
                    ("fieldManager", "bad\u{7}name"),
                    ("fieldValidation", "odd"),
                ])));
                request
            }
            _ => {
                let mut wrong_namespace = valid;
                wrong_namespace["metadata"]["namespace"] = json!("nosuch");
                ask(Method::POST, &collection.replace("{ns}", "{ns}-nosuch"), Content::Json(wrong_namespace))
            }
        };
        if (kind.dry_run_only || kind.generates_name) && request.method == Method::POST {
            request.query.push(owned_pair(("dryRun", "All")));
        }
        let resource = kind.qualified();
        self.push("odd", &resource, request);
    }

    /// A body that cannot be decoded, or has the wrong content type.
    fn malformed_body(&mut self, path: &str, collection: &str, valid: Value) -> RequestTemplate {
        match self.rng.u8(..5) {
            0 => ask(Method::POST, collection, Content::Text(self.malformed_text().to_owned())),
            1 => ask(Method::PUT, path, Content::Text(self.malformed_text().to_owned())),
            2 => {
                let content_type = self.one_of(&[
                    "text/plain",
                    "application/xml",
                    "application/x-www-form-urlencoded",
                    "application/json;charset=utf-8",
                ]);
                RequestTemplate { content_type, ..ask(Method::POST, collection, Content::Json(valid)) }
            }
            3 => {
                let content_type =
                    self.one_of(&[JSON, "text/plain", "application/merge-patch+json;charset=utf-8"]);
                let patch = json!({"metadata": {"labels": {"x": "y"}}});
                RequestTemplate { content_type, ..ask(Method::PATCH, path, Content::Json(patch)) }
            }
            _ => {
                let content_type = self.one_of(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                ]);
                let content = Content::Text(self.malformed_text().to_owned());
                RequestTemplate { content_type, ..ask(Method::PATCH, path, content) }
            }
        }
    }

    fn malformed_text(&mut self) -> &'static str {
        self.one_of(&[
            "",
            "{",
            "[]",
            "null",
            "\"text\"",
            "{\"kind\": 5}",
            "{\"metadata\": []}",
            "{\"a\": 1, \"a\": 2}",
            "[{\"op\": \"add\"}]",
            "{} {}",
        ])
    }
}
