//! Gets, lists and watches.

use http::Method;

use super::{JSON, SequenceBuilder, ask, owned_pair};
use crate::sequence::{Content, RequestTemplate};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";

impl SequenceBuilder<'_> {
    /// An Accept header for one object.
    pub(super) fn representation(&mut self) -> &'static str {
        self.one_of(&[METADATA, TABLE, "*/*", "", "text/plain", "application/json;as=Odd;g=meta.k8s.io;v=v1"])
    }

    pub(super) fn get(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        let mut request = ask(Method::GET, &self.path(object), Content::Nothing);
        let mut part = "";
        if kind.has_status() && self.percent_chance(15) {
            part = "/status";
            request.path.push_str(part);
        }
        if self.percent_chance(30) {
            request.accept = self.representation();
        }
        if self.percent_chance(20)
            && let Some(version) = self.reference(object, "/metadata/resourceVersion")
        {
            request.query.push(("resourceVersion", self.maybe_invalid(version)));
        }
        self.push_sub("get", object, part, request);
    }

    /// The resourceVersion, or in 8 of 100 cases an invalid one.
    fn maybe_invalid(&mut self, version: String) -> String {
        if self.percent_chance(8) { self.one_of(&["x", "-1", "1.5"]).to_owned() } else { version }
    }

    /// A request for the collection of a kind; over all namespaces only objects of the sequence are
    /// selected.
    fn collection(&mut self, form: &'static str) -> (RequestTemplate, String) {
        let kind = self.kind();
        let all_namespaces = kind.cluster_scoped || self.percent_chance(15);
        let path = if all_namespaces { kind.all_namespaces_path() } else { kind.collection_path() };
        let mut request = ask(Method::GET, &path, Content::Nothing);
        let mut labels = Vec::new();
        if all_namespaces {
            labels.push("judge={ns}");
        }
        if self.percent_chance(30) {
            labels.push(self.one_of(&[
                "app=a",
                "app!=a",
                "app in (a,b)",
                "app notin (b)",
                "tier",
                "!tier",
                "tier=front,app",
                "app=a,tier!=back",
                "app in (",
                "=x",
                "app=Bad value!",
                "n>1",
                "app>x",
            ]));
        }
        if !labels.is_empty() {
            request.query.push(("labelSelector", labels.join(",")));
        }
        if self.percent_chance(25) {
            let mut fields = vec![
                "metadata.name=a",
                "metadata.name={ns}-a",
                "metadata.name!=a",
                "nothing=1",
                "metadata.name",
            ];
            fields.extend(kind.fields.iter().map(String::as_str));
            fields.extend(kind.fields.iter().map(String::as_str));
            request.query.push(("fieldSelector", self.one_of(&fields).to_owned()));
        }
        if self.percent_chance(25) {
            let forms: &[&str] =
                if form == "watch" { &[METADATA, TABLE] } else { &[METADATA_LIST, METADATA, TABLE] };
            request.accept = self.one_of(forms);
            if request.accept == TABLE && self.percent_chance(30) {
                request
                    .query
                    .push(("includeObject", self.one_of(&["None", "Object", "Metadata", "Odd"]).to_owned()));
            }
        }
        if form == "watch" {
            request.query.push(("watch", self.one_of(&["true", "1"]).to_owned()));
        }
        (request, kind.qualified())
    }

    /// Adds a list from etcd: afterwards the server's watch cache is as new as the last write.
    fn push_fresh_list(&mut self, request: &RequestTemplate, resource: &str) {
        let mut plain = ask(Method::GET, &request.path, Content::Nothing);
        plain.query = request.query.iter().filter(|(name, _)| *name == "labelSelector").cloned().collect();
        self.push("list", resource, plain);
    }

    pub(super) fn list(&mut self) {
        let (mut request, resource) = self.collection("list");
        let reference = self.any_version();
        match self.rng.u8(..100) {
            0..=39 => {}
            // In shared collections the pages would depend on other sequences.
            40..=59 if request.path.contains("{ns}") => {
                let limit = self.one_of(&["1", "2", "2", "0", "-1", "x"]);
                request.query.push(("limit", limit.to_owned()));
                let id = self.push("list", &resource, request.clone());
                request.query.retain(|(name, _)| *name != "limit");
                request.query.push(("limit", self.one_of(&["1", "5"]).to_owned()));
                let next = if self.percent_chance(95) {
                    format!("${{{id}/metadata/continue}}")
                } else {
                    "odd".to_owned()
                };
                request.query.push(("continue", next));
            }
            60..=69 => {
                self.push_fresh_list(&request, &resource);
                request.query.push(("resourceVersion", "0".to_owned()));
                if self.percent_chance(30) {
                    let matching = self.one_of(&["NotOlderThan", "Exact", "Odd"]);
                    request.query.push(("resourceVersionMatch", matching.to_owned()));
                }
            }
            70..=93 => {
                if let Some(version) = reference {
                    let version = self.maybe_invalid(version);
                    request.query.push(("resourceVersion", version));
                    let matching = self.one_of(&["", "NotOlderThan", "Exact", "Exact", "Odd"]);
                    if matching != "NotOlderThan" || self.percent_chance(50) {
                        request.query.push(("resourceVersionMatch", matching.to_owned()));
                    }
                    if self.percent_chance(20) && request.path.contains("{ns}") {
                        request.query.push(("limit", "1".to_owned()));
                    }
                }
            }
            40..=59 => {}
            _ => request.query.push(owned_pair(self.one_of(&[
                ("resourceVersionMatch", "Exact"),
                ("sendInitialEvents", "true"),
                ("timeoutSeconds", "x"),
                ("allowWatchBookmarks", "true"),
            ]))),
        }
        self.push("list", &resource, request);
    }

    /// The resourceVersion of some object of the sequence.
    fn any_version(&mut self) -> Option<String> {
        let created: Vec<usize> =
            (0..self.objects.len()).filter(|at| !self.objects[*at].answers.is_empty()).collect();
        let object = *created.get(self.rng.usize(..created.len().max(1)))?;
        self.reference(object, "/metadata/resourceVersion")
    }

    pub(super) fn watch(&mut self) {
        if self.watches == 2 {
            return self.list();
        }
        self.watches += 1;
        let (mut request, resource) = self.collection("watch");
        let version = self.any_version();
        // Longer than any sequence takes.
        request.query.push(("timeoutSeconds", "600".to_owned()));
        if self.percent_chance(40) {
            request.query.push(("allowWatchBookmarks", "true".to_owned()));
        }
        match (self.rng.u8(..100), version) {
            (0..=39, Some(version)) => {
                let version = self.maybe_invalid(version);
                request.query.push(("resourceVersion", version));
            }
            (40..=69, version) => {
                self.push_fresh_list(&request, &resource);
                request
                    .query
                    .push(("sendInitialEvents", self.one_of(&["true", "true", "true", "false"]).to_owned()));
                if self.percent_chance(90) {
                    request.query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
                }
                if let Some(version) = version.filter(|_| self.percent_chance(30)) {
                    request.query.push(("resourceVersion", version));
                }
            }
            (70..=74, _) => request.query.push(owned_pair(self.one_of(&[
                ("resourceVersionMatch", "NotOlderThan"),
                ("continue", "x"),
                ("resourceVersionMatch", "Exact"),
            ]))),
            _ => {
                self.push_fresh_list(&request, &resource);
                if self.percent_chance(50) {
                    request.query.push(("resourceVersion", "0".to_owned()));
                }
            }
        }
        if request.accept == JSON || !request.accept.contains("Odd") {
            self.push("watch", &resource, request);
        }
    }
}
