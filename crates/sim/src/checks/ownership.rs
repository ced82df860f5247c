//! Nobody deletes what is not its own, and nobody takes what has an owner.

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{controller, named, uid};
use crate::witness::{Effect, text};

/// Compares owners before and after.
pub struct Ownership;

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
        if !effect.by_manager() || !effect.done() {
            return Ok(());
        }
        let Some(before) = &effect.before else { return Ok(()) };
        let owner = controller(before);
        if let Some(kind) = owner_kind(&effect.author)
            && effect.route.method == Method::DELETE
            && owner.is_none_or(|owner| owner["kind"] != kind)
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
