//! The status of a StorageVersion with other records: the version that all API servers agree on, and its condition.

use keleustes_objects::{
    ArcStr, Condition, FALSE, ServerStorageVersion, StorageVersion, StorageVersionStatus, TRUE, Time,
};

const ALL_ENCODING_VERSIONS_EQUAL: &str = "AllEncodingVersionsEqual";

/// The status with these records instead of its own, in which only the common version and its condition differ.
///
/// Parity: `SetCommonEncodingVersion` of staging/src/k8s.io/apiserver/pkg/storageversion/updater.go.
pub(super) fn with_records(
    version: &StorageVersion,
    records: Vec<ServerStorageVersion>,
    now: Time,
) -> StorageVersionStatus {
    let mut status = version.status.clone();
    let common = common_encoding_version(&records);
    let (text, reason, message) = match common {
        Some(_) => (TRUE, "CommonEncodingVersionSet", "Common encoding version set"),
        None => (FALSE, "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let new = Condition {
        observed_generation: Some(version.meta.generation).filter(|generation| *generation != 0),
        ..Condition::new(ALL_ENCODING_VERSIONS_EQUAL, text, reason, message, now)
    };
    let is_replaced = status.common_encoding_version.is_some()
        && common.is_some()
        && status.common_encoding_version != common;
    match status.conditions.iter_mut().find(|condition| condition.r#type == ALL_ENCODING_VERSIONS_EQUAL) {
        None => status.conditions.push(new),
        Some(condition) => {
            let is_kept = condition.status == new.status && !is_replaced;
            let since = if is_kept { condition.last_transition_time } else { new.last_transition_time };
            let unknown = std::mem::take(&mut condition.unknown);
            *condition = Condition { last_transition_time: since, unknown, ..new };
        }
    }
    (status.storage_versions, status.common_encoding_version) = (records, common);
    status
}

/// The version in which all API servers store the resource, if they agree.
fn common_encoding_version(records: &[ServerStorageVersion]) -> Option<ArcStr> {
    let (first, others) = records.split_first()?;
    let agrees = |other: &ServerStorageVersion| other.encoding_version == first.encoding_version;
    others.iter().all(agrees).then(|| first.encoding_version.clone())
}
