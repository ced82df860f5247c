//! Namespaces: in the end deleted namespaces are gone, with all their content.

use std::collections::BTreeSet;

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::objects::{describe, is_terminating};
use crate::recorder::text;

/// Looks for terminating namespaces and for leftover objects.
pub struct Namespaces;

impl Checker for Namespaces {
    fn name(&self) -> &'static str {
        "namespace-controller"
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let namespaces = server.objects("namespaces");
        if let Some(terminating) = namespaces.iter().find(|namespace| is_terminating(namespace)) {
            return Err(format!("{} is still terminating", describe(terminating)));
        }
        let there: BTreeSet<_> =
            namespaces.iter().map(|namespace| text(namespace, "/metadata/name")).collect();
        for object in server.snapshot() {
            let namespace = text(&object, "/metadata/namespace");
            if !namespace.is_empty() && !there.contains(namespace) {
                return Err(format!("{} is left in a namespace that does not exist", describe(&object)));
            }
        }
        Ok(())
    }
}
