//! StatefulSets: in the end the pods with the first ordinals run, all of the same revision.

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{active, controller, count, holds, named, number, observed, pods_of, same, status, uid};
use crate::witness::text;

/// Counts ordinals.
pub struct StatefulSets;

/// Whether the pod with one of its names is somebody else's.
fn has_another(server: &ApiServer, set: &Value, ordinal: i64) -> bool {
    let pod = server.object("pods", text(set, "/metadata/namespace"), &pod_name(set, ordinal));
    pod.is_some_and(|pod| controller(&pod).is_some_and(|owner| text(owner, "/uid") != uid(set)))
}

fn pod_name(set: &Value, ordinal: i64) -> String {
    format!("{}-{ordinal}", text(set, "/metadata/name"))
}

impl Checker for StatefulSets {
    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        server.objects("statefulsets.apps").iter().try_for_each(|set| {
            let wanted = number(set, "/spec/replicas");
            observed(set)?;
            if (0..wanted).any(|ordinal| has_another(server, set, ordinal)) {
                // It waits for as long as that takes, as with the original: selectors overlap, and the pod was adopted.
                return Ok(());
            }
            let pods: Vec<_> = pods_of(server, uid(set)).into_iter().filter(|pod| active(pod)).collect();
            same(set, "the number of pods", count(&pods, |_| true), wanted)?;
            for ordinal in 0..wanted {
                let name = pod_name(set, ordinal);
                let pod = pods.iter().find(|pod| text(pod, "/metadata/name") == name);
                if !pod.is_some_and(|pod| holds(pod, "Ready")) {
                    return Err(format!("{}: {name} is not ready", named(set)));
                }
            }
            let (update, current) =
                (text(set, "/status/updateRevision"), text(set, "/status/currentRevision"));
            if wanted > 0 && update != current {
                return Err(format!("{}: still at {current} and not at {update}", named(set)));
            }
            status(set, "readyReplicas", wanted)
        })
    }
}
