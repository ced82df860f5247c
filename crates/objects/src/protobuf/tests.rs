//! JSON and protobuf decode to the same object, and malformed messages are errors.

use serde_json::{Value, json};

use super::schema::{Message, Shape};
use super::{Envelope, Error, WatchEvent, from_slice};
use crate::{
    CsiDriver, DeviceClass, DeviceTaintRule, Encoded, Kind, Lease, Object, PartialObjectMeta,
    PersistentVolume, PersistentVolumeClaim, Pod, PodGroup, PodParts, ResourceClaim, ResourceSlice,
    StorageClass, VolumeAttachment, VolumeAttributesClass,
};

fn message<T: Object>() -> &'static Message {
    T::MESSAGE.expect("a protobuf message")
}

/// Encodes JSON as the API server encodes protobuf: with unset strings and numbers, and with unknown fields.
fn write(object: &Value, message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, name, shape) in message.0 {
        // An unknown field before every field.
        record(&mut bytes, 1000, b"unknown field");
        let value = if let Shape::Inline(_) = shape { object } else { &object[*name] };
        field(&mut bytes, *number, value, *shape);
    }
    bytes
}

fn field(bytes: &mut Vec<u8>, number: u32, value: &Value, shape: Shape) {
    match shape {
        Shape::Text => record(bytes, number, value.as_str().unwrap_or_default().as_bytes()),
        Shape::Count => number_record(bytes, number, value.as_i64().unwrap_or(0)),
        Shape::Flag => number_record(bytes, number, i64::from(value.as_bool().unwrap_or(false))),
        Shape::Time if value.is_null() => record(bytes, number, b""),
        _ if value.is_null() => {}
        Shape::TextIfSet => record(bytes, number, value.as_str().unwrap().as_bytes()),
        Shape::Number => number_record(bytes, number, value.as_i64().unwrap()),
        Shape::Time => {
            let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
            let mut message = Vec::new();
            number_record(&mut message, 1, time.as_second());
            number_record(&mut message, 2, time.subsec_nanosecond().into());
            record(bytes, number, &message);
        }
        Shape::Part(message) | Shape::Inline(message) => record(bytes, number, &write(value, message)),
        Shape::Texts => {
            value
                .as_array()
                .unwrap()
                .iter()
                .for_each(|text| record(bytes, number, text.as_str().unwrap().as_bytes()));
        }
        Shape::Parts(message) => {
            value.as_array().unwrap().iter().for_each(|part| record(bytes, number, &write(part, message)));
        }
        Shape::Map => {
            for (key, value) in value.as_object().unwrap() {
                let mut entry = Vec::new();
                record(&mut entry, 1, key.as_bytes());
                record(&mut entry, 2, value.as_str().unwrap().as_bytes());
                record(bytes, number, &entry);
            }
        }
        Shape::Quantities => {
            for (key, value) in value.as_object().unwrap() {
                let (mut entry, mut quantity) = (Vec::new(), Vec::new());
                record(&mut entry, 1, key.as_bytes());
                record(&mut quantity, 1, value.as_str().unwrap().as_bytes());
                record(&mut entry, 2, &quantity);
                record(bytes, number, &entry);
            }
        }
    }
}

fn record(bytes: &mut Vec<u8>, number: u32, content: &[u8]) {
    varint(bytes, u64::from(number) << 3 | 2);
    varint(bytes, content.len() as u64);
    bytes.extend_from_slice(content);
}

