//! The garbage collector deletes only what nobody living owns, and in the end nothing is left of what nobody owns.

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{going, named, uid};
use crate::witness::{Effect, text};

/// Looks for owners.
pub struct Garbage;

impl Checker for Garbage {
    fn name(&self) -> &'static str {
        "garbage-collector"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        let deletes = effect.by_manager()
            && effect.done()
            && effect.author == "generic-garbage-collector"
            && effect.route.method == Method::DELETE;
        let Some(before) = effect.before.as_ref().filter(|_| deletes) else { return Ok(()) };
        if going(before) {
            return Ok(());
        }
        let owners = before.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let Some(owners) = owners else {
            return Err(format!("deleted {}, which has no owner", named(before)));
        };
        let everything = server.snapshot();
        let living = everything
            .iter()
            .find(|there| !going(there) && owners.iter().any(|owner| uid(there) == text(owner, "/uid")));
        living
            .map_or(Ok(()), |living| Err(format!("deleted {}, which {} owns", named(before), named(living))))
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let everything = server.snapshot();
        let uids: std::collections::BTreeSet<_> = everything.iter().map(|there| uid(there)).collect();
        for object in &everything {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let Some(owners) = owners.filter(|owners| !owners.is_empty()) else { continue };
            if !owners.iter().any(|owner| uids.contains(text(owner, "/uid"))) {
                return Err(format!("{} is left, and nobody owns it", named(object)));
            }
        }
        match everything.iter().find(|there| going(there)) {
            Some(stuck) => Err(format!("{} is still on its way out", named(stuck))),
            None => Ok(()),
        }
    }
}
