//! ClusterTrustBundles of the signer whose bundle the manager publishes, in each version that API servers serve.

use serde::Deserialize;

use super::full_meta::impl_full_meta;
use crate::meta::null_is_default;
use crate::{Annotations, ArcStr, ExtraMeta, FullMeta, Kind, ObjectMeta, Projection, Resource, WireMeta};

/// The signer of the API servers' serving certificates.
pub const KUBE_APISERVER_SERVING_SIGNER: &str = "kubernetes.io/kube-apiserver-serving";

/// A ClusterTrustBundle of any version.
pub trait TrustBundle: FullMeta {
    /// `spec.trustBundle`.
    fn trust_bundle(&self) -> &str;
}

macro_rules! cluster_trust_bundle {
    ($(#[$doc:meta])* $name:ident, $version:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(from = "Wire")]
        pub struct $name {
            /// Its metadata.
            pub meta: ObjectMeta,
            /// The metadata beyond `meta`.
            pub extra_meta: ExtraMeta,
            /// `spec.trustBundle`.
            pub trust_bundle: ArcStr,
        }

        impl_full_meta!($name);

        impl Kind for $name {
            const RESOURCE: Resource = Resource::built_in_version("certificates.k8s.io", $version, "ClusterTrustBundle");
            const PROJECTION: Projection =
                Projection::selected("spec.signerName=kubernetes.io/kube-apiserver-serving").optional();
        }

        impl TrustBundle for $name {
            fn trust_bundle(&self) -> &str {
                &self.trust_bundle
            }
        }

        impl From<Wire> for $name {
            fn from(wire: Wire) -> Self {
                let (meta, extra_meta) = wire.metadata.split();
                Self { meta, extra_meta, trust_bundle: wire.spec.trust_bundle }
            }
        }
    };
}

cluster_trust_bundle!(
    /// A ClusterTrustBundle of version v1.
    ClusterTrustBundle,
    "v1"
);
cluster_trust_bundle!(
    /// A ClusterTrustBundle of version v1beta1.
    ClusterTrustBundleV1Beta1,
    "v1beta1"
);
cluster_trust_bundle!(
    /// A ClusterTrustBundle of version v1alpha1.
    ClusterTrustBundleV1Alpha1,
    "v1alpha1"
);

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Annotations>,
    #[serde(default, deserialize_with = "null_is_default")]
    spec: WireSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(deserialize_with = "null_is_default")]
    trust_bundle: ArcStr,
}
