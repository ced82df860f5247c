//! Deletes the token Secrets of a deleted ServiceAccount.

use keleustes_objects::{Key, ServiceAccount, TokenSecret, Uid};
use keleustes_plan::{Change, Effects, Loop, Plan, QueueItem, View};

use super::{BY_ACCOUNT, QUEUE, delete};

pub(super) fn the_loop() -> Loop {
    Loop::deciding(QUEUE, decide)
        .keyed_by::<ServiceAccount>()
        .enqueue_on::<ServiceAccount>(account_changed)
        .reads_index(BY_ACCOUNT)
        .reads_unwatched::<TokenSecret>("the loop of Secrets deletes one whose ServiceAccount does not exist")
}

/// A ServiceAccount with its UID, which after a deletion or recreation the cache no longer contains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AccountItem {
    pub(super) key: Key,
    pub(super) uid: Uid,
}

impl QueueItem for AccountItem {
    fn key(&self) -> Key {
        self.key.clone()
    }

    fn text(&self) -> String {
        format!("{} uid={}", self.key, self.uid)
    }
}

fn account_changed(change: &Change<ServiceAccount>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_resync() {
        for account in change.old_and_new() {
            enqueue.add(AccountItem { key: account.meta.key.clone(), uid: account.meta.uid.clone() });
        }
    }
}

fn decide(view: &View<'_>, AccountItem { key, uid }: &AccountItem) -> Plan {
    let mut plan = Plan::none();
    if key.namespace.is_empty() || key.name.is_empty() || uid.is_empty() {
        return plan;
    }
    if view.get::<ServiceAccount>(key).is_some_and(|account| account.meta.uid == *uid) {
        return plan;
    }
    let secrets = view.store::<TokenSecret>().by_index(&BY_ACCOUNT, &key.to_string());
    for secret in secrets.filter(|secret| {
        // A Secret without ServiceAccount UID belongs to any UID.
        secret.account_uid.is_empty() || Uid::from(secret.account_uid.as_str()) == *uid
    }) {
        plan.push(delete(secret, "its ServiceAccount is deleted"));
    }
    plan
}
