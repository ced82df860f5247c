//! Controllers of volumes, devices and migrations that are broken on purpose, and the storms that catch them. Each runs
//! beside the shipped ones, or in the place of the one with its name.

mod broken_storms;

use std::sync::Arc;

use broken_storms::{EVERYTHING, controller_of, expect_no_violation, expect_violation, play_with};
use keleustes_controllers::{persistentvolume_binder, resourceclaim};
use keleustes_objects::{
    DeviceTaintRule, Key, Kind, Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSource, Pod,
    ResourceClaim, StorageVersionMigration, VolumeAttachment, VolumeAttributesClass,
};
use keleustes_plan::{
    AnyReconciler, BoxFuture, Context, Controller, Item, Loop, PatchKind, Plan, ReconcileError, Requeue,
    View, Write,
};
use keleustes_sim::actions::{
    DeviceChange, ReclaimPolicy, StorageChange, StorageKind, UserAction, VolumeChange,
};
use keleustes_sim::storm::controller_options;
use serde_json::{Value, json};

fn patch<T: Kind>(object: &T, subresource: &'static str, mut body: Value) -> Write {
    body["metadata"]["uid"] = json!(object.meta().uid);
    let write = Write::patch(object, PatchKind::Merge, body).because("broken on purpose");
    if subresource.is_empty() { write } else { write.on_subresource(subresource) }
}

/// Whether the reconcile of an item is left out, this number of seconds after the start of the storm.
type LeftOut = fn(&Item, i64) -> bool;

/// A controller that leaves out some reconciles.
fn leaving_out(mut controller: Controller, left_out: LeftOut) -> Controller {
    struct LeavingOut(Arc<dyn AnyReconciler>, LeftOut);
    impl AnyReconciler for LeavingOut {
        fn accepts(&self, item: &Item) -> bool {
            self.0.accepts(item)
        }

        fn reconcile_boxed<'a>(
            &'a self,
            cx: &'a mut Context<'_>,
            item: &'a Item,
        ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
            Box::pin(async move {
                // Every simulated cluster starts with the first of January.
                let seconds = cx.gather(|view| view.now()).wall.unix_seconds() % 86_400;
                if (self.1)(item, seconds) {
                    return Ok(Requeue::Forget);
                }
                self.0.reconcile_boxed(cx, item).await
            })
        }
    }
    for a_loop in &mut controller.loops {
        a_loop.reconciler = Arc::new(LeavingOut(a_loop.reconciler.clone(), left_out));
    }
    controller
}

fn volumes(changes: &[(u64, VolumeChange)]) -> Vec<(u64, UserAction)> {
    let action = |change| UserAction::ChangeVolumes("default".to_owned(), "oar".to_owned(), change);
    changes.iter().map(|(at_ms, change)| (*at_ms, action(*change))).collect()
}

/// A claim, a volume that fits, and a pod on a node.
fn bound_pair() -> Vec<(u64, VolumeChange)> {
    vec![
        (2_000, VolumeChange::CreateVolume),
        (4_000, VolumeChange::CreateClaim),
        (6_000, VolumeChange::CreatePod),
    ]
}

/// Binds a claim to the first volume without a word to the volume.
fn binder_of_claims_alone() -> Controller {
    let decide = |view: &View<'_>, claim: &Arc<PersistentVolumeClaim>| {
        let volume = view.all::<PersistentVolume>().next();
        let Some(volume) = volume.filter(|_| claim.phase != "Bound") else { return Plan::none() };
        let mut plan = Plan::of(patch(&**claim, "", json!({"spec": {"volumeName": volume.meta.key.name}})));
        plan.push(patch(&**claim, "status", json!({"status": {"phase": "Bound"}})));
        plan
    };
    let name = "persistentvolume-binder-controller";
    controller_of(
        name,
        "persistent-volume-binder",
        |a_loop| a_loop.reads_unwatched::<PersistentVolume>("broken on purpose"),
        decide,
    )
}

