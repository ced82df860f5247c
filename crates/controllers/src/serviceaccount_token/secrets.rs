//! Fills token Secrets, deletes those without ServiceAccount, and removes deleted ones from the list in their
//! ServiceAccount.

use std::sync::Arc;

use keleustes_objects::{ArcStr, ErrorReason, Key, ServiceAccount, TokenSecret, Uid};
use keleustes_plan::{
    Change, Context, Edited, Effects, Loop, OnFailure, Plan, QueueItem, ReconcileError, Reconciler, Requeue,
    View, Write,
};
use serde_json::Value;

use super::contents::Contents;
use super::{QUEUE, ServiceAccountTokenOptions, delete};

const CONFLICT_ATTEMPTS: u32 = 10;

pub(super) fn the_loop(options: &ServiceAccountTokenOptions) -> Loop {
    Loop::reconciling(QUEUE, SecretReconciler { contents: Contents::new(options) })
        .keyed_by::<TokenSecret>()
        .enqueue_on::<TokenSecret>(secret_changed)
        .reads_unwatched::<ServiceAccount>("the loop of ServiceAccounts deletes the Secrets of a deleted one")
}

/// A Secret with its UID and its ServiceAccount, which nothing else identifies after the deletion.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SecretItem {
    pub(super) key: Key,
    pub(super) uid: Uid,
    pub(super) account: ArcStr,
    pub(super) account_uid: ArcStr,
}

impl QueueItem for SecretItem {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn text(&self) -> String {
        let Self { key, uid, account, account_uid } = self;
        format!("{key} uid={uid} account={account} account-uid={account_uid}")
    }
}

fn secret_changed(change: &Change<TokenSecret>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_resync() {
        let secret = change.latest();
        enqueue.add(SecretItem {
            key: secret.meta.key.clone(),
            uid: secret.meta.uid.clone(),
            account: secret.account_name.clone(),
            account_uid: secret.account_uid.clone(),
        });
    }
}

struct SecretReconciler {
    contents: Arc<Contents>,
}

impl Reconciler<SecretItem> for SecretReconciler {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &SecretItem) -> Result<Requeue, ReconcileError> {
        let nameless = item.key.namespace.is_empty() || item.key.name.is_empty();
        if nameless || item.uid.is_empty() || item.account.is_empty() {
            return Ok(Requeue::Forget);
        }
        let plan = match cx.gather(|view| Inputs::gather(view, item)) {
            Inputs { secret: None, account, .. } => {
                account.map_or_else(Plan::none, |account| remove_from_list(&account, item))
            }
            Inputs { secret: Some(secret), account: Some(account), .. } => self.fill(&secret, &account),
            // The cache may not contain a new ServiceAccount yet, so it is read live before the Secret is
            // deleted.
            Inputs { secret: Some(secret), account: None, account_key } => match cx
                .fetch::<ServiceAccount>(&account_key)
                .await?
            {
                Some(account) if uid_matches(&account, &secret.account_uid) => self.fill(&secret, &account),
                _ => Plan::of(delete(&secret, "its ServiceAccount does not exist")),
            },
        };
        cx.apply(plan).await.all_done().map(|()| Requeue::Forget)
    }
}

impl SecretReconciler {
    /// Reads the Secret live and adds the missing data.
    fn fill(&self, secret: &TokenSecret, account: &ServiceAccount) -> Plan {
        if !self.contents.is_incomplete(secret) {
            return Plan::none();
        }
        let (contents, owner) = (self.contents.clone(), account.meta.clone());
        Plan::of(
            Write::edit(secret, move |live| contents.fill(live, &owner))
                .expected_resource_version(&secret.meta.resource_version)
                // Another writer changed the Secret first; the watch event enqueues it again.
                .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict])
                .because("it lacks its token, its namespace or the cluster's CA"),
        )
    }
}

/// The cached objects that belong to one item.
struct Inputs {
    /// The Secret, if it still has the item's UID.
    secret: Option<Arc<TokenSecret>>,
    /// The ServiceAccount it names, if it exists with the wanted UID.
    account: Option<Arc<ServiceAccount>>,
    account_key: Key,
}

impl Inputs {
    fn gather(view: &View<'_>, item: &SecretItem) -> Self {
        let secret = view.get::<TokenSecret>(&item.key).filter(|secret| secret.meta.uid == item.uid).cloned();
        // An existing Secret may name another ServiceAccount than when the item was enqueued.
        let (name, account_uid) = match &secret {
            Some(secret) => (secret.account_name.as_str(), secret.account_uid.as_str()),
            None => (item.account.as_str(), item.account_uid.as_str()),
        };
        let account_key = Key::namespaced(&*item.key.namespace, name);
        let account = view.get::<ServiceAccount>(&account_key);
        let account = account.filter(|account| uid_matches(account, account_uid)).cloned();
        Self { secret, account, account_key }
    }
}

/// Whether a ServiceAccount has the UID that a Secret states; no stated UID matches any.
fn uid_matches(account: &ServiceAccount, wanted_uid: &str) -> bool {
    wanted_uid.is_empty() || account.meta.uid == Uid::from(wanted_uid)
}

/// Removes a deleted Secret from the list in its ServiceAccount.
fn remove_from_list(account: &ServiceAccount, item: &SecretItem) -> Plan {
    let deleted = item.key.name.clone();
    let remove_from_list = move |live: &mut Value| {
        let Some(listed) = live.get_mut("secrets").and_then(Value::as_array_mut) else {
            return Edited::Unneeded;
        };
        let before = listed.len();
        listed.retain(|reference| reference.get("name").and_then(Value::as_str) != Some(deleted.as_str()));
        if listed.len() == before { Edited::Unneeded } else { Edited::Changed }
    };
    Plan::of(
        Write::edit(account, remove_from_list)
            .conflict_tries(CONFLICT_ATTEMPTS)
            .ignoring_errors(&[ErrorReason::NotFound])
            .on_failure(OnFailure::LogOnly)
            .because(format!("its token Secret {} is deleted", item.key.name)),
    )
}
