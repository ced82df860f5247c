//! Messages and the JSON they are transcoded to.

use serde_json::{Value, json};

use super::*;
use crate::{
    CertificateSigningRequest, CronJob, DecodeError, Deployment, Encoded, EndpointSlice, Endpoints,
    HorizontalPodAutoscaler, Job, Node, Object, PodDisruptionBudget, ReplicaSet, ReplicationController,
    ResourceQuota,
};

fn whole<T: Object>() -> &'static FullMessage {
    T::WHOLE.expect("a complete schema")
}

/// Encodes varints.
fn varints<const N: usize>(numbers: [usize; N]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for mut rest in numbers {
        while rest >= 0x80 {
            bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        bytes.push(u8::try_from(rest).unwrap());
    }
    bytes
}

fn number(field: usize, value: usize) -> Vec<u8> {
    varints([field << 3, value])
}

fn part(field: usize, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [varints([field << 3 | 2, content.len()]), content].concat()
}

fn text(field: usize, text: &str) -> Vec<u8> {
    part(field, &[text.as_bytes()])
}

/// A ReplicaSet as a server encodes it: unset fields are present and empty.
fn replica_set() -> Vec<u8> {
    let labels = part(11, &[&text(1, "app"), &text(2, "web \"x\"\n")]);
    let created = part(8, &[&number(1, 61), &number(2, 0)]);
    let meta =
        part(1, &[&text(1, "web"), &text(2, ""), &text(3, "a"), &created, &labels, &text(17, "anything")]);
    let limit = part(1, &[&text(1, "cpu"), &part(2, &[&text(1, "100m")])]);
    let port = part(2, &[&number(1, 1), &number(2, 0), &text(3, "http")]);
    let probe = part(10, &[&part(1, &[&part(2, &[&text(1, "/"), &port])]), &number(2, 0)]);
    // Two false booleans: `privileged` is a pointer, `stdin` is not.
    let context = part(15, &[&number(2, 0)]);
    let context = [context, number(16, 0)].concat();
    let container = part(
        2,
        &[&text(1, "c"), &text(2, ""), &text(3, "x"), &text(3, "y"), &part(8, &[&limit]), &probe, &context],
    );
    let volume = part(1, &[&text(1, "v"), &part(2, &[&part(19, &[&part(1, &[&text(1, "settings")])])])]);
    let pod = part(2, &[&volume, &container, &number(4, 30), &number(11, 0)]);
    let template = part(3, &[&part(1, &[]), &pod]);
    let selector = part(2, &[&part(1, &[&text(1, "app"), &text(2, "web")])]);
    [meta, part(2, &[&number(1, 0), &selector, &template]), part(3, &[&number(1, 0)])].concat()
}

#[test]
fn a_message_is_transcoded_to_the_json_of_the_server() {
    let written = to_json(&replica_set(), whole::<ReplicaSet>()).unwrap();
    let probe = json!({"httpGet": {"path": "/", "port": "http"}});
    let container = json!({
        "name": "c", "command": ["x", "y"], "resources": {"limits": {"cpu": "100m"}}, "livenessProbe": probe,
        "securityContext": {"privileged": false},
    });
    let spec = json!({
        "volumes": [{"name": "v", "configMap": {"name": "settings"}}], "containers": [container],
        "terminationGracePeriodSeconds": 30,
    });
    let wanted = json!({
        "metadata": {
            "name": "web", "namespace": "a", "creationTimestamp": "1970-01-01T00:01:01Z",
            "labels": {"app": "web \"x\"\n"},
        },
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {}, "spec": spec},
        },
        "status": {"replicas": 0},
    });
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), wanted);
    let set: ReplicaSet = Encoded::Protobuf(&replica_set()).read().unwrap();
    assert_eq!((set.key().to_string().as_str(), set.spec.replicas), ("a/web", 0));
    assert_eq!(set.spec.template.json()["spec"], wanted["spec"]["template"]["spec"]);
}

#[test]
fn an_unknown_field_requires_json() {
    let top_level = [replica_set(), text(99, "new")].concat();
    let nested = part(2, &[&part(3, &[&part(2, &[&text(99, "new")])])]);
    for message in [top_level, nested] {
        assert_eq!(to_json(&message, whole::<ReplicaSet>()), Err(TranscodeError::UnknownField));
        assert!(matches!(Encoded::Protobuf(&message).read::<ReplicaSet>(), Err(DecodeError::RequiresJson)));
    }
}