#[test]
fn claim_that_is_bound_without_its_volume_is_caught() {
    let report = play_with(&volumes(&bound_pair()), binder_of_claims_alone);
    expect_violation(&report, "becomes Bound to PersistentVolume /default-oar, which is not its");
}

/// Declares every bound claim Lost.
fn loser_of_volumes() -> Controller {
    let decide = |_: &View<'_>, claim: &Arc<PersistentVolumeClaim>| {
        if claim.phase != "Bound" {
            return Plan::none();
        }
        Plan::of(patch(&**claim, "status", json!({"status": {"phase": "Lost"}})))
    };
    controller_of("loser-of-volumes", "persistent-volume-binder", |a_loop| a_loop, decide)
}

#[test]
fn claim_that_is_lost_although_its_volume_is_there_is_caught() {
    let actions = volumes(&bound_pair());
    let words = "PersistentVolumeClaim default/oar becomes Lost, and PersistentVolume /default-oar is its";
    expect_violation(&play_with(&actions, loser_of_volumes), words);
    // A claim whose volume is gone is Lost.
    let changes = [(2_000, VolumeChange::CreateClaim), (4_000, VolumeChange::BindClaim)];
    expect_no_violation(&volumes(&changes));
}

/// Frees every bound volume.
fn separator() -> Controller {
    let decide = |_: &View<'_>, volume: &Arc<PersistentVolume>| {
        if volume.phase != "Bound" {
            return Plan::none();
        }
        Plan::of(patch(&**volume, "", json!({"spec": {"claimRef": null}})))
    };
    controller_of("separator", "persistent-volume-binder", |a_loop| a_loop, decide)
}

#[test]
fn volume_that_is_taken_from_its_claim_is_caught() {
    let actions = volumes(&bound_pair());
    expect_no_violation(&actions);
    expect_violation(
        &play_with(&actions, separator),
        "loses PersistentVolumeClaim default/oar, which is bound to it",
    );
}

/// Deletes every volume that no claim needs, whatever its reclaim policy.
fn reclaimer() -> Controller {
    let decide = |_: &View<'_>, volume: &Arc<PersistentVolume>| {
        if volume.phase != "Available" || volume.meta.deletion_timestamp.is_some() {
            return Plan::none();
        }
        Plan::of(Write::delete(&**volume).because("broken on purpose"))
    };
    controller_of("reclaimer", "persistent-volume-binder", |a_loop| a_loop, decide)
}

#[test]
fn deleted_volume_that_is_to_be_retained_is_caught() {
    let actions = volumes(&[(2_000, VolumeChange::CreateVolume)]);
    expect_violation(&play_with(&actions, reclaimer), "which is to be retained");
}

/// A volume on the manager's host whose claim is deleted.
fn released_host_path(policy: ReclaimPolicy) -> Vec<(u64, UserAction)> {
    volumes(&[
        (2_000, VolumeChange::CreateHostPath(policy)),
        (4_000, VolumeChange::CreateClaim),
        (20_000, VolumeChange::DeleteClaim),
    ])
}

/// Deletes every released volume, whatever its reclaim policy.
fn reclaimer_of_released() -> Controller {
    let decide = |_: &View<'_>, volume: &Arc<PersistentVolume>| {
        if volume.phase != "Released" || volume.meta.deletion_timestamp.is_some() {
            return Plan::none();
        }
        Plan::of(Write::delete(&**volume).because("broken on purpose"))
    };
    controller_of("reclaimer", "persistent-volume-binder", |a_loop| a_loop, decide)
}

/// The shipped binder, whose recycler pods fail.
fn binder_without_recycler() -> Controller {
    let mut options = controller_options().persistentvolume_binder;
    let containers = json!([{"name": "recycler", "image": "any:0"}]);
    options.recycler.host_path.template = Some(json!({
        "metadata": {"namespace": "default", "annotations": {"hollow.keleustes.io/exit-code": "1"}},
        "spec": {"restartPolicy": "Never", "volumes": [{"name": "vol"}], "containers": containers},
    }));
    persistentvolume_binder::controller(&options)
}

