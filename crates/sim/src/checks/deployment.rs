//! Deployments: never more replicas than the surge allows, and in the end one ReplicaSet has them all.

use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{controller, number, observed, same, uid};
use crate::witness::{Effect, text};

/// The surge of every Deployment that users make here.
const SURGE: i64 = 1;

/// Adds up.
#[derive(Default)]
pub struct Deployments {
    /// By uid: the most replicas that were asked for at any time.
    most: BTreeMap<String, i64>,
}

fn sets_of(server: &ApiServer, owner: &str) -> Vec<Arc<Value>> {
    let owned = |set: &Arc<Value>| controller(set).is_some_and(|there| text(there, "/uid") == owner);
    server.objects("replicasets.apps").into_iter().filter(owned).collect()
}

impl Checker for Deployments {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        if effect.route.resource == "deployments" {
            for object in [&effect.before, &effect.after].into_iter().flatten() {
                let most = self.most.entry(uid(object).to_owned()).or_default();
                *most = (*most).max(number(object, "/spec/replicas"));
            }
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
            let most = self.most.entry(owner.to_owned()).or_default();
            *most = (*most).max(number(deployment, "/spec/replicas"));
            let total: i64 = sets_of(server, owner).iter().map(|set| number(set, "/spec/replicas")).sum();
            if total > *most + SURGE {
                return Err(format!("{total} replicas where {most} and {SURGE} more were wanted at most"));
            }
        }
        Ok(())
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        server.objects("deployments.apps").iter().try_for_each(|deployment| {
            let wanted = number(deployment, "/spec/replicas");
            observed(deployment)?;
            let sets = sets_of(server, uid(deployment));
            let total: i64 = sets.iter().map(|set| number(set, "/spec/replicas")).sum();
            same(deployment, "the replicas of all its sets", total, wanted)?;
            same(deployment, "status.replicas", number(deployment, "/status/replicas"), wanted)?;
            same(
                deployment,
                "status.availableReplicas",
                number(deployment, "/status/availableReplicas"),
                wanted,
            )?;
            if deployment.pointer("/spec/paused") == Some(&Value::Bool(true)) {
                return Ok(());
            }
            same(
                deployment,
                "status.updatedReplicas",
                number(deployment, "/status/updatedReplicas"),
                wanted,
            )?;
            let busy = sets.iter().filter(|set| number(set, "/spec/replicas") > 0).count();
            same(
                deployment,
                "the number of sets with replicas",
                i64::try_from(busy).unwrap_or(0),
                wanted.min(1),
            )
        })
    }
}
