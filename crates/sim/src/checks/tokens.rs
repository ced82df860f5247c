//! Tokens: in the end every Secret that asks for one has it, and none is left of an account that is gone.

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{named, uid};
use crate::witness::text;

/// Looks at Secrets and accounts.
pub struct Tokens;

/// "the CA"
const CA: &str = "dGhlIENB";
const TYPE: &str = "kubernetes.io/service-account-token";

impl Checker for Tokens {
    fn name(&self) -> &'static str {
        "serviceaccount-token-controller"
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        let asks = |secret: &&std::sync::Arc<serde_json::Value>| text(secret, "/type") == TYPE;
        server.objects("secrets").iter().filter(asks).try_for_each(|secret| {
            let note = |what: &str| text(secret, &format!("/metadata/annotations/kubernetes.io~1{what}"));
            let (namespace, name) = (text(secret, "/metadata/namespace"), note("service-account.name"));
            let Some(account) = server.object("serviceaccounts", namespace, name) else {
                return Err(format!("{} is left, and its account is gone", named(secret)));
            };
            if note("service-account.uid") != uid(&account) {
                return Err(format!("{} is of another account of that name", named(secret)));
            }
            if text(secret, "/data/token").is_empty() || text(secret, "/data/namespace").is_empty() {
                return Err(format!("{} has no token", named(secret)));
            }
            if text(secret, "/data/ca.crt") != CA {
                return Err(format!("{} has another CA", named(secret)));
            }
            Ok(())
        })
    }
}
