//! The list of running Jobs in the status of a CronJob.

use keleustes_objects::{
    ArcStr, CronJobStatus, InternedStr, Job, Key, Kind as _, ObjectReference, ResourceVersion, Time, Uid,
};

/// Whether a Job with this UID is listed.
pub(super) fn lists(status: &CronJobStatus, uid: &Uid) -> bool {
    status.active.iter().any(|entry| entry.uid == *uid)
}

/// Whether a Job of this name is listed.
pub(super) fn lists_name(status: &CronJobStatus, namespace: &InternedStr, name: &str) -> bool {
    status.active.iter().any(|entry| entry.namespace == *namespace && *entry.name == *name)
}

/// Removes the Job with this UID.
pub(super) fn remove(status: &mut CronJobStatus, uid: &Uid) {
    status.active.retain(|entry| entry.uid != *uid);
}

/// Lists the Job that runs for a scheduled time.
pub(super) fn add(status: &mut CronJobStatus, job: &Key, uid: Uid, version: ResourceVersion, time: Time) {
    status.active.push(ObjectReference {
        kind: InternedStr::from(&*Job::RESOURCE.kind),
        namespace: job.namespace.clone(),
        name: ArcStr::from(&*job.name),
        uid,
        api_version: InternedStr::from(&*Job::RESOURCE.api_version()),
        resource_version: version,
        ..ObjectReference::default()
    });
    status.last_schedule_time = Some(time);
}

/// Takes over the completionTime of a complete Job. Returns whether the status is to be written, which the original
/// also does if it finds no time.
pub(super) fn note_success(status: &mut CronJobStatus, job: &Job) -> bool {
    let (known, completed) = (status.last_successful_time, job.status.completion_time);
    if known.is_none() || completed > known {
        status.last_successful_time = completed;
        return true;
    }
    false
}
