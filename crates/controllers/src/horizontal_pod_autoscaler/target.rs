//! The Scale of the target: any kind with that subresource, found through discovery.

use keleustes_objects::{
    ApiError, ApiResource, DiscoveredResources, ErrorReason, HorizontalPodAutoscaler, Key, TextSelector,
};
use keleustes_plan::{Context, OnFailure, Outcome, Plan, Precondition, ReadRequest, Scale, Target, Write};

use super::combine::SyncError;
use super::{mapping, metrics_api};

/// A Scale, and where it was found.
pub(super) struct ScaleTarget {
    pub(super) scale: Scale,
    /// The parsed `status.selector`.
    pub(super) selector: TextSelector,
    mapping: ApiResource,
    key: Key,
}

/// Reads the Scale of the target. All versions of the group have the same path as the preferred one, so only that one
/// is asked; the original asks once for each.
pub(super) async fn read(
    cx: &mut Context<'_>,
    autoscaler: &HorizontalPodAutoscaler,
    discovered: &Result<std::sync::Arc<DiscoveredResources>, ApiError>,
) -> Result<ScaleTarget, SyncError> {
    let reference = &autoscaler.spec.scale_target_ref;
    let group =
        mapping::group_of(&reference.api_version).map_err(|message| SyncError { message, is_spec: true })?;
    let discovered = discovered.as_ref().map_err(|error| SyncError::internal(error.to_string()))?;
    let mappings = mapping::all(discovered, group, &reference.kind).map_err(SyncError::internal)?;
    // The preferred version may lack the subresource that another one has.
    let has_scale = |one: &&&ApiResource| one.subresources.iter().any(|part| part.name == "scale");
    let mapping = mappings.iter().find(has_scale).unwrap_or(&mappings[0]);
    let key = Key::namespaced(&*autoscaler.meta.key.namespace, &*reference.name);
    let scale = get(cx, mapping, &key).await.map_err(SyncError::internal)?;
    let selector = parse_selector(&scale).map_err(SyncError::internal)?;
    Ok(ScaleTarget { scale, selector, mapping: (*mapping).clone(), key })
}

async fn get(cx: &mut Context<'_>, mapping: &ApiResource, key: &Key) -> Result<Scale, String> {
    if key.name.is_empty() {
        return Err("resource name may not be empty".to_owned());
    }
    let request = ReadRequest::subresource(&mapping.resource, key, "scale").not_found_as_error();
    let json = cx.read(&request).await.map_err(|error| metrics_api::describe(&request, &error))?;
    let scale = json.as_deref().and_then(Scale::from_json);
    scale.ok_or_else(|| format!("the scale of {} {key} cannot be read", mapping.resource))
}

/// Parity: client-go/scale, which converts every Scale to a `LabelSelector` and back.
fn parse_selector(scale: &Scale) -> Result<TextSelector, String> {
    TextSelector::parse_as_label_selector(&scale.selector).map_err(|why| {
        format!(
            "received an object from a /scale endpoint which was not convertible to autoscaling Scale: failed to parse \
             target selector: {why}"
        )
    })
}

/// The number of attempts in case of conflicts.
const TRIES: u32 = 5;

/// Writes the size of the target. After a conflict the Scale is read again and the same size is sent.
pub(super) async fn update(
    cx: &mut Context<'_>,
    target: &mut ScaleTarget,
    replicas: i32,
) -> Result<(), String> {
    let resource = &target.mapping.resource;
    if !target.mapping.subresources.iter().any(|part| part.name == "scale") {
        let gvr = format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural);
        return Err(format!(
            "could not find proper group-version for scale subresource of {gvr}: could not find scale subresource for \
             {gvr} in discovery information"
        ));
    }
    let mut last = String::new();
    for _ in 0..TRIES {
        let written = Target::named(resource, target.key.clone(), Precondition::ResourceVersionInBody);
        let write = Write::put_scale(written, &target.scale, replicas)
            .on_failure(OnFailure::ReturnOutcome)
            .because("the metrics ask for another size");
        let outcome = cx.apply(Plan::of(write)).await.outcomes.pop();
        let error = match outcome {
            Some(Outcome::Failed(error)) => error,
            Some(Outcome::Done { .. }) => return Ok(()),
            // The target is gone, or this process leads no longer.
            _ => return Err(format!("{resource} {:?} not found", target.key.name.as_str())),
        };
        if let Ok(latest) = get(cx, &target.mapping, &target.key).await {
            target.scale = latest;
        }
        last = error.to_string();
        if error.reason != ErrorReason::Conflict {
            break;
        }
    }
    Err(last)
}
