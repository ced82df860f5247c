//! Get and list: consistent snapshots, optionally paginated, at the requested revision.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use base64::{DecodeError, Engine as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::{Representation, metadata_only};
use super::options::{ListOptions, VersionMatch, invalid_resource_version, revision};
use super::request::Call;
use super::resources::{Resource, Strategy};
use super::status::{ApiResult, Status, StatusReason};
use super::store::SharedObject;
use super::stored_object::StoredObject;
use super::{Document, Kernel, conversion, printing};

/// Go's base64 decoder ignores trailing bits in continue tokens; so does this one.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// A list response.
pub(crate) struct ListDocument<'a> {
    resource: &'static Resource,
    representation: Representation,
    /// The `includeObject` parameter as sent.
    include: String,
    metadata: Value,
    items: &'a [StoredObject],
}

impl<'a> ListDocument<'a> {
    pub(crate) fn new(
        resource: &'static Resource,
        call: &Call<'_>,
        revision: u64,
        items: &'a [StoredObject],
    ) -> ListDocument<'a> {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if resource.is_custom() && call.representation == Representation::Full {
            // Unstructured lists do not omit empty fields.
            metadata["continue"] = json!("");
        }
        let include = call.query.text("includeObject").to_owned();
        ListDocument { resource, representation: call.representation, include, metadata, items }
    }

    pub(crate) fn document(&self, now: Timestamp) -> Document {
        if let Err(status) = self.representation.fits(self.resource, true, &self.include) {
            return Document::from(&*status);
        }
        match self.representation {
            Representation::Full => self.full(),
            Representation::MetadataOnly | Representation::MetadataList => {
                let items: Vec<Value> = self.items.iter().map(|item| metadata_only(&item.value())).collect();
                // kube-apiserver writes an empty list of this kind as null.
                let items = Some(items).filter(|items| !items.is_empty());
                Document::json(
                    200,
                    &json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                        "metadata": self.metadata, "items": items}),
                )
            }
            Representation::Table(included) => {
                let items: Vec<SharedObject> = self.items.iter().map(StoredObject::value).collect();
                let mut table = printing::table(self.resource, &items, included, now);
                table["metadata"] = self.metadata.clone();
                Document::json(200, &table)
            }
        }
    }

    /// Concatenates the stored texts without parsing them.
    fn full(&self) -> Document {
        let size: usize = self.items.iter().map(|item| item.text().len() + 2).sum();
        let mut body = String::with_capacity(size + 256);
        body.push_str(&format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
            json!(self.resource.list_kind),
            json!(self.resource.api_version()),
            self.metadata
        ));
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                body.push(',');
            }
            let same = item.can_be_sent_as(self.resource);
            let served = if same {
                item.clone()
            } else {
                StoredObject::new(self.resource, &conversion::to_served_version(self.resource, &item.value()))
            };
            if self.resource.is_custom() {
                // Items of unstructured lists keep apiVersion and kind, items of typed lists omit them.
                body.push_str(served.text());
            } else {
                body.push('{');
                body.push_str(served.body());
            }
        }
        body.push_str("]}");
        Document::text_of_json(200, body)
    }
}

/// The content of a continue token: start key and revision.
struct Continuation {
    /// 0 in the token returned with an expired one: continue at the latest revision.
    revision: u64,
    after: String,
}

impl Continuation {
    fn encode(&self) -> String {
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": self.after});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(token: &str) -> ApiResult<Continuation> {
        let invalid = |why: String| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = LENIENT.decode(token).map_err(|error| {
            let at = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                _ => token.len() / 4 * 4,
            };
            invalid(format!("illegal base64 data at input byte {at}"))
        })?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| {
            let first = bytes.first().copied().map_or('?', char::from);
            invalid(format!("invalid character '{first}' looking for beginning of value"))
        })?;
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (Some(revision), "meta.k8s.io/v1") = (value.get("rv").and_then(Value::as_u64), text("v")) else {
            return Err(invalid("server does not recognize this encoded version".to_owned()));
        };
        if text("start").is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)".to_owned()));
        }
        Ok(Continuation { revision, after: text("start").to_owned() })
    }
}

/// The objects a list is taken from.
struct Snapshot<'a> {
    revision: u64,
    /// The page starts after this key.
    after: String,
    objects: Vec<(&'a str, &'a StoredObject)>,
}

