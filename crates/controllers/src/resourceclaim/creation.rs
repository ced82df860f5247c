//! The claim of one entry: it exists, is adopted, or is created from its template.

use std::sync::Arc;

use keleustes_objects::annotations::POD_CLAIM_NAME;
use keleustes_objects::{
    ApiError, ArcStr, ClaimEntry, ClaimSource, ClaimStatus, Key, ObjectMeta, ResourceClaim,
    ResourceClaimTemplate,
};
use keleustes_plan::{
    Applied, Context, InvolvedObject, OnFailure, Outcome, Plan, PlannedEvent, ReconcileError, View, Write,
};
use serde_json::{Value, json};

use super::indexes::{CLAIMS_BY_OWNER, value};
use super::names::{Unresolved, claim_name, generate_name};
use super::work::cached_claim;
use super::{ResourceClaimOptions, metrics};

/// The pod or PodGroup that claims are generated for.
pub(super) struct ClaimOwner<'a> {
    /// Its metadata.
    pub(super) meta: &'a ObjectMeta,
    /// Its group and version.
    pub(super) api_version: &'static str,
    /// Its kind.
    pub(super) kind: &'static str,
    /// Its API group, a label of the metrics.
    pub(super) api_group: &'static str,
    /// Its `status.resourceClaimStatuses`.
    pub(super) statuses: &'a [ClaimStatus],
    /// What errors of an entry call the owner.
    pub(super) name_in_errors: String,
    /// Whether a claim was generated for it.
    pub(super) owns: &'a (dyn Fn(&ResourceClaim) -> bool + Sync),
}

/// Why the claim of an entry could not be ensured.
#[derive(Debug)]
pub(super) struct EntryError {
    message: String,
    cause: Option<ApiError>,
}

impl EntryError {
    pub(super) fn because(message: impl Into<String>) -> Self {
        Self { message: message.into(), cause: None }
    }

    /// Records the event and returns the error of the reconcile.
    pub(super) async fn report(
        self,
        cx: &mut Context<'_>,
        on: InvolvedObject,
        entry: &str,
    ) -> ReconcileError {
        let message = format!("{}ResourceClaim {entry}: {}", on.kind, self.message);
        let mut plan = Plan::none();
        plan.record(PlannedEvent::warning(on, "FailedResourceClaimCreation", message.clone()));
        // A plan without writes does not fail.
        cx.apply(plan).await;
        match &self.cause {
            Some(cause) => ReconcileError::from_api_error(cause, message),
            None => ReconcileError::because(message),
        }
    }
}

/// The state of an entry's claim according to the name in the status.
pub(super) enum Recorded {
    /// The claim exists, or none is needed.
    Settled,
    /// There is no such claim of the owner; a template claim is adopted or created.
    Missing,
}

/// Checks the claim that the status names, in the cache or else live.
pub(super) async fn recorded_claim(
    cx: &mut Context<'_>,
    owner: &ClaimOwner<'_>,
    entry: &ClaimEntry,
) -> Result<Recorded, EntryError> {
    let named = match claim_name(entry, owner.statuses) {
        Ok(Some(named)) if named.name.is_empty() => return Ok(Recorded::Missing),
        Ok(Some(named)) => named,
        Ok(None) => return Ok(Recorded::Settled),
        Err(Unresolved::NotCreated) => return Ok(Recorded::Missing),
        Err(unsupported) => {
            let owner = &owner.name_in_errors;
            let entry =
                if owner.starts_with("pod") { format!("{:?}", &*entry.name) } else { entry.name.to_string() };
            let why = unsupported.as_str();
            let message =
                format!("checking for claim before creating it: {owner}, spec.resourceClaim {entry}: {why}");
            return Err(EntryError::because(message));
        }
    };
    let key = Key { namespace: owner.meta.key.namespace.clone(), name: named.name.into() };
    let is_valid = |claim: &ResourceClaim| !named.must_be_owned || (owner.owns)(claim);
    let cached = cx.gather(|view| cached_claim(view, &key.namespace, &key.name).cloned());
    let exists = match cached {
        Some(claim) => is_valid(&claim),
        // The cache may lag behind. Only the API server's answer that there is no such claim lets another one be created.
        None => match cx.fetch::<ResourceClaim>(&key).await {
            Ok(live) => live.is_some_and(|claim| is_valid(&claim)),
            Err(error) => {
                let why = error.because.strip_prefix(&format!("reading {key}: ")).unwrap_or(&error.because);
                return Err(EntryError::because(format!("checking claim existence: {why}")));
            }
        },
    };
    Ok(if exists { Recorded::Settled } else { Recorded::Missing })
}

