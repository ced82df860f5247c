//! In the end every ResourceQuota publishes its limits, and its usage equals a recount.

use keleustes_apiserver::ApiServer;
use keleustes_objects::Quantity;
use serde_json::{Value, json};

use super::Checker;
use super::objects::{describe, is_terminating, namespace};
use crate::recorder::text;

/// The name of the checker.
pub const NAME: &str = "resourcequota-controller";

/// Recounts the objects of every quota.
pub struct Quotas;

impl Checker for Quotas {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for quota in server.objects("resourcequotas").iter().filter(|quota| !is_terminating(quota)) {
            let (hard, status) = (&quota["spec"]["hard"], &quota["status"]);
            if status["hard"] != *hard {
                return Err(format!("{} does not publish its limits", describe(quota)));
            }
            for name in hard.as_object().into_iter().flatten().map(|(name, _)| name) {
                let found = &status["used"][name];
                let counted = recount(server, quota, name);
                // The format depends on which object was counted first.
                if found.as_str().and_then(Quantity::parse) != Some(counted) {
                    return Err(format!("{}: {name} is {counted}, not {found}", describe(quota)));
                }
            }
        }
        Ok(())
    }
}

/// The usage of a name, for the names that users limit.
fn recount(server: &ApiServer, quota: &Value, name: &str) -> Quantity {
    let requested = name.strip_prefix("requests.");
    let plural = match (requested, name.strip_prefix("count/")) {
        (Some(_), _) => "pods",
        (None, Some(plural)) => plural,
        (None, None) => name,
    };
    let objects = server.objects(plural);
    let here = objects.iter().filter(|object| namespace(object) == namespace(quota));
    let finished = |object: &Value| matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
    let charged = here.filter(|object| name.starts_with("count/") || !finished(object));
    let charged = charged.filter(|object| is_in_scopes(quota, object));
    let amount = |object: &Value| match requested {
        Some(resource) => requests(object, resource),
        None => Quantity::from_whole(1),
    };
    charged.fold(Quantity::from_whole(0), |sum, object| sum.plus(amount(object)))
}

/// Whether a pod is in all scopes of a quota.
fn is_in_scopes(quota: &Value, pod: &Value) -> bool {
    let is_best_effort = containers(pod).all(|one| {
        ["requests", "limits"]
            .iter()
            .all(|field| one["resources"][field].as_object().is_none_or(serde_json::Map::is_empty))
    });
    let mut scopes = quota.pointer("/spec/scopes").and_then(Value::as_array).into_iter().flatten();
    scopes.all(|scope| match scope.as_str() {
        Some("BestEffort") => is_best_effort,
        Some("NotBestEffort") => !is_best_effort,
        _ => false,
    })
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten()
}

/// What all containers of a pod request. Pods of storms have no other kinds of containers and no overhead.
fn requests(pod: &Value, resource: &str) -> Quantity {
    let amounts = containers(pod).filter_map(|one| one["resources"]["requests"][resource].as_str());
    amounts.filter_map(Quantity::parse).fold(Quantity::from_whole(0), Quantity::plus)
}

/// Whether nothing of a quota can be computed.
pub(super) fn is_uncomputed(quota: &Value) -> bool {
    let is_unset = |field: &str| quota.pointer(field).is_none_or(|amounts| *amounts == json!({}));
    text(quota, "/kind") == "ResourceQuota" && (is_unset("/status/hard") || is_unset("/status/used"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, phase: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
            "spec": {"containers": [{"name": "c", "image": "any:0"}]}, "status": {"phase": phase},
        })
    }

    #[test]
    fn wrong_limits_and_usage_are_reported() {
        let check = |hard: Value, used: Value| {
            let server = ApiServer::builder().build();
            let quota = json!({
                "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"namespace": "default", "name": "oar"},
                "spec": {"hard": {"pods": "9", "count/pods": "9"}},
                "status": {"hard": hard, "used": used},
            });
            for object in [quota, pod("p", "Running"), pod("q", "Succeeded")] {
                server.seed(object).unwrap();
            }
            Quotas.check_converged(&server)
        };
        let hard = || json!({"pods": "9", "count/pods": "9"});
        assert_eq!(check(hard(), json!({"pods": "1", "count/pods": "2"})), Ok(()));
        let error = check(json!({"pods": "9"}), json!({"pods": "1", "count/pods": "2"})).unwrap_err();
        assert_eq!(error, "ResourceQuota default/oar does not publish its limits");
        let error = check(hard(), json!({"pods": "2", "count/pods": "2"})).unwrap_err();
        assert_eq!(error, "ResourceQuota default/oar: pods is 1, not \"2\"");
        let error = check(hard(), json!({"pods": "1"})).unwrap_err();
        assert_eq!(error, "ResourceQuota default/oar: count/pods is 2, not null");
    }

    #[test]
    fn wrong_requests_and_scopes_are_reported() {
        let check = |scopes: Value, used: Value| {
            let server = ApiServer::builder().build();
            let hard = json!({"pods": "9", "requests.cpu": "9", "requests.memory": "9Gi"});
            let quota = json!({
                "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"namespace": "default", "name": "oar"},
                "spec": {"hard": hard, "scopes": scopes}, "status": {"hard": hard, "used": used},
            });
            let with_requests = |name: &str, cpu: &str| {
                let mut pod = pod(name, "Running");
                pod["spec"]["containers"][0]["resources"] =
                    json!({"requests": {"cpu": cpu, "memory": "64Mi"}});
                pod
            };
            for object in [quota, pod("none", "Running"), with_requests("p", "100m"), with_requests("q", "1")]
            {
                server.seed(object).unwrap();
            }
            Quotas.check_converged(&server)
        };
        let used = |pods: &str, cpu: &str, memory: &str| json!({"pods": pods, "requests.cpu": cpu, "requests.memory": memory});
        assert_eq!(check(json!([]), used("3", "1100m", "128Mi")), Ok(()));
        assert_eq!(check(json!(["NotBestEffort"]), used("2", "1100m", "131072Ki")), Ok(()));
        assert_eq!(check(json!(["BestEffort"]), used("1", "0", "0")), Ok(()));
        let error = check(json!([]), used("3", "1", "128Mi")).unwrap_err();
        assert_eq!(error, "ResourceQuota default/oar: requests.cpu is 1100m, not \"1\"");
        let error = check(json!([]), used("3", "1100m", "64Mi")).unwrap_err();
        assert_eq!(error, "ResourceQuota default/oar: requests.memory is 128Mi, not \"64Mi\"");
        let error = check(json!(["NotBestEffort"]), used("3", "1100m", "128Mi")).unwrap_err();
        assert_eq!(error, "ResourceQuota default/oar: pods is 2, not \"3\"");
    }
}
