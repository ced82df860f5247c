//! Who changed an object, as its `managedFields` say: read live and on demand, because caches do not keep them.

use keleustes_client::Call;
use keleustes_objects::{Key, Resource};
use serde_json::Value;

use super::effect::ObservedChange;

/// The field manager of every manager: the program's name, from its user agent.
const MANAGER: &str = "kube-controller-manager";

/// Field managers that controllers of the manager use beside it, besides their own names.
const OTHER_MANAGERS: &[&str] =
    &["ResourceClaimController", "migration-runner-controller", "validatingadmissionpolicy-status"];

/// Who changed an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// A controller manager, and there is only one that writes.
    Leader,
    /// Another field manager.
    Other(String),
    /// A controller manager or this field manager: both wrote the object in the same second.
    Either(String),
    /// It cannot be known: the object is gone, or has been written again since.
    Unknown,
}

/// Reads who made a change. Deletions leave no trace.
pub(super) async fn author(
    client: &kube::Client,
    resource: &Resource,
    key: &Key,
    (change, resource_version): (ObservedChange, &str),
    controllers: &[&'static str],
) -> Author {
    if change == ObservedChange::Deleted {
        return Author::Unknown;
    }
    // The manager may list everything, but get few resources.
    let call = Call::list(resource, &key.namespace)
        .query("fieldSelector", format!("metadata.name={}", key.name))
        .metadata_list_only();
    let Ok(listed) = call.send(client).await else { return Author::Unknown };
    let items = listed["items"].as_array().into_iter().flatten();
    let found = items.clone().find(|item| item["metadata"]["name"] == key.name.as_str());
    found
        .map_or(Author::Unknown, |found| author_in(&found["metadata"], change, resource_version, controllers))
}

/// Who made a change to an object with this metadata.
fn author_in(
    metadata: &Value,
    change: ObservedChange,
    resource_version: &str,
    controllers: &[&'static str],
) -> Author {
    let is_leader = |entry: &Value| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        manager == MANAGER || OTHER_MANAGERS.contains(&manager) || controllers.contains(&manager)
    };
    let entries = metadata["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let time = |entry: &Value| entry["time"].as_str().unwrap_or_default().to_owned();
    let candidates: Vec<&Value> = if change == ObservedChange::Created {
        // The creator wrote the object itself; statuses come later. An entry has the time of the manager's latest write.
        let created_at = metadata["creationTimestamp"].as_str().unwrap_or_default();
        let own: Vec<_> = entries
            .iter()
            .filter(|entry| entry["subresource"].as_str().unwrap_or_default().is_empty())
            .collect();
        let first: Vec<_> = own.iter().copied().filter(|entry| time(entry) == created_at).collect();
        let first = if first.is_empty() { own } else { first };
        // Who only wrote metadata, such as an owner reference, adopted the object.
        let creators: Vec<_> = first.iter().copied().filter(|entry| !owns_only_metadata(entry)).collect();
        if creators.is_empty() { first } else { creators }
    } else if metadata["resourceVersion"].as_str() == Some(resource_version) {
        let newest = entries.iter().map(time).max();
        entries.iter().filter(|entry| Some(time(entry)) == newest).collect()
    } else {
        return Author::Unknown;
    };
    let other = candidates.iter().find(|entry| !is_leader(entry));
    let other = other.map(|entry| entry["manager"].as_str().unwrap_or_default().to_owned());
    match (candidates.iter().any(|entry| is_leader(entry)), other) {
        (true, Some(other)) => Author::Either(other),
        (true, None) => Author::Leader,
        (false, Some(other)) => Author::Other(other),
        (false, None) => Author::Unknown,
    }
}

fn owns_only_metadata(entry: &Value) -> bool {
    let fields = entry["fieldsV1"].as_object();
    fields.is_some_and(|fields| fields.keys().all(|field| field == "f:metadata"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn author_of(change: ObservedChange, version: &str, entries: &Value) -> Author {
        let metadata = json!({"resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:05Z",
            "managedFields": entries});
        author_in(&metadata, change, version, &["clusterrole-aggregation-controller"])
    }

    fn entry(manager: &str, second: u32, subresource: &str) -> Value {
        json!({"manager": manager, "time": format!("2026-01-01T00:00:{second:02}Z"), "subresource": subresource})
    }

    #[test]
    fn newest_entry_names_the_author_of_an_update() {
        let both = json!([entry("kube-controller-manager", 5, "status"), entry("kubectl-edit", 6, "")]);
        assert_eq!(author_of(ObservedChange::Updated, "7", &both), Author::Other("kubectl-edit".into()));
        assert_eq!(author_of(ObservedChange::Updated, "6", &both), Author::Unknown, "written again since");
        let ours = json!([entry("kubectl-edit", 5, ""), entry("kube-controller-manager", 6, "status")]);
        assert_eq!(author_of(ObservedChange::Updated, "7", &ours), Author::Leader);
        let same_second = json!([entry("kubectl-edit", 5, ""), entry("kube-controller-manager", 5, "")]);
        let either = Author::Either("kubectl-edit".into());
        assert_eq!(author_of(ObservedChange::Updated, "7", &same_second), either);
        let applied = json!([entry("clusterrole-aggregation-controller", 5, "")]);
        assert_eq!(author_of(ObservedChange::Updated, "7", &applied), Author::Leader);
        assert_eq!(author_of(ObservedChange::Updated, "7", &json!([])), Author::Unknown);
    }

    #[test]
    fn creator_is_known_although_others_have_written_since() {
        let pod = json!([entry("kubelet", 9, "status"), entry("kube-controller-manager", 5, "")]);
        assert_eq!(author_of(ObservedChange::Created, "1", &pod), Author::Leader);
        let own = json!([entry("kubectl-create", 5, ""), entry("kube-controller-manager", 6, "status")]);
        assert_eq!(author_of(ObservedChange::Created, "1", &own), Author::Other("kubectl-create".into()));
    }

    #[test]
    fn leader_that_changes_a_new_object_of_a_user_did_not_create_it() {
        let user = || entry("kubectl-create", 5, "");
        let bound = json!([user(), entry("kube-controller-manager", 6, "")]);
        assert_eq!(author_of(ObservedChange::Created, "1", &bound), Author::Other("kubectl-create".into()));
        let at_once = json!([user(), entry("kube-controller-manager", 5, "")]);
        let either = Author::Either("kubectl-create".into());
        assert_eq!(author_of(ObservedChange::Created, "1", &at_once), either);
        let mut adopted = at_once;
        adopted[0]["fieldsV1"] = json!({"f:metadata": {"f:labels": {}}, "f:spec": {"f:containers": {}}});
        adopted[1]["fieldsV1"] = json!({"f:metadata": {"f:ownerReferences": {}}});
        assert_eq!(author_of(ObservedChange::Created, "1", &adopted), Author::Other("kubectl-create".into()));
        let rewritten = json!([entry("kubectl-create", 8, ""), entry("kube-controller-manager", 9, "")]);
        assert_eq!(author_of(ObservedChange::Created, "1", &rewritten), either);
    }
}
