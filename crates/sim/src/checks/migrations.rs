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