/// The shipped binder, which cannot remove the directories of released volumes.
fn binder_without_files() -> Controller {
    let mut options = controller_options().persistentvolume_binder;
    options.host_files = None;
    persistentvolume_binder::controller(&options)
}

#[test]
fn released_host_path_that_is_deleted_although_retained_or_not_reclaimed_is_caught() {
    for policy in [ReclaimPolicy::Retain, ReclaimPolicy::Delete, ReclaimPolicy::Recycle] {
        expect_no_violation(&released_host_path(policy));
    }
    for policy in [ReclaimPolicy::Retain, ReclaimPolicy::Recycle] {
        let report = play_with(&released_host_path(policy), reclaimer_of_released);
        expect_violation(&report, "PersistentVolume /default-oar-host, which is to be retained");
    }
    let report = play_with(&released_host_path(ReclaimPolicy::Delete), binder_without_files);
    expect_violation(&report, "PersistentVolume /default-oar-host is released and not deleted");
    let report = play_with(&released_host_path(ReclaimPolicy::Recycle), binder_without_recycler);
    expect_violation(&report, "PersistentVolume /default-oar-host is released and not recycled");
}

/// Removes the directories of all volumes in a phase, whatever their reclaim policy.
fn remover_of_directories(phase: &'static str) -> Controller {
    let files = controller_options().persistentvolume_binder.host_files.expect("storms have a host");
    let decide = move |view: &View<'_>, item: &Key| {
        let volume = view.get::<PersistentVolume>(item).filter(|volume| volume.phase == phase);
        if let Some(PersistentVolumeSource::HostPath { path }) = volume.map(|volume| &volume.spec.source) {
            files.remove_all(path).expect("it can be removed");
        }
        Plan::none()
    };
    let a_loop = Loop::deciding("remover", decide)
        .enqueue_on::<PersistentVolume>(|change, _, queue| queue.add(&change.latest().meta.key));
    Controller::new("remover")
        .service_account("persistent-volume-binder")
        .may_write(EVERYTHING)
        .with_loop(a_loop)
}

/// Creates recycler pods for all volumes in a phase, whatever their reclaim policy.
fn hasty_recycler(phase: &'static str) -> Controller {
    let decide = move |view: &View<'_>, item: &Key| {
        let volume = view.get::<PersistentVolume>(item).filter(|volume| volume.phase == phase);
        let Some(volume) = volume else { return Plan::none() };
        let name = format!("recycler-for-{}", volume.meta.key.name);
        let containers = json!([{"name": "recycler", "image": "any:0"}]);
        let body = json!({"metadata": {"namespace": "default", "name": name},
            "spec": {"restartPolicy": "Never", "containers": containers}});
        Plan::of(Write::create::<Pod>(Key::namespaced("default", name), body).because("broken on purpose"))
    };
    let a_loop = Loop::deciding("recycler", decide)
        .enqueue_on::<PersistentVolume>(|change, _, queue| queue.add(&change.latest().meta.key));
    Controller::new("recycler")
        .service_account("persistent-volume-binder")
        .may_write(EVERYTHING)
        .with_loop(a_loop)
}

#[test]
fn destroyed_data_of_a_volume_that_is_retained_or_in_use_is_caught() {
    let data = "the data of PersistentVolume /default-oar-host is destroyed, ";
    let (released, bound) = (|| remover_of_directories("Released"), || remover_of_directories("Bound"));
    let report = play_with(&released_host_path(ReclaimPolicy::Retain), released);
    expect_violation(&report, &format!("{data}whose reclaim policy is Retain"));
    let report = play_with(&released_host_path(ReclaimPolicy::Recycle), released);
    expect_violation(&report, &format!("{data}whose reclaim policy is Recycle"));
    let report = play_with(&released_host_path(ReclaimPolicy::Delete), bound);
    expect_violation(&report, &format!("{data}which PersistentVolumeClaim default/oar uses"));
    let (released, bound) = (|| hasty_recycler("Released"), || hasty_recycler("Bound"));
    let report = play_with(&released_host_path(ReclaimPolicy::Retain), released);
    expect_violation(&report, &format!("{data}whose reclaim policy is Retain"));
    let report = play_with(&released_host_path(ReclaimPolicy::Recycle), bound);
    expect_violation(&report, &format!("{data}which PersistentVolumeClaim default/oar uses"));
}

