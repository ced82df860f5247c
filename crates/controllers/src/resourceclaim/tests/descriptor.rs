//! The names, grants and watches of the controller.

use super::*;

/// Proves RCL-96, RCL-114, RCL-118, RCL-134.
#[test]
fn controller_has_upstreams_names() {
    let the_controller = controller(&ResourceClaimOptions::default());
    assert_eq!(the_controller.name, "resourceclaim-controller");
    assert_eq!(the_controller.service_account, Some("resource-claim-controller"));
    assert_eq!(the_controller.event_component, Some("resource_claim"));
    assert!(the_controller.debug_handler.is_none());
    let [a_loop] = &the_controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("resource_claim", 50, None));
    let reads = |a_loop: &Loop| -> Vec<String> {
        a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect()
    };
    let always = ["pods", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"];
    assert_eq!(reads(a_loop), always);
    assert!(a_loop.starts_without.is_empty());
    assert!(the_controller.grants.iter().all(|grant| grant.group != "scheduling.k8s.io"));
    // Every existing claim is reconciled at start: the caches deliver all objects as additions.
    let mut cluster = test_cluster();
    assert_eq!(cluster.put::<ResourceClaim>(claim("c")), ["a/c kind=claim"]);
    // A pod and a claim of one name are different items, so both may be reconciled at once.
    let key = Key::namespaced("a", "x");
    assert_ne!(ClaimItem::Pod(key.clone()), ClaimItem::Claim(key.clone()));
    assert_eq!(ClaimItem::Pod(key.clone()), ClaimItem::Pod(key));
    // Without the gate of their claims, PodGroups are read and not waited for.
    let options = ResourceClaimOptions { enable_generic_workload: true, ..ResourceClaimOptions::default() };
    let a_loop = controller(&options).loops.remove(0);
    assert_eq!(reads(&a_loop)[3..], ["podgroups.scheduling.k8s.io"]);
    assert_eq!((a_loop.starts_without.len(), a_loop.watches.len()), (1, 3));
    let options = ResourceClaimOptions { enable_workload_claims: true, ..options };
    let with_claims = controller(&options);
    assert!(with_claims.loops[0].starts_without.is_empty() && with_claims.loops[0].watches.len() == 4);
    assert!(with_claims.grants.iter().any(|grant| grant.resource == "podgroups/status"));
}

/// Proves RCL-117.
#[test]
#[should_panic(expected = "the queue resource_claim contains a/x, a keleustes_objects::key::Key")]
fn item_without_a_kind_is_an_error() {
    let mut cluster = test_cluster();
    let _ = cluster.rehearsal.reconcile(&cluster.a_loop, Key::namespaced("a", "x"));
}
