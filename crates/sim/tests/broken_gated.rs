//! Controllers of kinds behind feature gates that are broken on purpose, and the storms that catch them. Each runs in the
//! place of the shipped one with its name.

mod broken_storms;

use std::sync::Arc;

use broken_storms::{controller_of, expect_no_violation, expect_violation, play_with};
use keleustes_objects::{Kind, PodGroup, ResourcePoolStatusRequest, StorageVersion};
use keleustes_plan::{Controller, PatchKind, Plan, View, Write};
use keleustes_sim::actions::{PodGroupChange, PoolChange, StorageVersionChange, UserAction};
use serde_json::{Value, json};

const PROTECTION: &str = "podgroup-protection-controller";
const COLLECTOR: &str = "storageversion-garbage-collector-controller";
const POOLS: &str = "resourcepoolstatusrequest-controller";

fn patch<T: Kind>(object: &T, subresource: &'static str, mut body: Value) -> Plan {
    body["metadata"]["uid"] = json!(object.meta().uid);
    let write = Write::patch(object, PatchKind::Merge, body).because("broken on purpose");
    Plan::of(if subresource.is_empty() { write } else { write.on_subresource(subresource) })
}

fn pod_groups(changes: &[(u64, PodGroupChange)]) -> Vec<(u64, UserAction)> {
    let action = |change| UserAction::ChangePodGroup("default".to_owned(), "oar".to_owned(), change);
    changes.iter().map(|(at_ms, change)| (*at_ms, action(*change))).collect()
}

/// Removes the finalizers of every deleted PodGroup at once.
fn hasty_protection() -> Controller {
    let decide = |_: &View<'_>, group: &Arc<PodGroup>| match group.meta.deletion_timestamp {
        Some(_) => patch(&**group, "", json!({"metadata": {"finalizers": null}})),
        None => Plan::none(),
    };
    controller_of(PROTECTION, PROTECTION, |a_loop| a_loop, decide)
}

/// Removes the finalizers of every PodGroup.
fn protection_of_nothing() -> Controller {
    let decide =
        |_: &View<'_>, group: &Arc<PodGroup>| patch(&**group, "", json!({"metadata": {"finalizers": null}}));
    controller_of(PROTECTION, PROTECTION, |a_loop| a_loop, decide)
}

#[test]
fn pod_group_that_is_released_while_a_pod_uses_it_is_caught() {
    let changes = [
        (2_000, PodGroupChange::Create),
        (3_000, PodGroupChange::CreatePod(0)),
        (15_000, PodGroupChange::Delete),
    ];
    let mut actions = pod_groups(&changes);
    expect_no_violation(&actions);
    let name = "PodGroup default/oar";
    let words = format!("{name} lost its finalizer while Pod default/group-oar-0 uses it");
    expect_violation(&play_with(&actions, hasty_protection), &words);
    expect_violation(
        &play_with(&actions, protection_of_nothing),
        &format!("living {name} lost its finalizer"),
    );
    for end in [PodGroupChange::FinishPod(0), PodGroupChange::DeletePod(0), PodGroupChange::ReplacePod(0)] {
        actions.truncate(3);
        actions.extend(pod_groups(&[(20_000, end)]));
        expect_no_violation(&actions);
        let report = play_with(&actions, || Controller::new(PROTECTION));
        expect_violation(&report, &format!("{name} is deleted and unused, and has its finalizer"));
    }
}

fn storage_versions(changes: &[(u64, StorageVersionChange)]) -> Vec<(u64, UserAction)> {
    changes.iter().map(|(at_ms, change)| (*at_ms, UserAction::ChangeStorageVersions(*change))).collect()
}

/// Two API servers store a resource in different versions, and one stops.
fn two_servers() -> Vec<(u64, UserAction)> {
    storage_versions(&[
        (2_000, StorageVersionChange::StartServer(0)),
        (2_500, StorageVersionChange::StartServer(1)),
        (3_000, StorageVersionChange::Record(0, 0, 0)),
        (4_000, StorageVersionChange::Record(1, 0, 1)),
        (15_000, StorageVersionChange::StopServer(1)),
    ])
}

/// Keeps only the last record of each StorageVersion.
fn collector_of_the_living() -> Controller {
    let decide = |_: &View<'_>, version: &Arc<StorageVersion>| {
        let records = &version.status.storage_versions;
        let Some(last) = records.last().filter(|_| records.len() > 1) else { return Plan::none() };
        let condition = json!({"type": "AllEncodingVersionsEqual", "status": "True", "reason": "Broken",
            "message": "broken on purpose", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"storageVersions": [last], "commonEncodingVersion": last.encoding_version,
            "conditions": [condition]});
        patch(&**version, "status", json!({"status": status}))
    };
    controller_of(COLLECTOR, "storage-version-garbage-collector", |a_loop| a_loop, decide)
}

