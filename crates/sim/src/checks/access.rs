//! Managers send only requests that are well-formed and that RBAC grants them.

use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::recorder::ObservedWrite;

/// Checks rejected requests.
pub struct Access;

impl Checker for Access {
    fn name(&self) -> &'static str {
        "access"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if !write.by_manager() {
            return Ok(());
        }
        match write.code {
            // Creates in a terminating namespace are forbidden to every client.
            403 if !namespace_is_terminating(server, &write.request.namespace) => {
                Err("the role does not grant this request (403)".to_owned())
            }
            400 | 405 | 415 => Err("the request is malformed (400, 405 or 415)".to_owned()),
            _ => Ok(()),
        }
    }
}

fn namespace_is_terminating(server: &ApiServer, namespace: &str) -> bool {
    server
        .object("namespaces", "", namespace)
        .is_none_or(|namespace| super::objects::is_terminating(&namespace))
}
