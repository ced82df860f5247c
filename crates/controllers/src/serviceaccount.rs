//! Keeps a ServiceAccount named `default` in every active namespace.
//!
//! Parity: pkg/controller/serviceaccount/serviceaccounts_controller.go.

use keleustes_objects::{ErrorReason, Key, Namespace, ServiceAccount};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Plan, View, Write};
use serde_json::json;

/// Name of the ServiceAccount.
const ACCOUNT: &str = "default";

/// Builds the controller.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("serviceaccount-controller")
        .service_account("service-account-controller")
        .may_write(&[Grant { group: "", resource: "serviceaccounts", verbs: &["create"] }])
        .with_loop(
            Loop::deciding("serviceaccount", decide)
                .keyed_by::<Namespace>()
                .enqueue_on::<Namespace>(namespace_changed)
                .enqueue_on::<ServiceAccount>(account_changed),
        )
}

fn namespace_changed(change: &Change<Namespace>, _: &View<'_>, enqueue: &mut Effects) {
    if !change.is_deletion() && !change.is_resync() {
        enqueue.add(change.latest().meta.key.clone());
    }
}

/// A deleted ServiceAccount may be the `default` of its namespace.
fn account_changed(change: &Change<ServiceAccount>, _: &View<'_>, enqueue: &mut Effects) {
    if change.is_deletion() {
        enqueue.add(Key::cluster(&*change.latest().meta.key.namespace));
    }
}

fn decide(view: &View<'_>, item: &Key) -> Plan {
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
            // A terminating namespace admits no objects and needs none.
            .ignoring_errors(&[ErrorReason::AlreadyExists, ErrorReason::NamespaceTerminating])
            .because("the namespace has no default account"),
    )
}

#[cfg(test)]
mod tests {
    use keleustes_plan::rehearsal::is_retried_because;
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

    /// Reconciles namespace `a`.
    fn check(cluster: impl FnOnce(RehearsalCluster) -> RehearsalCluster, wanted: &str) {
        let a_loop = the_loop();
        assert_eq!(cluster(RehearsalCluster::of(&a_loop)).reconcile(&a_loop, Key::cluster("a")), wanted);
    }

    fn refused(reason: ErrorReason) -> ApiError {
        ApiError::transport(reason, "refused")
    }

    /// Proves SA-10, SA-46.
    #[test]
    fn missing_namespace_gets_no_account() {
        check(|cluster| cluster, "");
    }

    /// Proves SA-11.
    #[test]
    fn only_active_namespaces_get_an_account() {
        check(|cluster| cluster.with::<Namespace>(namespace("a", "Terminating")), "");
        check(|cluster| cluster.with::<Namespace>(namespace("a", "")), "");
        check(|cluster| cluster.with::<Namespace>(namespace("a", "active")), "");
    }

    /// Proves SA-12, SA-15, SA-43, SA-47.
    #[test]
    fn existing_account_is_not_changed() {
        let mut odd = account("a", "default");
        odd["secrets"] = json!([{"name": "x"}]);
        odd["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        odd["metadata"]["finalizers"] = json!(["hold"]);
        check(|cluster| cluster.with::<Namespace>(namespace("a", "Active")).with::<ServiceAccount>(odd), "");
    }

    /// Proves SA-13, SA-14, SA-20, SA-40, SA-41.
    #[test]
    fn missing_account_is_created_without_further_fields() {
        check(|cluster| cluster.with::<Namespace>(namespace("a", "Active")), CREATES);
        let mut terminating = namespace("a", "Active");
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(|cluster| cluster.with::<Namespace>(terminating), CREATES);
        check(
            |cluster| {
                let cluster = cluster.with::<Namespace>(namespace("a", "Active"));
                cluster
                    .with::<ServiceAccount>(account("a", "other"))
                    .with::<ServiceAccount>(account("b", "default"))
            },
            CREATES,
        );
    }

    /// Proves SA-45.
    #[test]
    fn system_namespaces_get_an_account_like_any_other() {
        let a_loop = the_loop();
        for name in ["kube-system", "kube-public", "kube-node-lease", "default", "mine"] {
            let mut cluster = RehearsalCluster::of(&a_loop).with::<Namespace>(namespace(name, "Active"));
            assert!(cluster.reconcile(&a_loop, Key::cluster(name)).contains(&format!("{name}/default")));
        }
    }

    /// Proves SA-17, SA-21, SA-22, SA-23, SA-42, SA-44.
    #[test]
    fn already_exists_and_namespace_terminating_are_ignored_and_other_errors_retried() {
        let reconcile_failing = |reason| {
            let a_loop = the_loop();
            let key = Key::namespaced("a", "default");
            let cluster = RehearsalCluster::of(&a_loop).with::<Namespace>(namespace("a", "Active"));
            cluster
                .failing::<ServiceAccount>("create", &key, refused(reason))
                .reconcile(&a_loop, Key::cluster("a"))
        };
        for fine in [ErrorReason::AlreadyExists, ErrorReason::NamespaceTerminating] {
            assert!(reconcile_failing(fine).ends_with("(ignored: refused)\n"), "{fine:?}");
        }
        for bad in [
            ErrorReason::Forbidden,
            ErrorReason::NotFound,
            ErrorReason::Unavailable,
            ErrorReason::ConnectionLost,
        ] {
            assert!(is_retried_because(&reconcile_failing(bad), "refused"), "{bad:?}");
        }
    }

    /// Proves SA-1, SA-2, SA-3.
    #[test]
    fn namespace_updates_and_account_deletions_enqueue() {
        let (a_loop, decode) = (the_loop(), |json| Arc::new(serde_json::from_value(json).unwrap()));
        let mut store = keleustes_plan::Store::<Namespace>::default();
        let cluster = RehearsalCluster::of(&a_loop);
        let added = store.apply(decode(namespace("a", "Active")));
        assert_eq!(cluster.enqueued_by(&a_loop, added), ["a"]);
        let mut newer = namespace("a", "Active");
        newer["metadata"]["resourceVersion"] = json!("2");
        let updated = store.apply(decode(newer));
        assert_eq!(cluster.enqueued_by(&a_loop, updated), ["a"]);
        let object = store.get(&Key::cluster("a")).unwrap().clone();
        assert!(cluster.enqueued_by(&a_loop, Change::resync(object.clone())).is_empty());
        assert!(cluster.enqueued_by(&a_loop, Change::deleted(object)).is_empty());

        let account: Arc<ServiceAccount> = Arc::new(serde_json::from_value(account("a", "any")).unwrap());
        assert_eq!(account.key().namespace, "a");
        assert!(cluster.enqueued_by(&a_loop, Change::added(account.clone())).is_empty());
        assert!(cluster.enqueued_by(&a_loop, Change::resync(account.clone())).is_empty());
        assert_eq!(cluster.enqueued_by(&a_loop, Change::deleted(account)), ["a"]);
    }

    /// Proves SA-4, SA-5, SA-30, RUN-64.
    #[test]
    fn controller_has_upstreams_names_and_numbers() {
        let controller = controller();
        assert_eq!(
            (controller.name, crate::names::aliases_of(controller.name)),
            ("serviceaccount-controller", &["serviceaccount"][..])
        );
        assert_eq!(controller.event_component, None);
        let a_loop = the_loop();
        assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("serviceaccount", 1, None));
        assert_eq!(a_loop.rate_limiter, RateLimiter::DEFAULT);
        // The loop starts when the caches of all kinds it reads are synced.
        let reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
        assert_eq!(reads, ["namespaces", "serviceaccounts"]);
    }
}