/// Deletes every StorageVersion.
fn collector_of_everything() -> Controller {
    let decide = |_: &View<'_>, version: &Arc<StorageVersion>| match version.status.storage_versions.len() {
        0 => Plan::none(),
        _ => Plan::of(Write::delete(&**version).because("broken on purpose")),
    };
    controller_of(COLLECTOR, "storage-version-garbage-collector", |a_loop| a_loop, decide)
}

#[test]
fn lost_record_of_a_living_server_and_kept_record_of_a_dead_one_are_caught() {
    let actions = two_servers();
    expect_no_violation(&actions);
    let words = "StorageVersion /apps.deployments loses the record of apiserver-0, which has a Lease";
    expect_violation(&play_with(&actions, collector_of_the_living), words);
    expect_violation(&play_with(&actions, collector_of_everything), words);
    let report = play_with(&actions, || Controller::new(COLLECTOR));
    let words = "StorageVersion /apps.deployments has a record of apiserver-1, which has no Lease";
    expect_violation(&report, words);
}

fn pools(changes: &[(u64, PoolChange)]) -> Vec<(u64, UserAction)> {
    changes.iter().map(|(at_ms, change)| (*at_ms, UserAction::ChangePools(*change))).collect()
}

/// A pool whose devices change, and a request about it.
fn changed_pool() -> Vec<(u64, UserAction)> {
    pools(&[
        (2_000, PoolChange::Publish(0, 2)),
        (4_000, PoolChange::Publish(0, 4)),
        (15_000, PoolChange::CreateRequest(0, Some(0), None)),
    ])
}

fn answer(generation: u8, devices: u8, tainted: u8) -> Value {
    let pool = json!({"driver": "pools.example.com", "poolName": "pool-0", "generation": generation,
        "resourceSliceCount": 1, "totalDevices": devices, "allocatedDevices": 0,
        "availableDevices": devices - tainted, "unavailableDevices": tainted});
    let condition = json!({"type": "Complete", "status": "True", "reason": "CalculationComplete",
        "message": "broken on purpose", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({"status": {"poolCount": 1, "pools": [pool], "conditions": [condition]}})
}

/// Answers every request with the same counts, and again once it has an answer.
fn answering<const GENERATION: u8, const DEVICES: u8, const TAINTED: u8>() -> Controller {
    let decide = |_: &View<'_>, request: &Arc<ResourcePoolStatusRequest>| {
        if &*request.driver != "pools.example.com" {
            return Plan::none();
        }
        patch(&**request, "status", answer(GENERATION, DEVICES, TAINTED))
    };
    controller_of(POOLS, POOLS, |a_loop| a_loop, decide)
}

/// Deletes every request.
fn hasty_cleanup() -> Controller {
    let decide = |_: &View<'_>, request: &Arc<ResourcePoolStatusRequest>| {
        Plan::of(Write::delete(&**request).because("broken on purpose"))
    };
    controller_of(POOLS, POOLS, |a_loop| a_loop, decide)
}

#[test]
fn answer_that_does_not_match_the_slices_is_caught() {
    let actions = changed_pool();
    expect_no_violation(&actions);
    let name = "ResourcePoolStatusRequest /request-0";
    expect_violation(&play_with(&actions, answering::<2, 3, 1>), "as it never was");
    expect_violation(&play_with(&actions, answering::<2, 4, 0>), "as it never was");
    let words = format!("{name} does not list its 1 pools as they are");
    expect_violation(&play_with(&actions, answering::<1, 2, 0>), &words);
    expect_violation(&play_with(&actions, answering::<2, 4, 1>), &format!("{name} is answered twice"));
}

#[test]
fn request_that_is_not_answered_or_deleted_at_its_time_is_noticed() {
    let actions = changed_pool();
    let report = play_with(&actions, || Controller::new(POOLS));
    expect_violation(&report, "ResourcePoolStatusRequest /old-answered is old and is left");
    let words = "ResourcePoolStatusRequest /answered-later is deleted ";
    expect_violation(&play_with(&actions, hasty_cleanup), words);
    let unanswered = || {
        let decide = |_: &View<'_>, request: &Arc<ResourcePoolStatusRequest>| {
            let is_old = request.meta.key.name.as_str().starts_with("old-");
            let delete = || Plan::of(Write::delete(&**request).because("its time to live is over"));
            if is_old { delete() } else { Plan::none() }
        };
        controller_of(POOLS, POOLS, |a_loop| a_loop, decide)
    };
    let words = "ResourcePoolStatusRequest /request-0 is not answered";
    expect_violation(&play_with(&actions, unanswered), words);
    // A pool of which a slice is missing keeps its request waiting, and no other.
    let half = pools(&[
        (2_000, PoolChange::Publish(0, 2)),
        (3_000, PoolChange::PublishHalf(1, 2)),
        (15_000, PoolChange::CreateRequest(0, Some(0), None)),
        (15_000, PoolChange::CreateRequest(1, Some(1), None)),
        (20_000, PoolChange::PublishRest(1, 1)),
    ]);
    expect_no_violation(&half);
}
