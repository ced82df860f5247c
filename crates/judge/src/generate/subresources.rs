//! Subresources with their own rules: scale, binding, eviction, resize, finalize, approval, token.

use http::Method;
use serde_json::{Value, json};

use super::{SequenceBuilder, ask, create_request};
use crate::sequence::{Content, Edit, RequestTemplate};

impl SequenceBuilder<'_> {
    pub(super) fn subresource(&mut self) {
        let object = self.object();
        let Some(name) = self.rng.choice(&self.objects[object].kind.subresources).map(String::as_str) else {
            return self.patch();
        };
        let path = format!("{}/{name}", self.path(object));
        match name {
            "scale" => self.scale(object, &path),
            "binding" => {
                let target = self.one_of(&[
                    r#"{"kind": "Node", "name": "{ns}-n"}"#,
                    r#"{"kind": "Node", "name": "{ns}-n"}"#,
                    r#"{"name": "{ns}-n"}"#,
                    r#"{"kind": "Odd", "name": "x"}"#,
                    r#"{"kind": "Node"}"#,
                ]);
                let document = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.objects[object].name},
                    "target": target.parse::<Value>().unwrap_or_default()});
                self.push_part("create", object, "/binding", create_request(&path, document));
            }
            "eviction" => {
                let mut document = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.objects[object].name}});
                if self.percent_chance(40) {
                    document["deleteOptions"] = self
                        .one_of(&[
                            r#"{"gracePeriodSeconds": 0}"#,
                            r#"{"propagationPolicy": "Odd"}"#,
                            r#"{"dryRun": ["All"]}"#,
                            r#"{"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}"#,
                        ])
                        .parse()
                        .unwrap_or_default();
                }
                if self.percent_chance(10) {
                    document["metadata"]["name"] = json!("other");
                }
                self.push_part("create", object, "/eviction", create_request(&path, document));
            }
            "resize" => {
                let resources = self.one_of(&[
                    r#"{"requests": {"cpu": "200m"}}"#,
                    r#"{"requests": {"memory": "1Gi"}}"#,
                    r#"{}"#,
                    r#"{"requests": {"cpu": "-1"}}"#,
                ]);
                let pointer = "/spec/containers/0/resources".to_owned();
                self.patch_at(object, &path, "/resize", &[Edit { pointer, value: resources.parse().ok() }]);
            }
            "finalize" => {
                let finalizers =
                    self.one_of(&["[]", r#"["kubernetes"]"#, r#"["kubernetes", "example.com/f"]"#]);
                let edit = Edit { pointer: "/spec/finalizers".to_owned(), value: finalizers.parse().ok() };
                let content = self.updated(object, vec![edit]);
                self.push_sub("update", object, "/finalize", ask(Method::PUT, &path, content));
            }
            "approval" => self.approve(object, &path),
            _ => self.token(object, &path),
        }
    }

    /// Adds a step whose response is not the object.
    fn push_part(&mut self, verb: &'static str, object: usize, part: &str, request: RequestTemplate) {
        let resource = format!("{}{part}", self.objects[object].kind.qualified());
        self.push(verb, &resource, request);
    }

    fn scale(&mut self, object: usize, path: &str) {
        let read = self.push_scale("get", object, ask(Method::GET, path, Content::Nothing));
        let replicas = self.one_of(&["3", "0", "-1", "1", "\"x\""]).parse::<Value>().ok();
        let edit = Edit { pointer: "/spec/replicas".to_owned(), value: replicas.clone() };
        match self.rng.u8(..4) {
            0 => {}
            1 | 2 => {
                let fallback = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                    "metadata": {"name": self.objects[object].name, "namespace": "{ns}"}, "spec": {"replicas": 4}});
                let mut edits = vec![edit];
                if self.percent_chance(15) {
                    edits.push(Edit {
                        pointer: "/metadata/resourceVersion".to_owned(),
                        value: Some(json!("1")),
                    });
                }
                if self.percent_chance(10) {
                    edits.push(Edit { pointer: "/metadata/name".to_owned(), value: Some(json!("other")) });
                }
                let mut request = ask(Method::PUT, path, Content::Answer { of: read, edits, fallback });
                request.query = self.write_options(false);
                self.push_scale("update", object, request);
            }
            _ => {
                let mut request =
                    ask(Method::PATCH, path, Content::Json(json!({"spec": {"replicas": replicas}})));
                let (verb, content_type) = self.one_of(&[
                    ("patch-merge", "application/merge-patch+json"),
                    ("patch-strategic", "application/strategic-merge-patch+json"),
                ]);
                request.content_type = content_type;
                self.push_scale(verb, object, request);
            }
        }
    }

    fn push_scale(&mut self, verb: &'static str, object: usize, request: RequestTemplate) -> usize {
        let resource = format!("{}/scale", self.objects[object].kind.qualified());
        self.push(verb, &resource, request)
    }

    fn approve(&mut self, object: usize, path: &str) {
        let conditions = self.one_of(&[
            r#"[{"type": "Approved", "status": "True", "reason": "R"}]"#,
            r#"[{"type": "Approved", "status": "True", "reason": "R"}]"#,
            r#"[{"type": "Denied", "status": "True"}]"#,
            r#"[{"type": "Approved", "status": "False"}]"#,
            r#"[{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]"#,
            "[]",
        ]);
        let edit = Edit { pointer: "/status/conditions".to_owned(), value: conditions.parse().ok() };
        if self.percent_chance(30) {
            return self.patch_at(object, path, "/approval", &[edit]);
        }
        let content = self.updated(object, vec![edit]);
        self.push_sub("update", object, "/approval", ask(Method::PUT, path, content));
    }

    fn token(&mut self, object: usize, path: &str) {
        let spec = self.one_of(&[
            "{}",
            r#"{"audiences": ["a"]}"#,
            r#"{"expirationSeconds": 3600}"#,
            r#"{"expirationSeconds": 5}"#,
            r#"{"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "nosuch"}}"#,
            r#"{"boundObjectRef": {"kind": "Odd", "apiVersion": "v1", "name": "x"}}"#,
        ]);
        let document = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": spec.parse::<Value>().unwrap_or_default()});
        self.push_part("create", object, "/token", create_request(path, document));
    }
}
