//! Roles: in the end the role that is the sum of others allows what they allow, and nothing else.

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::look::named;
use crate::bodies::WHOLE_ROLE;
use crate::witness::text;

/// Adds up.
pub struct Roles;

impl Checker for Roles {
    fn name(&self) -> &'static str {
        "clusterrole-aggregation-controller"
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let roles = server.objects("clusterroles.rbac.authorization.k8s.io");
        let Some(whole) = roles.iter().find(|role| text(role, "/metadata/name") == WHOLE_ROLE) else {
            return Ok(());
        };
        let rules = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
        let mut wanted: Vec<Value> = Vec::new();
        for part in roles.iter().filter(|role| text(role, "/metadata/labels/part-of") == WHOLE_ROLE) {
            let new: Vec<_> = rules(part).into_iter().filter(|rule| !wanted.contains(rule)).collect();
            wanted.extend(new);
        }
        // Of no parts nothing is applied, and what users wrote there stays theirs; the original does the same.
        if wanted.is_empty() || rules(whole) == wanted {
            Ok(())
        } else {
            Err(format!("{} is not what its parts are", named(whole)))
        }
    }
}
