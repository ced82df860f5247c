//! Keeps Secrets of type `kubernetes.io/service-account-token` complete while their ServiceAccount
//! lives, and deletes them when it is gone.
//!
//! Two loops share the name of the queue. The accounts' loop deletes the Secrets of accounts that are
//! gone; the Secrets' loop fills a Secret, deletes it if its account does not exist, and takes a
//! deleted Secret off its account's list. No Secret is ever created here.
//!
//! Parity: pkg/controller/serviceaccount/tokens_controller.go.

mod accounts;
mod contents;
mod secrets;

use std::sync::Arc;

use keleustes_objects::{ErrorReason, InternedStr, Key, TokenSecret};
use keleustes_plan::{Controller, Grant, Index, OnFailure, Write};
use serde_json::Value;

/// What the controller needs to be told.
#[derive(Clone)]
pub struct ServiceAccountTokenOptions {
    /// Signs claims.
    pub sign: Sign,
    /// The CA that Secrets carry, as PEM; empty if none is known, which leaves `ca.crt` alone.
    pub ca: Arc<[u8]>,
    /// How many accounts, and how many Secrets, are worked on at once.
    pub workers: usize,
}

/// Makes a compact JWS of claims, or says why it cannot.
pub type Sign = Arc<dyn Fn(&Value) -> Result<String, String> + Send + Sync>;

const QUEUE: &str = "serviceaccount_tokens_service";
const RETRIES_MAX: u32 = 10;

/// The controller. It works with the manager's own credentials: its tokens may be what all others
/// depend on.
#[must_use]
pub fn controller(settings: &ServiceAccountTokenOptions) -> Controller {
    Controller::new("serviceaccount-token-controller")
        .also_known_as(&["serviceaccount-token"])
        .may_write(&[
            Grant { group: "", resource: "secrets", verbs: &["get", "update", "delete"] },
            Grant { group: "", resource: "serviceaccounts", verbs: &["get", "update"] },
        ])
        .with_loop(accounts::the_loop().workers(settings.workers).max_retries(RETRIES_MAX))
        .with_loop(secrets::the_loop(settings).workers(settings.workers).max_retries(RETRIES_MAX))
}

/// Finds the Secrets of an account, by `namespace/name` of the account.
const BY_ACCOUNT: Index<TokenSecret> = Index {
    name: "account",
    values: |secret, emit| {
        if !secret.account_name.is_empty() {
            let account = Key::namespaced(&*secret.meta.key.namespace, &*secret.account_name);
            emit(InternedStr::from(&*account.to_string()));
        }
    },
};

/// Deletes a Secret. One that is gone, or is another one by now, needs no deleting.
fn delete(secret: &TokenSecret, because: &'static str) -> Write {
    Write::delete(secret)
        .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict])
        .on_failure(OnFailure::ContinueAndRetry)
        .because(because)
}

#[cfg(test)]
mod tests;
