//! Nobody tries what its role does not grant, and nobody sends what makes no sense.

use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::witness::Effect;

/// Looks at refusals.
pub struct Access;

impl Checker for Access {
    fn name(&self) -> &'static str {
        "access"
    }

    fn wrote(&mut self, effect: &Effect, server: &ApiServer) -> Result<(), String> {
        if !effect.by_manager() {
            return Ok(());
        }
        match effect.code {
            // What is made in a namespace that goes is forbidden, too, but to everybody.
            403 if !is_going(server, &effect.route.namespace) => Err("forbidden".to_owned()),
            400 | 405 | 415 => Err("the request makes no sense".to_owned()),
            _ => Ok(()),
        }
    }
}

fn is_going(server: &ApiServer, namespace: &str) -> bool {
    server.object("namespaces", "", namespace).is_none_or(|namespace| super::look::going(&namespace))
}
