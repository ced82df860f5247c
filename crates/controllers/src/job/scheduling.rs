//! Creates the Workload and the PodGroup of a Job before its pods, finds them again, and follows the size of a gang.
//!
//! Parity: pkg/controller/job/job_scheduling_manager.go and component-helpers' workloadbuilder.

mod compile;
mod names;

#[cfg(test)]
pub(super) use names::pod_group as pod_group_name;

use std::sync::Arc;

use keleustes_objects::{
    ArcStr, InternedStr, Job, Key, ObjectMeta, PodGroup, Workload, WorkloadControllerRef,
};
use keleustes_plan::{
    Context, Index, InvolvedObject, Outcome, PatchKind, Plan, PlannedEvent, ReconcileError, Write,
};
use serde_json::{Value, json};

use super::view::JobView;
use crate::workloads::owners::{controller_ref, is_controlled_by};

/// The annotation of a Job whose controller has the Workload and leaves the PodGroup to this controller: the name of
/// the template in that Workload.
const GROUP_TEMPLATE_NAME: &str = "scheduling.k8s.io/group-template-name";
const API_VERSION: &str = "scheduling.k8s.io/v1beta1";

/// Workloads by the Job that they name.
pub(super) const WORKLOADS_BY_JOB: Index<Workload> = Index {
    name: "workloadByJobName",
    values: |workload, emit| {
        let named = workload.controller_ref.iter();
        let jobs = named.filter(|named| named.api_group == "batch" && named.kind == "Job");
        jobs.for_each(|named| emit(value(&workload.meta, &named.name)));
    },
};

/// PodGroups by their Workload.
pub(super) const POD_GROUPS_BY_WORKLOAD: Index<PodGroup> = Index {
    name: "podGroupByWorkloadName",
    values: |group, emit| {
        if !group.workload_name.is_empty() {
            emit(value(&group.meta, &group.workload_name));
        }
    },
};

/// The index value of an object by the name of another one in its namespace.
fn value(meta: &ObjectMeta, name: &str) -> InternedStr {
    InternedStr::from(&*format!("{}/{name}", meta.key.namespace))
}

/// The PodGroup of the Job's new pods. It is created, with its Workload if the Job has no controller, for a Job that never
/// started; other Jobs only find theirs.
///
/// # Errors
/// If a write fails. No pod is created then.
pub(super) async fn pod_group(
    cx: &mut Context<'_>,
    inputs: &JobView,
) -> Result<Option<ArcStr>, ReconcileError> {
    let job = &*inputs.job;
    if compile::names_own_group(job) {
        return Ok(None);
    }
    let group = if job.meta.controller_ref().is_none() {
        group_of_root(cx, inputs).await?
    } else {
        match job.extra_meta.annotations.value(GROUP_TEMPLATE_NAME) {
            Some(template) => delegated_group(cx, inputs, template).await?,
            None => None,
        }
    };
    Ok(group.map(|group| group.meta.key.name.clone()))
}

