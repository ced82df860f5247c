//! Reconciles one CronJob: deletes old Jobs, updates the list of running ones, creates the Job that is due, and writes
//! the status once.

use std::sync::Arc;
use std::time::Duration;

use keleustes_objects::{ApiError, CronJob, ErrorReason, Job, Key, Kind as _, PartialObjectMeta, Time};
use keleustes_plan::{
    Context, Now, ObjectOr, OnFailure, Outcome, Plan, PlannedEvent, PropagationPolicy, ReconcileError,
    Reconciler, Requeue, Target, Write, WriteDraft,
};

use super::decide::{self, Verdict};
use super::enqueue::Unparseable;
use super::schedule::Schedule;
use super::time_zones::TimeZones;
use super::{CREATION_SKEW, active, due, events, history, job};
use crate::workloads::owners::{controlled_by, is_controlled_by};

pub(super) struct CronJobReconciler {
    pub(super) zones: TimeZones,
}

impl Reconciler<ObjectOr<Unparseable>> for CronJobReconciler {
    async fn reconcile(
        &self,
        cx: &mut Context<'_>,
        item: &ObjectOr<Unparseable>,
    ) -> Result<Requeue, ReconcileError> {
        let (key, unparseable) = match item {
            ObjectOr::Object(key) => (key, None),
            ObjectOr::Other(Unparseable { key, schedule }) => (key, Some(schedule)),
        };
        let gathered = cx.gather(|view| {
            let cron_job = view.get::<CronJob>(key)?;
            let jobs = controlled_by(view.store::<Job>(), &**cron_job).cloned().collect();
            Some(Sync {
                cached: (**cron_job).clone(),
                live: None,
                write_status: false,
                jobs,
                now: view.now(),
            })
        });
        let Some(mut sync) = gathered else { return Ok(Requeue::Forget) };
        if let Some(schedule) = unparseable {
            record(cx, [events::unparseable(&sync.cached, schedule)]);
            return Ok(Requeue::Forget);
        }
        trim_history(cx, &mut sync).await;
        let result = self.sync(cx, &mut sync).await;
        if sync.write_status {
            let write = Write::put_status(&sync.cached, &sync.cached.status)
                .because("its Jobs or its schedule times have changed");
            cx.apply(Plan::of(write)).await.all_done()?;
        }
        result
    }
}

/// A reconcile under way.
struct Sync {
    /// The cached CronJob with its new status, which is written.
    cached: CronJob,
    /// The CronJob from a live read that knows a Job which the cached one does not list. Later changes go to this
    /// copy, and the write of the cached one, which must be outdated, is refused with a conflict.
    live: Option<CronJob>,
    /// Whether the status is to be written.
    write_status: bool,
    jobs: Vec<Arc<Job>>,
    now: Now,
}

impl Sync {
    fn cron_job(&self) -> &CronJob {
        self.live.as_ref().unwrap_or(&self.cached)
    }

    fn cron_job_mut(&mut self) -> &mut CronJob {
        self.live.as_mut().unwrap_or(&mut self.cached)
    }
}

impl CronJobReconciler {
    async fn sync(&self, cx: &mut Context<'_>, sync: &mut Sync) -> Result<Requeue, ReconcileError> {
        update_active(cx, sync).await?;
        remove_missing(cx, sync).await?;
        let mut recorded = Vec::new();
        let verdict = decide::decide(sync.cron_job(), sync.now, &self.zones, &mut recorded);
        record(cx, recorded);
        match verdict {
            Verdict::Idle => Ok(Requeue::Forget),
            Verdict::Wait(delay) => Ok(requeue_for_schedule(delay)),
            Verdict::Run(time, schedule) => self.run(cx, sync, time, &schedule).await,
        }
    }

    /// Creates the Job of a scheduled time and lists it.
    async fn run(
        &self,
        cx: &mut Context<'_>,
        sync: &mut Sync,
        time: Time,
        schedule: &Schedule,
    ) -> Result<Requeue, ReconcileError> {
        if sync.cron_job().spec.concurrency_policy == "Replace" {
            delete_active(cx, sync).await?;
        }
        let cron_job = sync.cron_job();
        let body = job::body(cron_job, time, &self.zones).map_err(ReconcileError::because)?;
        let name = job::name(cron_job, time);
        let key = Key::namespaced(&*cron_job.meta.key.namespace, &*name);
        let write = Write::create::<Job>(key.clone(), body)
            .on_failure(OnFailure::ReturnOutcome)
            .record_on_outcome(events::created(cron_job, name))
            .because("a scheduled time is due");
        let mut applied = cx.apply(Plan::of(write)).await;
        let outcome = applied.outcomes.pop();
        applied.all_done()?;
        match outcome {
            Some(Outcome::Done { resource_version, uid, creation_timestamp, .. }) => {
                let created = creation_timestamp.unwrap_or(sync.now.wall);
                cx.measure(CREATION_SKEW.measurement(&[], skew(created, time)));
                active::add(&mut sync.cron_job_mut().status, &key, uid, resource_version, time);
            }
            Some(Outcome::Failed(error)) if error.reason == ErrorReason::AlreadyExists => {
                let existing = get_job(cx, &key).await.map_err(|error| failed(&error))?;
                let (cron_job, meta) = (sync.cron_job(), existing.meta);
                if !is_controlled_by(&meta, cron_job) || active::lists(&cron_job.status, &meta.uid) {
                    return Ok(Requeue::Forget);
                }
                let status = &mut sync.cron_job_mut().status;
                active::add(status, &key, meta.uid, meta.resource_version, time);
            }
            Some(Outcome::Failed(error)) => return Err(failed(&error)),
            _ => return Ok(Requeue::Forget),
        }
        sync.write_status = true;
        Ok(requeue_for_schedule(due::delay(sync.cron_job(), sync.now, schedule)))
    }
}

