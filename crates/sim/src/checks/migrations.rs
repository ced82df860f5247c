//! StorageVersionMigrations: one per resource runs at a time, each ends once, and in the end all have ended.

use std::collections::BTreeSet;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe, uid};
use crate::recorder::ObservedWrite;

/// The name of the checker.
pub const NAME: &str = "storage-version-migrator-controller";

/// Remembers which migrations have ended.
#[derive(Default)]
pub struct Migrations {
    ended: BTreeSet<String>,
}

fn has_ended(migration: &Value) -> bool {
    condition_is_true(migration, "Succeeded") || condition_is_true(migration, "Failed")
}

/// Whether it runs and has not ended.
fn is_active(migration: &Value) -> bool {
    condition_is_true(migration, "Running") && !has_ended(migration)
}

impl Checker for Migrations {
    fn name(&self) -> &'static str {
        NAME
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if write.request.resource != "storageversionmigrations" || !write.succeeded() {
            return Ok(());
        }
        let Some(after) = write.after.as_deref() else { return Ok(()) };
        let ends = has_ended(after) && write.before.as_deref().is_some_and(|before| !has_ended(before));
        if ends && !self.ended.insert(uid(after).to_owned()) {
            return Err(format!("{} ends a second time", describe(after)));
        }
        if self.ended.contains(uid(after)) && !has_ended(after) {
            return Err(format!("{} runs again", describe(after)));
        }
        let migrations = server.objects("storageversionmigrations");
        let rivals =
            migrations.iter().filter(|other| other["spec"] == after["spec"] && is_active(other)).count();
        if rivals > 1 { Err(format!("{rivals} migrations of one resource run")) } else { Ok(()) }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for migration in server.objects("storageversionmigrations") {
            if !has_ended(&migration) {
                return Err(format!("{} has not ended: {}", describe(&migration), migration["status"]));
            }
            if condition_is_true(&migration, "Running") {
                return Err(format!("{} has ended and is not cleaned up", describe(&migration)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::recorder::{RequestInfo, SendContext};

    fn migration(condition: &str) -> Value {
        json!({"kind": "StorageVersionMigration", "metadata": {"name": "m", "uid": "u"},
            "status": {"conditions": [{"type": condition, "status": "True"}]}})
    }

    fn write(before: &str, after: &str) -> ObservedWrite {
        let path = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations/m/status";
        ObservedWrite {
            at: Duration::ZERO,
            party: "manager-0".into(),
            process_instance: 1,
            component: NAME.to_owned(),
            request: RequestInfo::parse(&Method::PUT, &path.parse().unwrap()),
            body: Value::Null,
            response_lost: false,
            send_context: SendContext::default(),
            code: 200,
            before: Some(Arc::new(migration(before))),
            after: Some(Arc::new(migration(after))),
        }
    }

    /// The API server refuses it, so no storm can show it.
    #[test]
    fn migration_that_runs_or_ends_again_is_caught() {
        let server = ApiServer::builder().build();
        let mut checker = Migrations::default();
        assert_eq!(checker.on_write(&write("Running", "Succeeded"), &server), Ok(()));
        assert_eq!(checker.on_write(&write("Succeeded", "Succeeded"), &server), Ok(()));
        let error = checker.on_write(&write("Succeeded", "Running"), &server).unwrap_err();
        assert_eq!(error, "StorageVersionMigration /m runs again");
        let error = checker.on_write(&write("Running", "Succeeded"), &server).unwrap_err();
        assert_eq!(error, "StorageVersionMigration /m ends a second time");
    }
}
