//! Keeps a ServiceAccount named `default` in every active namespace.
//!
//! Parity: pkg/controller/serviceaccount/serviceaccounts_controller.go.

use keleustes_objects::{ErrorReason, Key, Namespace, ServiceAccount};
use keleustes_plan::{Change, Controller, Enqueue, Grant, Item, Loop, Plan, View, Write};
use serde_json::json;

/// The account that every namespace has.
const ACCOUNT: &str = "default";

/// The controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("serviceaccount-controller")
        .also_known_as(&["serviceaccount"])
        .service_account("service-account-controller")
        .may_write(&[Grant { group: "", resource: "serviceaccounts", verbs: &["create"] }])
        .with_loop(
            Loop::deciding("serviceaccount", decide)
                .enqueue_on::<Namespace>(namespace_changed)
                .enqueue_on::<ServiceAccount>(account_changed),
        )
}

fn namespace_changed(change: &Change<Namespace>, _: &View<'_>, wakes: &mut Enqueue) {
    if !change.is_deletion() && !change.is_resync() {
        wakes.add(change.latest().meta.key.clone());
    }
}

/// Whatever account is gone, the namespace may lack its `default` now.
fn account_changed(change: &Change<ServiceAccount>, _: &View<'_>, wakes: &mut Enqueue) {
    if change.is_deletion() {
        wakes.add(Key::cluster(&*change.latest().meta.key.namespace));
    }
}

