//! The OpenAPI documents of the API server, from which the types of kinds come.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_cel::kubernetes::OpenApiDocument;
use keleustes_objects::{ApiError, BUILT_IN_KINDS};
use keleustes_plan::{Context, Memory, ReconcileError};
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
    /// The hashes of all documents, by path; `None` before the index is read.
    index: Option<Result<BTreeMap<String, String>, ApiError>>,
    /// The documents that this check has asked for already; `None` if there is none.
    read: BTreeMap<String, Result<Option<Arc<OpenApiDocument>>, ApiError>>,
}

impl<'a> Documents<'a> {
    pub(super) fn new(kept: &'a Memory<Kept>) -> Self {
        Self { kept, index: None, read: BTreeMap::new() }
    }

    /// The type of a kind's objects; `None` if the kind cannot be resolved.
    ///
    /// # Errors
    /// The API server is not able to serve the document of a built-in kind now. The original has these types compiled in, so that
    /// its warnings about them never depend on a request; here the check is repeated. Kinds of other groups are left out, as there.
    pub(super) async fn type_of(
        &mut self,
        cx: &mut Context<'_>,
        GroupVersionKind { group, version, kind }: &GroupVersionKind,
        type_name: &str,
    ) -> Result<Option<KindType>, ReconcileError> {
        let path =
            if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
        match self.document(cx, &path).await {
            Ok(document) => {
                Ok(document.and_then(|document| document.object_type(group, version, kind, type_name)))
            }
            Err(error) if is_built_in(group) && error.reason.is_outage() => {
                let message = format!("reading the OpenAPI document {path}: {error}");
                Err(ReconcileError::from_api_error(&error, message))
            }
            Err(_) => Ok(None),
        }
    }

    async fn document(
        &mut self,
        cx: &mut Context<'_>,
        path: &str,
    ) -> Result<Option<Arc<OpenApiDocument>>, ApiError> {
        if let Some(read) = self.read.get(path) {
            return read.clone();
        }
        let document = self.read_document(cx, path).await;
        self.read.insert(path.to_owned(), document.clone());
        document
    }

    async fn read_document(
        &mut self,
        cx: &mut Context<'_>,
        path: &str,
    ) -> Result<Option<Arc<OpenApiDocument>>, ApiError> {
        if self.index.is_none() {
            self.index = Some(read_index(cx).await);
        }
        let Some(index) = &self.index else { return Ok(None) };
        let Some(hash) = index.as_ref().map_err(Clone::clone)?.get(path).cloned() else { return Ok(None) };
        let name = format!("{path}?{hash}");
        // Without a hash, nothing says whether the document is still the same.
        let kept = if hash.is_empty() { None } else { self.kept.with(|kept| kept.find(&name)) };
        if kept.is_some() {
            return Ok(kept);
        }
        let Some(json) = cx.read_openapi(path, &hash).await? else { return Ok(None) };
        let Ok(document) = OpenApiDocument::from_json(json.as_bytes()) else { return Ok(None) };
        let document = Arc::new(document);
        if !hash.is_empty() {
            self.kept.with(|kept| kept.keep(name, &document));
        }
        Ok(Some(document))
    }
}

/// Whether the API server itself serves the kinds of a group. The rest are custom resources and aggregated APIs, whose documents
/// may be missing or broken for good.
fn is_built_in(group: &str) -> bool {
    group != AGGREGATION && BUILT_IN_KINDS.iter().any(|kind| kind.group == group)
}

/// The original's scheme lacks this group (VAPS-81).
const AGGREGATION: &str = "apiregistration.k8s.io";

async fn read_index(cx: &mut Context<'_>) -> Result<BTreeMap<String, String>, ApiError> {
    let Some(json) = cx.read_openapi("", "").await? else { return Ok(BTreeMap::new()) };
    let index: Index = serde_json::from_str(&json).unwrap_or_default();
    let hash = |entry: &Entry| {
        let query = entry.server_relative_url.split_once("?hash=");
        query.map_or_else(String::new, |(_, hash)| hash.to_owned())
    };
    Ok(index.paths.iter().map(|(path, entry)| (path.clone(), hash(entry))).collect())
}