/// The claim of an owner that was generated for an entry; the first one if there are several.
pub(super) fn generated_claim(view: &View<'_>, owner: &ObjectMeta, entry: &ClaimEntry) -> Option<ArcStr> {
    let value = value(&owner.key.namespace, &owner.uid.to_string());
    let mut claims = view.store::<ResourceClaim>().by_index(&CLAIMS_BY_OWNER, &value);
    let found = claims.find(|claim| claim.pod_claim_name.as_ref() == Some(&entry.name));
    found.map(|claim| claim.meta.key.name.clone())
}

/// Adopts the claim that was generated for an entry or creates it, and returns its name; `None` for an entry without a
/// template.
pub(super) async fn adopt_or_create(
    options: &ResourceClaimOptions,
    cx: &mut Context<'_>,
    owner: &ClaimOwner<'_>,
    entry: &ClaimEntry,
) -> Result<Option<ArcStr>, EntryError> {
    let ClaimSource::Template(name) = &entry.source else { return Ok(None) };
    let key = Key { namespace: owner.meta.key.namespace.clone(), name: (&**name).into() };
    let (adopted, template) = cx.gather(|view| {
        (generated_claim(view, owner.meta, entry), view.get::<ResourceClaimTemplate>(&key).cloned())
    });
    if adopted.is_some() {
        return Ok(adopted);
    }
    let Some(template) = template else {
        return Err(EntryError::because(format!(
            "resource claim template \"{name}\": resourceclaimtemplate.resource.k8s.io \"{name}\" not found"
        )));
    };
    if !options.enable_admin_access && template.requests_admin_access {
        return Err(EntryError::because("admin access is requested, but the feature is disabled"));
    }
    if !options.enable_prioritized_list && template.has_prioritized_list {
        return Err(EntryError::because(
            "template includes a prioritized list of subrequests, but the feature is disabled",
        ));
    }
    create(cx, owner, entry, &template).await.map(Some)
}

async fn create(
    cx: &mut Context<'_>,
    owner: &ClaimOwner<'_>,
    entry: &ClaimEntry,
    template: &Arc<ResourceClaimTemplate>,
) -> Result<ArcStr, EntryError> {
    let key = Key { namespace: owner.meta.key.namespace.clone(), name: ArcStr::default() };
    let write = Write::create::<ResourceClaim>(key, body(owner, entry, template))
        .because(format!("{} {} needs claim {}", owner.kind, owner.meta.key.name, entry.name))
        .on_failure(OnFailure::ReturnOutcome);
    let Applied { outcomes, error } = cx.apply(Plan::of(write)).await;
    let outcome = outcomes.into_iter().next().unwrap_or(Outcome::NotSent);
    let mut count = |status: &str| {
        let admin_access = metrics::text(template.requests_admin_access);
        cx.measure(metrics::CREATED.increment(&[status, admin_access, owner.api_group, owner.kind]));
    };
    match outcome {
        Outcome::Done { name, .. } => {
            count("success");
            Ok(name)
        }
        Outcome::Failed(cause) => {
            count("failure");
            // The original prints the name of the claim here, which is not generated yet.
            Err(EntryError { message: format!("create ResourceClaim : {cause}"), cause: Some(cause) })
        }
        Outcome::Unneeded | Outcome::NotSent => {
            let why = error.map_or_else(|| "not sent".to_owned(), |error| error.because);
            Err(EntryError::because(format!("create ResourceClaim : {why}")))
        }
    }
}

fn body(owner: &ClaimOwner<'_>, entry: &ClaimEntry, template: &ResourceClaimTemplate) -> Value {
    let mut annotations = json!(template.claim_annotations);
    if !annotations.is_object() {
        annotations = json!({});
    }
    annotations[POD_CLAIM_NAME] = json!(entry.name);
    let mut metadata = json!({
        "generateName": generate_name(&owner.meta.key.name, &entry.name),
        "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.meta.key.name,
            "uid": owner.meta.uid,
            "controller": true,
        }],
    });
    if !template.claim_labels.is_empty() {
        metadata["labels"] = json!(template.claim_labels);
    }
    json!({"metadata": metadata, "spec": template.claim_spec})
}

/// An apply of `status.resourceClaimStatuses`. The UID keeps a later object of the same name from getting these names.
pub(super) fn statuses_body(
    owner: &ObjectMeta,
    statuses: impl IntoIterator<Item = (ArcStr, ArcStr)>,
) -> Value {
    let entry = |(name, claim): (ArcStr, ArcStr)| json!({"name": name, "resourceClaimName": claim});
    let statuses: Vec<Value> = statuses.into_iter().map(entry).collect();
    json!({"metadata": {"uid": owner.uid}, "status": {"resourceClaimStatuses": statuses}})
}
