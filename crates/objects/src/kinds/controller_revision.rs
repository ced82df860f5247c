//! ControllerRevisions: the history of StatefulSets and DaemonSets.

use serde::Deserialize;

use super::full_meta::impl_full_meta;
use crate::meta::ExtraMeta;
use crate::{Annotations, Kind, ObjectMeta, RawJson, Resource, WireMeta};

/// A revision of a template.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct ControllerRevision {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The metadata beyond `meta`.
    pub extra_meta: ExtraMeta,
    /// `data`, byte for byte: revisions are compared by these bytes, and the server rejects an update that changes them.
    pub data: RawJson,
    /// The revision number.
    pub revision: i64,
}

impl_full_meta!(ControllerRevision);

impl Kind for ControllerRevision {
    const RESOURCE: Resource = Resource::built_in("apps", "ControllerRevision");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default)]
    data: RawJson,
    #[serde(default)]
    revision: i64,
}

impl From<Wire> for ControllerRevision {
    fn from(wire: Wire) -> Self {
        let (meta, extra_meta) = wire.metadata.split();
        Self { meta, extra_meta, data: wire.data, revision: wire.revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves REV-1, REV-59.
    #[test]
    fn the_data_is_kept_byte_for_byte() {
        let data =
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"annotations":{"a":"\u003cb\u003e"}}}}}"#;
        let text = format!(r#"{{"metadata":{{"name":"db-1"}},"data": {data} ,"revision":3}}"#);
        let revision: ControllerRevision = serde_json::from_str(&text).unwrap();
        assert_eq!((revision.data.as_str(), revision.revision), (data, 3));
        assert_eq!(serde_json::to_string(&revision.data).unwrap(), data);
        let bare: ControllerRevision = serde_json::from_str(r#"{"metadata":{"name":"r"}}"#).unwrap();
        assert_eq!(bare.data.as_str(), "null");
    }
}
