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
    if change == ObservedChange::Created {
        // The creator wrote the object itself; statuses come later.
        let mut own =
            entries.iter().filter(|entry| entry["subresource"].as_str().unwrap_or_default().is_empty());
        let first = own.clone().min_by_key(|entry| entry["time"].as_str().unwrap_or_default());
        return match (own.any(is_leader), first) {
            (true, _) => Author::Leader,
            (false, Some(first)) => Author::Other(first["manager"].as_str().unwrap_or_default().to_owned()),
            (false, None) => Author::Unknown,
        };
    }
    let newest = entries.iter().filter_map(|entry| entry["time"].as_str()).max().unwrap_or_default();
    let mut latest = entries.iter().filter(|entry| entry["time"].as_str() == Some(newest));
    // Times have seconds: of several writers in one second it may have been the leader.
    if latest.clone().any(is_leader) {
        return Author::Leader;
    }
    if metadata["resourceVersion"].as_str() != Some(resource_version) {
        return Author::Unknown;
    }
    let other = latest.next().and_then(|entry| entry["manager"].as_str());
    other.map_or(Author::Unknown, |manager| Author::Other(manager.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn author_of(change: ObservedChange, version: &str, entries: Value) -> Author {
        let metadata = json!({"resourceVersion": "7", "managedFields": entries});
        author_in(&metadata, change, version, &["clusterrole-aggregation-controller"])
    }

    fn entry(manager: &str, second: u32, subresource: &str) -> Value {
        json!({"manager": manager, "time": format!("2026-01-01T00:00:{second:02}Z"), "subresource": subresource})
    }

    #[test]
    fn newest_entry_names_the_author_of_an_update() {
        let both = json!([entry("kube-controller-manager", 5, "status"), entry("kubectl-edit", 6, "")]);
        assert_eq!(
            author_of(ObservedChange::Updated, "7", both.clone()),
            Author::Other("kubectl-edit".into())
        );
        assert_eq!(author_of(ObservedChange::Updated, "6", both), Author::Unknown, "written again since");
        let ours = json!([entry("kubectl-edit", 5, ""), entry("kube-controller-manager", 6, "status")]);
        assert_eq!(author_of(ObservedChange::Updated, "6", ours), Author::Leader);
        let same_second = json!([entry("kubectl-edit", 5, ""), entry("kube-controller-manager", 5, "")]);
        assert_eq!(author_of(ObservedChange::Updated, "7", same_second), Author::Leader);
        let applied = json!([entry("clusterrole-aggregation-controller", 5, "")]);
        assert_eq!(author_of(ObservedChange::Updated, "7", applied), Author::Leader);
        assert_eq!(author_of(ObservedChange::Updated, "7", json!([])), Author::Unknown);
    }

    #[test]
    fn creator_is_known_although_others_have_written_since() {
        let pod = json!([entry("kubelet", 9, "status"), entry("kube-controller-manager", 5, "")]);
        assert_eq!(author_of(ObservedChange::Created, "1", pod), Author::Leader);
        let own = json!([entry("kubectl-create", 5, ""), entry("kube-controller-manager", 6, "status")]);
        assert_eq!(author_of(ObservedChange::Created, "1", own), Author::Other("kubectl-create".into()));
    }
}