#[test]
fn a_truncated_message_is_malformed() {
    let message = replica_set();
    let half = to_json(&message[..message.len() / 2], whole::<ReplicaSet>());
    assert!(matches!(half, Err(TranscodeError::Malformed(_))), "{half:?}");
    assert!(matches!(to_json(&number(1, 7), whole::<ReplicaSet>()), Err(TranscodeError::Malformed(_))));
}

#[test]
fn a_transcoded_node_keeps_conditions_taints_and_allocatable() {
    let taint =
        part(5, &[&text(1, "full"), &text(2, ""), &text(3, "NoExecute"), &part(4, &[&number(1, 61)])]);
    let spec = part(
        2,
        &[&text(1, "10.0.0.0/24"), &text(3, ""), &number(4, 1), &taint, &text(7, "x"), &text(7, "y")],
    );
    let cpu = part(2, &[&text(1, "cpu"), &part(2, &[&text(1, "1500m")])]);
    let ready = part(
        4,
        &[&text(1, "Ready"), &text(2, "True"), &part(3, &[&number(1, 62)]), &part(4, &[]), &text(5, "")],
    );
    let image = part(8, &[&text(1, "registry.example/web")]);
    let status = part(3, &[&cpu, &text(3, ""), &ready, &image, &image]);
    let node: Node = Encoded::Protobuf(&[part(1, &[&text(1, "n")]), spec, status].concat()).read().unwrap();
    let json = json!({
        "metadata": {"name": "n"},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["x", "y"], "unschedulable": true,
            "taints": [{"key": "full", "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:01Z"}]},
        "status": {"allocatable": {"cpu": "1500m"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1970-01-01T00:01:02Z"}]},
    });
    assert_eq!(node, serde_json::from_value(json).unwrap());
    assert_eq!(node.allocatable_cpu_milli, 1500);
}

/// No two fields of a message have the same number or name, those of inlined messages included.
#[test]
fn field_numbers_and_names_are_unique() {
    fn names(message: &'static FullMessage, seen: &mut Vec<&'static str>) {
        let mut numbers: Vec<_> = message.0.iter().map(|(number, ..)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), message.0.len(), "{message:?}");
        for (_, name, field) in message.0 {
            match field {
                Field::Inline(inner) => names(inner, seen),
                Field::Part(inner) | Field::Parts(inner) => {
                    seen.push(name);
                    names(inner, &mut Vec::new());
                }
                _ => seen.push(name),
            }
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all, "{message:?}");
    }
    names(whole::<ReplicaSet>(), &mut Vec::new());
    names(whole::<Deployment>(), &mut Vec::new());
    names(whole::<Node>(), &mut Vec::new());
    names(whole::<Endpoints>(), &mut Vec::new());
    names(&schema::POD_TEMPLATE, &mut Vec::new());
}

