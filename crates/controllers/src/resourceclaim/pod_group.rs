//! The reconcile of a PodGroup: the claims that its pods share are created and recorded.

use std::collections::BTreeMap;

use keleustes_objects::{ArcStr, ClaimEntry, Key, PodGroup, ResourceClaim};
use keleustes_plan::{Context, InvolvedObject, ReconcileError, Write};

use super::creation::{ClaimOwner, EntryError, Recorded, adopt_or_create, recorded_claim, statuses_body};
use super::owner::is_for_pod_group;
use super::pod::send;
use super::{FIELD_MANAGER, ResourceClaimOptions, SCHEDULING_GROUP};

pub(super) async fn reconcile(
    options: &ResourceClaimOptions,
    cx: &mut Context<'_>,
    key: &Key,
) -> Result<(), ReconcileError> {
    let group = cx.gather(|view| {
        let groups = view.store_if_synced::<PodGroup>()?;
        groups.get(key).filter(|group| group.meta.deletion_timestamp.is_none()).cloned()
    });
    let Some(group) = group else { return Ok(()) };
    let mut found = BTreeMap::new();
    for entry in &group.resource_claims {
        match ensure_claim(options, cx, &group, entry).await {
            Ok(None) => {}
            Ok(Some(name)) => drop(found.insert(ArcStr::from(&*entry.name), name)),
            Err(error) => return Err(error.report(cx, InvolvedObject::of(&*group), &entry.name).await),
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    // Names of earlier reconciles stay: an apply removes what it leaves out. The original loses them.
    let recorded = group.resource_claim_statuses.iter();
    let recorded = recorded
        .filter_map(|status| Some((ArcStr::from(&*status.name), status.resource_claim_name.clone()?)));
    let mut names: BTreeMap<ArcStr, ArcStr> = recorded.collect();
    names.extend(found);
    let write = Write::apply(&*group, FIELD_MANAGER, statuses_body(&group.meta, names))
        .on_subresource("status")
        .because("its claims were created");
    send(cx, write, || format!("update PodGroup {key} ResourceClaimStatuses")).await
}

async fn ensure_claim(
    options: &ResourceClaimOptions,
    cx: &mut Context<'_>,
    group: &PodGroup,
    entry: &ClaimEntry,
) -> Result<Option<ArcStr>, EntryError> {
    let owns = |claim: &ResourceClaim| is_for_pod_group(group, claim);
    let owner = ClaimOwner {
        meta: &group.meta,
        api_version: "scheduling.k8s.io/v1beta1",
        kind: "PodGroup",
        api_group: SCHEDULING_GROUP,
        statuses: &group.resource_claim_statuses,
        name_in_errors: format!("PodGroup {}", group.meta.key),
        owns: &owns,
    };
    match recorded_claim(cx, &owner, entry).await? {
        Recorded::Settled => Ok(None),
        Recorded::Missing => adopt_or_create(options, cx, &owner, entry).await,
    }
}
