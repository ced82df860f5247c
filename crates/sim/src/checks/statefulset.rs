//! StatefulSets: in the end the pods with the first ordinals run, all of the same revision.

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{active, count, holds, named, number, observed, pods_of, same, status, uid};
use crate::witness::text;

/// Counts ordinals.
pub struct StatefulSets;

impl Checker for StatefulSets {
    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        server.objects("statefulsets.apps").iter().try_for_each(|set| {
            let wanted = number(set, "/spec/replicas");
            observed(set)?;
            let pods: Vec<_> = pods_of(server, uid(set)).into_iter().filter(|pod| active(pod)).collect();
            same(set, "the number of pods", count(&pods, |_| true), wanted)?;
            for ordinal in 0..wanted {
                let name = format!("{}-{ordinal}", text(set, "/metadata/name"));
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
