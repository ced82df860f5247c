//! Users who may do less than the administrator, who impersonates them: what is refused to them is compared, too.

use serde_json::{Value, json};

/// Their names. The first has no permission; the last three may also do for a signer what they are named after.
pub const NAMES: [&str; 6] =
    ["judge:stranger", "judge:reader", "judge:writer", "judge:approver", "judge:signer", "judge:attester"];

/// A ClusterRole and a ClusterRoleBinding for each user with permissions.
#[must_use]
pub fn roles_and_bindings() -> Vec<(Value, Value)> {
    NAMES.into_iter().filter_map(|name| Some((role(name)?, binding(name)))).collect()
}

fn role(name: &str) -> Option<Value> {
    let kinds =
        |verbs: &[&str]| json!({"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": verbs});
    let signers = |verb: &str, signer: &str| json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [signer], "verbs": [verb]});
    const READ: &[&str] = &["get", "list", "watch"];
    const WRITE: &[&str] =
        &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let rules = match name {
        "judge:reader" => vec![kinds(READ)],
        "judge:writer" => vec![kinds(WRITE)],
        "judge:approver" => vec![kinds(WRITE), signers("approve", "example.com/own")],
        "judge:signer" => vec![kinds(WRITE), signers("sign", "example.com/*")],
        "judge:attester" => vec![kinds(WRITE), signers("attest", "example.com/own")],
        _ => return None,
    };
    Some(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    }))
}

fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    })
}