impl Kernel {
    pub(crate) fn get(&self, call: &Call<'_>) -> ApiResult<Document> {
        let target = &call.target;
        let requested =
            revision(call.query.text("resourceVersion")).map_err(|why| match target.resource.strategy {
                Strategy::Event => invalid_resource_version(&why),
                // kube-apiserver's watch cache, which events do not use, fails on such a version with 500 instead of
                // 400.
                _ => Status::new(StatusReason::Unknown, why),
            });
        self.refuse_future(requested?)?;
        let Some(object) = self.store.stored(target.resource, target.namespace(), target.name()) else {
            return Err(Status::not_found(target.resource, target.name()));
        };
        if call.representation == Representation::Full && object.can_be_sent_as(target.resource) {
            return Ok(Document::text_of_json(200, object.text().to_owned()));
        }
        Ok(self.show(call, 200, &object.value()))
    }

    /// One object in the requested representation.
    pub(crate) fn show(&self, call: &Call<'_>, code: u16, object: &SharedObject) -> Document {
        if let Err(status) =
            call.representation.fits(call.target.resource, false, call.query.text("includeObject"))
        {
            return Document::from(&*status);
        }
        let served = printing::render(call.target.resource, call.representation, object, self.now);
        Document::json(code, &*served)
    }

    pub(crate) fn list(&self, call: &Call<'_>) -> ApiResult<Document> {
        let options = ListOptions::parse(call)?;
        let (resource, selector) = (call.target.resource, &options.selector);
        let Snapshot { revision, after, objects } = self.snapshot(call, &options)?;
        // With a field selector on metadata.name only that object is considered.
        let name = selector.name();
        let is_selected = |key: &str| name.is_none_or(|name| key.rsplit('/').next() == Some(name));
        let mut rest = objects.into_iter().filter(|(key, _)| **key > *after && is_selected(key)).peekable();
        let mut items = Vec::new();
        let mut last = String::new();
        while let Some((key, object)) = rest.next_if(|_| options.limit == 0 || items.len() < options.limit) {
            if selector.matches_stored(resource, key, object) {
                key.clone_into(&mut last);
                items.push(object.clone());
            }
        }
        let mut list = ListDocument::new(resource, call, revision, &items);
        // The rest is not filtered by the selector; the next request does that.
        if rest.peek().is_some() {
            list.metadata["continue"] = json!(Continuation { revision, after: last }.encode());
            if selector.is_empty() {
                list.metadata["remainingItemCount"] = json!(rest.count());
            }
        }
        Ok(list.document(self.now))
    }

    fn snapshot(&self, call: &Call<'_>, options: &ListOptions) -> ApiResult<Snapshot<'_>> {
        let resource = call.target.resource;
        let namespace = call.target.namespace.as_deref();
        let current = self.store.revision();
        if !options.continue_token.is_empty() {
            let page = Continuation::decode(&options.continue_token)?;
            if !matches!(options.version_match, VersionMatch::Latest | VersionMatch::NotOlderThan(0)) {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Status::bad_request(why));
            }
            let at = if page.revision == 0 { current } else { page.revision };
            self.refuse_future(at)?;
            return match self.store.list_at(resource, namespace, at) {
                Some(objects) => Ok(Snapshot { revision: at, after: page.after, objects }),
                None => Err(expired_token(page)),
            };
        }
        match options.version_match {
            VersionMatch::Latest => {}
            VersionMatch::NotOlderThan(requested) => self.refuse_future(requested)?,
            VersionMatch::Exact(requested) => {
                self.refuse_future(requested)?;
                let objects = self.store.list_at(resource, namespace, requested).ok_or_else(|| {
                    let message = format!(
                        "The resourceVersion for the provided list is too old: {requested} ({})",
                        self.store.compacted()
                    );
                    Status::expired(message)
                })?;
                return Ok(Snapshot { revision: requested, after: String::new(), objects });
            }
        }
        let objects = self.store.list(resource, namespace);
        Ok(Snapshot { revision: current, after: String::new(), objects })
    }

    /// Rejects a resourceVersion higher than the current one.
    pub(crate) fn refuse_future(&self, requested: u64) -> ApiResult<()> {
        let current = self.store.revision();
        if requested > current { Err(Status::version_too_large(requested, current)) } else { Ok(()) }
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