/// Removes the finalizers of every deleted claim at once.
fn hasty_claim_protection() -> Controller {
    let decide = |_: &View<'_>, claim: &Arc<PersistentVolumeClaim>| {
        if claim.meta.deletion_timestamp.is_none() {
            return Plan::none();
        }
        Plan::of(patch(&**claim, "", json!({"metadata": {"finalizers": null}})))
    };
    controller_of("hasty-protection", "pvc-protection-controller", |a_loop| a_loop, decide)
}

#[test]
fn claim_that_is_released_while_a_pod_uses_it_is_caught() {
    let mut changes = bound_pair();
    changes.push((15_000, VolumeChange::DeleteClaim));
    let actions = volumes(&changes);
    expect_no_violation(&actions);
    expect_violation(
        &play_with(&actions, hasty_claim_protection),
        "PersistentVolumeClaim default/oar lost its finalizer while Pod default/user-of-oar uses it",
    );
}

/// Removes the finalizers of every deleted volume at once.
fn hasty_volume_protection() -> Controller {
    let decide = |_: &View<'_>, volume: &Arc<PersistentVolume>| {
        if volume.meta.deletion_timestamp.is_none() {
            return Plan::none();
        }
        Plan::of(patch(&**volume, "", json!({"metadata": {"finalizers": null}})))
    };
    controller_of("hasty-protection", "pv-protection-controller", |a_loop| a_loop, decide)
}

#[test]
fn bound_volume_that_is_released_is_caught() {
    let mut changes = bound_pair();
    changes.push((15_000, VolumeChange::DeleteVolume));
    expect_violation(
        &play_with(&volumes(&changes), hasty_volume_protection),
        "bound PersistentVolume /default-oar lost its finalizer",
    );
}

/// Removes the finalizers of every deleted class at once.
fn hasty_class_protection() -> Controller {
    let decide = |_: &View<'_>, class: &Arc<VolumeAttributesClass>| {
        if class.meta.deletion_timestamp.is_none() {
            return Plan::none();
        }
        Plan::of(patch(&**class, "", json!({"metadata": {"finalizers": null}})))
    };
    let account = "volumeattributesclass-protection-controller";
    controller_of("hasty-protection", account, |a_loop| a_loop, decide)
}

/// The shipped controller, which does nothing about classes that are deleted.
fn class_protection_without_end() -> Controller {
    let shipped = keleustes_controllers::volumeattributesclass_protection::controller();
    leaving_out(shipped, |_, seconds| seconds >= 15)
}

#[test]
fn attributes_class_that_is_released_while_it_is_named_is_caught() {
    let create = StorageChange::CreateClaim { class: StorageKind::Deleted, shared: false };
    let used = [(2_000, create), (8_000, StorageChange::SetAttributes(1))];
    let delete = [(20_000, StorageChange::SetAttributesClass(1, false))];
    let actions = storage(&[&used[..], &delete].concat());
    expect_no_violation(&actions);
    let name = "VolumeAttributesClass /attributes-1";
    expect_violation(
        &play_with(&actions, hasty_class_protection),
        &format!("{name} lost its finalizer while PersistentVolumeClaim default/disk-oar names it"),
    );
    // The volume still names a class that its claim no longer asks for.
    let other = [(10_000, StorageChange::ModifyVolume), (12_000, StorageChange::SetAttributes(2))];
    let actions = storage(&[&used[..], &other, &delete].concat());
    expect_no_violation(&actions);
    let report = play_with(&actions, hasty_class_protection);
    expect_violation(&report, &format!("{name} lost its finalizer while "));
    let report = play_with(&storage(&delete), class_protection_without_end);
    expect_violation(&report, &format!("{name} is deleted and unused, and has its finalizer"));
}

