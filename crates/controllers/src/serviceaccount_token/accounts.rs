//! Deletes the token Secrets of an account that is gone.

use keleustes_objects::{ServiceAccount, TokenSecret, Uid};
use keleustes_plan::{Change, Enqueue, Item, Loop, Plan, View};

use super::{BY_ACCOUNT, QUEUE, delete};

pub(super) fn the_loop() -> Loop {
    Loop::deciding(QUEUE, decide).enqueue_on::<ServiceAccount>(account_changed).reads_index(BY_ACCOUNT)
}

/// The uid travels with the item: once the account is gone, or has come back as another, nothing in
/// the cache tells which life of it ended.
fn account_changed(change: &Change<ServiceAccount>, _: &View<'_>, wakes: &mut Enqueue) {
    if !change.is_resync() {
        for account in change.old_and_new() {
            wakes.add(Item::from(&account.meta.key).with_attribute("uid", account.meta.uid.to_string()));
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
        // A Secret that does not say which life it belongs to goes with whichever ends.
        secret.account_uid.is_empty() || secret.account_uid == item.attribute("uid")
    }) {
        plan.push(delete(secret, "its service account is gone"));
    }
    plan
}
