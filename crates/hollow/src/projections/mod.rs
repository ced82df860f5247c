//! Projections of API objects: only the fields that a kubelet or a scheduler reads.

mod config;
mod node;
mod pod;
mod template;
mod terms;
mod volume;

use keleustes_objects::{
    ArcStr, InternedList, InternedStr, Key, Labels, ObjectMeta, ResourceVersion, Time, Uid,
};
use serde::{Deserialize, Deserializer};

pub(crate) use self::config::{ConfigMap, Secret};
pub(crate) use self::node::{Effect, Node, Taint};
pub(crate) use self::pod::{ConfigKind, Phase, Pod, PodClaim, PodConfig, PodStatus};
pub(crate) use self::template::{Requests, RestartPolicy, Template, TemplateRef};
pub(crate) use self::terms::{NodeTerm, PodTerm, PodTerms, Toleration};
pub(crate) use self::volume::{Attachment, CsiDriver, Volume};

/// Metadata in wire form, with the additional fields of pods.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMeta {
    name: ArcStr,
    namespace: InternedStr,
    uid: Uid,
    resource_version: ResourceVersion,
    generation: i64,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<u32>,
    labels: Labels,
    finalizers: InternedList<InternedStr>,
    annotations: crate::behaviour::Behaviour,
}

impl WireMeta {
    fn meta(&mut self) -> ObjectMeta {
        ObjectMeta {
            key: Key { namespace: std::mem::take(&mut self.namespace), name: std::mem::take(&mut self.name) },
            uid: std::mem::take(&mut self.uid),
            resource_version: std::mem::take(&mut self.resource_version),
            deletion_timestamp: self.deletion_timestamp,
            labels: std::mem::take(&mut self.labels),
            finalizers: std::mem::take(&mut self.finalizers),
            ..ObjectMeta::default()
        }
    }
}

/// Deserializes a field that may be `null`.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
