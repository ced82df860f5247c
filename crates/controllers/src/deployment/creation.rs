//! Creates the new ReplicaSet of a Deployment.

use keleustes_objects::{ArcStr, Key, ReplicaSet};
use keleustes_plan::Write;
use serde_json::{Value, json};

use super::inputs::{Inputs, RECREATE};
use super::revisions::initial_annotations;
use super::rolling::new_set_target;
use crate::workloads::owners::controller_ref;
use crate::workloads::templates::TEMPLATE_HASH;

/// The longest name that an object may have.
const NAME_MAX: usize = 253;

/// A ReplicaSet to be created.
pub(super) struct NewReplicaSet {
    /// Its namespace and name.
    pub(super) key: Key,
    /// Its initial replicas.
    pub(super) replicas: i32,
    /// The request body.
    pub(super) body: Value,
}

impl NewReplicaSet {
    pub(super) fn of(inputs: &Inputs) -> Self {
        let (deployment, spec) = (&inputs.deployment, &inputs.deployment.spec);
        let hash = spec.template.pod_template_hash(deployment.status.collision_count);
        let key = Key {
            namespace: deployment.meta.key.namespace.clone(),
            name: name(&deployment.meta.key.name, &hash),
        };
        let replicas = match spec.strategy.r#type == RECREATE {
            true => inputs.desired(),
            false => new_set_target(inputs.desired(), inputs.bounds().surge, 0, inputs.total_replicas()),
        };
        let mut template = Value::Object(spec.template.json());
        template["metadata"]["labels"][TEMPLATE_HASH] = json!(hash);
        let selector = spec.selector.clone().unwrap_or_default().with_label(TEMPLATE_HASH, &*hash);
        let body = json!({
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": template["metadata"]["labels"],
                "annotations": initial_annotations(inputs),
                "ownerReferences": [controller_ref::<keleustes_objects::Deployment>(&deployment.meta)],
            },
            "spec": {
                "replicas": replicas,
                "minReadySeconds": spec.min_ready_seconds,
                "selector": selector,
                "template": template,
            },
        });
        Self { key, replicas, body }
    }

    pub(super) fn write(&self) -> Write {
        Write::create::<ReplicaSet>(self.key.clone(), self.body.clone())
            .because("no ReplicaSet has the Deployment's template")
    }
}

/// The Deployment's name and the hash, truncated to the longest name.
fn name(deployment: &str, hash: &str) -> ArcStr {
    let end = deployment.floor_char_boundary(NAME_MAX - hash.len() - 1);
    ArcStr::from(format!("{}-{hash}", &deployment[..end]))
}
