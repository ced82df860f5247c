//! JSON and protobuf decode to the same object, and malformed messages are errors.

use serde_json::{Value, json};

use super::schema::{Message, Shape};
use super::{Envelope, Error, LEASE, POD, WatchEvent, from_slice};
use crate::{Encoded, Lease, PartialObjectMeta, Pod};

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
            "containers": [{"name": "a", "ports": [{"name": "http", "containerPort": 80, "protocol": "UDP"},
                                                    {"containerPort": 81, "protocol": "TCP"}]}, {"name": "b"}],
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}],
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}, {"name": "tmp"}],
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
            "initContainerStatuses": [{"name": "init", "restartCount": 0, "state": {}}],
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
        let bytes = write(&pod, &POD);
        assert_eq!(Encoded::Protobuf(&bytes).read::<Pod>().unwrap(), from_json);
        let partial: PartialObjectMeta = Encoded::Json(&pod.to_string()).read().unwrap();
        assert_eq!(Encoded::Protobuf(&bytes).read::<PartialObjectMeta>().unwrap(), partial);
    }
    let lease = json!({"metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {
        "holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": "2026-11-15T09:00:01.000120Z"}});
    let from_json: Lease = Encoded::Json(&lease.to_string()).read().unwrap();
    assert_eq!(Encoded::Protobuf(&write(&lease, &LEASE)).read::<Lease>().unwrap(), from_json);
}

#[test]
fn truncated_and_malformed_messages_are_errors_that_quote_nothing() {
    let bytes = write(&full_pod(), &POD);
    let whole: Pod = from_slice(&bytes, &POD).unwrap();
    for end in 0..bytes.len() {
        // A prefix may happen to be a valid message, but never an equal one.
        match from_slice::<Pod>(&bytes[..end], &POD) {
            Ok(pod) => assert_ne!(pod, whole),
            Err(Error(message)) => assert!(!message.contains("web"), "{message}"),
        }
    }
    for garbage in
        [&[0xff; 12][..], &[0x0b], &[0x08], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f], b"{\"metadata\":{}}"]
    {
        assert!(from_slice::<Pod>(garbage, &POD).is_err(), "{garbage:?}");
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
    let pod = write(&bare_pod(), &POD);
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
