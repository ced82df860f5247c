//! The ResourceClaims that pods and PodGroups name in their spec and status.

use serde::Deserialize;

use crate::{ArcStr, InternedStr};

/// An entry of `spec.resourceClaims` of a pod or PodGroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "WireEntry")]
pub struct ClaimEntry {
    /// Its name, by which containers and the status refer to it.
    pub name: InternedStr,
    /// Where its ResourceClaim comes from.
    pub source: ClaimSource,
}

/// Where the ResourceClaim of an entry comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimSource {
    /// `resourceClaimName`: a ResourceClaim that a user creates.
    Claim(InternedStr),
    /// `resourceClaimTemplateName`: a ResourceClaimTemplate, from which the controller creates one.
    Template(InternedStr),
    /// A source that this program does not know.
    Unknown,
}

/// An entry of `status.resourceClaimStatuses` of a pod or PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// The name of the entry in the spec.
    pub name: InternedStr,
    /// The name of its ResourceClaim; `None` if it needs none.
    pub resource_claim_name: Option<ArcStr>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireEntry {
    name: InternedStr,
    resource_claim_name: Option<InternedStr>,
    resource_claim_template_name: Option<InternedStr>,
}

impl From<WireEntry> for ClaimEntry {
    fn from(wire: WireEntry) -> Self {
        let source = match (wire.resource_claim_name, wire.resource_claim_template_name) {
            (Some(name), _) => ClaimSource::Claim(name),
            (None, Some(template)) => ClaimSource::Template(template),
            (None, None) => ClaimSource::Unknown,
        };
        Self { name: wire.name, source }
    }
}
