//! Nobody deletes what is not its own, and nobody takes what has an owner.

use std::collections::BTreeSet;

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{controller, freed, named, uid};
use crate::witness::{Effect, text};

/// Compares owners before and after.
#[derive(Default)]
pub struct Ownership {
    /// The uids of what users took from its owner, or had set free, who may not have heard of it.
    disowned: BTreeSet<String>,
}

/// The kind whose objects a controller may delete the children of.
fn owner_kind(author: &str) -> Option<&'static str> {
    Some(match author {
        "replicaset-controller" => "ReplicaSet",
        "replication-controller" => "ReplicationController",
        "statefulset-controller" => "StatefulSet",
        "daemon-set-controller" => "DaemonSet",
        "job-controller" => "Job",
        "deployment-controller" => "Deployment",
        _ => return None,
    })
}

impl Checker for Ownership {
    fn name(&self) -> &'static str {
        "ownership"
    }

    fn wrote(&mut self, effect: &Effect, _: &ApiServer) -> Result<(), String> {
        let Some(before) = effect.before.as_ref().filter(|_| effect.done()) else { return Ok(()) };
        let owner = controller(before);
        if (!effect.by_manager() || effect.author == "generic-garbage-collector") && freed(effect) {
            self.disowned.insert(uid(before).to_owned());
            return Ok(());
        }
        if !effect.by_manager() {
            return Ok(());
        }
        if let Some(kind) = owner_kind(&effect.author)
            && effect.route.method == Method::DELETE
            && owner.is_none_or(|owner| owner["kind"] != kind)
            && !self.disowned.contains(uid(before))
        {
            return Err(format!("deleted {}, which is not of a {kind}", named(before)));
        }
        let Some(after) = effect.after.as_ref().filter(|after| uid(after) == uid(before)) else {
            return Ok(());
        };
        match (owner, controller(after)) {
            (Some(one), Some(other)) if text(one, "/uid") != text(other, "/uid") => {
                Err(format!("took {} from its owner", named(before)))
            }
            _ => Ok(()),
        }
    }
}
