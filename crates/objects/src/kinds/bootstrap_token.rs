//! Bootstrap token Secrets: what signs cluster-info and when it expires.

use serde::Deserialize;

use crate::go_time::parse_rfc3339;
use crate::{ArcStr, Kind, Object, ObjectMeta, Projection, Resource, SecretBytes, WireMeta};

/// A Secret of type `bootstrap.kubernetes.io/token` in kube-system. Namespace and field selector exclude all others, and
/// the decoder keeps no other data.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Wire")]
pub struct BootstrapToken {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Data `expiration`.
    pub expiration: Expiration,
    /// Data `token-id`; empty if it is missing or no UTF-8.
    pub token_id: ArcStr,
    /// Data `token-secret`, the key that signs.
    pub token_secret: SecretBytes,
    /// Whether data `usage-bootstrap-signing` is `true`.
    pub is_for_signing: bool,
}

/// When a bootstrap token expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiration {
    /// It has no expiration.
    #[default]
    Never,
    /// At this time, in nanoseconds since 1970.
    At(i128),
    /// The expiration is no time, which counts as expired.
    Unparsable,
}

impl Expiration {
    /// Whether the token has expired at a time in nanoseconds since 1970.
    #[must_use]
    pub fn has_passed(self, now_nanoseconds: i128) -> bool {
        match self {
            Self::Never => false,
            Self::At(time) => time <= now_nanoseconds,
            Self::Unparsable => true,
        }
    }
}

impl Object for BootstrapToken {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Kind for BootstrapToken {
    const RESOURCE: Resource = Resource::built_in("", "Secret");
    const PROJECTION: Projection =
        Projection::selected("type=bootstrap.kubernetes.io/token").in_namespace("kube-system");
}

#[derive(Deserialize)]
struct Wire {
    metadata: WireMeta,
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Data {
    expiration: SecretBytes,
    token_id: SecretBytes,
    token_secret: SecretBytes,
    usage_bootstrap_signing: SecretBytes,
}

impl From<Wire> for BootstrapToken {
    fn from(wire: Wire) -> Self {
        let data = wire.data.unwrap_or_default();
        let text = |bytes: &SecretBytes| std::str::from_utf8(bytes.expose()).ok().map(str::to_owned);
        let expiration = match text(&data.expiration) {
            _ if data.expiration.is_empty() => Expiration::Never,
            Some(text) => parse_rfc3339(&text).map_or(Expiration::Unparsable, Expiration::At),
            None => Expiration::Unparsable,
        };
        Self {
            meta: wire.metadata.into(),
            expiration,
            token_id: text(&data.token_id).unwrap_or_default().into(),
            token_secret: data.token_secret,
            is_for_signing: data.usage_bootstrap_signing.expose() == b"true",
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde_json::json;

    use super::*;

    fn token(key: &str, value: &[u8]) -> BootstrapToken {
        let data = json!({key: BASE64_STANDARD.encode(value)});
        serde_json::from_value(json!({"metadata": {"name": "t"}, "data": data})).unwrap()
    }

    /// Proves BSS-17.
    #[test]
    fn only_the_exact_word_true_allows_signing() {
        assert!(token("usage-bootstrap-signing", b"true").is_for_signing);
        for other in [&b"True"[..], b"1", b"true\n", b" true", b"", b"\xff"] {
            assert!(!token("usage-bootstrap-signing", other).is_for_signing, "{other:?}");
        }
    }

    /// Proves TOK-11.
    #[test]
    fn missing_or_empty_expiration_is_never() {
        assert_eq!(token("expiration", b"").expiration, Expiration::Never);
        assert_eq!(token("other", b"x").expiration, Expiration::Never);
        let bare: BootstrapToken = serde_json::from_str(r#"{"metadata":{"name":"t"},"data":null}"#).unwrap();
        assert_eq!(bare.expiration, Expiration::Never);
        assert!(!Expiration::Never.has_passed(i128::MAX));
        assert_eq!(token("expiration", b"\xff").expiration, Expiration::Unparsable);
        assert_eq!(token("expiration", b"2026-11-15").expiration, Expiration::Unparsable);
        assert_eq!(token("expiration", b"1970-01-01T00:00:01Z").expiration, Expiration::At(1_000_000_000));
    }

    #[test]
    fn debug_output_does_not_contain_the_secret() {
        let printed = format!("{:?}", token("token-secret", b"hunter2"));
        assert!(!printed.contains("hunter2") && !printed.contains("aHVudGVyMg"), "{printed}");
    }
}