fn decide(view: &View<'_>, item: &Item) -> Plan {
    let Some(namespace) = view.get::<Namespace>(item).filter(|namespace| namespace.phase == "Active") else {
        return Plan::none();
    };
    let key = Key::namespaced(&*namespace.meta.key.name, ACCOUNT);
    if view.get::<ServiceAccount>(&key).is_some() {
        return Plan::none();
    }
    let account = json!({"metadata": {"name": ACCOUNT, "namespace": key.namespace}});
    Plan::of(
        Write::create::<ServiceAccount>(key, account)
            // A namespace that has begun to go takes nothing in any more, and needs nothing.
            .ignoring_errors(&[ErrorReason::AlreadyExists, ErrorReason::NamespaceTerminating])
            .because("the namespace has no default account"),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use keleustes_objects::{ApiError, Object};
    use keleustes_plan::rehearsal::RehearsalCluster;
    use keleustes_plan::{Loop, RateLimiter};
    use serde_json::Value;

    use super::*;

    const CREATES: &str = "create serviceaccounts a/default because the namespace has no default account: \
         {\"metadata\":{\"name\":\"default\",\"namespace\":\"a\"}}\n";

    fn the_loop() -> Loop {
        controller().loops.remove(0)
    }

    fn namespace(name: &str, phase: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "status": {"phase": phase}})
    }

    fn account(namespace: &str, name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}})
    }

    /// What is done about namespace `a`.
    fn check(world: impl FnOnce(RehearsalCluster) -> RehearsalCluster, wanted: &str) {
        let a_loop = the_loop();
        assert_eq!(world(RehearsalCluster::of(&a_loop)).reconcile(&a_loop, Key::cluster("a")), wanted);
    }

    fn refused(reason: ErrorReason) -> ApiError {
        ApiError::transport(reason, "refused")
    }

    /// Proves SA-10, SA-46.
    #[test]
    fn a_namespace_that_is_not_there_gets_nothing() {
        check(|world| world, "");
    }

    /// Proves SA-11.
    #[test]
    fn only_active_namespaces_get_an_account() {
        check(|world| world.with::<Namespace>(namespace("a", "Terminating")), "");
        check(|world| world.with::<Namespace>(namespace("a", "")), "");
        check(|world| world.with::<Namespace>(namespace("a", "active")), "");
    }

    /// Proves SA-12, SA-15, SA-43, SA-47.
    #[test]
    fn an_existing_account_is_left_as_it_is() {
        let mut odd = account("a", "default");
        odd["secrets"] = json!([{"name": "x"}]);
        odd["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        odd["metadata"]["finalizers"] = json!(["hold"]);
        check(|world| world.with::<Namespace>(namespace("a", "Active")).with::<ServiceAccount>(odd), "");
    }

    /// Proves SA-13, SA-14, SA-20, SA-40, SA-41.
    #[test]
    fn a_missing_account_is_created_bare() {
        check(|world| world.with::<Namespace>(namespace("a", "Active")), CREATES);
        let mut going = namespace("a", "Active");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(|world| world.with::<Namespace>(going), CREATES);
        check(
            |world| {
                let world = world.with::<Namespace>(namespace("a", "Active"));
                world
                    .with::<ServiceAccount>(account("a", "other"))
                    .with::<ServiceAccount>(account("b", "default"))
            },
            CREATES,
        );
    }

    /// Proves SA-45.
    #[test]
    fn system_namespaces_are_like_any_other() {
        let a_loop = the_loop();
        for name in ["kube-system", "kube-public", "kube-node-lease", "default", "mine"] {
            let mut world = RehearsalCluster::of(&a_loop).with::<Namespace>(namespace(name, "Active"));
            assert!(world.reconcile(&a_loop, Key::cluster(name)).contains(&format!("{name}/default")));
        }
    }

    /// Proves SA-17, SA-21, SA-22, SA-23, SA-42, SA-44.
    #[test]
    fn refusals_that_mean_done_end_it_and_all_others_are_tried_again() {
        let refusing = |reason| {
            let a_loop = the_loop();
            let key = Key::namespaced("a", "default");
            let world = RehearsalCluster::of(&a_loop).with::<Namespace>(namespace("a", "Active"));
            world
                .failing::<ServiceAccount>("create", &key, refused(reason))
                .reconcile(&a_loop, Key::cluster("a"))
        };
        for fine in [ErrorReason::AlreadyExists, ErrorReason::NamespaceTerminating] {
            assert!(refusing(fine).ends_with("(refused, which is fine: refused)\n"), "{fine:?}");
        }
        for bad in [
            ErrorReason::Forbidden,
            ErrorReason::NotFound,
            ErrorReason::Unavailable,
            ErrorReason::ConnectionLost,
        ] {
            assert!(refusing(bad).ends_with("retry: refused\n"), "{bad:?}");
        }
    }

    /// Proves SA-1, SA-2, SA-3.
    #[test]
    fn namespaces_wake_by_change_and_accounts_by_deletion() {
        let (a_loop, decode) = (the_loop(), |json| Arc::new(serde_json::from_value(json).unwrap()));
        let mut table = keleustes_plan::Store::<Namespace>::default();
        let world = RehearsalCluster::of(&a_loop);
        let added = table.apply(decode(namespace("a", "Active")));
        assert_eq!(world.enqueued_by(&a_loop, added), ["a"]);
        let mut newer = namespace("a", "Active");
        newer["metadata"]["resourceVersion"] = json!("2");
        let updated = table.apply(decode(newer));
        assert_eq!(world.enqueued_by(&a_loop, updated), ["a"]);
        let object = table.get(&Key::cluster("a")).unwrap().clone();
        assert!(world.enqueued_by(&a_loop, Change::resync(object.clone())).is_empty());
        assert!(world.enqueued_by(&a_loop, Change::deleted(object)).is_empty());

        let account: Arc<ServiceAccount> = Arc::new(serde_json::from_value(account("a", "any")).unwrap());
        assert_eq!(account.key().namespace, "a");
        assert!(world.enqueued_by(&a_loop, Change::added(account.clone())).is_empty());
        assert!(world.enqueued_by(&a_loop, Change::resync(account.clone())).is_empty());
        assert_eq!(world.enqueued_by(&a_loop, Change::deleted(account)), ["a"]);
    }

    /// Proves SA-4, SA-5, SA-30, RUN-64.
    #[test]
    fn it_is_known_by_the_original_s_names_and_numbers() {
        let controller = controller();
        assert_eq!(
            (controller.name, controller.aliases),
            ("serviceaccount-controller", &["serviceaccount"][..])
        );
        assert_eq!(controller.event_component, None);
        let a_loop = the_loop();
        assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("serviceaccount", 1, None));
        assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
        // A loop starts when all it reads is there.
        let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
        assert_eq!(reads, ["namespaces", "serviceaccounts"]);
    }
}