fn number_record(bytes: &mut Vec<u8>, number: u32, value: i64) {
    varint(bytes, u64::from(number) << 3);
    varint(bytes, value.cast_unsigned());
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn full_pod() -> Value {
    json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "5f0e0a5e-7a52-4d6c-9a6b-0123456789ab",
            "resourceVersion": "12345", "generation": 3, "creationTimestamp": "2026-11-15T09:00:01Z",
            "deletionTimestamp": "2026-11-15T10:00:00Z", "deletionGracePeriodSeconds": 0,
            "labels": {"app": "web", "empty": ""}, "finalizers": ["batch.kubernetes.io/job-tracking", "x/y"],
            "annotations": {"controller.kubernetes.io/pod-deletion-cost": "-7", "other": "skipped"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true,
                 "blockOwnerDeletion": true},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "v"}],
        },
        "spec": {
            "nodeName": "n1", "hostname": "web-0", "subdomain": "web", "hostNetwork": true, "priority": -5,
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 0,
            "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "100m"},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}, "ports": [{"name": "http", "containerPort": 80, "protocol": "UDP"},
                                                    {"containerPort": 81, "protocol": "TCP"}]},
                {"name": "b", "env": [{"name": "e", "value": "v"}, {"valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}],
                 "envFrom": [{"configMapRef": {"name": "x"}}, {"secretRef": {"name": "from"}}]}],
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}],
            "ephemeralContainers": [{"name": "debug", "envFrom": [{"secretRef": {"name": "debug"}}]}],
            "imagePullSecrets": [{"name": "registry"}],
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}, {"name": "tmp"},
                {"name": "s", "secret": {"secretName": "volume"}}, {"name": "csi", "csi": {"nodePublishSecretRef": {"name": "csi"}}},
                {"name": "p", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}},
        },
        "status": {
            "phase": "Running", "reason": "Because", "podIP": "10.0.0.1", "startTime": "2026-11-15T09:00:02Z",
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-15T09:00:03Z"},
                {"type": "DisruptionTarget", "status": "True", "reason": "r", "message": "m",
                 "observedGeneration": 2, "lastProbeTime": "2026-11-15T09:00:03Z"}],
            "containerStatuses": [{"name": "a", "restartCount": 2, "state": {"terminated":
                {"exitCode": -1, "finishedAt": "2026-11-15T09:30:00Z"}}}, {"name": "b", "restartCount": 0}],
            "initContainerStatuses": [{"name": "init", "restartCount": 0, "state": {"waiting": {"reason": "r"}}}],
            "ephemeralContainerStatuses": [{"name": "debug", "restartCount": 0, "state": {"running": {}}}],
        },
    })
}

fn bare_pod() -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {}})
}

#[test]
fn protobuf_and_json_decode_to_the_same_object() {
    for pod in [full_pod(), bare_pod()] {
        let from_json: Pod = Encoded::Json(&pod.to_string()).read().unwrap();
        let bytes = write(&pod, message::<Pod>());
        assert_eq!(Encoded::Protobuf(&bytes).read::<Pod>().unwrap(), from_json);
        let partial: PartialObjectMeta = Encoded::Json(&pod.to_string()).read().unwrap();
        assert_eq!(Encoded::Protobuf(&bytes).read::<PartialObjectMeta>().unwrap(), partial);
    }
    let lease = json!({"metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {
        "holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2026-11-15T09:00:01.000120Z"}});
    let from_json: Lease = Encoded::Json(&lease.to_string()).read().unwrap();
    assert_eq!(Encoded::Protobuf(&write(&lease, message::<Lease>())).read::<Lease>().unwrap(), from_json);
}

const PARTS: [PodParts; 8] = [
    PodParts::SECRET_NAMES,
    PodParts::RESOURCES,
    PodParts::INLINE_VOLUMES,
    PodParts::VOLUME_CLAIMS,
    PodParts::RESOURCE_CLAIMS,
    PodParts::POD_GROUP,
    PodParts::ENDPOINTS,
    PodParts::TOLERATIONS,
];

/// A pod with fields of all parts.
fn pod_with_all_parts() -> Value {
    let mut pod = full_pod();
    let spec = &mut pod["spec"];
    spec["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    spec["schedulingGroup"] = json!({"podGroupName": "g"});
    spec["volumes"][3]["csi"]["driver"] = json!("d");
    (spec["priorityClassName"], spec["activeDeadlineSeconds"]) = (json!("high"), json!(60));
    spec["affinity"]["podAffinity"] =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["x"]}]});
    let status = &mut pod["status"];
    status["qosClass"] = json!("Burstable");
    status["resourceClaimStatuses"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    status["containerStatuses"][0]["allocatedResources"] = json!({"cpu": "7"});
    pod
}

