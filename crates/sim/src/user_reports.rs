//! User actions on objects about which controllers only report something: admission policies, and pods that use one volume
//! with SELinux labels.

use keleustes_objects::{
    CsiDriver, Key, Kind as _, PersistentVolume, PersistentVolumeClaim, Pod, Resource,
    ValidatingAdmissionPolicy,
};
use serde_json::{Value, json};

use crate::actions::{LabelledPodChange, PolicyChange};
use crate::user::SimulatedUser;

const POLICIES: Resource = ValidatingAdmissionPolicy::RESOURCE;
const NAMESPACE: &str = "default";
/// The claim that all pods with labels use.
pub(crate) const LABELLED_CLAIM: &str = "labelled";
/// The driver of its volume.
const DRIVER: &str = "labels.example.com";

/// The expressions of policies, and how many of them have a wrong type.
pub(crate) const POLICY_EXPRESSIONS: [(&str, &str, usize); 4] = [
    ("object.spec.replicas >= 0", "", 0),
    ("object.spec.replicas > '1'", "", 1),
    ("object.spec.replicas < 100", "object.spec.nothing", 1),
    ("object.nothing == 1", "'replicas: ' + object.spec.replicas", 2),
];

fn policy_body(name: &str, number: u8) -> Value {
    let (expression, message, _) = POLICY_EXPRESSIONS[usize::from(number) % POLICY_EXPRESSIONS.len()];
    let message = if message.is_empty() { Value::Null } else { json!(message) };
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"]});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "messageExpression": message}]}})
}

fn labelled_pod_body(name: &str, level: u8) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "securityContext": {"seLinuxOptions": {"level": format!("s0:c{level}")}},
        "containers": [{"name": "main", "image": "any:0", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": LABELLED_CLAIM}}]}})
}

impl SimulatedUser {
    pub(crate) async fn change_policy(&self, name: &str, change: PolicyChange) {
        let key = Key::cluster(name);
        match change {
            PolicyChange::Set(number) => {
                let body = policy_body(name, number);
                self.create(&POLICIES, "", &body).await;
                self.merge(&POLICIES, &key, json!({"spec": body["spec"]})).await;
            }
            PolicyChange::Label(number) => {
                let labels = json!({"example.com/label": number.to_string()});
                self.merge(&POLICIES, &key, json!({"metadata": {"labels": labels}})).await;
            }
            PolicyChange::Delete => self.delete(&POLICIES, &key).await,
        }
    }

    pub(crate) async fn change_labelled_pods(&self, change: LabelledPodChange) {
        let name = |number: u8| format!("labelled-{number}");
        match change {
            LabelledPodChange::CreateVolume => self.create_labelled_volume().await,
            LabelledPodChange::Create(number, level) => {
                self.create(&Pod::RESOURCE, NAMESPACE, &labelled_pod_body(&name(number), level)).await;
            }
            LabelledPodChange::Delete(number) => {
                self.delete(&Pod::RESOURCE, &Key::namespaced(NAMESPACE, name(number).as_str())).await;
            }
        }
    }

    async fn create_labelled_volume(&self) {
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"attachRequired": false, "seLinuxMount": true}});
        self.create(&CsiDriver::RESOURCE, "", &driver).await;
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": LABELLED_CLAIM},
            "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": LABELLED_CLAIM,
                "resources": {"requests": {"storage": "1Gi"}}}});
        self.create(&PersistentVolumeClaim::RESOURCE, NAMESPACE, &claim).await;
        let reference =
            json!({"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": LABELLED_CLAIM});
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": LABELLED_CLAIM},
            "spec": {"accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Retain", "claimRef": reference,
                "csi": {"driver": DRIVER, "volumeHandle": LABELLED_CLAIM}}});
        self.create(&PersistentVolume::RESOURCE, "", &volume).await;
    }
}
