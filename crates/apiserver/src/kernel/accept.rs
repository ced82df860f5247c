//! Chooses the representation a client asked for: whole objects, metadata only, tables, or aggregated discovery.

use serde_json::{Value, json};

use super::status::{Outcome, Reason, Status};

/// How objects are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    /// The whole object.
    Whole,
    /// `PartialObjectMetadata` and its list.
    MetadataOnly,
    /// `Table`, with so much of each object in its row.
    Table(Included),
}

/// What of an object goes with its row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Included {
    Nothing,
    Metadata,
    Whole,
}

/// One alternative of an Accept header.
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

    fn is_json(&self) -> bool {
        matches!(self.kind, "application/json" | "*/*" | "application/*")
    }
}

impl Representation {
    /// The first alternative this server can produce.
    pub(crate) fn negotiate(accept: &str, include: &str) -> Outcome<Representation> {
        if accept.trim().is_empty() {
            return Ok(Representation::Whole);
        }
        for media in accept.split(',').map(Media::parse).filter(Media::is_json) {
            match (media.parameter("as"), media.parameter("g"), media.parameter("v")) {
                ("", _, _) => return Ok(Representation::Whole),
                ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
                    return Ok(Representation::MetadataOnly);
                }
                ("Table", "meta.k8s.io", "v1") => return included(include).map(Representation::Table),
                _ => {}
            }
        }
        let message = "only the following media types are accepted: application/json, \
                       application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, \
                       application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, \
                       application/json;as=Table;g=meta.k8s.io;v=v1";
        Err(Status::new(Reason::NotAcceptable, message))
    }
}

fn included(text: &str) -> Outcome<Included> {
    match text {
        "" | "Metadata" => Ok(Included::Metadata),
        "None" => Ok(Included::Nothing),
        "Object" => Ok(Included::Whole),
        other => Err(Status::bad_request(format!("unrecognized includeObject value: {other:?}"))),
    }
}

/// The metadata of an object, as an object of its own.
pub(crate) fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}

/// The version of aggregated discovery the client prefers over the plain form.
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
    fn the_first_producible_alternative_wins() {
        use Representation::{MetadataOnly, Table, Whole};
        for (accept, expected) in [
            ("", Whole),
            ("*/*", Whole),
            ("application/vnd.kubernetes.protobuf,application/json", Whole),
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", MetadataOnly),
            (
                "application/json; as=PartialObjectMetadataList; g=meta.k8s.io; v=v1, application/json",
                MetadataOnly,
            ),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Table(Included::Metadata)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Whole),
        ] {
            assert_eq!(Representation::negotiate(accept, "").unwrap(), expected, "{accept}");
        }
        for accept in ["text/html", "application/json;as=Chair;v=v1;g=meta.k8s.io"] {
            assert_eq!(Representation::negotiate(accept, "").unwrap_err().reason.code(), 406);
        }
    }

    #[test]
    fn aggregated_discovery_is_given_only_when_preferred() {
        let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert_eq!(aggregated_discovery(&format!("{v2},application/json")), Some("v2"));
        assert_eq!(aggregated_discovery(&format!("application/json,{v2}")), None);
        assert_eq!(aggregated_discovery(""), None);
    }
}
