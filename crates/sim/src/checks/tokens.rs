//! Token Secrets: in the end each is filled, and none is left whose ServiceAccount is gone.

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::objects::{describe, uid};
use crate::recorder::text;

/// Compares token Secrets with their ServiceAccounts.
pub struct Tokens;

/// base64 of "the CA"
const CA: &str = "dGhlIENB";
const TYPE: &str = "kubernetes.io/service-account-token";

impl Checker for Tokens {
    fn name(&self) -> &'static str {
        "serviceaccount-token-controller"
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let is_token_secret = |secret: &&std::sync::Arc<serde_json::Value>| text(secret, "/type") == TYPE;
        server.objects("secrets").iter().filter(is_token_secret).try_for_each(|secret| {
            let annotation =
                |what: &str| text(secret, &format!("/metadata/annotations/kubernetes.io~1{what}"));
            let (namespace, name) = (text(secret, "/metadata/namespace"), annotation("service-account.name"));
            let Some(account) = server.object("serviceaccounts", namespace, name) else {
                return Err(format!("{} is left, and its ServiceAccount does not exist", describe(secret)));
            };
            if annotation("service-account.uid") != uid(&account) {
                return Err(format!(
                    "{} has the UID of another ServiceAccount of that name",
                    describe(secret)
                ));
            }
            if text(secret, "/data/token").is_empty() || text(secret, "/data/namespace").is_empty() {
                return Err(format!("{} has no token", describe(secret)));
            }
            if text(secret, "/data/ca.crt") != CA {
                return Err(format!("{} has another CA", describe(secret)));
            }
            Ok(())
        })
    }
}
