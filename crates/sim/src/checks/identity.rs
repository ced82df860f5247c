//! Every change to one object by a controller names the life it means.

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::witness::{Effect, text};

/// Looks at what writes say.
pub struct Identity;

impl Checker for Identity {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn wrote(&mut self, effect: &Effect, _: &ApiServer) -> Result<(), String> {
        let route = &effect.route;
        // What is applied states fields, whatever lives there; the original names no uid then either.
        let applies = effect.author == "clusterrole-aggregation-controller";
        if !effect.by_manager() || route.name.is_empty() || route.is_routine() || applies {
            return Ok(());
        }
        let named = match route.method {
            Method::DELETE => "/preconditions/uid",
            Method::PATCH | Method::PUT => "/metadata/uid",
            _ => return Ok(()),
        };
        if text(&effect.body, named).is_empty() {
            return Err(format!("a {} names no uid", route.method));
        }
        Ok(())
    }
}