fn storage(changes: &[(u64, StorageChange)]) -> Vec<(u64, UserAction)> {
    let action = |change| UserAction::ChangeStorage("default".to_owned(), "oar".to_owned(), change);
    changes.iter().map(|(at_ms, change)| (*at_ms, action(*change))).collect()
}

/// A claim for one node, and pods on two.
fn pods_on_two_nodes() -> Vec<(u64, UserAction)> {
    storage(&[
        (2_000, StorageChange::CreateClaim { class: StorageKind::Deleted, shared: false }),
        (5_000, StorageChange::CreatePod(0, 0, false)),
        (15_000, StorageChange::CreatePod(1, 1, false)),
    ])
}

/// Attaches the volumes of all claims to the nodes of all pods.
fn attacher_of_everything() -> Controller {
    let decide = |view: &View<'_>, pod: &Arc<Pod>| {
        let volumes = pod.used_claims().filter_map(|claim| {
            let key = Key { namespace: pod.meta.key.namespace.clone(), name: claim };
            Some(view.get::<PersistentVolumeClaim>(&key)?.spec.volume_name.clone())
        });
        let mut plan = Plan::none();
        for volume in volumes.filter(|volume| !volume.is_empty() && !pod.node_name.is_empty()) {
            let name = format!("{}-{volume}", pod.node_name);
            let key = Key::cluster(name.as_str());
            if view.get::<VolumeAttachment>(&key).is_none() {
                let source = json!({"persistentVolumeName": volume});
                let spec =
                    json!({"attacher": "csi.storm.example.com", "nodeName": pod.node_name, "source": source});
                let body = json!({"metadata": {"name": name}, "spec": spec});
                plan.push(Write::create::<VolumeAttachment>(key, body).because("broken on purpose"));
            }
        }
        plan
    };
    let reads = |a_loop: Loop| {
        a_loop
            .reads_unwatched::<PersistentVolumeClaim>("broken on purpose")
            .reads_unwatched::<VolumeAttachment>("broken on purpose")
    };
    controller_of("attacher-of-everything", "attachdetach-controller", reads, decide)
}

#[test]
fn volume_of_one_node_that_is_attached_to_two_is_caught() {
    let actions = pods_on_two_nodes();
    expect_no_violation(&actions);
    expect_violation(
        &play_with(&actions, attacher_of_everything),
        "is attached to [\"hollow-0\", \"hollow-1\"], or may be",
    );
}

/// Detaches every volume as soon as its node uses it.
fn detacher() -> Controller {
    let decide = |view: &View<'_>, attachment: &Arc<VolumeAttachment>| {
        let node = view.get::<Node>(&Key::cluster(attachment.node_name.as_str()));
        let is_used =
            node.is_some_and(|node| !node.volumes_in_use.is_empty() && !node.volumes_attached.is_empty());
        if !is_used || attachment.meta.deletion_timestamp.is_some() {
            let mut plan = Plan::none();
            plan.requeue_after(std::time::Duration::from_secs(1), "a test");
            return plan;
        }
        Plan::of(Write::delete(&**attachment).because("broken on purpose"))
    };
    controller_of(
        "detacher",
        "attachdetach-controller",
        |a_loop| a_loop.reads_unwatched::<Node>("broken on purpose"),
        decide,
    )
}

#[test]
fn volume_that_is_detached_before_its_node_knows_is_caught() {
    expect_violation(&play_with(&pods_on_two_nodes(), detacher), "which still reports it as attached");
}

/// Removes all volumes from the status of the node, and detaches every volume that it uses.
fn polite_detacher() -> Controller {
    let decide = |view: &View<'_>, attachment: &Arc<VolumeAttachment>| {
        let node = view.get::<Node>(&Key::cluster(attachment.node_name.as_str()));
        let used = node.filter(|node| !node.volumes_in_use.is_empty() && !node.volumes_attached.is_empty());
        let Some(node) = used.filter(|_| attachment.meta.deletion_timestamp.is_none()) else {
            let mut plan = Plan::none();
            plan.requeue_after(std::time::Duration::from_secs(1), "a test");
            return plan;
        };
        let mut plan = Plan::of(patch(&**node, "status", json!({"status": {"volumesAttached": null}})));
        plan.push(Write::delete(&**attachment).because("broken on purpose"));
        plan
    };
    controller_of(
        "detacher",
        "attachdetach-controller",
        |a_loop| a_loop.reads_unwatched::<Node>("broken on purpose"),
        decide,
    )
}

