//! The OpenAPI documents of the API server, from which the types of kinds come.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_cel::kubernetes::OpenApiDocument;
use keleustes_plan::{Context, Memory};
use serde::Deserialize;

use super::kinds::GroupVersionKind;
use super::warnings::KindType;

/// So many documents are kept. One of a built-in group takes a few megabytes.
const KEPT_MAX: usize = 4;

/// Parsed documents by path and hash, the last used one last. A restart loses nothing: they are read again.
#[derive(Clone, Default)]
pub(super) struct Kept(Vec<(String, Arc<OpenApiDocument>)>);

impl Kept {
    fn find(&mut self, name: &str) -> Option<Arc<OpenApiDocument>> {
        let at = self.0.iter().position(|(kept, _)| kept == name)?;
        let entry = self.0.remove(at);
        self.0.push(entry);
        self.0.last().map(|(_, document)| Arc::clone(document))
    }

    fn keep(&mut self, name: String, document: &Arc<OpenApiDocument>) {
        if self.0.len() >= KEPT_MAX {
            self.0.remove(0);
        }
        self.0.push((name, Arc::clone(document)));
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Index {
    paths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "serverRelativeURL")]
    server_relative_url: String,
}

/// The documents during one check of a policy.
pub(super) struct Documents<'a> {
    kept: &'a Memory<Kept>,
    /// The hashes of all documents, by path; `None` before the index is read. It stays empty if that fails.
    index: Option<BTreeMap<String, String>>,
    /// The documents that this check has used already, or could not read.
    read: BTreeMap<String, Option<Arc<OpenApiDocument>>>,
}

impl<'a> Documents<'a> {
    pub(super) fn new(kept: &'a Memory<Kept>) -> Self {
        Self { kept, index: None, read: BTreeMap::new() }
    }

    /// The type of a kind's objects; `None` if the kind cannot be resolved.
    pub(super) async fn type_of(
        &mut self,
        cx: &mut Context<'_>,
        GroupVersionKind { group, version, kind }: &GroupVersionKind,
        type_name: &str,
    ) -> Option<KindType> {
        let path =
            if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        self.document(cx, &path).await?.object_type(group, version, kind, type_name)
    }

    async fn document(&mut self, cx: &mut Context<'_>, path: &str) -> Option<Arc<OpenApiDocument>> {
        if let Some(read) = self.read.get(path) {
            return read.clone();
        }
        let document = self.read_document(cx, path).await;
        self.read.insert(path.to_owned(), document.clone());
        document
    }

    /// What cannot be read counts as missing: type checking never fails a policy.
    async fn read_document(&mut self, cx: &mut Context<'_>, path: &str) -> Option<Arc<OpenApiDocument>> {
        if self.index.is_none() {
            self.index = Some(read_index(cx).await);
        }
        let hash = self.index.as_ref()?.get(path)?.clone();
        let name = format!("{path}?{hash}");
        // Without a hash, nothing says whether the document is still the same.
        let kept = if hash.is_empty() { None } else { self.kept.with(|kept| kept.find(&name)) };
        if kept.is_some() {
            return kept;
        }
        let json = cx.read_openapi(path, &hash).await.ok()??;
        let document = Arc::new(OpenApiDocument::from_json(json.as_bytes()).ok()?);
        if !hash.is_empty() {
            self.kept.with(|kept| kept.keep(name, &document));
        }
        Some(document)
    }
}

async fn read_index(cx: &mut Context<'_>) -> BTreeMap<String, String> {
    let json = cx.read_openapi("", "").await.ok().flatten().unwrap_or_default();
    let index: Index = serde_json::from_str(&json).unwrap_or_default();
    let hash = |entry: &Entry| {
        let query = entry.server_relative_url.split_once("?hash=");
        query.map_or_else(String::new, |(_, hash)| hash.to_owned())
    };
    index.paths.iter().map(|(path, entry)| (path.clone(), hash(entry))).collect()
}