#[test]
fn fields_of_a_template_that_hold_json_are_kept() {
    let managed = |fields: &[u8]| {
        let entry = part(17, &[&text(1, "kubectl"), &part(7, &[fields])]);
        part(2, &[&part(3, &[&part(1, &[&entry])])])
    };
    let written = |message: &[u8]| -> Value {
        let json = to_json(message, whole::<ReplicaSet>()).unwrap();
        serde_json::from_str::<Value>(&json).unwrap()["spec"]["template"]["metadata"]["managedFields"].take()
    };
    let kept = written(&managed(&text(1, r#"{"f:spec":{}}"#)));
    assert_eq!(kept, json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]));
    assert_eq!(written(&managed(&[])), json!([{"manager": "kubectl", "fieldsV1": null}]));
    assert_eq!(to_json(&managed(&text(2, "new")), whole::<ReplicaSet>()), Err(TranscodeError::UnknownField));
}

#[test]
fn a_transcoded_endpoint_slice_loses_no_field() {
    let target = part(4, &[&text(1, "Pod"), &text(2, "a"), &text(3, "p"), &text(4, "u"), &text(5, "")]);
    let hints = part(8, &[&part(1, &[&text(1, "z")])]);
    let pod = part(
        2,
        &[&text(1, "10.0.0.7"), &part(2, &[&number(1, 1), &number(3, 0)]), &target, &text(6, "n"), &hints],
    );
    let bare = part(2, &[&text(1, "10.0.0.8"), &part(2, &[])]);
    let port = part(3, &[&text(1, ""), &text(2, "TCP"), &number(3, 80)]);
    let message = [part(1, &[&text(1, "web-1"), &text(3, "a")]), pod, bare, port, text(4, "IPv4")].concat();
    let json = json!({
        "metadata": {"name": "web-1", "namespace": "a"}, "addressType": "IPv4",
        "endpoints": [
            {"addresses": ["10.0.0.7"], "conditions": {"ready": true, "terminating": false}, "nodeName": "n",
             "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "u"}, "hints": {"forZones": [{"name": "z"}]}},
            {"addresses": ["10.0.0.8"], "conditions": {}},
        ],
        "ports": [{"name": "", "protocol": "TCP", "port": 80}],
    });
    assert_eq!(
        serde_json::from_str::<Value>(&to_json(&message, whole::<EndpointSlice>()).unwrap()).unwrap(),
        json
    );
    let read: EndpointSlice = Encoded::Protobuf(&message).read().unwrap();
    assert_eq!(read, serde_json::from_value(json).unwrap());
}

#[test]
fn transcoded_endpoints_lose_no_field() {
    let target = part(2, &[&text(1, "Pod"), &text(2, "a"), &text(3, "p"), &text(4, "u"), &text(6, "7")]);
    let ready = part(1, &[&text(1, "10.0.0.7"), &target, &text(3, "h"), &text(4, "n")]);
    let not_ready = part(2, &[&text(1, "10.0.0.8"), &text(3, "")]);
    let ports = [
        part(3, &[&text(1, "http"), &number(2, 80), &text(3, "TCP"), &text(4, "h2c")]),
        part(3, &[&text(1, ""), &number(2, 53), &text(3, "UDP")]),
    ]
    .concat();
    let message =
        [part(1, &[&text(1, "web"), &text(3, "a")]), part(2, &[&ready, &not_ready, &ports])].concat();
    let json = json!({
        "metadata": {"name": "web", "namespace": "a"},
        "subsets": [{
            "addresses": [{"ip": "10.0.0.7", "hostname": "h", "nodeName": "n",
                           "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "u", "resourceVersion": "7"}}],
            "notReadyAddresses": [{"ip": "10.0.0.8"}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "h2c"}, {"port": 53, "protocol": "UDP"}],
        }],
    });
    assert_eq!(
        serde_json::from_str::<Value>(&to_json(&message, whole::<Endpoints>()).unwrap()).unwrap(),
        json
    );
    let read: Endpoints = Encoded::Protobuf(&message).read().unwrap();
    assert_eq!(read, serde_json::from_value(json).unwrap());
}

#[test]
fn bytes_and_the_attributes_of_a_user_are_kept() {
    let extra = |key: &str, values: &[&[u8]]| part(6, &[&text(1, key), &part(2, values)]);
    let spec = part(
        2,
        &[
            &text(1, "\0PEM"),
            &text(2, "a"),
            &extra("none", &[]),
            &extra("two", &[&text(1, "x"), &text(1, "y\"")]),
        ],
    );
    let request = [part(1, &[&text(1, "r")]), spec, part(3, &[&text(2, "")])].concat();
    let json = to_json(&request, whole::<CertificateSigningRequest>()).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json,
        json!({"metadata": {"name": "r"}, "status": {},
            "spec": {"request": "AFBFTQ==", "username": "a", "extra": {"none": [], "two": ["x", "y\""]}}})
    );
    let unknown = part(2, &[&part(6, &[&text(1, "k"), &part(2, &[&text(2, "x")])])]);
    assert_eq!(to_json(&unknown, whole::<CertificateSigningRequest>()), Err(TranscodeError::UnknownField));
}

#[test]
fn times_in_a_map_are_kept() {
    let disrupted = |pod: &str, seconds| part(2, &[&text(1, pod), &part(2, &[&number(1, seconds)])]);
    let budget = part(3, &[&disrupted("a", 61), &disrupted("b", 62)]);
    let json = to_json(&budget, whole::<PodDisruptionBudget>()).unwrap();
    assert_eq!(
        json,
        r#"{"status":{"disruptedPods":{"a":"1970-01-01T00:01:01Z","b":"1970-01-01T00:01:02Z"}}}"#
    );
}

#[test]
fn every_transcoded_kind_has_a_schema() {
    fn reads<T: Object>() {
        let named = part(1, &[&text(1, "n")]);
        assert_eq!(to_json(&named, whole::<T>()).unwrap(), r#"{"metadata":{"name":"n"}}"#);
        assert_eq!(Encoded::Protobuf(&named).read::<T>().unwrap().meta().key.name.as_str(), "n");
    }
    reads::<CertificateSigningRequest>();
    reads::<CronJob>();
    reads::<HorizontalPodAutoscaler>();
    reads::<Job>();
    reads::<PodDisruptionBudget>();
    reads::<ReplicationController>();
    reads::<ResourceQuota>();
}
