//! Binding: four writes, of which each is left out if it has nothing to change, so that any later sync finishes what an
//! earlier one began.

use std::sync::Arc;

use keleustes_objects::{ArcStr, PersistentVolume, PersistentVolumeClaim, Quantity};
use keleustes_plan::{Context, ReconcileError};
use serde_json::{Map, Value, json};

use super::live::{Subject, add_annotation, remove_field, retry};
use super::matching::is_volume_bound_to;
use super::names::{BIND_COMPLETED, BOUND_BY_CONTROLLER, PRE_RESIZE_CAPACITY, YES};

/// Binds a volume to a claim and marks both as Bound.
///
/// Parity: `bind` of pv_controller.go.
pub(super) async fn bind(
    cx: &mut Context<'_>,
    volume: Arc<PersistentVolume>,
    claim: &mut Subject<PersistentVolumeClaim>,
) -> Result<(), ReconcileError> {
    let mut volume = Subject::cached(volume);
    if let Some(reservation) = Reservation::needed(&volume.object, &claim.object) {
        let because = "the volume is bound to the claim";
        let change = |json: &mut Value| reservation.apply(json);
        volume.update(cx, "", because, change).await.map_err(|error| retry(&error))?;
    }
    set_volume_phase(cx, &mut volume, "Bound", "").await?;
    let name = volume.object.meta.key.name.clone();
    let is_named = claim.object.spec.volume_name == name;
    if !is_named || claim.object.annotations.value(BIND_COMPLETED).is_none() {
        let change = |json: &mut Value| name_volume(json, (!is_named).then_some(&name));
        let because = "the claim is bound to the volume";
        claim.update(cx, "", because, change).await.map_err(|error| retry(&error))?;
    }
    let status = bound_status(&claim.object, &volume.object).map_err(ReconcileError::because)?;
    set_claim_status(cx, claim, status).await
}

/// The change of a volume's spec that reserves it for a claim.
struct Reservation {
    claim_ref: Option<Value>,
    bound_by_controller: bool,
}

