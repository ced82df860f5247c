//! Pods on shared volumes, with labels, policies and drivers that differ.

use keleustes_objects::SelinuxVolumeSource;
use keleustes_plan::RateLimiter;
use keleustes_plan::rehearsal::RehearsalCluster;
use serde_json::{Value, json};

use super::unique_name::unique_name;
use super::*;
use crate::csi_translation::Holder;

const SAME_NODE: &str = "If both pods land on the same node, only one of them may access the volume.";

fn the_loop() -> Loop {
    controller(SelinuxWarningOptions::default()).loops.remove(0)
}

/// A pod `namespace/name` that mounts the claim `data`, with this level.
fn pod(key: &str, level: &str) -> Value {
    let (namespace, name) = key.split_once('/').expect("a namespace");
    let mut pod = json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{name}-uid"), "resourceVersion": "3"},
        "spec": {
            "securityContext": {"seLinuxOptions": {"level": level}},
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [{"name": "c", "volumeMounts": [{"name": "v"}]}],
        },
        "status": {"phase": "Pending"},
    });
    if level.is_empty() {
        pod["spec"]["securityContext"] = Value::Null;
    }
    pod
}

fn with_volume(mut pod: Value, source: Value) -> Value {
    pod["spec"]["volumes"][0] = source;
    pod["spec"]["volumes"][0]["name"] = json!("v");
    pod
}

fn with_policy(mut pod: Value, policy: &str) -> Value {
    pod["spec"]["securityContext"]["seLinuxChangePolicy"] = json!(policy);
    pod
}

fn with_phase(mut pod: Value, phase: &str, version: &str) -> Value {
    pod["status"]["phase"] = json!(phase);
    pod["metadata"]["resourceVersion"] = json!(version);
    pod
}

/// The claim `data` of a namespace, bound to the volume `pv-<namespace>`.
fn claim(namespace: &str) -> Value {
    json!({
        "metadata": {"name": "data", "namespace": namespace, "uid": format!("{namespace}-claim"), "resourceVersion": "4"},
        "spec": {"volumeName": format!("pv-{namespace}")}, "status": {"phase": "Bound"},
    })
}

fn volume(namespace: &str) -> Value {
    json!({
        "metadata": {"name": format!("pv-{namespace}"), "uid": format!("{namespace}-volume"), "resourceVersion": "5"},
        "spec": {
            "csi": {"driver": "d", "volumeHandle": "h"},
            "claimRef": {"namespace": namespace, "name": "data", "uid": format!("{namespace}-claim")},
        },
        "status": {"phase": "Bound"},
    })
}

fn driver(mounts_with_labels: bool, version: &str) -> Value {
    json!({"metadata": {"name": "d", "resourceVersion": version}, "spec": {"seLinuxMount": mounts_with_labels}})
}

/// A cluster with the volume, in two namespaces, and its driver.
fn cluster(a_loop: &Loop) -> RehearsalCluster {
    ["a", "b"].into_iter().fold(
        RehearsalCluster::of(a_loop).with::<CsiDriver>(driver(true, "1")),
        |cluster, namespace| {
            cluster
                .with::<PersistentVolumeClaim>(claim(namespace))
                .with::<PersistentVolume>(volume(namespace))
        },
    )
}

fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').expect("a namespace");
    Key::namespaced(namespace, name)
}

fn name_of(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().expect("a text");
    format!("{}/{}", text("namespace"), text("name"))
}

/// The transcript of the sync of each pod, after all of them were added.
fn sync_all(cluster: &mut RehearsalCluster, a_loop: &Loop, pods: Vec<Value>) -> Vec<String> {
    let names: Vec<_> = pods.iter().map(name_of).collect();
    for pod in pods {
        cluster.put::<Pod>(a_loop, pod);
    }
    names.iter().map(|name| cluster.outline(a_loop, key(name))).collect()
}

/// What the sync of the last of these pods does.
fn last_sync(pods: Vec<Value>) -> String {
    let a_loop = the_loop();
    sync_all(&mut cluster(&a_loop), &a_loop, pods).pop().unwrap_or_default()
}

fn series(property: &str, pod: &str, value: &str, other: &str, other_value: &str, state: &str) -> String {
    let (pod, other) = (pod.replace('/', ","), other.replace('/', ","));
    format!(
        "measure selinux_warning_controller_selinux_volume_conflict\
         {{{property},{pod},{value},{other},{other_value}}} {state}\n"
    )
}

/// The conflict of the synced pod with another one of its namespace: two series and two events.
fn conflict(property: &str, pod: &str, value: &str, other: &str, other_value: &str) -> [String; 2] {
    let event = |on: &str, value: &str, other: &str, other_value: &str| {
        let (name, other) = (on.rsplit('/').next().unwrap(), other.rsplit('/').next().unwrap());
        format!(
            "event Normal {property}Conflict on Pod {on} uid={name}-uid: {property} \"{value}\" conflicts with pod {other} \
             that uses the same volume as this pod with {property} \"{other_value}\". {SAME_NODE}\n"
        )
    };
    [
        series(property, pod, value, other, other_value, "1")
            + &series(property, other, other_value, pod, value, "1"),
        event(pod, value, other, other_value) + &event(other, other_value, pod, value),
    ]
}

