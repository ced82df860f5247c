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
