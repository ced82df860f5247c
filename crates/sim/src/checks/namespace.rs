//! Namespaces: in the end those that were deleted are gone with all that was in them.

use std::collections::BTreeSet;

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{going, named};
use crate::witness::text;

/// Looks for what is left.
pub struct Namespaces;

impl Checker for Namespaces {
    fn name(&self) -> &'static str {
        "namespace-controller"
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let namespaces = server.objects("namespaces");
        if let Some(stuck) = namespaces.iter().find(|namespace| going(namespace)) {
            return Err(format!("{} is still on its way out", named(stuck)));
        }
        let there: BTreeSet<_> =
            namespaces.iter().map(|namespace| text(namespace, "/metadata/name")).collect();
        for object in server.snapshot() {
            let namespace = text(&object, "/metadata/namespace");
            if !namespace.is_empty() && !there.contains(namespace) {
                return Err(format!("{} is left of a namespace that is gone", named(&object)));
            }
        }
        Ok(())
    }
}
