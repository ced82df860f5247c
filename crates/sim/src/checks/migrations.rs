//! StorageVersionMigrations: one per resource runs at a time, each ends once, and one that succeeds has rewritten every object
//! that no other client has. In the end all have succeeded: faults may make one fail, which the user then creates again.

use std::collections::{BTreeMap, BTreeSet};

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{condition_is_true, describe, namespace, uid};
use crate::recorder::{ObservedWrite, text};

/// The name of the checker.
pub const NAME: &str = "storage-version-migrator-controller";

/// Remembers which migrations have ended, and what they have rewritten.
#[derive(Default)]
pub struct Migrations {
    writes: u64,
    ended: BTreeSet<String>,
    /// By UID of the migration: the write that gave it the resourceVersion up to which it rewrites objects.
    began: BTreeMap<String, u64>,
    /// By resource, namespace and name: the last write of the controller.
    rewritten: BTreeMap<(String, String, String), u64>,
}

fn resource_version(object: &Value, pointer: &str) -> u64 {
    text(object, pointer).parse().unwrap_or_default()
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
        let request = &write.request;
        if !write.succeeded() {
            return Ok(());
        }
        self.writes += 1;
        if request.resource != "storageversionmigrations" {
            if write.component == NAME {
                let key = (request.full_resource(), request.namespace.clone(), request.name.clone());
                self.rewritten.insert(key, self.writes);
            }
            return Ok(());
        }
        let Some(after) = write.after.as_deref() else { return Ok(()) };
        if resource_version(after, "/status/resourceVersion") > 0 {
            self.began.entry(uid(after).to_owned()).or_insert(self.writes);
        }
        let ends = has_ended(after) && write.before.as_deref().is_some_and(|before| !has_ended(before));
        if ends && !self.ended.insert(uid(after).to_owned()) {
            return Err(format!("{} ends a second time", describe(after)));
        }
        if ends && condition_is_true(after, "Succeeded") {
            self.check_rewritten(after, server)?;
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
            if !condition_is_true(&migration, "Succeeded") {
                return Err(format!(
                    "{} fails without a fault: {}",
                    describe(&migration),
                    migration["status"]
                ));
            }
        }
        Ok(())
    }
}

impl Migrations {
    /// Every object that is not newer than the migration was written for it.
    fn check_rewritten(&self, migration: &Value, server: &ApiServer) -> Result<(), String> {
        let (group, resource) =
            (text(migration, "/spec/resource/group"), text(migration, "/spec/resource/resource"));
        let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let newest = resource_version(migration, "/status/resourceVersion");
        if newest == 0 {
            return Err(format!("{} succeeds without a resourceVersion", describe(migration)));
        }
        let began = self.began.get(uid(migration)).copied().unwrap_or_default();
        for object in server.objects(&resource) {
            let name = text(&object, "/metadata/name").to_owned();
            let key = (resource.clone(), namespace(&object).to_owned(), name);
            let is_old = resource_version(&object, "/metadata/resourceVersion") <= newest;
            if is_old && self.rewritten.get(&key).is_none_or(|written| *written < began) {
                return Err(format!("{} succeeds without {}", describe(migration), describe(&object)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use serde_json::json;

    use super::*;

    /// A migration of ReplicaSets that are not newer than 1,000.
    fn migration(condition: &str) -> Value {
        json!({"apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
            "metadata": {"name": "m", "uid": "u"}, "spec": {"resource": {"group": "apps", "resource": "replicasets"}},
            "status": {"resourceVersion": "1000", "conditions": [{"type": condition, "status": "True"}]}})
    }

    fn write(before: &str, after: &str) -> ObservedWrite {
        let path = "/apis/storagemigration.k8s.io/v1/storageversionmigrations/m/status";
        ObservedWrite {
            before: Some(Arc::new(migration(before))),
            after: Some(Arc::new(migration(after))),
            ..ObservedWrite::of_manager(NAME, &Method::PUT, path)
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

    #[test]
    fn success_without_an_object_is_caught() {
        let server = ApiServer::builder().build();
        for name in ["a", "b"] {
            let metadata = json!({"namespace": "default", "name": name});
            server
                .seed(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}))
                .unwrap();
        }
        let path = |name: &str| format!("/apis/apps/v1/namespaces/default/replicasets/{name}");
        let patch = |name: &str| ObservedWrite::of_manager(NAME, &Method::PATCH, &path(name));
        let result = |patched: &[&str], early: &[&str]| {
            let mut checker = Migrations::default();
            for name in early {
                checker.on_write(&patch(name), &server)?;
            }
            checker.on_write(&write("Running", "Running"), &server)?;
            for name in patched {
                checker.on_write(&patch(name), &server)?;
            }
            checker.on_write(&write("Running", "Succeeded"), &server)
        };
        assert_eq!(result(&["a", "b"], &[]), Ok(()));
        let error = Err("StorageVersionMigration /m succeeds without ReplicaSet default/b".to_owned());
        assert_eq!(result(&["a"], &[]), error);
        assert_eq!(result(&["a"], &["b"]), error, "for an earlier migration");
    }

    #[test]
    fn success_without_a_resource_version_is_caught() {
        let server = ApiServer::builder().build();
        let mut succeeds = write("Running", "Succeeded");
        if let Some(after) = &mut succeeds.after {
            Arc::make_mut(after)["status"]["resourceVersion"] = json!("");
        }
        let error = Migrations::default().on_write(&succeeds, &server).unwrap_err();
        assert_eq!(error, "StorageVersionMigration /m succeeds without a resourceVersion");
    }

    #[test]
    fn failure_is_no_end() {
        let server = ApiServer::builder().build();
        server.seed(migration("Failed")).unwrap();
        let error = Migrations::default().check_converged(&server).unwrap_err();
        assert!(error.starts_with("StorageVersionMigration /m fails without a fault"), "{error}");
    }
}