#[test]
fn volume_that_is_detached_while_its_node_uses_it_is_caught() {
    expect_violation(&play_with(&pods_on_two_nodes(), polite_detacher), "which has it in use");
}

#[test]
fn missing_attachments_and_volumes_are_noticed() {
    let actions = pods_on_two_nodes();
    let report = play_with(&actions, || Controller::new("persistentvolume-attach-detach-controller"));
    expect_violation(&report, "and attached to 0 of them");
    let report = play_with(&actions, || Controller::new("persistentvolume-binder-controller"));
    expect_violation(&report, "is not bound although its driver provisions volumes");
}

fn devices(name: &str, changes: &[(u64, DeviceChange)]) -> Vec<(u64, UserAction)> {
    let action = |change| UserAction::ChangeDevices("default".to_owned(), name.to_owned(), change);
    changes.iter().map(|(at_ms, change)| (*at_ms, action(*change))).collect()
}

/// A pod with a device that is allocated in this way, and then tainted by a rule.
fn tainted_device(allocate: DeviceChange) -> Vec<(u64, UserAction)> {
    devices("oar", &[(2_000, DeviceChange::CreatePod), (5_000, allocate), (8_000, DeviceChange::Taint(true))])
}

/// Evicts a pod with a device as soon as `is_due` holds.
fn evictor(is_due: fn(&View<'_>, &Pod) -> bool) -> Controller {
    let decide = move |view: &View<'_>, item: &Key| {
        let Some(pod) = view.get::<Pod>(item) else { return Plan::none() };
        if pod.meta.deletion_timestamp.is_some() || !pod.meta.key.name.starts_with("device-user-") {
            return Plan::none();
        }
        if is_due(view, pod) {
            return Plan::of(Write::delete(&**pod).because("broken on purpose"));
        }
        let mut plan = Plan::none();
        plan.requeue_after(std::time::Duration::from_secs(1), "a test");
        plan
    };
    let a_loop = Loop::deciding("evictor", decide)
        .enqueue_on::<Pod>(|change, _, queue| queue.add(&change.latest().meta.key))
        .reads_unwatched::<DeviceTaintRule>("broken on purpose");
    Controller::new("evictor")
        .service_account("device-taint-eviction-controller")
        .may_write(EVERYTHING)
        .with_loop(a_loop)
}

/// Evicts every pod with a device.
fn evictor_of_everything() -> Controller {
    evictor(|_, _| true)
}

/// Evicts every pod with a device while there is a rule.
fn evictor_despite_tolerations() -> Controller {
    evictor(|view, _| view.all::<DeviceTaintRule>().next().is_some())
}

/// Evicts every pod with a device after a minute.
fn evictor_despite_untainting() -> Controller {
    evictor(|view, pod| {
        let created = pod.meta.creation_timestamp;
        created.is_some_and(|created| view.now().wall.seconds_since(created) >= 60)
    })
}

#[test]
fn eviction_of_a_pod_that_tolerates_is_caught() {
    let actions = tainted_device(DeviceChange::AllocateTolerating(None));
    expect_no_violation(&actions);
    let report = play_with(&actions, evictor_despite_tolerations);
    expect_violation(&report, "tolerates the taint and is evicted");
    let report = play_with(&actions, evictor_of_everything);
    expect_violation(&report, "is evicted and on no tainted device");
}

#[test]
fn eviction_before_the_toleration_seconds_are_over_is_caught() {
    let actions = tainted_device(DeviceChange::AllocateTolerating(Some(40)));
    expect_no_violation(&actions);
    let report = play_with(&actions, evictor_despite_tolerations);
    expect_violation(&report, "tolerates the taint for 40s and is evicted after");
}

