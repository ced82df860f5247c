//! The sync of one quota: computes its usage and publishes it with its limits.

use keleustes_objects::quota::PodUsageOptions;
use keleustes_objects::{Key, ResourceQuota, ResourceQuotaStatus};
use keleustes_plan::{
    Context, Memory, Plan, ReconcileError, Reconciler, Requeue, StatusUrgency, View, Write,
};

use super::{MonitoredObjects, usage};

/// Syncs quotas.
pub(super) struct SyncQuota {
    pub(super) monitored: Memory<MonitoredObjects>,
    pub(super) pod_level_resources: bool,
}

impl Reconciler for SyncQuota {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let (plan, mut errors) = cx.gather(|view| self.decide(view, item));
        let written = cx.apply(plan).await.all_done();
        // What could be computed is published all the same, and the rest is retried.
        errors.extend(written.as_ref().err().map(|error| error.because.clone()));
        let message = if errors.len() > 1 { format!("[{}]", errors.join(", ")) } else { errors.concat() };
        match (written, message.is_empty()) {
            (Ok(()), true) => Ok(Requeue::Forget),
            (Ok(()), false) => Err(ReconcileError::because(message)),
            (Err(error), _) => Err(ReconcileError { because: message, ..error }),
        }
    }
}

impl SyncQuota {
    fn decide(&self, view: &View<'_>, key: &Key) -> (Plan, Vec<String>) {
        let Some(quota) = view.get::<ResourceQuota>(key) else { return (Plan::none(), Vec::new()) };
        let options = PodUsageOptions {
            pod_level_resources: self.pod_level_resources,
            now_nanoseconds: view.now().wall_nanoseconds(),
        };
        let usage = self.monitored.with(|monitored| usage::compute(quota, view, monitored, options));
        let hard = quota.spec.hard.clone().unwrap_or_default();
        // What nothing computes keeps its value.
        let mut used = quota.status.used.clone().unwrap_or_default();
        usage.used.iter().for_each(|(name, amount)| used.set(name.clone(), *amount));
        used.retain(|name| hard.amount(name).is_some());
        let status = ResourceQuotaStatus { hard: Some(hard), used: Some(used) };
        let plan = match why_to_publish(quota, &status) {
            Some(reason) => Plan::of(
                Write::put_status(&**quota, &status).status_urgency(StatusUrgency::Immediate).because(reason),
            ),
            None => Plan::none(),
        };
        (plan, usage.errors)
    }
}

/// Why a status has to be written. Amounts are compared, not their notation.
fn why_to_publish(quota: &ResourceQuota, new: &ResourceQuotaStatus) -> Option<&'static str> {
    let known = &quota.status;
    if known.hard.clone().unwrap_or_default() != new.hard.clone().unwrap_or_default() {
        Some("spec.hard changed")
    } else if known.hard.is_none() || known.used.is_none() {
        Some("the status is unset")
    } else if known.used != new.used {
        Some("the usage changed")
    } else {
        None
    }
}