#[test]
fn parts_of_pods_decode_to_the_same_object_from_protobuf_and_json() {
    let pod = pod_with_all_parts();
    let (bytes, text) = (write(&pod, message::<Pod>()), pod.to_string());
    let complete: Pod = Encoded::Json(&text).read().unwrap();
    let mut decoded = Vec::new();
    for parts in PARTS.into_iter().chain([PodParts::NONE, PodParts::ALL]) {
        let from_protobuf = Pod::read_parts(Encoded::Protobuf(&bytes), parts).unwrap();
        assert_eq!(from_protobuf, Pod::read_parts(Encoded::Json(&text), parts).unwrap(), "{parts:?}");
        assert_eq!(Some(&from_protobuf), complete.with_parts(parts).as_ref(), "{parts:?}");
        assert_eq!(from_protobuf.spec.parts(), parts);
        assert!(!decoded.contains(&from_protobuf), "{parts:?} has no field in this pod");
        decoded.push(from_protobuf);
    }
    assert_eq!(decoded.last(), Some(&complete));
    assert_eq!(decoded[8].with_parts(PodParts::ALL).as_ref(), Some(&decoded[8]), "no part comes back");
}

/// Bytes that the decoder would refuse show that it skips them.
#[test]
fn parts_that_are_not_kept_are_not_decoded_from_protobuf() {
    const MALFORMED: &[u8] = &[0xff];
    let fields = [
        (PodParts::SECRET_NAMES, 2, 15),    // spec.imagePullSecrets
        (PodParts::RESOURCES, 2, 32),       // spec.overhead
        (PodParts::VOLUME_CLAIMS, 2, 1),    // spec.volumes
        (PodParts::INLINE_VOLUMES, 2, 1),   // spec.volumes
        (PodParts::RESOURCE_CLAIMS, 2, 39), // spec.resourceClaims
        (PodParts::ENDPOINTS, 3, 12),       // status.podIPs
        (PodParts::TOLERATIONS, 2, 22),     // spec.tolerations
    ];
    for (part, outer, inner) in fields {
        let (mut field, mut bytes) =
            (Vec::new(), write(&json!({"metadata": {"name": "p"}}), message::<Pod>()));
        record(&mut field, inner, MALFORMED);
        record(&mut bytes, outer, &field);
        let read = |parts| Pod::read_parts(Encoded::Protobuf(&bytes), parts);
        assert!(read(part).is_err() && read(PodParts::ALL).is_err(), "{part:?}");
        assert!(read(PodParts::NONE).is_ok() && read(PodParts::POD_GROUP).is_ok(), "{part:?}");
    }
}

/// Checks that JSON and protobuf decode to the same object.
fn check<T: Object + PartialEq + std::fmt::Debug>(object: &Value, message: &'static Message) {
    let from_json: T = Encoded::Json(&object.to_string()).read().unwrap();
    assert_eq!(Encoded::Protobuf(&write(object, message)).read::<T>().unwrap(), from_json);
}

