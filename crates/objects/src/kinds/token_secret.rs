//! ServiceAccount token Secrets: which of their fields are set.

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use crate::{ArcStr, InternedStr, Kind, Object, ObjectMeta, Projection, Resource, WireMeta};

/// The type of ServiceAccount token Secrets.
pub const SECRET_TYPE_SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// A Secret of type [`SECRET_TYPE_SERVICE_ACCOUNT_TOKEN`]. The field selector excludes all others. The decoder checks
/// that the token is set and does not keep it, so the cache holds no credentials.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct TokenSecret {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The name of its ServiceAccount; empty if the annotation is missing.
    pub account_name: ArcStr,
    /// The UID of its ServiceAccount; empty if the annotation is missing.
    pub account_uid: ArcStr,
    /// `data["ca.crt"]`, base64 as in JSON; interned because all token Secrets hold the same.
    pub ca_base64: InternedStr,
    /// Whether `data["namespace"]` is not empty.
    pub has_namespace: bool,
    /// Whether `data["token"]` is not empty.
    pub has_token: bool,
}

impl Object for TokenSecret {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for TokenSecret {
    const RESOURCE: Resource = Resource::built_in("", "Secret");
    const PROJECTION: Projection = Projection::selected("type=kubernetes.io/service-account-token");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta<Option<Annotations>>,
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "kubernetes.io/service-account.name")]
    account_name: ArcStr,
    #[serde(rename = "kubernetes.io/service-account.uid")]
    account_uid: ArcStr,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    #[serde(rename = "ca.crt")]
    ca: InternedStr,
    namespace: Present,
    token: Present,
}

/// Whether a string is present and not empty; the string is dropped.
#[derive(Default)]
struct Present(bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NotEmpty;
        impl Visitor<'_> for NotEmpty {
            type Value = Present;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Present, E> {
                Ok(Present(!text.is_empty()))
            }
            fn visit_unit<E: serde::de::Error>(self) -> Result<Present, E> {
                Ok(Present(false))
            }
        }
        deserializer.deserialize_any(NotEmpty)
    }
}

impl From<Wire> for TokenSecret {
    fn from(mut wire: Wire) -> Self {
        let annotations = wire.metadata.annotations.take().unwrap_or_default();
        let data = wire.data.unwrap_or_default();
        Self {
            meta: wire.metadata.into(),
            account_name: annotations.account_name,
            account_uid: annotations.account_uid,
            ca_base64: data.ca,
            has_namespace: data.namespace.0,
            has_token: data.token.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_detected_but_not_kept() {
        let secret: TokenSecret = serde_json::from_str(
            r#"{"metadata":{"name":"t","annotations":{"kubernetes.io/service-account.name":"builder","other":"x"}},
                "data":{"token":"c2VjcmV0","namespace":"","ca.crt":"Q0E="}}"#,
        )
        .unwrap();
        assert_eq!(secret.account_name, "builder");
        assert_eq!((secret.has_token, secret.has_namespace), (true, false));
        assert!(!format!("{secret:?}").contains("c2VjcmV0"));
        let empty: TokenSecret = serde_json::from_str(r#"{"metadata":{"name":"t"}}"#).unwrap();
        assert!(!empty.has_token && empty.account_name.is_empty() && empty.ca_base64.is_empty());
    }
}
