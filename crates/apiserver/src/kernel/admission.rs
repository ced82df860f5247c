//! Admission: mutations and rejections of the plugins that are enabled by default.

use serde_json::{Value, json};

use super::Kernel;
use super::metadata::{meta, meta_mut, meta_str};
use super::resources::{self, Resource, Strategy};
use super::signers::SignerWrite;
use super::status::{ApiResult, Status};
use super::store::SharedObject;
use super::types::Quantity;

/// Default tolerationSeconds for not-ready and unreachable nodes.
const TOLERATION_SECONDS: i64 = 300;
/// The annotation of the default StorageClass.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Mount path of the service account token.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Kernel {
    /// The mutating plugins, applied to a new object.
    pub(crate) fn admit(&mut self, resource: &Resource, object: &mut Value) -> ApiResult<()> {
        match resource.strategy {
            Strategy::Pod => self.admit_pod(resource, object)?,
            Strategy::Node => add_not_ready_taint(object),
            Strategy::PersistentVolume => add_finalizer(object, "kubernetes.io/pv-protection"),
            Strategy::PersistentVolumeClaim => {
                add_finalizer(object, "kubernetes.io/pvc-protection");
                self.set_default_storage_class(object);
            }
            Strategy::VolumeAttributesClass => add_finalizer(object, "kubernetes.io/vac-protection"),
            _ => {}
        }
        Ok(())
    }

    /// PodTopologyLabels: copies the topology labels of the pod's node to the pod.
    pub(crate) fn set_topology_labels(&self, pod: &mut Value) {
        let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty());
        let nodes = resources::by_path("", "v1", "nodes");
        let Some(node) = nodes.zip(node).and_then(|(nodes, name)| self.store.get(nodes, "", name)) else {
            return;
        };
        for key in ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"] {
            if let Some(value) = meta(&node, "labels").and_then(|labels| labels.get(key)) {
                meta_mut(pod).entry("labels").or_insert_with(|| json!({}))[key] = value.clone();
            }
        }
    }

    fn admit_pod(&mut self, resource: &Resource, pod: &mut Value) -> ApiResult<()> {
        self.set_limit_range_defaults(pod);
        self.set_topology_labels(pod);
        let mirror = meta(pod, "annotations").is_some_and(|a| a.get("kubernetes.io/config.mirror").is_some());
        if !mirror {
            self.set_default_account(resource, pod)?;
        }
        add_default_tolerations(&mut pod["spec"]);
        self.set_priority(resource, pod)?;
        self.apply_runtime_class(resource, pod)
    }

    fn set_default_account(&mut self, resource: &Resource, pod: &mut Value) -> ApiResult<()> {
        let name =
            pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or("default").to_owned();
        let spec = &mut pod["spec"];
        spec["serviceAccountName"] = json!(name);
        spec["serviceAccount"] = json!(name);
        if self.options.service_accounts { self.mount_account_token(resource, pod, &name) } else { Ok(()) }
    }

    /// ServiceAccount: the pod's service account must exist, and its token is mounted.
    fn mount_account_token(&mut self, resource: &Resource, pod: &mut Value, name: &str) -> ApiResult<()> {
        let namespace = meta_str(pod, "namespace").to_owned();
        let accounts = resources::by_path("", "v1", "serviceaccounts");
        let Some(account) = accounts.and_then(|kind| self.store.get(kind, &namespace, name)) else {
            let why = format!(
                "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
            );
            return Err(Status::forbidden(resource, name_for_message(pod), &why));
        };
        let off = json!(false);
        let automount = pod["spec"]
            .get("automountServiceAccountToken")
            .or_else(|| account.get("automountServiceAccountToken"));
        if automount == Some(&off) {
            return Ok(());
        }
        let volume = self.random.name("kube-api-access-");
        if mount(&mut pod["spec"], &volume) {
            let volumes = &mut pod["spec"]["volumes"];
            if !volumes.is_array() {
                *volumes = json!([]);
            }
            volumes.as_array_mut().into_iter().for_each(|list| list.push(token_volume(&volume)));
        }
        Ok(())
    }

    fn set_priority(&self, resource: &Resource, pod: &mut Value) -> ApiResult<()> {
        let Some(classes) = resources::by_path("scheduling.k8s.io", "v1", "priorityclasses") else {
            return Ok(());
        };
        let named =
            pod.pointer("/spec/priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
        let class = if named.is_empty() {
            let all = self.store.values(classes, None).into_iter();
            all.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
        } else {
            let found = self.store.get(classes, "", &named);
            if found.is_none() {
                let why = format!("no PriorityClass with name {named} was found");
                return Err(Status::forbidden(resource, name_for_message(pod), &why));
            }
            found
        };
        let spec = &mut pod["spec"];
        if let Some(class) = &class {
            spec["priorityClassName"] = class["metadata"]["name"].clone();
        }
        let priority = class.as_ref().and_then(|class| class["value"].as_i64()).unwrap_or(0);
        if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != priority) {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
                 computed {priority} from the given PriorityClass name"
            );
            return Err(Status::forbidden(resource, name_for_message(pod), &why));
        }
        spec["priority"] = json!(priority);
        if spec.get("preemptionPolicy").is_none_or(Value::is_null) {
            let policy = class.as_ref().and_then(|class| class.get("preemptionPolicy")).cloned();
            spec["preemptionPolicy"] = policy.unwrap_or_else(|| json!("PreemptLowerPriority"));
        }
        Ok(())
    }

    /// RuntimeClass: sets the pod's overhead and scheduling from its RuntimeClass.
    fn apply_runtime_class(&self, resource: &Resource, pod: &mut Value) -> ApiResult<()> {
        let refuse = |why: &str| Err(Status::forbidden(resource, name_for_message(pod), why));
        let named = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default();
        if named.is_empty() {
            return Ok(());
        }
        let overhead = pod["spec"].get("overhead").filter(|overhead| overhead.is_object());
        let Some(class) = self.runtime_class(named) else {
            return refuse(&format!("pod rejected: RuntimeClass {named:?} not found"));
        };
        match (class.pointer("/overhead/podFixed"), overhead) {
            (Some(fixed), Some(given)) if fixed != given => {
                return refuse("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead");
            }
            (Some(fixed), None) => pod["spec"]["overhead"] = fixed.clone(),
            _ => {}
        }
        for (key, value) in
            class.pointer("/scheduling/nodeSelector").and_then(Value::as_object).into_iter().flatten()
        {
            pod["spec"]["nodeSelector"][key] = value.clone();
        }
        let tolerations = class.pointer("/scheduling/tolerations").and_then(Value::as_array);
        if let (Some(more), Some(known)) = (tolerations, pod["spec"]["tolerations"].as_array_mut()) {
            known.extend(more.iter().cloned());
        }
        Ok(())
    }

    fn runtime_class(&self, name: &str) -> Option<SharedObject> {
        self.store.get(resources::by_path("node.k8s.io", "v1", "runtimeclasses")?, "", name)
    }

    /// The validating plugins, for an update.
    pub(crate) fn validate_admission_of_update(
        &mut self,
        write: &SignerWrite<'_>,
        old: &Value,
        new: &Value,
    ) -> ApiResult<()> {
        self.check_signer_of_update(write, old, new)?;
        let target = write.target;
        let (resource, subresource) = (target.resource.stored(), target.subresource.as_deref());
        let limited = match (resource.strategy, subresource) {
            (Strategy::Pod, part) => part == Some("resize"),
            (Strategy::PersistentVolumeClaim, part) => part.is_none(),
            _ => false,
        };
        if limited {
            self.check_limit_ranges(resource, Some(old), new)?;
        }
        if subresource.is_some() {
            return Ok(());
        }
        self.check_pod_security(resource, Some(old), new)?;
        self.check_claim_expansion(resource, old, new)
    }

    /// PersistentVolumeClaimResize: a claim grows only if it is bound and its class allows it.
    fn check_claim_expansion(&self, resource: &Resource, old: &Value, new: &Value) -> ApiResult<()> {
        let size =
            |claim: &Value| Quantity::parse(claim["spec"]["resources"]["requests"]["storage"].as_str()?);
        let grows = size(old).zip(size(new)).is_some_and(|(old, new)| new > old);
        if resource.strategy != Strategy::PersistentVolumeClaim || !grows {
            return Ok(());
        }
        let classes = resources::by_path("storage.k8s.io", "v1", "storageclasses");
        let name = new["spec"]["storageClassName"].as_str().unwrap_or_default();
        let class = classes.and_then(|classes| self.store.get(classes, "", name));
        let why = if old["status"]["phase"] != "Bound" {
            "Only bound persistent volume claims can be expanded"
        } else if class.is_none_or(|class| class["allowVolumeExpansion"] != true) {
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
             resize"
        } else {
            return Ok(());
        };
        Err(Status::forbidden(resource, meta_str(new, "name"), why))
    }

    /// The validating plugins, for a create.
    pub(crate) fn validate_admission(&mut self, resource: &Resource, object: &Value) -> ApiResult<()> {
        self.check_limit_ranges(resource, None, object)?;
        self.check_pod_security(resource, None, object)?;
        self.check_overhead(resource, object)
    }

    /// RuntimeClass: a pod has the overhead of its RuntimeClass.
    fn check_overhead(&self, resource: &Resource, object: &Value) -> ApiResult<()> {
        let costs = object["spec"]["overhead"].as_object().is_some_and(|overhead| !overhead.is_empty());
        if resource.strategy != Strategy::Pod || !costs {
            return Ok(());
        }
        let class = object["spec"]["runtimeClassName"].as_str().and_then(|name| self.runtime_class(name));
        if class.is_some_and(|class| class.pointer("/overhead/podFixed").is_some()) {
            return Ok(());
        }
        let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        Err(Status::forbidden(resource, meta_str(object, "name"), why))
    }

    fn set_default_storage_class(&self, claim: &mut Value) {
        let old_name = "volume.beta.kubernetes.io/storage-class";
        let chosen = claim.pointer("/spec/storageClassName").is_some_and(|c| !c.is_null())
            || meta(claim, "annotations").is_some_and(|a| a.get(old_name).is_some());
        let classes = resources::by_path("storage.k8s.io", "v1", "storageclasses").filter(|_| !chosen);
        let Some(classes) = classes else { return };
        let is_default =
            |class: &Value| meta(class, "annotations").is_some_and(|a| a[DEFAULT_CLASS] == "true");
        let defaults = self.store.values(classes, None).into_iter();
        // Of several default classes the newest wins, then the first by name.
        let newest = defaults.filter(|class| is_default(class)).max_by(|a, b| {
            let age = |class: &Value| meta_str(class, "creationTimestamp").to_owned();
            age(a).cmp(&age(b)).then_with(|| meta_str(b, "name").cmp(meta_str(a, "name")))
        });
        if let Some(class) = newest {
            claim["spec"]["storageClassName"] = json!(meta_str(&class, "name"));
        }
    }
}