#[test]
fn eviction_after_the_taint_was_removed_is_caught() {
    for untaint in [DeviceChange::Untaint, DeviceChange::TaintSlice(false)] {
        let taint = match untaint {
            DeviceChange::Untaint => DeviceChange::Taint(true),
            _ => DeviceChange::TaintSlice(true),
        };
        let tolerates = DeviceChange::AllocateTolerating(Some(40));
        let mut actions = devices("oar", &[(2_000, DeviceChange::CreatePod), (5_000, tolerates)]);
        actions.extend(devices("oar", &[(8_000, taint), (20_000, untaint), (90_000, untaint)]));
        expect_no_violation(&actions);
        let report = play_with(&actions, evictor_despite_untainting);
        expect_violation(&report, "is evicted after the taint was removed");
    }
}

#[test]
fn missing_evictions_and_claims_are_noticed() {
    let idle = || Controller::new("device-taint-eviction-controller");
    let allocated = [(2_000, DeviceChange::CreatePod), (5_000, DeviceChange::Allocate)];
    let slice = [&allocated[..], &[(8_000, DeviceChange::TaintSlice(true))]].concat();
    let of_slice = devices("oar", &slice);
    expect_no_violation(&of_slice);
    let awaited = tainted_device(DeviceChange::AllocateTolerating(Some(5)));
    for actions in [tainted_device(DeviceChange::Allocate), of_slice, awaited] {
        expect_violation(&play_with(&actions, idle), "is still on a tainted device");
    }
    let actions = tainted_device(DeviceChange::Allocate);
    let report = play_with(&actions, || Controller::new("resourceclaim-controller"));
    expect_violation(&report, "no claim is recorded for");
}

/// The shipped controller, which does nothing about claims: it removes no reservation and deletes no claim.
fn claims_without_end() -> Controller {
    let shipped = resourceclaim::controller(&controller_options().resourceclaim);
    leaving_out(shipped, |item, _| item.to_string().contains("kind=claim"))
}

/// Two pods with one claim, which is reserved for both.
fn two_sharing_pods() -> [(u64, DeviceChange); 4] {
    [
        (2_000, DeviceChange::CreateSharedClaim),
        (3_000, DeviceChange::CreateSharingPod(0)),
        (4_000, DeviceChange::CreateSharingPod(1)),
        (8_000, DeviceChange::AllocateShared),
    ]
}

#[test]
fn reservation_that_is_never_removed_is_caught() {
    for end in [DeviceChange::DeleteSharingPod(1), DeviceChange::FinishSharingPod(1)] {
        let actions = devices("oar", &[&two_sharing_pods()[..], &[(15_000, end)]].concat());
        expect_no_violation(&actions);
        let words =
            "ResourceClaim default/shared-oar is reserved for device-sharer-oar-1, which is gone or done";
        expect_violation(&play_with(&actions, claims_without_end), words);
    }
}

#[test]
fn missing_reservation_is_noticed() {
    let late = [(15_000, DeviceChange::CreateSharingPod(2))];
    let actions = devices("oar", &[&two_sharing_pods()[..], &late].concat());
    expect_no_violation(&actions);
    let report = play_with(&actions, || Controller::new("resourceclaim-controller"));
    expect_violation(&report, "ResourceClaim default/shared-oar is not reserved for it");
}

#[test]
fn generated_claim_of_a_finished_pod_that_is_never_deleted_is_caught() {
    let changes = [
        (2_000, DeviceChange::CreatePod),
        (5_000, DeviceChange::Allocate),
        (12_000, DeviceChange::FinishPod),
    ];
    let actions = devices("oar", &changes);
    expect_no_violation(&actions);
    expect_violation(&play_with(&actions, claims_without_end), "outlives its pod");
}

