//! Get and list: consistent snapshots, in pages if asked, at the revision the client is entitled to.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::accept::{Representation, metadata_only};
use super::options::{ListOptions, VersionMatch, revision};
use super::request::Call;
use super::resources::Resource;
use super::selectors::Selector;
use super::status::{Outcome, Status};
use super::store::Stored;
use super::{Document, Kernel, events, printing};

/// A list about to be sent.
pub(crate) struct ListDocument<'a> {
    resource: &'static Resource,
    representation: Representation,
    metadata: Value,
    items: &'a [Stored],
}

impl<'a> ListDocument<'a> {
    pub(crate) fn new(
        resource: &'static Resource,
        call: &Call<'_>,
        revision: u64,
        items: &'a [Stored],
    ) -> ListDocument<'a> {
        let metadata = json!({"resourceVersion": revision.to_string()});
        ListDocument { resource, representation: call.representation, metadata, items }
    }

    pub(crate) fn document(&self, now: Timestamp) -> Document {
        match self.representation {
            Representation::Table(included) => {
                let mut table = printing::table(self.resource, self.items, included, now);
                table["metadata"] = self.metadata.clone();
                Document::json(200, &table)
            }
            _ => Document::json(200, self),
        }
    }
}

impl Serialize for ListDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        if self.representation == Representation::MetadataOnly {
            map.serialize_entry("kind", "PartialObjectMetadataList")?;
            map.serialize_entry("apiVersion", "meta.k8s.io/v1")?;
            map.serialize_entry("metadata", &self.metadata)?;
            let items: Vec<Value> = self.items.iter().map(|item| metadata_only(item)).collect();
            // The real server writes an empty list of this kind as null.
            map.serialize_entry("items", &Some(items).filter(|items| !items.is_empty()))?;
        } else {
            map.serialize_entry("kind", self.resource.list_kind)?;
            map.serialize_entry("apiVersion", &self.resource.api_version())?;
            map.serialize_entry("metadata", &self.metadata)?;
            map.serialize_entry("items", &Items(self.resource, self.items))?;
        }
        map.end()
    }
}

struct Items<'a>(&'static Resource, &'a [Stored]);

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (resource, items) = (self.0, self.1);
        if resource.is_custom() {
            // Items of custom lists keep their types.
            return serializer.collect_seq(items.iter().map(|item| events::shown_form(resource, item)));
        }
        if resource.stored_as.is_some() {
            let shown: Vec<Stored> = items.iter().map(|item| events::shown_form(resource, item)).collect();
            return serializer.collect_seq(shown.iter().map(|item| Untyped(item)));
        }
        serializer.collect_seq(items.iter().map(|item| Untyped(item)))
    }
}

/// An item of a typed list: the real server leaves its kind and apiVersion out.
struct Untyped<'a>(&'a Value);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.as_object().into_iter().flatten();
        serializer.collect_map(fields.filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion")))
    }
}

/// Where the next page begins and in which state of the store.
struct Continuation {
    /// 0 after an expired token was renewed: go on with the newest state.
    revision: u64,
    after: String,
}

impl Continuation {
    fn encode(&self) -> String {
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": self.after});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str) -> Outcome<Continuation> {
        let invalid = || Status::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
        let revision = value.get("rv").and_then(Value::as_u64).ok_or_else(invalid)?;
        let after = value.get("start").and_then(Value::as_str).ok_or_else(invalid)?.to_owned();
        Ok(Continuation { revision, after })
    }
}

/// What a list is cut from.
struct Snapshot {
    revision: u64,
    /// The page begins behind this key.
    after: String,
    objects: Vec<(String, Stored)>,
}

impl Kernel {
    pub(crate) fn get(&self, call: &Call<'_>) -> Outcome<Document> {
        let target = &call.target;
        self.refuse_future(revision(call.query.text("resourceVersion"))?)?;
        let Some(object) = self.store.get(target.resource, target.namespace(), target.name()) else {
            return Err(Status::not_found(target.resource, target.name()));
        };
        Ok(self.show(call, 200, object))
    }

    /// One object, as the client wants to see it.
    pub(crate) fn show(&self, call: &Call<'_>, code: u16, object: &Stored) -> Document {
        let shown = printing::shown(call.target.resource, call.representation, object, self.now);
        Document::json(code, &*shown)
    }

    pub(crate) fn list(&self, call: &Call<'_>) -> Outcome<Document> {
        let options = ListOptions::parse(call)?;
        let resource = call.target.resource;
        let query = &call.query;
        let selector = Selector::parse(resource, query.text("labelSelector"), query.text("fieldSelector"))?;
        let Snapshot { revision, after, objects } = self.snapshot(call, &options)?;
        let mut matching = objects
            .into_iter()
            .filter(|(key, object)| *key > after && selector.matches(resource, object))
            .peekable();
        let mut items = Vec::new();
        let mut last = String::new();
        while let Some((key, object)) =
            matching.next_if(|_| options.limit == 0 || items.len() < options.limit)
        {
            last = key;
            items.push(object);
        }
        let mut list = ListDocument::new(resource, call, revision, &items);
        if matching.peek().is_some() {
            list.metadata["continue"] = json!(Continuation { revision, after: last }.encode());
            if selector.is_empty() {
                list.metadata["remainingItemCount"] = json!(matching.count());
            }
        }
        Ok(list.document(self.now))
    }

    fn snapshot(&self, call: &Call<'_>, options: &ListOptions) -> Outcome<Snapshot> {
        let resource = call.target.resource;
        let namespace = call.target.namespace.as_deref();
        let current = self.store.revision();
        if !options.continue_token.is_empty() {
            let page = Continuation::decode(&options.continue_token)?;
            let at = if page.revision == 0 { current } else { page.revision };
            self.refuse_future(at)?;
            return match self.store.list_at(resource, namespace, at) {
                Some(objects) => Ok(Snapshot { revision: at, after: page.after, objects }),
                None => Err(expired_token(page)),
            };
        }
        match options.version {
            VersionMatch::Latest => {}
            VersionMatch::NotOlderThan(asked) => self.refuse_future(asked)?,
            VersionMatch::Exact(asked) => {
                self.refuse_future(asked)?;
                let objects = self.store.list_at(resource, namespace, asked).ok_or_else(|| {
                    let message = format!(
                        "The resourceVersion for the provided list is too old: {asked} ({})",
                        self.store.compacted()
                    );
                    Status::expired(message)
                })?;
                return Ok(Snapshot { revision: asked, after: String::new(), objects });
            }
        }
        let objects = self.store.list(resource, namespace);
        Ok(Snapshot { revision: current, after: String::new(), objects })
    }

    /// Nobody can read the future.
    pub(crate) fn refuse_future(&self, asked: u64) -> Outcome<()> {
        let current = self.store.revision();
        if asked > current { Err(Status::version_too_large(asked, current)) } else { Ok(()) }
    }
}

fn expired_token(page: Continuation) -> Box<Status> {
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new \
         list without the continue parameter, or use the continue token in this response to retrieve the \
         remainder of the results at the newest resource version.",
    );
    status.continue_token = Continuation { revision: 0, ..page }.encode();
    status
}