#[test]
fn storage_kinds_decode_to_the_same_object_from_protobuf_and_json() {
    let claim = json!({
        "metadata": {"name": "c", "namespace": "a", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": "pv", "storageClassName": "", "volumeMode": "Block", "dataSource": {"kind": "x"},
            "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]},
            "volumeAttributesClassName": ""},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi", "x/y": "2"},
            "conditions": [{"type": "Unused", "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": "2026-11-15T09:00:03Z"}],
            "allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "currentVolumeAttributesClassName": "gold",
            "modifyVolumeStatus": {"targetVolumeAttributesClassName": "iron", "status": "Pending"}},
    });
    check::<PersistentVolumeClaim>(&claim, message::<PersistentVolumeClaim>());
    let bare = json!({"metadata": {"name": "c"}, "spec": {}, "status": {}});
    check::<PersistentVolumeClaim>(&bare, message::<PersistentVolumeClaim>());
    check::<PersistentVolume>(&bare, message::<PersistentVolume>());
    for (field, source) in [
        ("gcePersistentDisk", json!({"pdName": "d"})),
        ("awsElasticBlockStore", json!({"volumeID": "d"})),
        ("hostPath", json!({"path": "/tmp/x"})),
        ("nfs", json!({"server": "s", "path": "/x"})),
        ("iscsi", json!({"targetPortal": "s", "iqn": "i", "lun": 3})),
        ("cinder", json!({"volumeID": "d"})),
        ("fc", json!({"targetWWNs": ["w"], "lun": 3, "wwids": ["i"]})),
        ("flexVolume", json!({"driver": "d"})),
        ("azureFile", json!({"secretName": "s", "shareName": "h", "secretNamespace": "n"})),
        ("vsphereVolume", json!({"volumePath": "p"})),
        ("azureDisk", json!({"diskURI": "u", "kind": "Managed"})),
        ("portworxVolume", json!({"volumeID": "d"})),
        ("csi", json!({"driver": "d", "volumeHandle": "h"})),
        ("glusterfs", json!({"path": "p"})),
    ] {
        let mut volume = json!({
            "metadata": {"name": "pv", "finalizers": ["kubernetes.io/pv-protection"]},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "claimRef": {"namespace": "a", "name": "c", "uid": "u"}, "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": "Delete", "volumeAttributesClassName": "gold",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
            "status": {"phase": "Failed", "message": "why"},
        });
        volume["spec"][field] = source;
        check::<PersistentVolume>(&volume, message::<PersistentVolume>());
    }
    let class = json!({
        "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "d", "reclaimPolicy": "Retain", "mountOptions": ["a", "b"], "volumeBindingMode": "Immediate",
    });
    check::<StorageClass>(&class, message::<StorageClass>());
    check::<StorageClass>(&json!({"metadata": {"name": "bare"}}), message::<StorageClass>());
    check::<VolumeAttributesClass>(
        &json!({"metadata": {"name": "g"}, "driverName": "d"}),
        message::<VolumeAttributesClass>(),
    );
}

#[test]
fn attachments_and_drivers_are_equal_from_json_and_protobuf() {
    check::<VolumeAttachment>(
        &json!({
            "metadata": {"name": "csi-1", "uid": "u", "deletionTimestamp": "2026-11-15T10:00:00Z"},
            "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": true, "attachError": {"message": "a"}, "detachError": {"message": "d"}},
        }),
        message::<VolumeAttachment>(),
    );
    check::<VolumeAttachment>(
        &json!({"metadata": {"name": "csi-1"}, "spec": {"source": {}}, "status": {}}),
        message::<VolumeAttachment>(),
    );
    for required in [true, false] {
        let driver = json!({"metadata": {"name": "d"}, "spec": {"attachRequired": required}});
        check::<CsiDriver>(&driver, message::<CsiDriver>());
        let driver: CsiDriver =
            from_slice(&write(&driver, message::<CsiDriver>()), message::<CsiDriver>()).unwrap();
        assert_eq!(driver.attach_required, Some(required));
    }
}

#[test]
fn inline_volumes_are_equal_from_json_and_protobuf() {
    for (field, source) in [
        ("gcePersistentDisk", json!({"pdName": "d", "fsType": "ext4", "partition": 3, "readOnly": true})),
        ("awsElasticBlockStore", json!({"volumeID": "d", "fsType": "ext4", "partition": 1})),
        ("iscsi", json!({"targetPortal": "p", "iqn": "i", "lun": 3, "secretRef": {"name": "s"}})),
        ("fc", json!({"targetWWNs": ["a", "b"], "lun": 0, "wwids": ["c"]})),
        ("flexVolume", json!({"driver": "d", "secretRef": {"name": "s"}})),
        ("cinder", json!({"volumeID": "d", "fsType": "xfs", "readOnly": true, "secretRef": {"name": "s"}})),
        ("azureFile", json!({"secretName": "s", "shareName": "d", "readOnly": true})),
        ("vsphereVolume", json!({"volumePath": "p", "fsType": "xfs", "storagePolicyName": "gold"})),
        (
            "azureDisk",
            json!({"diskURI": "u", "cachingMode": "None", "fsType": "xfs", "readOnly": true, "kind": "Managed"}),
        ),
        ("portworxVolume", json!({"volumeID": "d", "fsType": "xfs", "readOnly": true})),
        ("csi", json!({"driver": "d", "nodePublishSecretRef": {"name": "s"}})),
    ] {
        let volume = json!({"name": "v", field: source});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"volumes": [volume]}, "status": {}});
        check::<Pod>(&pod, message::<Pod>());
        let pod: Pod = from_slice(&write(&pod, message::<Pod>()), message::<Pod>()).unwrap();
        assert_eq!(pod.spec.inline_volumes().len(), 1, "{field}");
    }
}

