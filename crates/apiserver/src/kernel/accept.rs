//! Content negotiation: full objects, metadata only, tables, or aggregated discovery.

use serde_json::{Value, json};

use super::prepare::TEMPLATE_GENERATION;
use super::resources::Resource;
use super::status::{ApiResult, Status, StatusReason};

/// The representation of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    /// The full object.
    Full,
    /// `PartialObjectMetadata`.
    MetadataOnly,
    /// `PartialObjectMetadataList`.
    MetadataList,
    /// `Table`; the parameter is what each row includes of its object.
    Table(Included),
}

/// The `includeObject` parameter of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Included {
    Nothing,
    Metadata,
    Whole,
    /// An unknown value; the error is reported when the table is rendered.
    Unknown,
}

/// One media range of an Accept header.
struct Media<'a> {
    kind: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Media<'a> {
    fn parse(text: &'a str) -> Media<'a> {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let parameters = parts.filter_map(|p| p.split_once('=')).map(|(k, v)| (k.trim(), v.trim())).collect();
        Media { kind, parameters }
    }

    fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(k, _)| *k == name).map_or("", |(_, v)| v)
    }

    fn is_produced(&self) -> bool {
        self.is_json() || PRODUCED.split(", ").any(|media| media == self.kind)
    }

    fn is_json(&self) -> bool {
        matches!(self.kind, "application/json" | "*/*" | "application/*")
    }
}

impl Representation {
    /// The first media range this server can produce.
    pub(crate) fn negotiate(accept: &str, include: &str, custom: bool) -> ApiResult<Representation> {
        if accept.trim().is_empty() {
            return Ok(Representation::Full);
        }
        for media in accept.split(',').map(Media::parse).filter(Media::is_json) {
            match (media.parameter("as"), media.parameter("g"), media.parameter("v")) {
                ("", _, _) => return Ok(Representation::Full),
                ("PartialObjectMetadata", "meta.k8s.io", "v1") => return Ok(Representation::MetadataOnly),
                ("PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                    return Ok(Representation::MetadataList);
                }
                ("Table", "meta.k8s.io", "v1") => return Ok(Representation::Table(included(include))),
                _ => {}
            }
        }
        // For built-in kinds go-restful checks the media type before the handler does, with its own message.
        if !custom && !accept.split(',').map(Media::parse).any(|media| media.is_produced()) {
            let message = format!("406: Not Acceptable\n\nAvailable representations: {PRODUCED}");
            return Err(Status::generic(StatusReason::NotAcceptable, message));
        }
        let message = format!("only the following media types are accepted: {PRODUCED}");
        Err(Status::new(StatusReason::NotAcceptable, message))
    }

    /// Rejects a list as PartialObjectMetadata, an object as PartialObjectMetadataList, and an unknown
    /// `includeObject`.
    pub(crate) fn fits(self, resource: &Resource, is_list: bool, include: &str) -> ApiResult<()> {
        let (requested, actual) = match (self, is_list) {
            (Representation::MetadataOnly, true) => ("PartialObjectMetadata", "a list"),
            (Representation::MetadataList, false) => ("PartialObjectMetadataList", "not a list"),
            (Representation::Table(Included::Unknown), _) => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be \
                     'Metadata', 'Object', 'None', or empty"
                )));
            }
            _ => return Ok(()),
        };
        let package = match resource.group {
            "" | "events.k8s.io" => "core",
            group => group.split('.').next().unwrap_or_default(),
        };
        let kind = match (resource.is_custom(), is_list) {
            (true, true) => "unstructured.UnstructuredList".to_owned(),
            (true, false) => "unstructured.Unstructured".to_owned(),
            (false, true) => format!("{package}.{}", resource.list_kind),
            (false, false) => format!("{package}.{}", resource.kind),
        };
        let message = format!("you requested {requested}, but the requested object is {actual} (*{kind})");
        Err(Status::new(StatusReason::NotAcceptable, message))
    }
}

/// The media types of responses; this server produces only the first.
const PRODUCED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

fn included(text: &str) -> Included {
    match text {
        "" | "Metadata" => Included::Metadata,
        "None" => Included::Nothing,
        "Object" => Included::Whole,
        _ => Included::Unknown,
    }
}

/// The object as PartialObjectMetadata.
pub(crate) fn metadata_only(object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    // kube-apiserver keeps this DaemonSet annotation as a field of the spec, so it is not part of the metadata.
    if object["kind"] == "DaemonSet"
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(TEMPLATE_GENERATION);
        if annotations.is_empty() {
            metadata.as_object_mut().and_then(|metadata| metadata.remove("annotations"));
        }
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// The version of aggregated discovery the client prefers over unaggregated discovery.
pub(crate) fn aggregated_discovery(accept: &str) -> Option<&'static str> {
    let first = accept
        .split(',')
        .map(Media::parse)
        .find(|media| media.is_json() && matches!(media.parameter("as"), "" | "APIGroupDiscoveryList"))?;
    match (first.parameter("g"), first.parameter("v"), first.parameter("as")) {
        ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => Some("v2"),
        ("apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => Some("v2beta1"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_supported_media_range_wins() {
        use Representation::{Full, MetadataList, MetadataOnly, Table};
        for (accept, expected) in [
            ("", Full),
            ("*/*", Full),
            ("application/vnd.kubernetes.protobuf,application/json", Full),
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", MetadataOnly),
            (
                "application/json; as=PartialObjectMetadataList; g=meta.k8s.io; v=v1, application/json",
                MetadataList,
            ),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Table(Included::Metadata)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Full),
        ] {
            assert_eq!(Representation::negotiate(accept, "", false).unwrap(), expected, "{accept}");
        }
        for accept in ["text/html", "application/json;as=Chair;v=v1;g=meta.k8s.io"] {
            assert_eq!(Representation::negotiate(accept, "", false).unwrap_err().reason.code(), 406);
        }
    }

    #[test]
    fn aggregated_discovery_is_returned_only_when_preferred() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert_eq!(aggregated_discovery(&format!("{v2},application/json")), Some("v2"));
        assert_eq!(aggregated_discovery(&format!("application/json,{v2}")), None);
        assert_eq!(aggregated_discovery(""), None);
    }
}
