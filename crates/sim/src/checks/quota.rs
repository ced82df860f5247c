//! In the end every ResourceQuota publishes its limits, and its usage equals a recount.

use keleustes_apiserver::ApiServer;
use serde_json::{Value, json};

use super::Checker;
use super::objects::{describe, is_terminating};
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
                let count = recount(server, text(quota, "/metadata/namespace"), name);
                if status["used"][name] != json!(count.to_string()) {
                    return Err(format!(
                        "{}: {name} is {count}, not {}",
                        describe(quota),
                        status["used"][name]
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The usage of a name, for the names that users limit.
fn recount(server: &ApiServer, namespace: &str, name: &str) -> usize {
    let is_charged = |object: &&Value| match name {
        "pods" => !matches!(text(object, "/status/phase"), "Succeeded" | "Failed"),
        _ => true,
    };
    let plural = name.strip_prefix("count/").unwrap_or(name);
    let objects = server.objects(plural);
    let here = objects.iter().map(|object| &**object);
    here.filter(|object| text(object, "/metadata/namespace") == namespace).filter(is_charged).count()
}

#[cfg(test)]
mod tests {
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
}
