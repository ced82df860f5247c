//! Gets, lists and watches.

use http::Method;

use super::{JSON, Making, ask, pair};
use crate::sequence::{Ask, Content};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";

impl Making<'_> {
    /// A form for one object.
    pub(super) fn representation(&mut self) -> &'static str {
        self.one_of(&[METADATA, TABLE, "*/*", "", "text/plain", "application/json;as=Odd;g=meta.k8s.io;v=v1"])
    }

    pub(super) fn get(&mut self) {
        let object = self.object();
        let kind = self.objects[object].kind;
        let mut asked = ask(Method::GET, &self.path(object), Content::Nothing);
        let mut part = "";
        if kind.has_status() && self.often(15) {
            part = "/status";
            asked.path.push_str(part);
        }
        if self.often(30) {
            asked.accept = self.representation();
        }
        if self.often(20)
            && let Some(version) = self.reference(object, "/metadata/resourceVersion")
        {
            asked.query.push(("resourceVersion", self.bent(version)));
        }
        self.push_sub("get", object, part, asked);
    }

    /// A version, or now and then something else in its place.
    fn bent(&mut self, version: String) -> String {
        if self.often(8) { self.one_of(&["x", "-1", "1.5"]).to_owned() } else { version }
    }

    /// The collection of a kind; over all namespaces only what belongs to the sequence is asked for.
    fn collection(&mut self, form: &'static str) -> (Ask, String) {
        let kind = self.kind();
        let everywhere = kind.cluster || self.often(15);
        let path = if everywhere { kind.everywhere() } else { kind.collection() };
        let mut asked = ask(Method::GET, &path, Content::Nothing);
        let mut labels = Vec::new();
        if everywhere {
            labels.push("judge={ns}");
        }
        if self.often(30) {
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
            asked.query.push(("labelSelector", labels.join(",")));
        }
        if self.often(25) {
            let mut fields = vec![
                "metadata.name=a",
                "metadata.name={ns}-a",
                "metadata.name!=a",
                "nothing=1",
                "metadata.name",
            ];
            fields.extend(kind.fields.iter().map(String::as_str));
            fields.extend(kind.fields.iter().map(String::as_str));
            asked.query.push(("fieldSelector", self.one_of(&fields).to_owned()));
        }
        if self.often(25) {
            let forms: &[&str] =
                if form == "watch" { &[METADATA, TABLE] } else { &[METADATA_LIST, METADATA, TABLE] };
            asked.accept = self.one_of(forms);
            if asked.accept == TABLE && self.often(30) {
                asked
                    .query
                    .push(("includeObject", self.one_of(&["None", "Object", "Metadata", "Odd"]).to_owned()));
            }
        }
        if form == "watch" {
            asked.query.push(("watch", self.one_of(&["true", "1"]).to_owned()));
        }
        (asked, kind.qualified())
    }

    /// A plain list: afterwards the caches of the server are as new as what was written.
    fn settle(&mut self, asked: &Ask, resource: &str) {
        let mut plain = ask(Method::GET, &asked.path, Content::Nothing);
        plain.query = asked.query.iter().filter(|(name, _)| *name == "labelSelector").cloned().collect();
        self.push("list", resource, plain);
    }

    pub(super) fn list(&mut self) {
        let (mut asked, resource) = self.collection("list");
        let reference = self.any_version();
        match self.chance.u8(..100) {
            0..=39 => {}
            // Other sequences take part in the paging of what is shared.
            40..=59 if asked.path.contains("{ns}") => {
                let limit = self.one_of(&["1", "2", "2", "0", "-1", "x"]);
                asked.query.push(("limit", limit.to_owned()));
                let id = self.push("list", &resource, asked.clone());
                asked.query.retain(|(name, _)| *name != "limit");
                asked.query.push(("limit", self.one_of(&["1", "5"]).to_owned()));
                let next =
                    if self.often(95) { format!("${{{id}/metadata/continue}}") } else { "odd".to_owned() };
                asked.query.push(("continue", next));
            }
            60..=69 => {
                self.settle(&asked, &resource);
                asked.query.push(("resourceVersion", "0".to_owned()));
                if self.often(30) {
                    let matching = self.one_of(&["NotOlderThan", "Exact", "Odd"]);
                    asked.query.push(("resourceVersionMatch", matching.to_owned()));
                }
            }
            70..=93 => {
                if let Some(version) = reference {
                    let version = self.bent(version);
                    asked.query.push(("resourceVersion", version));
                    let matching = self.one_of(&["", "NotOlderThan", "Exact", "Exact", "Odd"]);
                    if matching != "NotOlderThan" || self.often(50) {
                        asked.query.push(("resourceVersionMatch", matching.to_owned()));
                    }
                    if self.often(20) && asked.path.contains("{ns}") {
                        asked.query.push(("limit", "1".to_owned()));
                    }
                }
            }
            40..=59 => {}
            _ => asked.query.push(pair(self.one_of(&[
                ("resourceVersionMatch", "Exact"),
                ("sendInitialEvents", "true"),
                ("timeoutSeconds", "x"),
                ("allowWatchBookmarks", "true"),
            ]))),
        }
        self.push("list", &resource, asked);
    }

    /// The version of some object of the sequence.
    fn any_version(&mut self) -> Option<String> {
        let made: Vec<usize> =
            (0..self.objects.len()).filter(|at| !self.objects[*at].answers.is_empty()).collect();
        let object = *made.get(self.chance.usize(..made.len().max(1)))?;
        self.reference(object, "/metadata/resourceVersion")
    }

    pub(super) fn watch(&mut self) {
        if self.watches == 2 {
            return self.list();
        }
        self.watches += 1;
        let (mut asked, resource) = self.collection("watch");
        let version = self.any_version();
        // Longer than any sequence takes.
        asked.query.push(("timeoutSeconds", "600".to_owned()));
        if self.often(40) {
            asked.query.push(("allowWatchBookmarks", "true".to_owned()));
        }
        match (self.chance.u8(..100), version) {
            (0..=39, Some(version)) => {
                let version = self.bent(version);
                asked.query.push(("resourceVersion", version));
            }
            (40..=69, version) => {
                self.settle(&asked, &resource);
                asked
                    .query
                    .push(("sendInitialEvents", self.one_of(&["true", "true", "true", "false"]).to_owned()));
                if self.often(90) {
                    asked.query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
                }
                if let Some(version) = version.filter(|_| self.often(30)) {
                    asked.query.push(("resourceVersion", version));
                }
            }
            (70..=74, _) => asked.query.push(pair(self.one_of(&[
                ("resourceVersionMatch", "NotOlderThan"),
                ("continue", "x"),
                ("resourceVersionMatch", "Exact"),
            ]))),
            _ => {
                self.settle(&asked, &resource);
                if self.often(50) {
                    asked.query.push(("resourceVersion", "0".to_owned()));
                }
            }
        }
        if asked.accept == JSON || !asked.accept.contains("Odd") {
            self.push("watch", &resource, asked);
        }
    }
}
