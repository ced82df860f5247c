//! StatefulSets: in the end the pods with the first ordinals are ready, all of the same revision.

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{
    condition_is_true, controller_ref, count, describe, expect_equal, expect_observed, expect_status,
    is_active, namespace, number, pods_of, uid,
};
use crate::recorder::text;

/// Checks the pod of every ordinal.
pub struct StatefulSets;

/// Whether the pod with the name of this ordinal has another controllerRef.
fn is_controlled_by_another(server: &ApiServer, set: &Value, ordinal: i64) -> bool {
    let pod = server.object("pods", namespace(set), &pod_name(set, ordinal));
    pod.is_some_and(|pod| controller_ref(&pod).is_some_and(|owner| text(owner, "/uid") != uid(set)))
}

fn pod_name(set: &Value, ordinal: i64) -> String {
    format!("{}-{ordinal}", text(set, "/metadata/name"))
}

impl Checker for StatefulSets {
    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        server.objects("statefulsets.apps").iter().try_for_each(|set| {
            let wanted = number(set, "/spec/replicas");
            expect_observed(set)?;
            if (0..wanted).any(|ordinal| is_controlled_by_another(server, set, ordinal)) {
                // Another owner with an overlapping selector adopted the pod: the StatefulSet waits until
                // the name is free, as with the original.
                return Ok(());
            }
            let pods: Vec<_> =
                pods_of(server, namespace(set), uid(set)).into_iter().filter(|pod| is_active(pod)).collect();
            expect_equal(set, "the number of pods", count(&pods, |_| true), wanted)?;
            for ordinal in 0..wanted {
                let name = pod_name(set, ordinal);
                let pod = pods.iter().find(|pod| text(pod, "/metadata/name") == name);
                if !pod.is_some_and(|pod| condition_is_true(pod, "Ready")) {
                    return Err(format!("{}: {name} is not ready", describe(set)));
                }
            }
            let (update, current) =
                (text(set, "/status/updateRevision"), text(set, "/status/currentRevision"));
            if wanted > 0 && update != current {
                return Err(format!(
                    "{}: currentRevision is {current}, updateRevision is {update}",
                    describe(set)
                ));
            }
            expect_status(set, "readyReplicas", wanted)
        })
    }
}