/// Proves SEW-1, SEW-6, SEW-30, SEW-35.
#[test]
fn descriptor_matches_the_role() {
    let controller = controller(SelinuxWarningOptions::default());
    assert_eq!(controller.name, "selinux-warning-controller");
    assert_eq!(
        (crate::names::aliases_of(controller.name).len(), controller.service_account),
        (0, Some("selinux-warning-controller"))
    );
    assert_eq!(controller.event_component, Some("selinux_warning"));
    for grant in controller.grants.iter().filter(|grant| grant.resource != "events") {
        assert_eq!(grant.verbs, ["get", "list", "watch"], "{} is not written", grant.resource);
    }
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("selinux_warning", 1, None));
    assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
    let kinds: Vec<_> = a_loop.watches.iter().map(|watch| watch.kind.resource().plural.to_string()).collect();
    assert_eq!(kinds, ["pods", "persistentvolumeclaims", "persistentvolumes", "csidrivers"]);
    assert!(a_loop.starts_without.is_empty(), "all four caches are synced first");
    assert_eq!(a_loop.indexes.len(), 1);
}

/// Proves SEW-2, SEW-56.
#[test]
fn new_gone_and_finished_pods_are_enqueued() {
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    let one = || pod("a/one", "s0");
    assert_eq!(cluster.put::<Pod>(&a_loop, one()), ["a/one"]);
    for (phase, version, enqueued) in [
        ("Running", "4", 0),
        ("Running", "5", 0),
        ("Unknown", "6", 0),
        ("Succeeded", "7", 1),
        ("Succeeded", "8", 0),
        ("Failed", "9", 1),
    ] {
        let items = cluster.put::<Pod>(&a_loop, with_phase(one(), phase, version));
        assert_eq!(items.len(), enqueued, "{phase} {version}");
    }
    let cached = cluster.view().get::<Pod>(&key("a/one")).unwrap().clone();
    assert!(cluster.enqueued_by(&a_loop, Change::resync(cached)).is_empty());
    let mut again = with_phase(one(), "Failed", "10");
    again["metadata"]["uid"] = json!("another");
    assert_eq!(cluster.put::<Pod>(&a_loop, again), ["a/one"], "a new pod of the same name");
    assert_eq!(cluster.take::<Pod>(&a_loop, &key("a/one")), ["a/one"]);
}

/// Proves SEW-56.
#[test]
fn the_labels_of_a_new_pod_of_the_same_name_replace_the_old_ones() {
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    sync_all(&mut cluster, &a_loop, vec![pod("a/one", "s0"), pod("a/two", "s0")]);
    let mut again = with_phase(pod("a/one", "s1"), "Pending", "9");
    again["metadata"]["uid"] = json!("one-uid");
    let [metrics, events] = conflict("SELinuxLabel", "a/one", ":::s1", "a/two", ":::s0");
    assert_eq!(sync_all(&mut cluster, &a_loop, vec![again]), [metrics + &events]);
}

/// Proves SEW-3, SEW-4, SEW-53.
#[test]
fn binding_enqueues_the_pods_of_the_claim() {
    let a_loop = the_loop();
    let mut cluster = RehearsalCluster::of(&a_loop);
    for name in ["a/one", "a/two", "b/other"] {
        cluster.put::<Pod>(&a_loop, pod(name, "s0"));
    }
    let mut unbound = claim("a");
    unbound["spec"]["volumeName"] = json!("");
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, unbound.clone()).is_empty());
    let mut bound = claim("a");
    bound["metadata"]["resourceVersion"] = json!("5");
    bound["status"]["phase"] = json!("Pending");
    assert_eq!(cluster.put::<PersistentVolumeClaim>(&a_loop, bound), ["a/one", "a/two"], "an update");
    let mut phase = claim("a");
    phase["metadata"]["resourceVersion"] = json!("6");
    assert!(cluster.put::<PersistentVolumeClaim>(&a_loop, phase).is_empty(), "the phase enqueues nothing");
    assert!(cluster.take::<PersistentVolumeClaim>(&a_loop, &key("a/data")).is_empty());
    assert_eq!(cluster.put::<PersistentVolumeClaim>(&a_loop, claim("a")), ["a/one", "a/two"], "an addition");

    let mut free = volume("a");
    free["spec"]["claimRef"] = Value::Null;
    let mut reserved = volume("a");
    reserved["spec"]["claimRef"]["uid"] = json!("");
    let mut versions = (6..).map(|version: u32| json!(version.to_string()));
    let mut put = |mut object: Value| {
        object["metadata"]["resourceVersion"] = versions.next().unwrap();
        cluster.put::<PersistentVolume>(&a_loop, object)
    };
    assert!(put(free.clone()).is_empty());
    assert!(put(reserved).is_empty(), "reserved by name only");
    assert_eq!(put(volume("a")), ["a/one", "a/two"]);
    assert!(put(volume("a")).is_empty(), "the same claim");
    let mut other = volume("a");
    other["spec"]["claimRef"]["uid"] = json!("another");
    assert_eq!(put(other), ["a/one", "a/two"]);
    assert!(put(free).is_empty());
    cluster.take::<PersistentVolume>(&a_loop, &Key::cluster("pv-a"));
    assert_eq!(cluster.put::<PersistentVolume>(&a_loop, volume("a")), ["a/one", "a/two"], "an addition");
}

