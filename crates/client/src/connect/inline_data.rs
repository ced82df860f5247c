//! Base64 in a kubeconfig may be broken into lines, as `base64` writes it: Go's decoder skips line ends, kube's refuses
//! them.

use keleustes_objects::SecretBytes;
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::Value;

/// Joins the lines of all certificates and keys.
pub(super) fn join_lines(kubeconfig: &mut Kubeconfig) {
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        cluster.certificate_authority_data.iter_mut().for_each(join);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        user.client_certificate_data.iter_mut().for_each(join);
        join_key(user);
    }
}

fn join(base64: &mut String) {
    base64.retain(|character| !is_line_end(character));
}

fn is_line_end(character: char) -> bool {
    matches!(character, '\r' | '\n')
}

fn join_key(user: &mut AuthInfo) {
    // Only its serialization shows the text of the key.
    let only_key = AuthInfo { client_key_data: user.client_key_data.clone(), ..AuthInfo::default() };
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&only_key) else { return };
    let Some(Value::String(mut key)) = fields.remove("client-key-data") else { return };
    if key.contains(is_line_end) {
        join(&mut key);
        user.client_key_data = Some(key.into());
    } else {
        // This copy is wiped.
        drop(SecretBytes::from(key.into_bytes()));
    }
}
