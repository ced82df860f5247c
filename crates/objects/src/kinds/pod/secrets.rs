//! The parts of a pod spec that refer to Secrets.

use serde::Deserialize;

use crate::InternedStr;
use crate::meta::null_is_empty;

/// A reference to a Secret in the pod's namespace.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SecretReference {
    pub(super) name: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EnvVar {
    value_from: Option<EnvVarSource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EnvVarSource {
    secret_key_ref: Option<SecretReference>,
}

impl EnvVar {
    pub(super) fn secret(&self) -> Option<&InternedStr> {
        self.value_from.as_ref()?.secret_key_ref.as_ref().map(|reference| &reference.name)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EnvFromSource {
    secret_ref: Option<SecretReference>,
}

impl EnvFromSource {
    pub(super) fn secret(&self) -> Option<&InternedStr> {
        self.secret_ref.as_ref().map(|reference| &reference.name)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SecretVolume {
    pub(super) secret_name: InternedStr,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ProjectedVolume {
    #[serde(deserialize_with = "null_is_empty")]
    pub(super) sources: Box<[ProjectedSource]>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ProjectedSource {
    pub(super) secret: Option<SecretReference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeWithSecret {
    pub(super) secret_ref: Option<SecretReference>,
}