/// Proves SEW-5, SEW-58, SEW-65.
#[test]
fn a_driver_enqueues_the_pods_that_use_its_tracked_volumes() {
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    let unresolved =
        with_volume(pod("a/waits", "s0"), json!({"persistentVolumeClaim": {"claimName": "later"}}));
    let elsewhere = with_volume(pod("a/nfs", "s0"), json!({"nfs": {"server": "s", "path": "/"}}));
    sync_all(&mut cluster, &a_loop, vec![pod("a/one", "s0"), pod("b/two", "s0"), unresolved, elsewhere]);
    assert!(cluster.put::<CsiDriver>(&a_loop, driver(true, "2")).is_empty(), "no change");
    assert_eq!(cluster.put::<CsiDriver>(&a_loop, driver(false, "3")), ["a/one", "b/two"]);
    let mut unset = driver(false, "4");
    unset["spec"]["seLinuxMount"] = Value::Null;
    assert!(cluster.put::<CsiDriver>(&a_loop, unset).is_empty(), "unset means false");
    assert!(cluster.take::<CsiDriver>(&a_loop, &Key::cluster("d")).is_empty(), "it mounted without labels");
    assert_eq!(cluster.put::<CsiDriver>(&a_loop, driver(false, "5")), ["a/one", "b/two"], "an addition");
    cluster.put::<CsiDriver>(&a_loop, driver(true, "6"));
    assert_eq!(cluster.take::<CsiDriver>(&a_loop, &Key::cluster("d")), ["a/one", "b/two"]);
    let mut other = driver(true, "7");
    other["metadata"]["name"] = json!("other");
    assert!(cluster.put::<CsiDriver>(&a_loop, other).is_empty(), "another driver");
}

/// Proves SEW-14, SEW-21, SEW-23, SEW-25, SEW-36, SEW-40.
#[test]
fn two_levels_on_one_volume_conflict() {
    let [metrics, events] = conflict("SELinuxLabel", "a/two", ":::s0:c3", "a/one", ":::s0:c1,c2");
    assert_eq!(last_sync(vec![pod("a/one", "s0:c1,c2"), pod("a/two", "s0:c3")]), metrics + &events);
    assert_eq!(last_sync(vec![pod("a/one", "s0"), pod("a/two", "s0")]), "", "equal levels");
    let mut full = pod("a/two", "s0");
    full["spec"]["securityContext"]["seLinuxOptions"] =
        json!({"user": "u", "role": "r", "type": "t", "level": "s0"});
    assert_eq!(last_sync(vec![pod("a/one", "s0"), full.clone()]), "", "what a node may fill in");
    full["metadata"]["name"] = json!("three");
    let mut other = full.clone();
    other["spec"]["securityContext"]["seLinuxOptions"]["type"] = json!("x");
    other["metadata"] = json!({"name": "two", "namespace": "a", "uid": "two-uid"});
    let [metrics, events] = conflict("SELinuxLabel", "a/two", "u:r:x:s0", "a/three", "u:r:t:s0");
    let events = events.replace("uid=three-uid", "uid=two-uid");
    assert_eq!(last_sync(vec![full, other]), metrics + &events, "types that are both set");
}

/// Proves SEW-35, SEW-37.
#[test]
fn pods_of_other_namespaces_are_not_named() {
    let transcript = last_sync(vec![pod("a/one", "s0"), pod("b/two", "s1")]);
    let hidden = |on: &str, uid: &str, value: &str| {
        format!(
            "event Normal SELinuxLabelConflict on Pod {on} uid={uid}: SELinuxLabel\"{value}\" conflicts with another pod \
             that uses the same volume as this pod with a different SELinuxLabel. {SAME_NODE}\n"
        )
    };
    let expected = series("SELinuxLabel", "b/two", ":::s1", "a/one", ":::s0", "1")
        + &series("SELinuxLabel", "a/one", ":::s0", "b/two", ":::s1", "1")
        + &hidden("b/two", "two-uid", ":::s1")
        + &hidden("a/one", "one-uid", ":::s0");
    assert_eq!(transcript, expected);
}

