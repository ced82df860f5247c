//! ClusterRoles: in the end the aggregated role has exactly the rules of the roles it selects.

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::describe;
use crate::bodies::AGGREGATED_ROLE;
use crate::recorder::text;

/// Recomputes the union of the rules.
pub struct AggregatedRoles;

impl Checker for AggregatedRoles {
    fn name(&self) -> &'static str {
        "clusterrole-aggregation-controller"
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let roles = server.objects("clusterroles.rbac.authorization.k8s.io");
        let Some(aggregated) = roles.iter().find(|role| text(role, "/metadata/name") == AGGREGATED_ROLE)
        else {
            return Ok(());
        };
        let rules = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
        let mut wanted: Vec<Value> = Vec::new();
        for part in roles.iter().filter(|role| text(role, "/metadata/labels/part-of") == AGGREGATED_ROLE) {
            let new: Vec<_> = rules(part).into_iter().filter(|rule| !wanted.contains(rule)).collect();
            wanted.extend(new);
        }
        // If the selected roles have no rules, the controller applies nothing and the rules that users
        // wrote stay; the original does the same.
        if wanted.is_empty() || rules(aggregated) == wanted {
            Ok(())
        } else {
            Err(format!("{} does not have exactly the rules of the roles it selects", describe(aggregated)))
        }
    }
}
