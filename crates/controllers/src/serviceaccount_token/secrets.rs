//! Fills token Secrets, deletes those without an account, and takes deleted ones off their account's list.

use std::sync::Arc;

use keleustes_objects::{ErrorReason, Key, ServiceAccount, TokenSecret, Uid};
use keleustes_plan::{
    BoxFuture, Change, Context, Edited, Enqueue, Item, Loop, OnFailure, Plan, ReconcileError, Reconciler,
    Requeue, View, Write,
};
use serde_json::Value;

use super::contents::Contents;
use super::{QUEUE, ServiceAccountTokenOptions, delete};

const CONFLICT_TRIES: u32 = 10;

pub(super) fn the_loop(settings: &ServiceAccountTokenOptions) -> Loop {
    Loop::reconciling(QUEUE, Secrets { contents: Contents::new(settings) })
        .enqueue_on::<TokenSecret>(secret_changed)
        .reads::<ServiceAccount>()
}

/// Facts about the Secret travel with the item: once it is gone, nothing else tells whose it was.
fn secret_changed(change: &Change<TokenSecret>, _: &View<'_>, wakes: &mut Enqueue) {
    if !change.is_resync() {
        let secret = change.latest();
        wakes.add(
            Item::from(&secret.meta.key)
                .with_attribute("uid", secret.meta.uid.to_string())
                .with_attribute("account", secret.account_name.clone())
                .with_attribute("account-uid", secret.account_uid.clone()),
        );
    }
}

struct Secrets {
    contents: Arc<Contents>,
}

impl Reconciler for Secrets {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(self.sync(cx, item))
    }
}

impl Secrets {
    async fn sync(&self, cx: &mut Context<'_>, item: &Item) -> Result<Requeue, ReconcileError> {
        let nameless = item.namespace.is_empty() || item.name.is_empty();
        if nameless || item.attribute("uid").is_empty() || item.attribute("account").is_empty() {
            return Ok(Requeue::Forget);
        }
        let plan = match cx.gather(|view| Facts::gather(view, item)) {
            Facts { secret: None, account, .. } => {
                account.map_or_else(Plan::none, |account| unlist(&account, item))
            }
            Facts { secret: Some(secret), account: Some(account), .. } => self.fill(&secret, &account),
            // The cache may lag behind an account that has just been made. Before anything is
            // deleted, the server is asked.
            Facts { secret: Some(secret), account: None, account_key } => match cx
                .fetch::<ServiceAccount>(&account_key)
                .await?
            {
                Some(account) if is_the_one(&account, &secret.account_uid) => self.fill(&secret, &account),
                _ => Plan::of(delete(&secret, "it belongs to a service account that does not exist")),
            },
        };
        cx.apply(plan).await.all_done().map(|()| Requeue::Forget)
    }

    /// Reads the Secret afresh and fills in what it lacks.
    fn fill(&self, secret: &TokenSecret, account: &ServiceAccount) -> Plan {
        if !self.contents.lacks_any(secret) {
            return Plan::none();
        }
        let (contents, owner) = (self.contents.clone(), account.meta.clone());
        Plan::of(
            Write::edit(secret, move |live| contents.fill(live, &owner))
                .expected_resource_version(&secret.meta.resource_version)
                // Somebody else was faster; their change wakes this Secret again.
                .ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict])
                .because("it lacks its token, its namespace or the cluster's CA"),
        )
    }
}

/// What the caches say about one Secret.
struct Facts {
    /// The Secret, if this life of it is there.
    secret: Option<Arc<TokenSecret>>,
    /// The account it names, if that is there and is the life it means.
    account: Option<Arc<ServiceAccount>>,
    account_key: Key,
}

impl Facts {
    fn gather(view: &View<'_>, item: &Item) -> Self {
        let uid = Uid::from(item.attribute("uid"));
        let secret = view.get::<TokenSecret>(item).filter(|secret| secret.meta.uid == uid).cloned();
        // A Secret that is there speaks for itself: it may name another account than it did when the
        // item was queued.
        let (name, account_uid) = match &secret {
            Some(secret) => (secret.account_name.as_str(), secret.account_uid.as_str()),
            None => (item.attribute("account"), item.attribute("account-uid")),
        };
        let account_key = Key::namespaced(&*item.namespace, name);
        let account = view.get::<ServiceAccount>(&account_key);
        let account = account.filter(|account| is_the_one(account, account_uid)).cloned();
        Self { secret, account, account_key }
    }
}

/// Whether an account is the life that a Secret means, if it means any in particular.
fn is_the_one(account: &ServiceAccount, wanted_uid: &str) -> bool {
    wanted_uid.is_empty() || account.meta.uid == Uid::from(wanted_uid)
}

/// Takes a Secret that is gone off its account's list.
fn unlist(account: &ServiceAccount, item: &Item) -> Plan {
    let gone = item.name.clone();
    let unlist = move |live: &mut Value| {
        let Some(listed) = live.get_mut("secrets").and_then(Value::as_array_mut) else {
            return Edited::Unneeded;
        };
        let before = listed.len();
        listed.retain(|reference| reference.get("name").and_then(Value::as_str) != Some(gone.as_str()));
        if listed.len() == before { Edited::Unneeded } else { Edited::Changed }
    };
    Plan::of(
        Write::edit(account, unlist)
            .conflict_tries(CONFLICT_TRIES)
            .ignoring_errors(&[ErrorReason::NotFound])
            .on_failure(OnFailure::LogOnly)
            .because(format!("its token Secret {} is gone", item.name)),
    )
}
