//! Deletes the token Secrets of a deleted ServiceAccount.

use keleustes_objects::{ServiceAccount, TokenSecret, Uid};
use keleustes_plan::{Change, Effects, Item, Loop, Plan, View};

use super::{BY_ACCOUNT, QUEUE, delete};

pub(super) fn the_loop() -> Loop {
    Loop::deciding(QUEUE, decide)
        .keyed_by::<ServiceAccount>()
        .enqueue_on::<ServiceAccount>(account_changed)
        .reads_index(BY_ACCOUNT)
        .reads_unwatched::<TokenSecret>("the loop of Secrets deletes one whose ServiceAccount does not exist")
}

/// The item carries the UID, because after a deletion or recreation the cache no longer contains it.
fn account_changed(change: &Change<ServiceAccount>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_resync() {
        for account in change.old_and_new() {
            enqueue.add(Item::from(&account.meta.key).with_attribute("uid", account.meta.uid.to_string()));
        }
    }
}

fn decide(view: &View<'_>, item: &Item) -> Plan {
    let (uid, mut plan) = (Uid::from(item.attribute("uid")), Plan::none());
    if item.namespace.is_empty() || item.name.is_empty() || uid.is_empty() {
        return plan;
    }
    if view.get::<ServiceAccount>(item).is_some_and(|account| account.meta.uid == uid) {
        return plan;
    }
    let secrets = view.store::<TokenSecret>().by_index(&BY_ACCOUNT, &item.key.to_string());
    for secret in secrets.filter(|secret| {
        // A Secret without ServiceAccount UID belongs to any UID.
        secret.account_uid.is_empty() || secret.account_uid == item.attribute("uid")
    }) {
        plan.push(delete(secret, "its ServiceAccount is deleted"));
    }
    plan
}
