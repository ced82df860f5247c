//! Deployments: never more replicas than the surge allows, and in the end one ReplicaSet has them all.

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{
    MaxReplicas, controlled_by, controller_ref, count, expect_equal, expect_observed, expect_status,
    namespace, number, uid,
};
use crate::recorder::{ObservedWrite, text};

/// The maxSurge of every Deployment that users create.
const SURGE: i64 = 1;
const SETS: &str = "replicasets.apps";

/// Sums the replicas of the ReplicaSets of each Deployment.
#[derive(Default)]
pub struct Deployments {
    max_wanted: MaxReplicas,
}

/// The sum of spec.replicas over all ReplicaSets of a Deployment.
fn total(server: &ApiServer, deployment: &Value) -> i64 {
    controlled_by(server, SETS, namespace(deployment), uid(deployment))
        .iter()
        .map(|set| number(set, "/spec/replicas"))
        .sum()
}

impl Checker for Deployments {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if write.request.resource == "deployments" {
            self.max_wanted.observe_write(write);
        }
        let scales = write.component == "deployment-controller"
            && write.succeeded()
            && write.request.resource == "replicasets"
            && write.request.subresource.is_empty();
        if !scales {
            return Ok(());
        }
        let grows = |after: &Value| {
            let before = write.before.as_ref().map_or(0, |before| number(before, "/spec/replicas"));
            number(after, "/spec/replicas") > before
        };
        let set = write.after.as_deref().unwrap_or(&write.body);
        let Some(owner) = controller_ref(set).filter(|_| grows(set)) else { return Ok(()) };
        let owner = text(owner, "/uid");
        for deployment in server.objects("deployments.apps").iter().filter(|there| uid(there) == owner) {
            self.max_wanted.observe(deployment);
            let (max_wanted, total) =
                (self.max_wanted.get(owner).unwrap_or_default(), total(server, deployment));
            if total > max_wanted + SURGE {
                return Err(format!(
                    "{total} replicas, more than the {max_wanted} wanted and a surge of {SURGE}"
                ));
            }
        }
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        server.objects("deployments.apps").iter().try_for_each(|deployment| {
            let (wanted, all) = (number(deployment, "/spec/replicas"), total(server, deployment));
            expect_observed(deployment)?;
            if deployment.pointer("/spec/paused") == Some(&Value::Bool(true)) {
                // It stays as it is: without a ReplicaSet, or in the middle of a rollout.
                let within = all <= wanted + SURGE;
                return within
                    .then_some(())
                    .ok_or_else(|| format!("it is paused with {all} replicas, not {wanted}"));
            }
            let sets = controlled_by(server, SETS, namespace(deployment), uid(deployment));
            let scaled_up = count(&sets, |set| number(set, "/spec/replicas") > 0);
            if scaled_up > 1 && text(deployment, "/spec/strategy/type") == "Recreate" {
                // A Recreate Deployment that is scaled while two of its ReplicaSets have pods, one of them
                // adopted, stays so, as with the original: no rule shares the replicas between them.
                return Ok(());
            }
            expect_equal(deployment, "the replicas of all its sets", all, wanted)?;
            expect_status(deployment, "replicas", wanted)?;
            expect_status(deployment, "availableReplicas", wanted)?;
            expect_status(deployment, "updatedReplicas", wanted)?;
            expect_equal(deployment, "the number of sets with replicas", scaled_up, wanted.min(1))
        })
    }
}