/// Creates a second claim for every pod that has one.
fn creator_of_second_claims() -> Controller {
    let decide = |view: &View<'_>, claim: &Arc<ResourceClaim>| {
        let name = format!("{}-again", claim.meta.key.name);
        let key = Key::namespaced(claim.meta.key.namespace.clone(), name.as_str());
        let owner = claim.meta.controller_ref().filter(|_| !claim.meta.key.name.ends_with("-again"));
        let Some(owner) = owner.filter(|_| view.get::<ResourceClaim>(&key).is_none()) else {
            return Plan::none();
        };
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid, "controller": true});
        let annotations = json!({"resource.kubernetes.io/pod-claim-name": claim.pod_claim_name});
        let requests = json!([{"name": "r", "exactly": {"deviceClassName": "storm.example.com"}}]);
        let body = json!({"metadata": {"name": name, "annotations": annotations, "ownerReferences": [owner]},
            "spec": {"devices": {"requests": requests}}});
        Plan::of(Write::create::<ResourceClaim>(key, body).because("broken on purpose"))
    };
    controller_of("creator-of-second-claims", "resource-claim-controller", |a_loop| a_loop, decide)
}

#[test]
fn second_claim_for_one_entry_of_a_pod_is_caught() {
    let actions = devices("oar", &[(2_000, DeviceChange::CreatePod)]);
    expect_no_violation(&actions);
    let report = play_with(&actions, creator_of_second_claims);
    expect_violation(&report, "is claim 2 of pod device-user-oar for gpu");
}

/// Two migrations of the same resource.
fn two_migrations() -> Vec<(u64, UserAction)> {
    let create = |name: &str| UserAction::CreateMigration(name.to_owned(), 0);
    vec![(2_000, create("oar")), (3_000, create("sail"))]
}

fn with_condition(migration: &StorageVersionMigration, condition: &str) -> Plan {
    let condition = json!({"type": condition, "status": "True", "lastUpdateTime": null, "reason": "Broken"});
    Plan::of(patch(migration, "status", json!({"status": {"conditions": [condition]}})))
}

fn has_condition(migration: &StorageVersionMigration, name: &str) -> bool {
    migration.status.conditions.iter().any(|condition| condition.r#type == name && condition.status == "True")
}

/// Runs all migrations at once.
fn migrator_of_everything() -> Controller {
    let decide = |_: &View<'_>, migration: &Arc<StorageVersionMigration>| {
        if has_condition(migration, "Running") { Plan::none() } else { with_condition(migration, "Running") }
    };
    let name = "storage-version-migrator-controller";
    controller_of(name, name, |a_loop| a_loop, decide)
}

#[test]
fn two_migrations_of_one_resource_at_once_are_caught() {
    let actions = two_migrations();
    expect_no_violation(&actions);
    expect_violation(&play_with(&actions, migrator_of_everything), "2 migrations of one resource run");
}

#[test]
fn migration_that_never_ends_is_noticed() {
    let report = play_with(&two_migrations(), || Controller::new("storage-version-migrator-controller"));
    expect_violation(&report, "has not ended");
}

/// Ends every migration in this way, and rewrites nothing.
fn migrator_without_work(condition: &'static str) -> Controller {
    let decide = move |view: &View<'_>, item: &Key| {
        let Some(migration) = view.get::<StorageVersionMigration>(item) else { return Plan::none() };
        if has_condition(migration, condition) {
            return Plan::none();
        }
        let status = json!({"resourceVersion": "999999", "conditions": [
            {"type": condition, "status": "True", "lastUpdateTime": null, "reason": "Broken"}]});
        Plan::of(patch(&**migration, "status", json!({"status": status})))
    };
    let name = "storage-version-migrator-controller";
    let a_loop = Loop::deciding(name, decide)
        .enqueue_on::<StorageVersionMigration>(|change, _, queue| queue.add(&change.latest().meta.key));
    Controller::new(name).service_account(name).may_write(EVERYTHING).with_loop(a_loop)
}

#[test]
fn migration_that_succeeds_without_work_or_fails_is_caught() {
    let report = play_with(&two_migrations(), || migrator_without_work("Succeeded"));
    expect_violation(&report, "succeeds without ConfigMap");
    let report = play_with(&two_migrations(), || migrator_without_work("Failed"));
    expect_violation(&report, "fails without a fault");
}
