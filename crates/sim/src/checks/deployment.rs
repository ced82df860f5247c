//! Deployments: never more replicas than the surge allows, and in the end one ReplicaSet has them all.

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{Most, controlled, controller, count, number, observed, same, status, uid};
use crate::witness::{Effect, text};

/// The surge of every Deployment that users make here.
const SURGE: i64 = 1;
const SETS: &str = "replicasets.apps";

/// Adds up.
#[derive(Default)]
pub struct Deployments {
    most: Most,
}

/// The replicas that all sets of a Deployment are to have together.
fn total(server: &ApiServer, owner: &str) -> i64 {
    controlled(server, SETS, owner).iter().map(|set| number(set, "/spec/replicas")).sum()
}

impl Checker for Deployments {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        if effect.route.resource == "deployments" {
            self.most.see_both(effect);
        }
        let scales = effect.author == "deployment-controller"
            && effect.done()
            && effect.route.resource == "replicasets"
            && effect.route.subresource.is_empty();
        if !scales {
            return Ok(());
        }
        let grows = |after: &Value| {
            let before = effect.before.as_ref().map_or(0, |before| number(before, "/spec/replicas"));
            number(after, "/spec/replicas") > before
        };
        let set = effect.after.as_deref().unwrap_or(&effect.body);
        let Some(owner) = controller(set).filter(|_| grows(set)) else { return Ok(()) };
        let owner = text(owner, "/uid");
        for deployment in server.objects("deployments.apps").iter().filter(|there| uid(there) == owner) {
            self.most.see(deployment);
            let (most, total) = (self.most.of(owner).unwrap_or_default(), total(server, owner));
            if total > most + SURGE {
                return Err(format!("{total} replicas where {most} and {SURGE} more were wanted at most"));
            }
        }
        Ok(())
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        server.objects("deployments.apps").iter().try_for_each(|deployment| {
            let (wanted, all) = (number(deployment, "/spec/replicas"), total(server, uid(deployment)));
            observed(deployment)?;
            if deployment.pointer("/spec/paused") == Some(&Value::Bool(true)) {
                // It stays as it was found: without a set if it had none, or in the middle of a rollout.
                let within = all <= wanted + SURGE;
                return within
                    .then_some(())
                    .ok_or_else(|| format!("it is paused with {all} replicas, not {wanted}"));
            }
            let sets = controlled(server, SETS, uid(deployment));
            let busy = count(&sets, |set| number(set, "/spec/replicas") > 0);
            if busy > 1 && text(deployment, "/spec/strategy/type") == "Recreate" {
                // One that is scaled while it has pods of two sets, of which it adopted one, stays so, as with the
                // original: there is no rule by which they would share.
                return Ok(());
            }
            same(deployment, "the replicas of all its sets", all, wanted)?;
            status(deployment, "replicas", wanted)?;
            status(deployment, "availableReplicas", wanted)?;
            status(deployment, "updatedReplicas", wanted)?;
            same(deployment, "the number of sets with replicas", busy, wanted.min(1))
        })
    }
}
