//! Fills Secrets of type `kubernetes.io/service-account-token` and deletes them when their ServiceAccount is
//! deleted.
//!
//! Two loops share one queue name. The ServiceAccount loop deletes the Secrets of deleted ServiceAccounts;
//! the Secret loop fills a Secret, deletes it if its ServiceAccount does not exist, and removes a deleted
//! Secret from the list in its ServiceAccount. The controller never creates a Secret.
//!
//! Parity: pkg/controller/serviceaccount/tokens_controller.go.

mod accounts;
mod contents;
mod secrets;

use std::sync::Arc;

use keleustes_objects::{ErrorReason, InternedStr, Key, TokenSecret};
use keleustes_plan::{Controller, Grant, Index, OnFailure, Write};
use serde_json::Value;

/// Options of the token controller.
#[derive(Clone)]
pub struct ServiceAccountTokenOptions {
    /// Signs claims.
    pub sign: Sign,
    /// The CA bundle for Secrets, as PEM; if empty, `ca.crt` is not changed.
    pub ca: Arc<[u8]>,
    /// Workers per loop (`--concurrent-serviceaccount-token-syncs`).
    pub workers: usize,
}

/// Signs claims as a compact JWS, or returns the error.
pub type Sign = Arc<dyn Fn(&Value) -> Result<String, String> + Send + Sync>;

const QUEUE: &str = "serviceaccount_tokens_service";
const RETRIES_MAX: u32 = 10;

/// Builds the controller. It uses the manager's own credentials, because the other controllers may depend on
/// its tokens.
#[must_use]
pub fn controller(options: &ServiceAccountTokenOptions) -> Controller {
    Controller::new("serviceaccount-token-controller")
        .may_write(&[
            Grant { group: "", resource: "secrets", verbs: &["get", "update", "delete"] },
            Grant { group: "", resource: "serviceaccounts", verbs: &["get", "update"] },
        ])
        .with_loop(accounts::the_loop().workers(options.workers).max_retries(RETRIES_MAX))
        .with_loop(secrets::the_loop(options).workers(options.workers).max_retries(RETRIES_MAX))
}

/// Index of Secrets by `namespace/name` of their ServiceAccount.
const BY_ACCOUNT: Index<TokenSecret> = Index {
    name: "account",
    values: |secret, emit| {
        if !secret.account_name.is_empty() {
            let account = Key::namespaced(&*secret.meta.key.namespace, &*secret.account_name);
            emit(InternedStr::from(&*account.to_string()));
        }
    },
};

/// Deletes a Secret with a UID precondition. NotFound and Conflict mean that it no longer exists.
fn delete(secret: &TokenSecret, because: &'static str) -> Write {
    Write::delete(secret)
        .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict])
        .on_failure(OnFailure::ContinueAndRetry)
        .because(because)
}

#[cfg(test)]
mod tests;