/// The name for messages before generateName has been resolved.
pub(crate) fn name_for_message(object: &Value) -> &str {
    let names = ["name", "generateName"].map(|field| meta_str(object, field));
    names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}

/// Adds the volume mount to containers that have nothing mounted at the path; returns whether any needs it.
fn mount(spec: &mut Value, volume: &str) -> bool {
    let mut used = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = &mut container["volumeMounts"];
            if !mounts.is_array() {
                *mounts = json!([]);
            }
            if let Some(mounts) =
                mounts.as_array_mut().filter(|m| m.iter().all(|m| m["mountPath"] != TOKEN_PATH))
            {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}));
                used = true;
            }
        }
    }
    used
}

fn token_volume(name: &str) -> Value {
    json!({
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ],
        },
    })
}

pub(crate) fn add_default_tolerations(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    let tolerations = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut all = tolerations.clone();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |t: &Value| {
            let word = |field: &str| t[field].as_str().unwrap_or_default();
            let effect = matches!(word("effect"), "" | "NoExecute");
            effect && (word("key") == key || (word("key").is_empty() && word("operator") == "Exists"))
        };
        if !tolerations.iter().any(covers) {
            all.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS}));
        }
    }
    spec["tolerations"] = json!(all);
}

/// TaintNodesByCondition: a new node has the not-ready taint until the node lifecycle controller removes it.
fn add_not_ready_taint(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taints = &mut node["spec"]["taints"];
    if !taints.is_array() {
        *taints = json!([]);
    }
    if let Some(taints) = taints.as_array_mut()
        && !taints.iter().any(|t| t["key"] == taint["key"] && t["effect"] == taint["effect"])
    {
        taints.push(taint);
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let finalizers = meta_mut(object).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.contains(&json!(finalizer))
    {
        list.push(json!(finalizer));
    }
}
