//! The identity and equality of endpoints in EndpointSlices.

use keleustes_objects::{Address, ArcStr, Endpoint, InternedStr, ResourceVersion, TargetRef};

/// The identity of an endpoint among those with the same ports. It sorts by name first, so that pods of one
/// owner are adjacent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointIdentity {
    name: ArcStr,
    namespace: InternedStr,
    hostname: ArcStr,
    addresses: Vec<Address>,
}

impl EndpointIdentity {
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        let mut addresses = endpoint.addresses.to_vec();
        addresses.sort();
        let target = endpoint.target_ref.as_ref();
        Self {
            name: target.map(|target| target.name.clone()).unwrap_or_default(),
            namespace: target.map(|target| target.namespace.clone()).unwrap_or_default(),
            hostname: endpoint.hostname.clone(),
            addresses,
        }
    }
}

/// Whether two endpoints with the same identity are equal. Hints are not compared.
pub(crate) fn is_same(desired: &Endpoint, current: &Endpoint) -> bool {
    desired.node_name == current.node_name
        && desired.zone == current.zone
        && desired.conditions == current.conditions
        && is_same_target(desired.target_ref.as_ref(), current.target_ref.as_ref())
}

/// Whether two references name the same object by UID, regardless of resourceVersion.
fn is_same_target(desired: Option<&TargetRef>, current: Option<&TargetRef>) -> bool {
    let parts = |target: &TargetRef| {
        let mut rest = target.rest.as_deref().cloned().unwrap_or_default();
        rest.resource_version = ResourceVersion::default();
        (target.kind.clone(), target.namespace.clone(), target.name.clone(), target.uid.clone(), rest)
    };
    desired.map(parts) == current.map(parts)
}