/// Whether the Job never started. One that has run before the gate was enabled stays as it is.
fn is_new(inputs: &JobView) -> bool {
    let status = &inputs.job.status;
    inputs.members.is_empty()
        && status.start_time.is_none()
        && (status.succeeded, status.failed) == (0, 0)
        && !status.conditions.iter().any(|condition| condition.r#type == "Suspended")
}

/// What the caches hold under an index value and the Job controls.
fn found<T: keleustes_objects::Kind>(cx: &Context<'_>, job: &Job, index: &Index<T>, by: &str) -> Vec<Arc<T>> {
    cx.gather(|view| {
        let all = view.store::<T>().by_index(index, by);
        all.filter(|object| is_controlled_by(object.meta(), job)).cloned().collect()
    })
}

/// The PodGroup of a Job without controller.
async fn group_of_root(
    cx: &mut Context<'_>,
    inputs: &JobView,
) -> Result<Option<Arc<PodGroup>>, ReconcileError> {
    let job = &*inputs.job;
    let workloads = found(cx, job, &WORKLOADS_BY_JOB, &value(&job.meta, &job.meta.key.name));
    let workload = match &workloads[..] {
        [] if is_new(inputs) => create_workload(cx, job).await?,
        [one] => one.clone(),
        // Of several ones none is chosen: the pods are scheduled one by one.
        _ => return Ok(None),
    };
    let [template] = &workload.pod_group_templates[..] else {
        return Err(ReconcileError::because(format!(
            "workload {} for job {} has {} PodGroupTemplates, want exactly 1",
            workload.meta.key,
            job.meta.key,
            workload.pod_group_templates.len()
        )));
    };
    let groups = found(cx, job, &POD_GROUPS_BY_WORKLOAD, &value(&job.meta, &workload.meta.key.name));
    let group = match &groups[..] {
        [] if is_new(inputs) => Some(create_group(cx, job, &workload, template, true).await?),
        [one] => Some(one.clone()),
        _ => None,
    };
    if let Some(size) = compile::gang_size(&compile::template(job)) {
        resize_workload(cx, &workload, template, size).await?;
        resize_group(cx, group.as_deref(), size).await?;
    }
    Ok(group)
}

/// The PodGroup of a Job whose controller has the Workload.
async fn delegated_group(
    cx: &mut Context<'_>,
    inputs: &JobView,
    template: &str,
) -> Result<Option<Arc<PodGroup>>, ReconcileError> {
    let job = &*inputs.job;
    let Some(workload) = cx.gather(|view| {
        let parent = parent(job)?;
        let all = view.in_namespace::<Workload>(&job.meta.key.namespace);
        all.into_iter().find(|workload| workload.controller_ref.as_ref() == Some(&parent)).cloned()
    }) else {
        return Ok(None);
    };
    let Some(template) = compile::template_named(&workload, template) else { return Ok(None) };
    let groups = found(cx, job, &POD_GROUPS_BY_WORKLOAD, &value(&job.meta, &workload.meta.key.name));
    let group = match groups.into_iter().next() {
        None if is_new(inputs) => Some(create_group(cx, job, &workload, template, false).await?),
        group => group,
    };
    if let Some(size) = compile::gang_size(template) {
        resize_group(cx, group.as_deref(), size).await?;
    }
    Ok(group)
}

/// The Job's controller as a Workload names it.
fn parent(job: &Job) -> Option<WorkloadControllerRef> {
    let owner = job.meta.controller_ref()?;
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let is_valid = !version.contains('/');
    is_valid.then(|| WorkloadControllerRef {
        api_group: group.into(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
    })
}

async fn create_workload(cx: &mut Context<'_>, job: &Job) -> Result<Arc<Workload>, ReconcileError> {
    let meta = &job.meta;
    let body = json!({
        "metadata": {"name": names::workload(job), "ownerReferences": [controller_ref::<Job>(meta)]},
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": meta.key.name},
            "podGroupTemplates": [compile::template(job)],
        },
    });
    let key = Key { namespace: meta.key.namespace.clone(), name: names::workload(job).into() };
    let (involved, owner) = (InvolvedObject::of(job), meta.key.name.clone());
    let write = Write::create::<Workload>(key, body)
        .returning_object()
        .because("the Job has no Workload")
        .record_on_outcome(move |outcome| match outcome {
            Outcome::Done { name, .. } => {
                let message = format!("Created Workload {name} for Job {owner}");
                Some(PlannedEvent::normal(involved.clone(), "WorkloadCreated", message))
            }
            Outcome::Failed(error) => {
                let message = format!("Failed to create Workload for Job {owner}: {}", error.message);
                Some(PlannedEvent::warning(involved.clone(), "FailedWorkloadCreate", message))
            }
            _ => None,
        });
    created(cx, write).await
}

/// Creates the PodGroup of a template. If the Workload is the Job's, it is an owner as well.
async fn create_group(
    cx: &mut Context<'_>,
    job: &Job,
    workload: &Workload,
    template: &Value,
    is_own_workload: bool,
) -> Result<Arc<PodGroup>, ReconcileError> {
    let meta = &job.meta;
    let mut owners = vec![controller_ref::<Job>(meta)];
    if is_own_workload {
        owners.push(json!({"apiVersion": API_VERSION, "kind": "Workload",
            "name": workload.meta.key.name, "uid": workload.meta.uid}));
    }
    let name = names::pod_group(&workload.meta.key.name, template["name"].as_str().unwrap_or_default());
    let body = json!({
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": compile::group_spec(&workload.meta.key.name, template),
    });
    let key = Key { namespace: meta.key.namespace.clone(), name: name.into() };
    let (involved, owner) = (InvolvedObject::of(job), meta.key.name.clone());
    let write = Write::create::<PodGroup>(key, body)
        .returning_object()
        .because("the Job has no PodGroup")
        .record_on_outcome(move |outcome| {
            let Outcome::Done { name, .. } = outcome else { return None };
            let message = format!("Created PodGroup {name} for Job {owner}");
            Some(PlannedEvent::normal(involved.clone(), "PodGroupCreated", message))
        });
    created(cx, write).await
}

/// Sends a creation and returns the stored object.
async fn created<T: keleustes_objects::Kind>(
    cx: &mut Context<'_>,
    write: Write,
) -> Result<Arc<T>, ReconcileError> {
    let applied = cx.apply(Plan::of(write)).await;
    let stored = applied.outcomes.first().and_then(Outcome::stored::<T>);
    applied.all_done()?;
    let stored = stored.ok_or_else(|| {
        ReconcileError::because(format!("the response to the creation has no {}", T::RESOURCE.kind))
    });
    stored.map(Arc::new)
}

async fn resize_workload(
    cx: &mut Context<'_>,
    workload: &Workload,
    template: &Value,
    size: i64,
) -> Result<(), ReconcileError> {
    if compile::gang_size(template).is_none_or(|current| current == size) {
        return Ok(());
    }
    // The list has no merge key: a patch replaces it.
    let mut template = template.clone();
    template["schedulingPolicy"]["gang"]["minCount"] = json!(size);
    let body = json!({"metadata": {"uid": workload.meta.uid}, "spec": {"podGroupTemplates": [template]}});
    let write = Write::patch(workload, PatchKind::Strategic, body).because("the size of the gang changed");
    cx.apply(Plan::of(write)).await.all_done()
}

async fn resize_group(
    cx: &mut Context<'_>,
    group: Option<&PodGroup>,
    size: i64,
) -> Result<(), ReconcileError> {
    let outdated = |group: &&PodGroup| group.gang_min_count.is_some_and(|current| i64::from(current) != size);
    let Some(group) = group.filter(outdated) else { return Ok(()) };
    let policy = json!({"schedulingPolicy": {"gang": {"minCount": size}}});
    let body = json!({"metadata": {"uid": group.meta.uid}, "spec": policy});
    let write = Write::patch(group, PatchKind::Strategic, body).because("the size of the gang changed");
    cx.apply(Plan::of(write)).await.all_done()
}
