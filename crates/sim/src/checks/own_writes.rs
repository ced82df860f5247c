//! Nobody acts on a cache that has not seen the actor's own writes.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::{controller, going, uid};
use crate::witness::{Effect, text};

/// Remembers what every process was told of its writes.
#[derive(Default)]
pub struct OwnWrites {
    /// By process, controller and uid.
    objects: BTreeMap<(u32, String, String), Known>,
    /// By process, controller and place: the uid of what it made there.
    made: BTreeMap<(u32, String, String), String>,
    /// The namespaces that somebody has deleted.
    deleted_namespaces: BTreeSet<String>,
}

/// What a controller knows of an object from the answers to its own writes.
#[derive(Default)]
struct Known {
    version: u64,
    is_deleted: bool,
}

/// The first two look at the server before they write, and of the others several loops, with a gate each, change the
/// same objects.
const WITHOUT_GATE: [&str; 4] =
    ["generic-garbage-collector", "namespace-controller", "node-controller", "tokens-controller"];

impl Checker for OwnWrites {
    fn name(&self) -> &'static str {
        "own writes"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        if effect.done() && effect.route.method == Method::DELETE && effect.route.resource == "namespaces" {
            self.deleted_namespaces.insert(effect.route.name.clone());
        }
        let acts = effect.by_manager()
            && !effect.route.is_routine()
            && !WITHOUT_GATE.contains(&effect.author.as_str());
        if !acts {
            return Ok(());
        }
        match effect.route.method {
            Method::POST => self.made(effect, server),
            Method::DELETE => self.deleted(effect),
            _ => self.changed(effect),
        }
    }
}

fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or_default()
}

impl OwnWrites {
    fn known(&mut self, effect: &Effect, uid: &str) -> &mut Known {
        self.objects.entry((effect.life, effect.author.clone(), uid.to_owned())).or_default()
    }

    /// Nobody makes what it has made already, in the same name. What belongs to nobody but a namespace may be made again
    /// for whichever namespace takes that name: a gate does not hold what was done for another life.
    fn made(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        let (route, name) = (&effect.route, text(&effect.body, "/metadata/name"));
        if name.is_empty() || !route.subresource.is_empty() {
            return Ok(());
        }
        let Some(there) = server.object(&route.full_resource(), &route.namespace, name) else {
            return Ok(());
        };
        let place = (effect.life, effect.author.clone(), format!("{route}{name}"));
        if effect.done() && !effect.lost {
            self.made.insert(place, uid(&there).to_owned());
            return Ok(());
        }
        let owner = |object: &Value| controller(object).map(|owner| text(owner, "/uid").to_owned());
        let for_another_life =
            controller(&effect.body).is_none() && self.deleted_namespaces.contains(&route.namespace);
        let again = effect.code == 409
            && !for_another_life
            && self.made.get(&place).is_some_and(|made| *made == uid(&there))
            && owner(&there) == owner(&effect.body);
        if again { Err(format!("made {name} a second time")) } else { Ok(()) }
    }

    /// Nobody deletes what it has deleted already. What nobody owned by then may be met again by whoever takes the name
    /// of the last owner: a gate does not hold what was done for another life.
    fn deleted(&mut self, effect: &Effect) -> Result<(), String> {
        let uid = text(&effect.body, "/preconditions/uid");
        if uid.is_empty() {
            return Ok(());
        }
        // Nor does a gate wait where it cannot see a difference: what was on its way out already is so still.
        let tells = |before: &Value| controller(before).is_some() && !going(before);
        let learns = effect.done() && !effect.lost && effect.before.as_deref().is_some_and(tells);
        let known = self.known(effect, uid);
        if known.is_deleted {
            return Err("deleted it a second time".to_owned());
        }
        known.is_deleted = learns;
        Ok(())
    }

    /// Nobody writes on top of a state that is older than what it wrote itself. Writes that name no state do not
    /// count: what is adopted is looked at in the same turn, and changed if need be.
    fn changed(&mut self, effect: &Effect) -> Result<(), String> {
        let Some(before) = &effect.before else { return Ok(()) };
        let made_from = version(&effect.body);
        let known = self.known(effect, uid(before));
        if made_from == 0 {
            return Ok(());
        }
        if made_from < known.version {
            let Known { version, .. } = known;
            return Err(format!("made from state {made_from}, older than {version}, which is its own work"));
        }
        if let Some(after) = effect.after.as_ref().filter(|_| effect.done() && !effect.lost) {
            known.version = version(after);
        }
        Ok(())
    }
}
