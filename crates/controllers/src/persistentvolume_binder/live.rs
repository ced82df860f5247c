//! Objects that are written whole.
//!
//! The role grants update and not patch, and the caches hold projections. So the live object is read before the first
//! write, and only written if it is still the one that the decision is based on; a later write starts from what the
//! server stored. Fields that this release does not know survive, and no PUT is without a resourceVersion.

use std::sync::Arc;

use keleustes_objects::{ApiError, ErrorReason, Kind, ResourceVersion, Uid, invalid_path_segment};
use keleustes_plan::{Context, OnFailure, Outcome, Plan, ReconcileError, Write};
use serde_json::Value;

/// An object that may be written several times in one reconcile.
pub(super) struct Subject<T> {
    /// The object as it was cached or, after a write, as the server stored it.
    pub(super) object: Arc<T>,
    /// The object with all fields, after a write.
    stored: Option<Value>,
}

impl<T: Kind> Subject<T> {
    /// A cached object that nothing has been written to.
    pub(super) fn cached(object: Arc<T>) -> Self {
        Self { object, stored: None }
    }

    /// Changes the object and PUTs it to a subresource, or to the object itself if the name is empty.
    pub(super) async fn update(
        &mut self,
        cx: &mut Context<'_>,
        subresource: &'static str,
        because: &'static str,
        change: impl FnOnce(&mut Value) + Send,
    ) -> Result<(), ApiError> {
        let mut body = match self.stored.take() {
            Some(stored) => stored,
            None => read_unchanged(cx, &*self.object).await?,
        };
        change(&mut body);
        let write = Write::put(&*self.object, subresource, body)
            .returning_object()
            .on_failure(OnFailure::ReturnOutcome)
            .because(because);
        let mut applied = cx.apply(Plan::of(write)).await;
        let outcome = applied.outcomes.pop().unwrap_or(Outcome::NotSent);
        let object = match outcome {
            Outcome::Done { object: Some(object), .. } => object,
            Outcome::Failed(error) => return Err(error),
            Outcome::Unneeded => return Err(not_found(&*self.object)),
            Outcome::Done { object: None, .. } | Outcome::NotSent => {
                return Err(ApiError::transport(ErrorReason::UnreadableResponse, "no stored object"));
            }
        };
        let decoded = T::deserialize(&*object).map_err(|_| unreadable(&*self.object))?;
        self.object = Arc::new(decoded);
        self.stored = Some(Arc::unwrap_or_clone(object));
        Ok(())
    }
}

/// The live object, if it is the cached one.
async fn read_unchanged<T: Kind>(cx: &mut Context<'_>, cached: &T) -> Result<Value, ApiError> {
    let keys = [cached.key().clone()];
    let mut results = cx.io().fetch(&T::RESOURCE, &keys).await;
    let json = results.pop().unwrap_or(Ok(None))?.ok_or_else(|| not_found(cached))?;
    let live: Value = serde_json::from_str(&json).map_err(|_| unreadable(cached))?;
    let text = |field: &str| live["metadata"][field].as_str().unwrap_or_default();
    let version = ResourceVersion::from(text("resourceVersion"));
    let meta = cached.meta();
    if version.is_empty() || version != meta.resource_version || Uid::from(text("uid")) != meta.uid {
        return Err(modified(cached));
    }
    Ok(live)
}

/// Fails if the live object is not the cached one, or if there is one and none is cached.
///
/// A claim is only declared Lost for what the API server says, because caches of two kinds do not move together.
pub(super) async fn confirm<T: Kind>(
    cx: &mut Context<'_>,
    key: &keleustes_objects::Key,
    cached: Option<&T>,
) -> Result<(), ApiError> {
    match cached {
        Some(cached) => read_unchanged(cx, cached).await.map(|_| ()),
        // No object can have such a name, and no client sends it. The API server accepts it in a claim.
        None if invalid_path_segment(&key.name).is_some() => Ok(()),
        None => {
            let mut results = cx.io().fetch(&T::RESOURCE, std::slice::from_ref(key)).await;
            match results.pop().unwrap_or(Ok(None))? {
                None => Ok(()),
                Some(_) => Err(ApiError::transport(
                    ErrorReason::Conflict,
                    format!("{} {key} exists and is not cached yet", T::RESOURCE),
                )),
            }
        }
    }
}

fn not_found<T: Kind>(object: &T) -> ApiError {
    let message = format!("{} {:?} not found", T::RESOURCE, object.key().name.as_str());
    ApiError { code: 404, ..ApiError::transport(ErrorReason::NotFound, message) }
}

/// The error of a PUT with an old resourceVersion, in the server's words.
fn modified<T: Kind>(object: &T) -> ApiError {
    let message = format!(
        "Operation cannot be fulfilled on {} {:?}: the object has been modified; please apply your changes to the \
         latest version and try again",
        T::RESOURCE,
        object.key().name.as_str()
    );
    ApiError { code: 409, ..ApiError::transport(ErrorReason::Conflict, message) }
}

fn unreadable<T: Kind>(object: &T) -> ApiError {
    let message = format!("{} {} cannot be read", T::RESOURCE, object.key());
    ApiError::transport(ErrorReason::UnreadableResponse, message)
}

/// The retry of a sync whose request failed. A conflict is expected and not logged.
pub(super) fn retry(error: &ApiError) -> ReconcileError {
    let retry = ReconcileError::from_api_error(error, error.to_string());
    if error.reason == ErrorReason::Conflict { retry.quietly() } else { retry }
}

/// Adds an annotation unless the object has it.
pub(super) fn add_annotation(object: &mut Value, key: &str, value: &str) {
    let annotations = &mut object["metadata"]["annotations"];
    if annotations[key].is_null() {
        annotations[key] = value.into();
    }
}

/// Removes a field of an object.
pub(super) fn remove_field(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}