fn requeue_for_schedule(delay: Option<Duration>) -> Requeue {
    delay.map_or(Requeue::Forget, |delay| Requeue::after(delay, "the next time of its schedule"))
}

/// Deletes finished Jobs beyond the history limits. A failure is only reported by an event: it must not keep the
/// CronJob from running.
async fn trim_history(cx: &mut Context<'_>, sync: &mut Sync) {
    let surplus = history::surplus(&sync.cached.spec, &sync.jobs);
    let mut plan = Plan::none();
    for job in &surplus {
        plan.push(delete(&sync.cached, Target::of(&**job)).because("it is beyond the history limit"));
    }
    if plan.is_none() {
        return;
    }
    let applied = cx.apply(plan).await;
    for (job, outcome) in surplus.iter().zip(applied.outcomes) {
        if matches!(outcome, Outcome::Done { .. }) {
            active::remove(&mut sync.cached.status, &job.meta.uid);
            sync.write_status = true;
        }
    }
}

/// Removes finished Jobs from the list, takes over their completion time, and reports unfinished Jobs that are not
/// listed.
async fn update_active(cx: &mut Context<'_>, sync: &mut Sync) -> Result<(), ReconcileError> {
    for job in sync.jobs.clone() {
        let (uid, is_finished) = (&job.meta.uid, job.finished_condition().is_some());
        let is_listed = active::lists(&sync.cron_job().status, uid);
        if !is_listed && !is_finished {
            let key = sync.cached.meta.key.clone();
            let live = cx.fetch::<CronJob>(&key).await?;
            let live = live.ok_or_else(|| ReconcileError::because(not_found::<CronJob>(&key).message))?;
            if active::lists(&live.status, uid) {
                sync.live = Some(live);
            } else {
                record(cx, [events::unexpected(sync.cron_job(), &job)]);
            }
            continue;
        }
        if !is_finished {
            continue;
        }
        if is_listed {
            record(cx, [events::completed(sync.cron_job(), &job)]);
            active::remove(&mut sync.cron_job_mut().status, uid);
            sync.write_status = true;
        }
        let is_complete = |job: &Job| {
            job.status.conditions.iter().any(|found| found.r#type == "Complete" && found.is_true())
        };
        if is_complete(&job) && active::note_success(&mut sync.cron_job_mut().status, &job) {
            sync.write_status = true;
        }
    }
    Ok(())
}

/// Removes Jobs that no longer exist from the list. The cache may be behind, so they are read live.
async fn remove_missing(cx: &mut Context<'_>, sync: &mut Sync) -> Result<(), ReconcileError> {
    for entry in sync.cron_job().status.active.clone() {
        if sync.jobs.iter().any(|job| job.meta.uid == entry.uid) {
            continue;
        }
        let key = Key { namespace: entry.namespace.clone(), name: entry.name.clone() };
        match get_job(cx, &key).await {
            Ok(_) => {}
            Err(error) if error.reason == ErrorReason::NotFound => {
                record(cx, [events::missing(sync.cron_job(), &entry.name)]);
                active::remove(&mut sync.cron_job_mut().status, &entry.uid);
                sync.write_status = true;
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(())
}

/// Deletes all listed Jobs, for the concurrency policy `Replace`.
async fn delete_active(cx: &mut Context<'_>, sync: &mut Sync) -> Result<(), ReconcileError> {
    for entry in sync.cron_job().status.active.clone() {
        let key = Key { namespace: entry.namespace.clone(), name: entry.name.clone() };
        let live = match get_job(cx, &key).await {
            Ok(live) => live.meta,
            Err(error) => {
                record(cx, [events::failed_get(sync.cron_job(), &error.to_string())]);
                return Err(failed(&error));
            }
        };
        let target = Target::of_resource(&Job::RESOURCE, &live);
        let write = delete(sync.cron_job(), target).because("a new Job replaces it");
        let applied = cx.apply(Plan::of(write)).await;
        if !matches!(applied.outcomes[..], [Outcome::Done { .. }]) {
            return Err(ReconcileError::because(format!("could not replace job {key}")));
        }
        active::remove(&mut sync.cron_job_mut().status, &live.uid);
        sync.write_status = true;
    }
    Ok(())
}

fn delete(cron_job: &CronJob, target: Target) -> WriteDraft {
    let name = target.key.name.to_string();
    Write::delete_target(target)
        .propagation_policy(PropagationPolicy::Background)
        .on_failure(OnFailure::ReturnOutcome)
        .record_on_outcome(events::deleted(cron_job, name))
}

/// Reads the metadata of a Job live. A Job that is not found is an error, as in a client's GET.
async fn get_job(cx: &mut Context<'_>, key: &Key) -> Result<PartialObjectMeta, ApiError> {
    let found = cx.fetch_metadata(&Job::RESOURCE, key).await?;
    found.ok_or_else(|| not_found::<Job>(key))
}

fn not_found<T: keleustes_objects::Kind>(key: &Key) -> ApiError {
    let message = format!("{} {} not found", T::RESOURCE, super::schedule::quote(&key.name));
    ApiError { code: 404, ..ApiError::transport(ErrorReason::NotFound, message) }
}

fn failed(error: &ApiError) -> ReconcileError {
    ReconcileError::from_api_error(error, error.to_string())
}

fn record(cx: &mut Context<'_>, events: impl IntoIterator<Item = PlannedEvent>) {
    events.into_iter().for_each(|event| cx.record(event));
}

#[allow(clippy::cast_precision_loss)] // The skew in seconds is far below 2^52.
fn skew(created: Time, scheduled: Time) -> f64 {
    created.seconds_since(scheduled) as f64
}
