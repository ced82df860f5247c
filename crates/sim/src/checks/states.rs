//! Nobody overwrites what it has not seen: a write that replaces something names the state that it was made from.

use std::collections::BTreeMap;

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::witness::{Effect, text};

/// Looks for the state in what is written.
#[derive(Default)]
pub struct States {
    /// By process and uid: what the garbage collector was answered that wanted to delete it.
    answered: BTreeMap<(u32, String), u16>,
}

/// Patches that replace a whole list or decide on a number: author, resource, and where that stands.
const PATCHES: [(&str, &str, &str); 3] = [
    ("node-controller", "nodes", "/spec/taints"),
    ("deployment-controller", "replicasets", "/spec/replicas"),
    ("node-controller", "pods", "/status/conditions/0/status"),
];

impl Checker for States {
    fn name(&self) -> &'static str {
        "states"
    }

    fn wrote(&mut self, effect: &Effect, _: &ApiServer) -> Result<(), String> {
        if !effect.by_manager() || effect.route.is_routine() {
            return Ok(());
        }
        let (route, body) = (&effect.route, &effect.body);
        let names = |pointer: &str| !text(body, pointer).is_empty();
        match route.method {
            Method::PUT => {
                // A slice may be written anew under the name of another, of which nothing stays.
                let anew = route.resource == "endpointslices" && !names("/metadata/creationTimestamp");
                let named = names("/metadata/resourceVersion") || anew;
                named.then_some(()).ok_or_else(|| "it is put without the state that was seen".to_owned())
            }
            Method::PATCH => {
                let replaces = PATCHES.iter().any(|(author, resource, place)| {
                    effect.author == *author
                        && route.resource == *resource
                        && body.pointer(place).is_some()
                        // Why a pod is about to go is added to what else it says.
                        && text(body, "/status/conditions/0/type") != "DisruptionTarget"
                });
                let named = !replaces || names("/metadata/resourceVersion");
                named.then_some(()).ok_or_else(|| "it is patched without the state that was seen".to_owned())
            }
            Method::DELETE if effect.author == "generic-garbage-collector" => self.collected(effect),
            _ => Ok(()),
        }
    }
}

impl States {
    /// The garbage collector deletes what it has judged; only after a conflict, and another look, what has changed.
    fn collected(&mut self, effect: &Effect) -> Result<(), String> {
        let uid = text(&effect.body, "/preconditions/uid").to_owned();
        let before = self.answered.insert((effect.life, uid), effect.code);
        let named = !text(&effect.body, "/preconditions/resourceVersion").is_empty();
        if named || before == Some(409) {
            Ok(())
        } else {
            Err("it is deleted without the state that was judged".to_owned())
        }
    }
}