/// Proves SEW-18, SEW-19, SEW-22, SEW-23, SEW-51, SEW-62.
#[test]
fn a_pod_without_a_mount_label_conflicts_in_policy_and_label() {
    let [policy, policy_events] =
        conflict("SELinuxChangePolicy", "a/two", "MountOption", "a/one", "Recursive");
    let [label, label_events] = conflict("SELinuxLabel", "a/two", ":::s0", "a/one", "");
    let both = policy + &label + &policy_events + &label_events;
    let mut empty = pod("a/one", "");
    empty["spec"]["securityContext"] = json!({"seLinuxOptions": {}});
    for first in [pod("a/one", ""), empty, with_policy(pod("a/one", "s0"), "Recursive")] {
        assert_eq!(last_sync(vec![first.clone(), pod("a/two", "s0")]), both, "{first}");
    }
    // A policy that this release does not know is compared as it is.
    let unknown = with_policy(pod("a/one", "s0"), "Later");
    let [metrics, events] = conflict("SELinuxChangePolicy", "a/two", "MountOption", "a/one", "Later");
    assert_eq!(last_sync(vec![unknown, pod("a/two", "s0")]), metrics + &events);
    let unlabelled = with_policy(pod("a/one", ""), "Later");
    assert_eq!(last_sync(vec![unlabelled, pod("a/two", "")]), "", "without a label it is Recursive");
}

/// Proves SEW-17, SEW-18, SEW-50.
#[test]
fn volumes_that_are_not_mounted_with_labels_never_conflict() {
    let recursive = |name: &str, level: &str| with_policy(pod(name, level), "Recursive");
    assert_eq!(last_sync(vec![recursive("a/one", "s0"), recursive("a/two", "s1")]), "");
    let pods = |source: Value| {
        vec![with_volume(pod("a/one", "s0"), source.clone()), with_volume(pod("a/two", "s1"), source)]
    };
    for source in [
        json!({"hostPath": {"path": "/x"}}),
        json!({"nfs": {"server": "s", "path": "/"}}),
        json!({"flexVolume": {"driver": "x/y"}}),
        json!({"emptyDir": {}}),
        json!({"gcePersistentDisk": {"pdName": "disk"}}),
    ] {
        assert_eq!(last_sync(pods(source.clone())), "", "{source}");
    }
    for source in [
        json!({"fc": {"wwids": ["w"]}}),
        json!({"fc": {"targetWWNs": ["w", "x"], "lun": 0}}),
        json!({"iscsi": {"targetPortal": "p", "iqn": "i", "lun": 1}}),
    ] {
        assert!(last_sync(pods(source.clone())).contains("SELinuxLabelConflict"), "{source}");
    }
    let nothing_of_the_kind = |a_driver: Option<Value>| {
        let a_loop = the_loop();
        let mut cluster = RehearsalCluster::of(&a_loop)
            .with::<PersistentVolumeClaim>(claim("a"))
            .with::<PersistentVolume>(volume("a"));
        if let Some(driver) = a_driver {
            cluster.put::<CsiDriver>(&a_loop, driver);
        }
        sync_all(&mut cluster, &a_loop, vec![pod("a/one", "s0"), pod("a/two", "s1")]).concat()
    };
    assert_eq!(nothing_of_the_kind(None), "", "no CSIDriver");
    assert_eq!(nothing_of_the_kind(Some(driver(false, "1"))), "");
    assert_ne!(nothing_of_the_kind(Some(driver(true, "1"))), "");
}

