//! Every delete of one object by a controller names the life it means.

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::witness::{Effect, text};

/// Looks at what deletes say.
pub struct Identity;

impl Checker for Identity {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn wrote(&mut self, effect: &Effect, _: &ApiServer) -> Result<(), String> {
        let route = &effect.route;
        let deletes = effect.by_manager() && route.method == Method::DELETE && !route.name.is_empty();
        // The content of a namespace that goes is deleted by name, whatever lives there.
        if !deletes || effect.author == "namespace-controller" {
            return Ok(());
        }
        if text(&effect.body, "/preconditions/uid").is_empty() {
            return Err("a delete names no uid".to_owned());
        }
        Ok(())
    }
}
