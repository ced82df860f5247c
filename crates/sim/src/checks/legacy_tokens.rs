//! Legacy token Secrets: only one that is unused, marked long ago and mounted by no pod is deleted.

use keleustes_apiserver::ApiServer;
use serde_json::{Value, json};

use super::Checker;
use super::objects::describe;
use crate::recorder::{ObservedWrite, text};

const NAMESPACE: &str = "kube-system";
const ACCOUNT: &str = "legacy";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The only Secret that may be deleted, until a user restores it.
const OLD: &str = "legacy-old";
/// The others: used, mounted by a pod, not marked yet, not generated.
const KEPT: [&str; 4] = ["legacy-used", "legacy-mounted", "legacy-new", "legacy-manual"];

/// Follows the deletions of legacy tokens.
pub struct LegacyTokens;

/// The tokens of a ServiceAccount, the pod that mounts one, and the day on which tracking began, as they are when a
/// storm begins. No clock of a storm reaches 2098.
pub(crate) fn initial_objects() -> Vec<Value> {
    let secret = |name: &str| {
        let mut labels = json!({});
        if name != "legacy-new" {
            labels[INVALID_SINCE] = json!("2020-02-01");
        }
        if name == "legacy-used" {
            labels[LAST_USED] = json!("2098-01-01");
        }
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"namespace": NAMESPACE, "name": name, "labels": labels,
                         "creationTimestamp": "2020-01-01T00:00:00Z",
                         "annotations": {"kubernetes.io/service-account.name": ACCOUNT}},
        })
    };
    let generated = [OLD, KEPT[0], KEPT[1], KEPT[2]].map(|name| json!({"name": name}));
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": NAMESPACE, "name": ACCOUNT},
        "secrets": generated,
    });
    // It has ended and no scheduler binds it, so that no node can take it away. It is stored with all defaults, as an API
    // server would have stored it: a migration must be able to write it back.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": NAMESPACE, "name": "legacy-pod"},
        "spec": {"schedulerName": "none", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "securityContext": {},
                 "terminationGracePeriodSeconds": 30, "enableServiceLinks": true,
                 "containers": [{"name": "c", "image": "any:0", "imagePullPolicy": "IfNotPresent", "resources": {},
                                 "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
                 "volumes": [{"name": "v", "secret": {"secretName": "legacy-mounted", "defaultMode": 420}}]},
        "status": {"phase": "Succeeded"},
    });
    let tracking = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"since": "2020-01-01"},
        "metadata": {"namespace": NAMESPACE, "name": "kube-apiserver-legacy-service-account-token-tracking"},
    });
    let secrets = [OLD].into_iter().chain(KEPT).map(secret);
    [account, pod, tracking].into_iter().chain(secrets).collect()
}

/// A user needs the old token again: the mark goes, and the API server records that it is used.
pub(crate) fn restored() -> (keleustes_objects::Key, Value) {
    let labels = json!({INVALID_SINCE: null, LAST_USED: "2098-01-01"});
    (keleustes_objects::Key::namespaced(NAMESPACE, OLD), json!({"metadata": {"labels": labels}}))
}

fn is_used(secret: &Value) -> bool {
    secret["metadata"]["labels"][LAST_USED] == "2098-01-01"
}

impl Checker for LegacyTokens {
    fn name(&self) -> &'static str {
        "legacy-serviceaccount-token-cleaner-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let Some(before) = write.before.as_ref().filter(|_| write.by_manager() && write.succeeded()) else {
            return Ok(());
        };
        let name = write.request.name.as_str();
        // What counts is what was stored when the write arrived.
        let is_kept =
            write.request.namespace == NAMESPACE && (KEPT.contains(&name) || name == OLD && is_used(before));
        if write.request.resource != "secrets" || !is_kept {
            return Ok(());
        }
        if write.after.is_none() {
            return Err(format!(
                "{} was deleted, which is in use or not marked long enough",
                describe(before)
            ));
        }
        let mark = |object: &Value| object["metadata"]["labels"][INVALID_SINCE].clone();
        let after = write.after.as_deref().unwrap_or(&Value::Null);
        if mark(before).is_string() && mark(before) != mark(after) {
            return Err(format!("the mark of {} was changed", describe(before)));
        }
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let missing = KEPT.iter().find(|name| server.object("secrets", NAMESPACE, name).is_none());
        if let Some(name) = missing {
            return Err(format!("{name} is gone"));
        }
        let listed = server.object("serviceaccounts", NAMESPACE, ACCOUNT).ok_or("the account is gone")?;
        let mut names = listed["secrets"].as_array().into_iter().flatten().map(|one| text(one, "/name"));
        let is_listed = names.any(|name| name == OLD);
        let exists = server.object("secrets", NAMESPACE, OLD).is_some();
        // A reference to a deleted Secret stays if the leader stops before it has observed the deletion, as it does with
        // the original.
        if exists && !is_listed { Err(format!("{OLD} exists and is not listed")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;

    #[test]
    fn deleted_token_in_use_has_not_converged() {
        let server = ApiServer::builder().build();
        for object in initial_objects() {
            server.seed(object).unwrap();
        }
        assert_eq!(LegacyTokens.check_converged(&server), Ok(()));
        assert!(server.remove("secrets", NAMESPACE, "legacy-mounted"));
        assert_eq!(LegacyTokens.check_converged(&server), Err("legacy-mounted is gone".to_owned()));
    }

    #[test]
    fn deletion_and_new_mark_of_a_token_in_use_are_reported() {
        let server = ApiServer::builder().build();
        let write = |name: &str, after: fn(Value) -> Option<Value>| {
            let token =
                initial_objects().into_iter().find(|object| object["metadata"]["name"] == name).unwrap();
            let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
            ObservedWrite {
                before: Some(Arc::new(token.clone())),
                after: after(token).map(Arc::new),
                ..ObservedWrite::of_manager("legacy-service-account-token-cleaner", &Method::PATCH, &path)
            }
        };
        let check = |write: &ObservedWrite| LegacyTokens.on_write(write, &server);
        assert_eq!(check(&write(OLD, |_| None)), Ok(()));
        for name in KEPT {
            let error = check(&write(name, |_| None)).unwrap_err();
            let token = format!("Secret {NAMESPACE}/{name}");
            assert_eq!(error, format!("{token} was deleted, which is in use or not marked long enough"));
            let by_user = ObservedWrite { party: "user".into(), ..write(name, |_| None) };
            assert_eq!(check(&by_user), Ok(()));
        }
        let mut used = write(OLD, |_| None);
        let mut token = used.before.as_deref().unwrap().clone();
        token["metadata"]["labels"][LAST_USED] = json!("2098-01-01");
        used.before = Some(Arc::new(token));
        assert!(check(&used).unwrap_err().contains("which is in use"), "used during the storm");
        let mark_again = |mut token: Value| {
            token["metadata"]["labels"][INVALID_SINCE] = json!("2026-01-01");
            Some(token)
        };
        assert_eq!(check(&write("legacy-new", mark_again)), Ok(()), "its first mark");
        let error = check(&write("legacy-manual", mark_again)).unwrap_err();
        assert_eq!(error, "the mark of Secret kube-system/legacy-manual was changed");
    }
}
