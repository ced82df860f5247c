//! Creates missing pods and deletes surplus pods, at most 500 per reconcile.

use keleustes_objects::Pod;
use keleustes_plan::Plan;

use super::reconcile::Inputs;
use super::{AGE_RATIO, ReplicaSetOptions, Replicated};
use crate::workloads::pod_creation::pod_from_template;
use crate::workloads::pod_ranking::{Ranking, sort_for_deletion};
use crate::workloads::pod_writes;

pub(super) fn plan<R: Replicated>(inputs: &Inputs<R>, options: &ReplicaSetOptions) -> Plan {
    match inputs.surplus() {
        _ if inputs.set.meta().deletion_timestamp.is_some() => Plan::none(),
        ..0 => creations(inputs, inputs.burst_limited_diff()),
        0 => Plan::none(),
        1.. => deletions(inputs, inputs.burst_limited_diff(), options),
    }
}

fn creations<R: Replicated>(inputs: &Inputs<R>, count: usize) -> Plan {
    let set = &*inputs.set;
    let body = match pod_from_template::<R>(&set.template().json(), set.meta()) {
        Ok(body) => body,
        Err(why) => return Plan::error(why),
    };
    let mut plan = Plan::none();
    let create = || pod_writes::create(set, body.clone(), "there are fewer pods than wanted");
    plan.push_slow_start((0..count).map(|_| create()).collect());
    plan
}

fn deletions<R: Replicated>(inputs: &Inputs<R>, count: usize, options: &ReplicaSetOptions) -> Plan {
    let mut plan = Plan::none();
    let mut pods = inputs.pods.clone();
    if count < pods.len() {
        let honor_deletion_cost = options.honor_deletion_cost;
        sort_for_deletion(
            &mut pods,
            &Ranking {
                now: inputs.now,
                active_pods_per_node: &inputs.active_pods_per_node,
                honor_deletion_cost,
            },
        );
        measure_age_ratios(&mut plan, inputs, &pods[..count]);
    }
    plan.push_parallel(
        pods[..count]
            .iter()
            .map(|pod| pod_writes::delete(&*inputs.set, pod, "there are more pods than wanted"))
            .collect(),
    );
    plan
}

/// Observes the age of each chosen pod as an integer multiple of the youngest pod's age. Only ready pods
/// count.
fn measure_age_ratios<R: Replicated>(plan: &mut Plan, inputs: &Inputs<R>, chosen: &[std::sync::Arc<Pod>]) {
    let age =
        |pod: &Pod| Some(inputs.now.seconds_since(pod.meta.creation_timestamp.filter(|_| pod.is_ready())?));
    let youngest = inputs.pods.iter().filter_map(|pod| age(pod)).min();
    let Some(youngest) = youngest.filter(|age| *age > 0) else { return };
    for age in chosen.iter().filter_map(|pod| age(pod)) {
        #[expect(clippy::cast_precision_loss, reason = "an age in seconds is far below 2^52")]
        plan.measure(AGE_RATIO.measurement(&[], (age / youngest) as f64));
    }
}
