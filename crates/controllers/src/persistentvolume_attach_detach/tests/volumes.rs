//! Which volumes of a pod are attached.

use keleustes_objects::{CsiDriver, Pod};

use super::*;

/// What is done for a pod with this volume in namespace `a`, after changes to the cluster.
fn attached_with(volume: Value, change: &dyn Fn(&mut World)) -> Vec<String> {
    let mut world = World::started();
    change(&mut world);
    world.put::<Pod>(pod_in("a", "p1", "n1", json!([volume])));
    world.run("n1")
}

fn by_claim() -> Value {
    json!({"name": "v", "persistentVolumeClaim": {"claimName": "c1"}})
}

/// Proves AD-20, AD-21.
#[test]
fn claim_and_volume_must_be_bound_to_each_other() {
    let created = ["create h1 on n1"];
    assert_eq!(attached_with(by_claim(), &|_| {}), created);
    let with_claim = |field: &'static str, value: Value| {
        attached_with(by_claim(), &move |world| {
            let mut claim = claim("1");
            *claim.pointer_mut(field).unwrap() = value.clone();
            world.put::<PersistentVolumeClaim>(claim);
        })
    };
    assert_eq!(with_claim("/status/phase", json!("Lost")), none());
    assert_eq!(with_claim("/spec/volumeName", json!("")), none());
    assert_eq!(with_claim("/spec/volumeName", json!("pv2")), none());
    assert_eq!(with_claim("/metadata/uid", json!("another")), none());
    let with_volume = |field: &'static str, value: Value| {
        attached_with(by_claim(), &move |world| {
            let mut volume = volume("1", json!(["ReadWriteOnce"]));
            *volume.pointer_mut(field).unwrap() = value.clone();
            world.put::<PersistentVolume>(volume);
        })
    };
    assert_eq!(with_volume("/spec/claimRef", Value::Null), none());
    assert_eq!(with_volume("/spec/claimRef/uid", json!("another")), none());
    assert_eq!(with_volume("/spec/claimRef/name", json!("another")), created, "only the uid counts");
    // The claim of another namespace is not used, and a volume that cannot be resolved stops no other.
    let mut world = World::started();
    world.put::<Pod>(pod_in("b", "p1", "n1", json!([by_claim()])));
    assert_eq!(world.run("n1"), none());
    world.put::<Pod>(pod_in(
        "a",
        "p2",
        "n1",
        json!([{"name": "x", "persistentVolumeClaim": {"claimName": "none"}}, by_claim()]),
    ));
    assert_eq!(world.run("n1"), created);
}

/// Proves AD-20.
#[test]
fn claim_of_an_ephemeral_volume_must_belong_to_the_pod() {
    let ephemeral = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {}}});
    let with_owner = |owners: Value| {
        attached_with(ephemeral.clone(), &move |world| {
            let mut volume = volume("1", json!(["ReadWriteOnce"]));
            volume["spec"]["claimRef"] = json!({"namespace": "a", "name": "p1-v", "uid": "u-c"});
            world.put::<PersistentVolume>(volume);
            let mut claim = claim("1");
            claim["metadata"]["name"] = json!("p1-v");
            claim["metadata"]["uid"] = json!("u-c");
            claim["metadata"]["ownerReferences"] = owners.clone();
            world.put::<PersistentVolumeClaim>(claim);
        })
    };
    let owner = |uid: &str, controller: bool| json!([{"apiVersion": "v1", "kind": "Pod", "name": "p1", "uid": uid, "controller": controller}]);
    assert_eq!(with_owner(owner("u-p1", true)), ["create h1 on n1"]);
    assert_eq!(with_owner(owner("another", true)), none());
    assert_eq!(with_owner(owner("u-p1", false)), none());
    assert_eq!(with_owner(json!([])), none());
}

/// Proves AD-14, AD-23.
#[test]
fn drivers_decide_whether_their_volumes_are_attached() {
    let with_driver = |required: Value| {
        attached_with(by_claim(), &move |world| {
            world.put::<CsiDriver>(driver(required.clone()));
        })
    };
    assert_eq!(with_driver(json!(false)), none());
    assert_eq!(with_driver(json!(true)), ["create h1 on n1"]);
    assert_eq!(with_driver(Value::Null), ["create h1 on n1"]);
    for inline in [
        json!({"name": "v", "csi": {"driver": DRIVER}}),
        json!({"name": "v", "hostPath": {"path": "/x"}}),
        json!({"name": "v", "emptyDir": {}}),
        json!({"name": "v", "flexVolume": {"driver": "x/y"}}),
        json!({"name": "v", "nfs": {"server": "s", "path": "/"}}),
    ] {
        assert_eq!(attached_with(inline.clone(), &|_| {}), none(), "{inline}");
    }
    // A volume that is only read is attached all the same.
    let read_only = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c1", "readOnly": true}});
    assert_eq!(attached_with(read_only, &|_| {}), ["create h1 on n1"]);
}

/// Proves AD-24.
#[test]
fn two_persistent_volumes_of_one_handle_are_one_volume() {
    let mut world = World::attached("1", "p1", "n1");
    world.add_volume("2", json!(["ReadWriteOnce"]));
    let mut same = volume("2", json!(["ReadWriteOnce"]));
    same["spec"]["csi"]["volumeHandle"] = json!("h1");
    world.put::<PersistentVolume>(same);
    world.put::<Pod>(pod("p2", "n1", "2"));
    assert_eq!(world.run("n1"), none(), "it is attached already");
    world.put::<Pod>(pod("p3", "n2", "2"));
    assert!(world.run("n2")[0].contains("volume \"pv2\" Volume is already used by pod(s) p1, p2"));
}

/// Proves AD-22.
#[test]
fn volume_of_a_migrated_plugin_is_attached_by_its_csi_driver() {
    let mut world = World::started();
    let mut migrated = volume("1", json!(["ReadWriteOnce"]));
    migrated["spec"]["csi"] = Value::Null;
    migrated["spec"]["awsElasticBlockStore"] = json!({"volumeID": "aws://z/vol-7"});
    world.put::<PersistentVolume>(migrated);
    world.put::<Pod>(pod("p1", "n1", "1"));
    let created =
        world.cluster.bodies(&world.nodes, Key::cluster("n1"), "create volumeattachments.storage.k8s.io ");
    assert_eq!(created[0].0, attachment_name("vol-7", "ebs.csi.aws.com", "n1"));
    assert_eq!(created[0].1["spec"]["source"], json!({"persistentVolumeName": "pv1"}));
}