impl Reservation {
    fn needed(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Self> {
        let (key, uid) = (&claim.meta.key, &claim.meta.uid);
        let refers = volume.spec.claim_ref.as_ref().is_some_and(|reference| {
            reference.name == key.name && reference.namespace == key.namespace && reference.uid == *uid
        });
        let bound_by_controller =
            !is_volume_bound_to(volume, claim) && volume.annotations.value(BOUND_BY_CONTROLLER).is_none();
        let claim_ref = (!refers).then(|| {
            json!({
                "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": key.namespace, "name": key.name,
                "uid": uid, "resourceVersion": claim.meta.resource_version,
            })
        });
        (claim_ref.is_some() || bound_by_controller).then_some(Self { claim_ref, bound_by_controller })
    }

    fn apply(self, volume: &mut Value) {
        if let Some(claim_ref) = self.claim_ref {
            volume["spec"]["claimRef"] = claim_ref;
        }
        if self.bound_by_controller {
            add_annotation(volume, BOUND_BY_CONTROLLER, YES);
        }
    }
}

/// Names the volume in the claim, unless a user has, and marks binding as complete.
fn name_volume(claim: &mut Value, name: Option<&ArcStr>) {
    if let Some(name) = name {
        claim["spec"]["volumeName"] = json!(name);
        add_annotation(claim, BOUND_BY_CONTROLLER, YES);
    }
    add_annotation(claim, BIND_COMPLETED, YES);
}

/// Sets the phase of a volume unless it has it. The API server fills in the transition time.
pub(super) async fn set_volume_phase(
    cx: &mut Context<'_>,
    volume: &mut Subject<PersistentVolume>,
    phase: &'static str,
    message: &str,
) -> Result<(), ReconcileError> {
    if volume.object.phase == phase {
        return Ok(());
    }
    let because = match phase {
        "Available" => "no claim is bound to the volume",
        "Bound" => "the volume is bound to its claim",
        "Released" => "the claim of the volume is gone or bound elsewhere",
        _ => "the volume cannot be reclaimed",
    };
    let change = |json: &mut Value| {
        json["status"]["phase"] = phase.into();
        if message.is_empty() {
            remove_field(&mut json["status"], "message");
        } else {
            json["status"]["message"] = message.into();
        }
    };
    volume.update(cx, "status", because, change).await.map_err(|error| retry(&error))
}

/// Changes of a claim's status, by field; `None` removes the field.
pub(super) type StatusChange = Vec<(&'static str, Option<Value>)>;

/// The status of a claim that is not bound: the phase and nothing of a volume.
pub(super) fn unbound_status(claim: &PersistentVolumeClaim, phase: &'static str) -> StatusChange {
    let mut change = StatusChange::new();
    if claim.phase != phase {
        change.push(("phase", Some(phase.into())));
    }
    let status = &claim.status;
    let fields = [
        ("accessModes", !status.access_modes.is_empty()),
        ("capacity", !status.capacity.is_empty()),
        ("currentVolumeAttributesClassName", status.current_volume_attributes_class_name.is_some()),
    ];
    change.extend(fields.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| (field, None)));
    change
}

/// The status of a claim that is bound to a volume.
///
/// # Errors
/// If the claim becomes bound to a volume without a storage capacity.
fn bound_status(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<StatusChange, String> {
    let mut change = StatusChange::new();
    if claim.status.access_modes != volume.spec.access_modes {
        let modes = (!volume.spec.access_modes.is_empty()).then(|| json!(volume.spec.access_modes));
        change.push(("accessModes", modes));
    }
    if claim.phase != "Bound" {
        change.push(("phase", Some("Bound".into())));
        change.extend(capacity(claim, volume)?.map(|capacity| ("capacity", Some(capacity))));
    }
    let current = &claim.status.current_volume_attributes_class_name;
    let class = &volume.spec.volume_attributes_class_name;
    // Afterwards the field belongs to the external resizer.
    if claim.phase == "Pending" && current != class {
        change.push(("currentVolumeAttributesClassName", class.as_ref().map(|class| json!(class))));
    }
    Ok(change)
}

/// The capacity of a claim that becomes bound; `None` if it is that of the volume already.
fn capacity(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<Option<Value>, String> {
    let Some(size) = volume.spec.capacity.text("storage") else {
        let name = volume.meta.key.name.as_str();
        return Err(format!("PersistentVolume {name:?} is without a storage capacity"));
    };
    if let Some(before_resize) = volume.annotations.value(PRE_RESIZE_CAPACITY) {
        let kept = Quantity::parse(before_resize).map_or(size, |_| before_resize);
        let entries = claim.status.capacity.iter().map(|(name, text)| (name.to_string(), json!(text)));
        let mut entries: Map<String, Value> = entries.collect();
        entries.insert("storage".to_owned(), json!(kept));
        return Ok(Some(Value::Object(entries)));
    }
    let is_equal = claim.status.capacity.quantity("storage") == volume.spec.capacity.quantity("storage");
    if is_equal && claim.status.capacity.text("storage").is_some() {
        return Ok(None);
    }
    let entries = volume.spec.capacity.iter().map(|(name, text)| (name.to_string(), json!(text)));
    Ok(Some(Value::Object(entries.collect())))
}

/// Writes a claim's status unless nothing changes.
pub(super) async fn set_claim_status(
    cx: &mut Context<'_>,
    claim: &mut Subject<PersistentVolumeClaim>,
    change: StatusChange,
) -> Result<(), ReconcileError> {
    if change.is_empty() {
        return Ok(());
    }
    let because = match change.iter().find(|(field, _)| *field == "phase") {
        Some((_, Some(phase))) if *phase == "Bound" => "the claim became bound",
        Some((_, Some(phase))) if *phase == "Lost" => "the claim lost its volume",
        Some(_) => "the claim waits for a volume",
        None => "the status differs from the volume",
    };
    let apply = |json: &mut Value| {
        for (field, value) in change {
            match value {
                Some(value) => json["status"][field] = value,
                None => remove_field(&mut json["status"], field),
            }
        }
    };
    claim.update(cx, "status", because, apply).await.map_err(|error| retry(&error))
}
