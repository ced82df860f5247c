//! How lists inside objects merge: which are sets, which are keyed, and that all others are replaced whole.

use serde_json::{Value, json};

/// How a list merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    /// Replaced as a whole.
    Atomic,
    /// Scalars, each of which stands for itself.
    Set,
    /// Objects told apart by these fields; the first alone is the key of strategic merge patches.
    Keyed(&'static [&'static str]),
}

/// Lists that are not atomic, by the path of field names (from the right) that leads to them.
const LISTS: &[(&[&str], ListKind)] = &[
    (&["metadata", "finalizers"], ListKind::Set),
    (&["metadata", "ownerReferences"], ListKind::Keyed(&["uid"])),
    (&["spec", "finalizers"], ListKind::Atomic),
    (&["status", "conditions"], ListKind::Keyed(&["type"])),
    (&["status", "addresses"], ListKind::Keyed(&["type"])),
    (&["status", "podIPs"], ListKind::Keyed(&["ip"])),
    (&["status", "hostIPs"], ListKind::Keyed(&["ip"])),
    (&["secrets"], ListKind::Keyed(&["name"])),
    (&["imagePullSecrets"], ListKind::Keyed(&["name"])),
    (&["spec", "containers"], ListKind::Keyed(&["name"])),
    (&["spec", "initContainers"], ListKind::Keyed(&["name"])),
    (&["spec", "ephemeralContainers"], ListKind::Keyed(&["name"])),
    (&["spec", "volumes"], ListKind::Keyed(&["name"])),
    (&["spec", "hostAliases"], ListKind::Keyed(&["ip"])),
    (&["spec", "schedulingGates"], ListKind::Keyed(&["name"])),
    (&["spec", "topologySpreadConstraints"], ListKind::Keyed(&["topologyKey", "whenUnsatisfiable"])),
    (&["env"], ListKind::Keyed(&["name"])),
    (&["ports"], ListKind::Keyed(&["containerPort", "protocol"])),
    (&["volumeMounts"], ListKind::Keyed(&["mountPath"])),
    (&["volumeDevices"], ListKind::Keyed(&["devicePath"])),
];

/// How the list at this path of field names merges.
pub(crate) fn list_kind(path: &[&str]) -> ListKind {
    LISTS.iter().find(|(suffix, _)| path.ends_with(suffix)).map_or(ListKind::Atomic, |(_, kind)| *kind)
}

/// The key of `item` in a keyed list, as a JSON object; `None` if the item has no part of it.
pub(crate) fn item_key(fields: &[&str], item: &Value) -> Option<Value> {
    let mut key = serde_json::Map::new();
    for field in fields {
        match item.get(field) {
            Some(value) if !value.is_object() && !value.is_array() => {
                key.insert((*field).to_owned(), value.clone());
            }
            // The protocol of a port is the one key field with a default.
            None if *field == "protocol" => {
                key.insert("protocol".to_owned(), json!("TCP"));
            }
            _ => return None,
        }
    }
    Some(Value::Object(key))
}
