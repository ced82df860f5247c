//! Requests that are wrong in themselves.

use http::Method;
use serde_json::{Value, json};

use super::{JSON, Making, ask, pair};
use crate::sequence::{Ask, Content};

/// Paths of nothing.
const NOWHERE: &[&str] = &[
    "/api/v1/odds",
    "/apis/odd.example.com/v1/odds",
    "/apis/apps/v9/deployments",
    "/apis/apps/v1/odds",
    "/api/v1/namespaces/{ns}/nodes",
    "/api/v1/pods/x",
];

impl Making<'_> {
    pub(super) fn hostile(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        let (path, collection) = (self.path(object), kind.collection());
        let good = kind.good(&self.objects[object].name);
        let mut asked = match self.chance.u8(..12) {
            0..=4 => self.ill_formed(&path, &collection, good),
            5 => {
                let method = self.one_of(&[&Method::PUT, &Method::PATCH, &Method::OPTIONS]).clone();
                ask(method, &collection, Content::Json(good))
            }
            6 => ask(Method::POST, &path, Content::Json(good)),
            7 => {
                let part = self.one_of(&["status", "odd", "scale", "status/more"]);
                ask(Method::GET, &format!("{path}/{part}"), Content::Nothing)
            }
            8 => ask(Method::GET, self.one_of(NOWHERE), Content::Nothing),
            9 => ask(Method::DELETE, &path, Content::Text(self.malformed().to_owned())),
            10 => {
                let mut asked = ask(Method::POST, &collection, Content::Json(good));
                asked.query.push(pair(self.one_of(&[
                    ("dryRun", "Odd"),
                    ("dryRun", ""),
                    ("fieldManager", "bad\u{7}name"),
                    ("fieldValidation", "odd"),
                ])));
                asked
            }
            _ => {
                let mut elsewhere = good;
                elsewhere["metadata"]["namespace"] = json!("nosuch");
                ask(Method::POST, &collection.replace("{ns}", "{ns}-nosuch"), Content::Json(elsewhere))
            }
        };
        if (kind.dry || kind.drawn) && asked.method == Method::POST {
            asked.query.push(pair(("dryRun", "All")));
        }
        let resource = kind.qualified();
        self.push("odd", &resource, asked);
    }

    /// A body that cannot be read, or whose kind is told wrongly.
    fn ill_formed(&mut self, path: &str, collection: &str, good: Value) -> Ask {
        match self.chance.u8(..5) {
            0 => ask(Method::POST, collection, Content::Text(self.malformed().to_owned())),
            1 => ask(Method::PUT, path, Content::Text(self.malformed().to_owned())),
            2 => {
                let content_type = self.one_of(&[
                    "text/plain",
                    "application/xml",
                    "application/x-www-form-urlencoded",
                    "application/json;charset=utf-8",
                ]);
                Ask { content_type, ..ask(Method::POST, collection, Content::Json(good)) }
            }
            3 => {
                let content_type =
                    self.one_of(&[JSON, "text/plain", "application/merge-patch+json;charset=utf-8"]);
                let patch = json!({"metadata": {"labels": {"x": "y"}}});
                Ask { content_type, ..ask(Method::PATCH, path, Content::Json(patch)) }
            }
            _ => {
                let content_type = self.one_of(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                ]);
                let content = Content::Text(self.malformed().to_owned());
                Ask { content_type, ..ask(Method::PATCH, path, content) }
            }
        }
    }

    fn malformed(&mut self) -> &'static str {
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