#[test]
fn truncated_and_malformed_messages_are_errors_that_quote_nothing() {
    let bytes = write(&full_pod(), message::<Pod>());
    let whole: Pod = from_slice(&bytes, message::<Pod>()).unwrap();
    for end in 0..bytes.len() {
        // A prefix may happen to be a valid message, but never an equal one.
        match from_slice::<Pod>(&bytes[..end], message::<Pod>()) {
            Ok(pod) => assert_ne!(pod, whole),
            Err(Error(message)) => assert!(!message.contains("web"), "{message}"),
        }
    }
    for garbage in
        [&[0xff; 12][..], &[0x0b], &[0x08], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], b"{\"metadata\":{}}"]
    {
        assert!(from_slice::<Pod>(garbage, message::<Pod>()).is_err(), "{garbage:?}");
    }
    let text_for_number = |number: u32| {
        let mut bytes = Vec::new();
        record(&mut bytes, number, b"secret");
        let mut meta = Vec::new();
        record(&mut meta, 1, &bytes);
        from_slice::<PartialObjectMeta>(&meta, &super::PARTIAL)
    };
    assert!(text_for_number(7).is_err() && text_for_number(10).is_err());
}

#[test]
fn watch_events_and_envelopes_are_decoded() {
    let pod = write(&bare_pod(), message::<Pod>());
    let (mut type_meta, mut unknown) = (Vec::new(), Vec::new());
    record(&mut type_meta, 1, b"v1");
    record(&mut type_meta, 2, b"Pod");
    record(&mut unknown, 1, &type_meta);
    record(&mut unknown, 2, &pod);
    let object = [b"k8s\0", &unknown[..]].concat();
    let (mut extension, mut frame) = (Vec::new(), Vec::new());
    record(&mut extension, 1, &object);
    record(&mut frame, 1, b"ADDED");
    record(&mut frame, 2, &extension);
    let event = WatchEvent::read(&frame).unwrap();
    assert_eq!(event.r#type, "ADDED");
    let envelope = Envelope::open(event.object).unwrap();
    assert_eq!((envelope.api_version, envelope.kind, envelope.object), ("v1", "Pod", &pod[..]));
    assert!(Envelope::open(b"{}").is_err());
}

/// Both formats of an object decode to the same value.
fn same_in_both_formats<T: Kind + PartialEq + std::fmt::Debug>(json: Value) -> T {
    let message = message::<T>();
    let decoded: T = from_slice(&write(&json, message), message).unwrap();
    assert_eq!(decoded, serde_json::from_value::<T>(json).unwrap());
    decoded
}

#[test]
fn kinds_of_dynamic_resource_allocation_decode_from_both_formats() {
    let meta = json!({"name": "x", "namespace": "a", "uid": "u", "resourceVersion": "3"});
    let pod = same_in_both_formats::<Pod>(json!({"metadata": meta,
        "spec": {"resourceClaims": [{"name": "one", "resourceClaimName": "c"}, {"name": "two", "resourceClaimTemplateName": "t"},
            {"name": "other"}], "schedulingGroup": {"podGroupName": "g"}},
        "status": {"resourceClaimStatuses": [{"name": "two", "resourceClaimName": "x-two-1"}, {"name": "one"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "x-extended"}}}));
    assert_eq!((pod.spec.resource_claims().len(), pod.resource_claim_statuses().len()), (3, 2));
    assert_eq!(pod.resource_claim_statuses()[1].resource_claim_name, None);
    assert_eq!(pod.extended_resource_claim().map(|name| &**name), Some("x-extended"));
    let claim = same_in_both_formats::<ResourceClaim>(json!({"metadata": meta,
        "spec": {"devices": {"requests": [{"exactly": {"adminAccess": true}}]}},
        "status": {"allocation": {"devices": {"results": [{"driver": "d", "pool": "p", "device": "x",
            "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 0}]}]}},
            "reservedFor": [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "gu"}]}}));
    assert_eq!(claim.reserved_for[0].resource, "podgroups");
    let slice = same_in_both_formats::<ResourceSlice>(
        json!({"metadata": {"name": "s"}, "spec": {"driver": "d",
        "pool": {"name": "p", "generation": 4}, "devices": [{"name": "x", "taints": [{"key": "k", "value": "v",
            "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]}, {"name": "y", "taints": []}]}}),
    );
    assert_eq!((slice.pool_generation, slice.devices.len()), (4, 2));
    let rule = same_in_both_formats::<DeviceTaintRule>(json!({"metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": "d", "pool": "p", "device": "x"}, "taint": {"key": "k", "effect": "None"}},
        "status": {"conditions": [{"type": "EvictionInProgress", "status": "True", "reason": "R", "message": "m",
            "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}));
    assert_eq!(rule.conditions[0].observed_generation, 2);
    let group = same_in_both_formats::<PodGroup>(json!({"metadata": meta,
        "spec": {"resourceClaims": [{"name": "one", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": [{"name": "one", "resourceClaimName": "g-one-1"}]}}));
    assert_eq!(group.resource_claim_statuses.len(), 1);
}

#[test]
fn drivers_and_the_labels_of_volumes_decode_from_both_formats() {
    let driver = json!({"metadata": {"name": "d"}, "spec": {"attachRequired": false, "seLinuxMount": true}});
    assert!(same_in_both_formats::<CsiDriver>(driver).se_linux_mount);
    let mount = |name: &str| json!([{"name": name}]);
    let pod = same_in_both_formats::<Pod>(json!({
        "metadata": {"name": "p", "namespace": "a"}, "status": {"phase": "Running"},
        "spec": {
            "securityContext": {"seLinuxChangePolicy": "MountOption", "seLinuxOptions": {"level": "s0"}},
            "containers": [{"volumeMounts": mount("nfs")}, {"volumeMounts": mount("claim")}],
            "initContainers": [{"volumeMounts": mount("fc"),
                "securityContext": {"seLinuxOptions": {"user": "u", "role": "r", "type": "t", "level": "l"}}}],
            "ephemeralContainers": [{"volumeMounts": mount("csi"), "securityContext": {"seLinuxOptions": {}}},
                {"volumeMounts": mount("disk")}],
            "volumes": [
                {"name": "nfs", "nfs": {"server": "s", "path": "/x"}},
                {"name": "fc", "fc": {"targetWWNs": ["w"], "lun": 0, "wwids": ["i"]}},
                {"name": "csi", "csi": {"driver": "d"}},
                {"name": "disk", "azureDisk": {"diskURI": "u"}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "scratch", "ephemeral": {}},
            ],
        },
    }));
    let volumes = &pod.spec.selinux().volumes;
    let labels: Vec<_> = volumes.iter().map(|volume| volume.labels.first().map(|one| &**one)).collect();
    assert_eq!(
        labels,
        [Some(":::s0"), Some("u:r:t:l"), Some(""), Some(":::s0"), Some(":::s0"), None],
        "{volumes:?}"
    );
    assert_eq!(pod.claim_of(&volumes[4]).as_deref(), Some("c"));
    assert_eq!(pod.claim_of(&volumes[5]).as_deref(), Some("p-scratch"));
}

/// A schema is derived when the first object is decoded, so a wrong field name would show late.
#[test]
fn every_schema_can_be_derived() {
    let counts = [
        message::<CsiDriver>(),
        message::<DeviceClass>(),
        message::<DeviceTaintRule>(),
        message::<Lease>(),
        message::<PersistentVolume>(),
        message::<PersistentVolumeClaim>(),
        message::<Pod>(),
        message::<PodGroup>(),
        message::<ResourceClaim>(),
        message::<ResourceSlice>(),
        message::<StorageClass>(),
        message::<VolumeAttachment>(),
        message::<VolumeAttributesClass>(),
        &super::PARTIAL,
        &super::STATUS,
    ]
    .map(|message| message.0.len());
    assert_eq!(counts, [2, 2, 3, 2, 3, 3, 3, 3, 3, 2, 5, 3, 2, 1, 5]);
}