fn named(source: &Value, holder: Holder<'_>) -> Result<Option<String>, String> {
    let source = if let Holder::Volume(_) = holder {
        let volume = json!({"metadata": {"name": "v"}, "spec": source});
        serde_json::from_value::<PersistentVolume>(volume).unwrap().spec.source
    } else {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "volumes": [source], "containers": [{"volumeMounts": [{"name": "v"}]}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let SelinuxVolumeSource::Inline(source) = pod.spec.selinux().volumes[0].source.clone() else {
            panic!("inline")
        };
        source
    };
    unique_name(&source, holder).map(|named| named.map(|named| named.name.to_string()))
}

/// Volumes with labels of zones; the second one has no claim.
fn volumes_with_zones() -> Vec<PersistentVolume> {
    let mut with_zones: Vec<PersistentVolume> = Vec::new();
    for (labels, secret_namespace) in [
        (json!({}), ""),
        (json!({"topology.kubernetes.io/zone": "us-east1-b"}), "x"),
        (
            json!({"failure-domain.beta.kubernetes.io/zone": "us-east1-b__us-east1-c", "topology.kubernetes.io/zone": "z"}),
            "",
        ),
        (json!({"topology.kubernetes.io/zone": "us-east1-b__us-west1-c"}), ""),
        (json!({"topology.kubernetes.io/zone": "us__z"}), ""),
    ] {
        let volume = json!({"metadata": {"name": "pv", "labels": labels,
                "annotations": {"kubernetes.io/azure-file-resource-group": "group"}},
            "spec": {"claimRef": {"namespace": if secret_namespace.is_empty() { "a" } else { "" }, "name": "c"}}});
        with_zones.push(serde_json::from_value(volume).unwrap());
    }
    with_zones
}

const INLINE: Holder<'_> = Holder::Pod { namespace: "a", volume: "v" };

/// Proves SEW-7, SEW-20.
#[test]
fn volumes_are_the_same_if_their_unique_names_are() {
    let volumes = volumes_with_zones();
    for (source, holder, expected) in [
        (json!({"name": "v", "hostPath": {"path": "/x"}}), INLINE, "kubernetes.io/host-path//x"),
        (json!({"name": "v", "nfs": {"server": "s", "path": "/x"}}), INLINE, "kubernetes.io/nfs/s//x"),
        (
            json!({"name": "v", "iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0}}),
            INLINE,
            "kubernetes.io/iscsi/p:i:0",
        ),
        (
            json!({"name": "v", "fc": {"targetWWNs": ["a", "b"], "lun": 2}}),
            INLINE,
            "kubernetes.io/fc/[a b]:2",
        ),
        (json!({"name": "v", "fc": {"targetWWNs": ["a"], "wwids": ["w"]}}), INLINE, "kubernetes.io/fc/[w]"),
        (
            json!({"name": "v", "csi": {"driver": "d", "volumeHandle": "h"}}),
            Holder::Volume(&volumes[0]),
            "kubernetes.io/csi/d^h",
        ),
    ] {
        assert_eq!(named(&source, holder).as_ref().map(Option::as_deref), Ok(Some(expected)), "{source}");
    }
    assert_eq!(named(&json!({"name": "v", "flexVolume": {"driver": "f"}}), INLINE), Ok(None));
    assert!(named(&json!({"name": "v", "fc": {"targetWWNs": ["a"]}}), INLINE).is_err());
}

/// Proves SEW-12.
#[test]
fn migrated_volumes_have_the_unique_names_of_their_drivers() {
    let volumes = volumes_with_zones();
    let held = |at: usize| Holder::Volume(&volumes[at]);
    let disk = json!({"name": "v", "gcePersistentDisk": {"pdName": "disk"}});
    let file = json!({"name": "v", "azureFile": {"secretName": "azure-storage-account-acc-secret", "shareName": "s"}});
    let ebs = |id: &str| json!({"name": "v", "awsElasticBlockStore": {"volumeID": id}});
    for (source, holder, expected) in [
        (
            disk.clone(),
            INLINE,
            "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk",
        ),
        (
            disk.clone(),
            held(1),
            "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/zones/us-east1-b/disks/disk",
        ),
        (
            disk.clone(),
            held(2),
            "kubernetes.io/csi/pd.csi.storage.gke.io^projects/UNSPECIFIED/regions/us-east1/disks/disk",
        ),
        (ebs("vol-1"), INLINE, "kubernetes.io/csi/ebs.csi.aws.com^vol-1"),
        (ebs("aws://zone/vol-1"), INLINE, "kubernetes.io/csi/ebs.csi.aws.com^vol-1"),
        (file.clone(), INLINE, "kubernetes.io/csi/file.csi.azure.com^#acc#s#v#a"),
        (file.clone(), held(0), "kubernetes.io/csi/file.csi.azure.com^group#acc#s#pv#a"),
        (
            json!({"name": "v", "azureDisk": {"diskURI": "u"}}),
            INLINE,
            "kubernetes.io/csi/disk.csi.azure.com^u",
        ),
        (
            json!({"name": "v", "cinder": {"volumeID": "i"}}),
            INLINE,
            "kubernetes.io/csi/cinder.csi.openstack.org^i",
        ),
        (
            json!({"name": "v", "vsphereVolume": {"volumePath": "p"}}),
            INLINE,
            "kubernetes.io/csi/csi.vsphere.vmware.com^p",
        ),
        (
            json!({"name": "v", "portworxVolume": {"volumeID": "i"}}),
            INLINE,
            "kubernetes.io/csi/pxd.portworx.com^i",
        ),
    ] {
        assert_eq!(named(&source, holder).as_ref().map(Option::as_deref), Ok(Some(expected)), "{source}");
    }
    let shared = json!({"name": "v", "azureDisk": {"diskURI": "u", "kind": "Shared"}});
    for (source, holder) in [
        (ebs("aws://zone/disk-1"), INLINE),
        (disk.clone(), held(3)),
        (disk, held(4)),
        (file, held(1)),
        (shared, INLINE),
    ] {
        assert!(named(&source, holder).is_err(), "{source}");
    }
}

/// Proves SEW-20.
#[test]
fn claims_and_access_modes_do_not_make_volumes_different() {
    // Another claim, another volume and another access mode, but the same handle.
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    let mut second = volume("a");
    second["metadata"]["name"] = json!("second");
    second["spec"]["accessModes"] = json!(["ReadOnlyMany"]);
    second["spec"]["claimRef"] = json!({"namespace": "a", "name": "also", "uid": "also"});
    let mut also = claim("a");
    also["metadata"] = json!({"name": "also", "namespace": "a", "uid": "also"});
    also["spec"]["volumeName"] = json!("second");
    cluster.put::<PersistentVolume>(&a_loop, second.clone());
    cluster.put::<PersistentVolumeClaim>(&a_loop, also);
    let other = with_volume(pod("a/two", "s1"), json!({"persistentVolumeClaim": {"claimName": "also"}}));
    let both = sync_all(&mut cluster, &a_loop, vec![pod("a/one", "s0"), other]);
    assert!(both[1].contains("SELinuxLabelConflict"), "{both:?}");
    // Another handle of the same driver.
    let a_loop = the_loop();
    let mut cluster = self::cluster(&a_loop);
    let mut own = volume("b");
    own["metadata"]["resourceVersion"] = json!("6");
    own["spec"]["csi"]["volumeHandle"] = json!("other");
    cluster.put::<PersistentVolume>(&a_loop, own);
    let both = sync_all(&mut cluster, &a_loop, vec![pod("a/one", "s0"), pod("b/two", "s1")]);
    assert_eq!(both.concat(), "");
}

/// Proves SEW-20, SEW-26, SEW-59.
#[test]
fn an_unchanged_pod_reports_nothing_until_a_restart() {
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    let pods = || vec![pod("a/one", "s0"), pod("a/two", "s1")];
    let first = sync_all(&mut cluster, &a_loop, pods());
    assert!(first[0].is_empty() && first[1].contains("event"));
    assert_eq!(sync_all(&mut cluster, &a_loop, pods()).concat(), "");
    assert_eq!(sync_all(&mut cluster, &the_loop(), pods()), first, "another process");
    // A changed entry replaces its conflicts: the driver no longer mounts with labels.
    cluster.put::<CsiDriver>(&a_loop, driver(false, "2"));
    let changed = cluster.outline(&a_loop, key("a/two"));
    assert!(
        changed.contains(&series("SELinuxLabel", "a/two", ":::s1", "a/one", ":::s0", "removed")),
        "{changed}"
    );
}

/// Proves SEW-55.
#[test]
fn conflicts_vanish_and_appear_with_the_driver() {
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    sync_all(&mut cluster, &a_loop, vec![pod("a/one", "s0"), pod("a/two", "s1")]);
    cluster.put::<CsiDriver>(&a_loop, driver(false, "2"));
    let passing = cluster.outline(&a_loop, key("a/one"));
    let removed = |text: &str| text.matches("removed\n").count();
    let set = |text: &str| text.matches("} 1\n").count();
    assert!(passing.contains("SELinuxChangePolicyConflict"), "one pod is done, the other is not: {passing}");
    let done = cluster.outline(&a_loop, key("a/two"));
    assert_eq!((set(&done), done.contains("event")), (0, false), "{done}");
    assert_eq!(set(&passing), removed(&done), "nothing is left of the passing conflict");
    cluster.put::<CsiDriver>(&a_loop, driver(true, "3"));
    cluster.outline(&a_loop, key("a/one"));
    let back = cluster.outline(&a_loop, key("a/two"));
    assert!(back.contains(&series("SELinuxLabel", "a/two", ":::s1", "a/one", ":::s0", "1")), "{back}");
}

/// Proves SEW-10, SEW-26, SEW-61, SEW-64.
#[test]
fn a_pod_that_ends_takes_its_conflicts_with_it() {
    for end in ["Succeeded", "Failed", "deleted"] {
        let a_loop = the_loop();
        let mut cluster = cluster(&a_loop);
        let pods = vec![
            with_phase(pod("a/odd", "s1"), "Unknown", "3"),
            pod("a/one", "s0"),
            with_phase(pod("a/two", "s0"), "Running", "3"),
        ];
        let added = sync_all(&mut cluster, &a_loop, pods).concat();
        assert_eq!(
            (added.matches("} 1\n").count(), added.matches("event Normal").count()),
            (4, 4),
            "{added}"
        );
        if end == "deleted" {
            cluster.take::<Pod>(&a_loop, &key("a/odd"));
        } else {
            cluster.put::<Pod>(&a_loop, with_phase(pod("a/odd", "s1"), end, "4"));
        }
        let ended = cluster.outline(&a_loop, key("a/odd"));
        assert_eq!((ended.lines().count(), ended.matches("removed\n").count()), (4, 4), "{end}: {ended}");
        assert_eq!(cluster.outline(&a_loop, key("a/odd")), "", "{end}: it is gone already");
        let later = sync_all(&mut cluster, &a_loop, vec![pod("a/three", "s0")]).concat();
        assert_eq!(later, "", "{end}: the others do not conflict");
    }
    let ended = with_phase(pod("a/odd", "s1"), "Failed", "3");
    assert_eq!(last_sync(vec![ended, pod("a/one", "s0")]), "", "it never counts");
}

/// Proves SEW-40.
#[test]
fn a_conflict_on_two_volumes_is_one_series() {
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    let two_volumes = |name: &str, level: &str| {
        let mut pod = with_volume(pod(name, level), json!({"fc": {"wwids": ["w"]}}));
        pod["spec"]["volumes"].as_array_mut().unwrap().push(json!({"name": "x", "fc": {"wwids": ["x"]}}));
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v"}, {"name": "x"}]);
        pod
    };
    let pods = vec![two_volumes("a/one", "s0"), two_volumes("a/two", "s1")];
    let added = sync_all(&mut cluster, &a_loop, pods).concat();
    assert_eq!((added.matches("} 1\n").count(), added.matches("event").count()), (2, 4), "{added}");
    cluster.take::<Pod>(&a_loop, &key("a/one"));
    assert_eq!(cluster.outline(&a_loop, key("a/one")).matches("removed\n").count(), 2);
}

/// Proves SEW-11, SEW-13.
#[test]
fn only_mounts_count_and_the_options_of_a_container_replace_those_of_the_pod() {
    let against = |second: Value| last_sync(vec![pod("a/one", "s0"), second]);
    let mut block = pod("a/two", "s1");
    block["spec"]["containers"] = json!([{"volumeDevices": [{"name": "v"}]}]);
    assert_eq!(against(block), "", "a block device");
    for kind in ["containers", "initContainers", "ephemeralContainers"] {
        let mut own = pod("a/two", "s0");
        own["spec"]["containers"] = json!([]);
        own["spec"][kind] = json!([{"volumeMounts": [{"name": "v"}],
            "securityContext": {"seLinuxOptions": {"user": "u"}}}]);
        let [metrics, events] = conflict("SELinuxLabel", "a/two", "u:::", "a/one", ":::s0");
        assert_eq!(against(own), metrics + &events, "{kind}: the level of the pod is not taken over");
    }
    // A container without options of its own or of the pod adds no label.
    let mut one_of_two = pod("a/two", "");
    one_of_two["spec"]["containers"] = json!([
        {"volumeMounts": [{"name": "v"}], "securityContext": {"seLinuxOptions": {"level": "s0"}}},
        {"volumeMounts": [{"name": "v"}]},
    ]);
    assert_eq!(against(one_of_two), "");
}

/// Proves SEW-13, SEW-15, SEW-16, SEW-38.
#[test]
fn a_volume_that_a_pod_mounts_with_two_labels_is_reported_and_skipped() {
    let labels = |first: Value, second: Value| {
        let mut pod = pod("a/two", "");
        pod["spec"]["initContainers"] = json!([{"volumeMounts": [{"name": "v"}],
            "securityContext": {"seLinuxOptions": first}}]);
        pod["spec"]["containers"] = json!([{"volumeMounts": [{"name": "v"}],
            "securityContext": {"seLinuxOptions": second}}]);
        pod
    };
    let report = |labels: &str| {
        format!(
            "event Warning MultipleSELinuxLabels on Pod a/two uid=two-uid: Volume \"v\" is mounted twice with different \
             SELinux labels inside this pod\nretry: multiple SELinux labels found: {labels}\n"
        )
    };
    let against = |second: Value| last_sync(vec![pod("a/one", "s0"), second]);
    let twice = labels(json!({"level": "s0"}), json!({"level": "s1"}));
    assert_eq!(against(twice.clone()), report(":::s0,:::s1"));
    assert_eq!(
        against(labels(json!({}), json!({"level": "s1"}))),
        report(",:::s1"),
        "empty options are a label"
    );
    assert_eq!(against(labels(json!({"level": "s0"}), json!({"level": "s0"}))), "");
    for source in [json!({"emptyDir": {}}), json!({"configMap": {"name": "c"}})] {
        assert_eq!(against(with_volume(twice.clone(), source)), report(":::s0,:::s1"), "before the plugin");
    }
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    let syncs = sync_all(&mut cluster, &a_loop, vec![twice]);
    assert_eq!(cluster.outline(&a_loop, key("a/two")), syncs[0], "the event recurs");
}

/// Proves SEW-12, SEW-27, SEW-53, SEW-54, SEW-57.
#[test]
fn an_unresolved_volume_is_retried_and_hides_no_other() {
    let unresolved = |first: Value| {
        let mut pod = with_volume(pod("a/two", "s1"), first);
        let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
        volumes.push(json!({"name": "w", "persistentVolumeClaim": {"claimName": "data"}}));
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v"}, {"name": "w"}]);
        pod
    };
    let check = |first: Value, message: &str| {
        let transcript = last_sync(vec![pod("a/one", "s0"), unresolved(first)]);
        assert!(transcript.contains("SELinuxLabelConflict"), "{transcript}");
        assert_eq!(transcript.lines().last(), Some(&*format!("retry: {message}")));
    };
    check(
        json!({"persistentVolumeClaim": {"claimName": "later"}}),
        "error processing PVC \"a\"/\"later\": failed to find PVC a/later in PVCInformer cache: \
         persistentvolumeclaim \"later\" not found",
    );
    check(
        json!({"csi": {"driver": "d"}}),
        "failed to get unique volume name for volume \"v\": failed to GetVolumeName from volumePlugin: the CSI volume is \
         inline and has no handle",
    );
    for (change, message) in [
        (
            json!({"status": {"phase": "Pending"}}),
            "has non-bound phase (\"Pending\") or empty pvc.Spec.VolumeName (\"pv-a\")",
        ),
        (
            json!({"spec": {"volumeName": ""}}),
            "has non-bound phase (\"Bound\") or empty pvc.Spec.VolumeName (\"\")",
        ),
        (json!({"spec": {"volumeName": "gone"}}), "persistentvolume \"gone\" not found"),
        (
            json!({"metadata": {"uid": "new"}}),
            "pv.Spec.ClaimRef.UID (\"a-claim\") does not point to claim.UID (\"new\")",
        ),
    ] {
        let a_loop = the_loop();
        let mut cluster = cluster(&a_loop);
        assert_eq!(sync_all(&mut cluster, &a_loop, vec![pod("a/one", "s0")]), [""]);
        let mut claim = claim("a");
        claim["metadata"]["resourceVersion"] = json!("9");
        for (part, fields) in change.as_object().unwrap() {
            for (field, value) in fields.as_object().unwrap() {
                claim[part][field] = value.clone();
            }
        }
        cluster.put::<PersistentVolumeClaim>(&a_loop, claim);
        let transcript = cluster.outline(&a_loop, key("a/one"));
        assert!(
            transcript.starts_with("retry: error processing PVC") && transcript.contains(message),
            "{transcript}"
        );
        // The entry of the pod stays, as after a deletion of its claim.
        let sync = sync_all(&mut cluster, &a_loop, vec![pod("b/two", "s1")]).concat();
        assert!(sync.contains("SELinuxLabelConflict"), "{sync}");
    }
}

/// Proves SEW-66.
#[test]
fn the_entry_of_a_pod_outlives_its_claim_and_its_volume() {
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    sync_all(&mut cluster, &a_loop, vec![pod("a/one", "s0")]);
    assert!(cluster.take::<PersistentVolumeClaim>(&a_loop, &key("a/data")).is_empty());
    assert!(cluster.take::<PersistentVolume>(&a_loop, &Key::cluster("pv-a")).is_empty());
    let sync = sync_all(&mut cluster, &a_loop, vec![pod("b/two", "s1")]).concat();
    assert!(sync.contains("SELinuxLabelConflict"), "{sync}");
    let mut unbound = volume("b");
    unbound["spec"]["claimRef"] = Value::Null;
    unbound["metadata"]["resourceVersion"] = json!("9");
    cluster.put::<PersistentVolume>(&a_loop, unbound);
    assert!(cluster.outline(&a_loop, key("b/two")).contains("has a nil pv.Spec.ClaimRef"));
}

/// Proves SEW-12.
#[test]
fn the_claim_of_an_ephemeral_volume_must_belong_to_the_pod() {
    let sync = |owner: &str| {
        let a_loop = the_loop();
        let mut cluster = cluster(&a_loop);
        let mut own = claim("a");
        own["metadata"] = json!({"name": "two-v", "namespace": "a", "uid": "a-claim", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "two", "uid": owner, "controller": true}]});
        let ephemeral = with_volume(pod("a/two", "s1"), json!({"ephemeral": {"volumeClaimTemplate": {}}}));
        cluster.put::<Pod>(&a_loop, ephemeral.clone());
        assert_eq!(cluster.put::<PersistentVolumeClaim>(&a_loop, own), ["a/two"], "it is indexed");
        sync_all(&mut cluster, &a_loop, vec![pod("b/one", "s0"), ephemeral]).pop().unwrap()
    };
    assert!(sync("two-uid").contains("SELinuxLabelConflict"));
    assert_eq!(sync("other"), "retry: PVC a/two-v was not created for pod a/two (pod is not owner)\n");
}

/// Proves SEW-39.
#[test]
fn a_pod_that_is_gone_ends_the_events_of_the_volume() {
    let a_loop = the_loop();
    let mut cluster = cluster(&a_loop);
    sync_all(&mut cluster, &a_loop, vec![pod("a/a", "s0"), pod("a/b", "s0")]);
    // Its deletion is not processed yet.
    cluster.take::<Pod>(&a_loop, &key("a/a"));
    let sync = sync_all(&mut cluster, &a_loop, vec![pod("a/odd", "s1")]).concat();
    assert_eq!(sync.matches("} 1\n").count(), 4);
    assert_eq!(sync.matches("event").count(), 1, "only that on the pod itself: {sync}");
    assert!(sync.contains("on Pod a/odd"));
}

/// Proves SEW-60.
#[test]
fn pods_without_selinux_options_never_conflict_with_each_other() {
    assert_eq!(last_sync(vec![pod("a/one", ""), pod("a/two", "")]), "");
}

#[test]
fn nothing_conflicts_if_volumes_are_never_mounted_with_labels() {
    let a_loop = controller(SelinuxWarningOptions { mounts_with_labels: false }).loops.remove(0);
    let mut cluster = cluster(&a_loop);
    let mut twice = pod("a/three", "s0");
    twice["spec"]["initContainers"] =
        json!([{"volumeMounts": [{"name": "v"}], "securityContext": {"seLinuxOptions": {"level": "s1"}}}]);
    let pods = vec![pod("a/one", "s0"), pod("a/two", "s1"), twice];
    assert_eq!(sync_all(&mut cluster, &a_loop, pods).concat(), "");
}
