//! Claims that are not bound, that name their volume, and that lost it.

use super::*;

const FAILED_BINDING: &str = "event Normal FailedBinding on PersistentVolumeClaim a/data uid=c-1: no persistent volumes \
                              available for this claim and no storage class is set\n";

/// Proves PVB-2, PVB-14, PVB-15.
#[test]
fn events_enqueue_their_object_and_only_deletions_enqueue_the_other_side() {
    let (claims, volumes) = (claims_loop(), volumes_loop());
    let (claim, volume) = bound_pair();
    let mut of_claims = cluster(&claims, &[], &[]);
    assert_eq!(of_claims.put::<PersistentVolumeClaim>(&claims, claim.clone()), ["a/data"]);
    assert_eq!(of_claims.put::<PersistentVolumeClaim>(&claims, claim.clone()), ["a/data"]);
    assert_eq!(of_claims.put::<PersistentVolume>(&claims, volume.clone()), Vec::<String>::new());
    assert_eq!(of_claims.take::<PersistentVolume>(&claims, &volume_key("pv")), ["a/data"]);
    assert_eq!(of_claims.take::<PersistentVolumeClaim>(&claims, &claim_key()), ["a/data"]);
    let mut of_volumes = cluster(&volumes, &[], &[]);
    assert_eq!(of_volumes.put::<PersistentVolume>(&volumes, volume), ["pv"]);
    assert_eq!(of_volumes.put::<PersistentVolumeClaim>(&volumes, claim.clone()), Vec::<String>::new());
    let recreated = with(claim, &[("/metadata/uid", json!("c-2"))]);
    assert_eq!(of_volumes.put::<PersistentVolumeClaim>(&volumes, recreated), Vec::<String>::new());
    assert_eq!(of_volumes.put::<Pod>(&volumes, pod("web", "data")), Vec::<String>::new());
    assert_eq!(of_volumes.put::<StorageClass>(&volumes, class("fast", "d")), Vec::<String>::new());
    assert_eq!(of_volumes.take::<PersistentVolumeClaim>(&volumes, &claim_key()), ["pv"]);
    assert_eq!(of_volumes.take::<PersistentVolume>(&volumes, &volume_key("pv")), ["pv"]);
    let unbound: Arc<PersistentVolumeClaim> = Arc::new(serde_json::from_value(super::claim()).unwrap());
    assert_eq!(of_volumes.enqueued_by(&volumes, Change::deleted(unbound)), Vec::<String>::new());
}

/// Proves PVB-1, PVB-4, PVB-5, PVB-6, PVB-174.
#[test]
fn there_are_two_queues_with_one_worker_that_wait_for_five_caches() {
    let controller = controller(&PersistentVolumeBinderOptions::default());
    assert_eq!(controller.event_component, Some("persistentvolume-controller"));
    assert_eq!(controller.loops.iter().map(|a_loop| a_loop.queue).collect::<Vec<_>>(), ["claims", "volumes"]);
    for a_loop in &controller.loops {
        let mut reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
        reads.sort();
        assert_eq!(reads, ["nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "storageclasses"]);
        assert!(a_loop.starts_without.is_empty());
        assert_eq!((a_loop.workers, a_loop.max_retries), (1, None));
        assert_eq!(a_loop.rate_limiter, keleustes_plan::RateLimiter::DEFAULT);
        assert_eq!(a_loop.resync_period, Some(Duration::from_secs(15)));
    }
    let (claim, _) = bound_pair();
    let claim: Arc<PersistentVolumeClaim> = Arc::new(serde_json::from_value(claim).unwrap());
    let a_loop = claims_loop();
    assert_eq!(cluster(&a_loop, &[], &[]).enqueued_by(&a_loop, Change::resync(claim)), ["a/data"]);
}

/// Proves PVB-13.
#[test]
fn deleted_claim_needs_nothing() {
    let a_loop = claims_loop();
    assert_eq!(sync_claim(&mut cluster(&a_loop, &[], &[volume("pv")]), &a_loop), "");
}

/// Proves PVB-34, PVB-57, PVB-150.
#[test]
fn claim_without_class_and_match_is_pending_with_an_event_at_each_sync() {
    let a_loop = claims_loop();
    let mut waiting = cluster(&a_loop, &[claim()], &[]);
    assert_eq!(sync_claim(&mut waiting, &a_loop), FAILED_BINDING);
    assert_eq!(sync_claim(&mut waiting, &a_loop), FAILED_BINDING);
    let was_bound = with(
        claim(),
        &[(
            "/status",
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                   "currentVolumeAttributesClassName": "gold", "conditions": []}),
        )],
    );
    let transcript = cluster(&a_loop, &[was_bound], &[]).reconcile(&a_loop, claim_key());
    assert_eq!(puts(&transcript)[0].1["status"], json!({"phase": "Pending", "conditions": []}));
}

/// Proves PVB-28, PVB-29, PVB-30, PVB-31, PVB-130.
#[test]
fn claim_without_any_class_gets_the_default_class_if_nothing_fits() {
    let a_loop = claims_loop();
    let default = |name: &str, created: &str| {
        let class = with(class(name, "d"), &[("/metadata/creationTimestamp", json!(created))]);
        annotated(class, &[("storageclass.kubernetes.io/is-default-class", "true")])
    };
    let classless = with(claim(), &[("/spec/storageClassName", Value::Null)]);
    let with_classes = |claim: Value, volumes: &[Value]| {
        cluster(&a_loop, &[claim], volumes)
            .with::<StorageClass>(class("newest", "d"))
            .with::<StorageClass>(default("old", "2020-01-01T00:00:00Z"))
            .with::<StorageClass>(default("b", "2024-01-01T00:00:00Z"))
            .with::<StorageClass>(default("a", "2024-01-01T00:00:00Z"))
    };
    let transcript = with_classes(classless.clone(), &[]).reconcile(&a_loop, claim_key());
    let assigned = puts(&transcript);
    assert_eq!((assigned.len(), &assigned[0].1["spec"]["storageClassName"]), (1, &json!("a")));
    assert!(!transcript.contains("event "), "{transcript}");
    assert!(transcript.contains("measure retroactive_storageclass_total{} 1\n"));
    assert!(!transcript.contains("errors_total"));
    // A volume without a class comes first.
    let bound = sync_claim(&mut with_classes(classless.clone(), &[volume("pv")]), &a_loop);
    assert!(bound.contains("because the claim became bound"), "{bound}");
    for claim in [claim(), annotated(classless.clone(), &[("volume.beta.kubernetes.io/storage-class", "")])] {
        assert_eq!(sync_claim(&mut with_classes(claim, &[]), &a_loop), FAILED_BINDING);
    }
    let named = with(classless.clone(), &[("/spec/volumeName", json!("gone"))]);
    assert_eq!(sync_claim(&mut with_classes(named, &[]), &a_loop), "");
    let path = PersistentVolumeClaim::RESOURCE.object_path(&claim_key());
    let refused = error(ErrorReason::Forbidden, "quota");
    let mut failing = with_classes(classless, &[]).failing_at("update", &path, refused, None);
    let transcript = sync_claim(&mut failing, &a_loop);
    assert!(transcript.contains("measure retroactive_storageclass_errors_total{} 1\n"), "{transcript}");
    assert!(transcript.contains("measure retroactive_storageclass_total{} 1\n"), "{transcript}");
    assert!(transcript.ends_with("retry: can't update PersistentVolumeClaim[\"a/data\"]: quota\n"));
}

/// Proves PVB-18, PVB-32, PVB-120, PVB-121, PVB-156.
#[test]
fn delayed_claim_waits_for_a_scheduled_pod() {
    let a_loop = claims_loop();
    let late = with(class("late", "d"), &[("/volumeBindingMode", json!("WaitForFirstConsumer"))]);
    let delayed = with(claim(), &[("/spec/storageClassName", json!("late")), ("/status/phase", json!(""))]);
    let event = |pods: &[Value]| {
        let cluster = cluster(&a_loop, &[delayed.clone()], &[]).with::<StorageClass>(late.clone());
        let mut cluster = pods.iter().fold(cluster, |cluster, pod| cluster.with::<Pod>(pod.clone()));
        let transcript = sync_claim(&mut cluster, &a_loop);
        let pending = "put persistentvolumeclaims/status a/data because the claim waits for a volume\n";
        let event = transcript.strip_suffix(&format!("{GET_CLAIM}{pending}")).unwrap();
        event.strip_prefix("event Normal ").unwrap().replace(" on PersistentVolumeClaim a/data uid=c-1", "")
    };
    let first_consumer = "WaitForFirstConsumer: waiting for first consumer to be created before binding\n";
    assert_eq!(event(&[]), first_consumer);
    assert_eq!(event(&[pod("web", "data")]), "WaitForPodScheduled: waiting for pod web to be scheduled\n");
    let two = [pod("web", "data"), pod("api", "data"), pod("other", "elsewhere")];
    assert_eq!(event(&two), "WaitForPodScheduled: waiting for pods api,web to be scheduled\n");
    let ephemeral = with(pod("x", ""), &[("/spec/volumes", json!([{"name": "data", "ephemeral": {}}]))]);
    assert_eq!(event(&[with(ephemeral, &[("/metadata/name", json!("x"))])]), first_consumer);
    let of_other_namespace = with(pod("web", "data"), &[("/metadata/namespace", json!("b"))]);
    assert_eq!(event(&[of_other_namespace]), first_consumer);
    assert_eq!(event(&[with(pod("web", "data"), &[("/spec/nodeName", json!("n1"))])]), first_consumer);
    assert_eq!(event(&[with(pod("web", "data"), &[("/status/phase", json!("Failed"))])]), first_consumer);
    let mut no_mode = cluster(&a_loop, &[delayed.clone()], &[])
        .with::<StorageClass>(with(late.clone(), &[("/volumeBindingMode", Value::Null)]));
    assert_eq!(
        sync_claim(&mut no_mode, &a_loop),
        "retry: VolumeBindingMode not set for StorageClass \"late\"\n"
    );
}

/// Proves PVB-35, PVB-38, PVB-39, PVB-40, PVB-41, PVB-153.
#[test]
fn claim_that_names_its_volume() {
    let a_loop = claims_loop();
    let named = with(claim(), &[("/spec/volumeName", json!("pv"))]);
    assert_eq!(sync_claim(&mut cluster(&a_loop, &[named.clone()], &[]), &a_loop), "");
    let small = with(volume("pv"), &[("/spec/capacity/storage", json!("1Mi"))]);
    assert_eq!(
        sync_claim(&mut cluster(&a_loop, &[named.clone()], &[small]), &a_loop),
        "event Warning VolumeMismatch on PersistentVolumeClaim a/data uid=c-1: Cannot bind to requested volume \"pv\": \
         requested PV is too small\n"
    );
    let of_class = with(volume("pv"), &[("/spec/storageClassName", json!("fast"))]);
    let transcript = sync_claim(&mut cluster(&a_loop, &[named.clone()], &[of_class]), &a_loop);
    assert!(transcript.ends_with("storageClassName does not match\n"), "{transcript}");
    // A claimRef for this claim needs no checks.
    let reserved = with(
        volume("pv"),
        &[
            ("/spec/claimRef", bound_ref("")),
            ("/spec/capacity/storage", json!("1Mi")),
            ("/spec/volumeMode", json!("Block")),
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ],
    );
    let transcript = sync_claim(&mut cluster(&a_loop, &[named.clone()], &[reserved]), &a_loop);
    assert!(transcript.contains("because the claim became bound"), "{transcript}");
    let taken = with(
        volume("pv"),
        &[
            ("/spec/claimRef", json!({"namespace": "b", "name": "data", "uid": "c-2"})),
            ("/status/phase", json!("Bound")),
        ],
    );
    let event = "event Warning FailedBinding on PersistentVolumeClaim a/data uid=c-1: volume \"pv\" already bound to a \
                 different claim.\n";
    assert_eq!(sync_claim(&mut cluster(&a_loop, &[named.clone()], &[taken.clone()]), &a_loop), event);
    let by_controller =
        annotated(with(named, &[("/status/phase", json!("Bound"))]), &[(names::BOUND_BY_CONTROLLER, "yes")]);
    assert_eq!(
        sync_claim(&mut cluster(&a_loop, &[by_controller], &[taken]), &a_loop),
        format!(
            "{event}retry: invalid binding of claim \"a/data\" to volume \"pv\": volume already claimed by \"b/data\"\n"
        )
    );
}

/// Proves PVB-16, PVB-42, PVB-43, PVB-45, PVB-46, PVB-57, PVB-172.
#[test]
fn bound_claim_without_its_volume_is_lost_once() {
    let a_loop = claims_loop();
    let (bound, volume_bound) = bound_pair();
    let lost = "put persistentvolumeclaims/status a/data because the claim lost its volume\n";
    let event = |reason: &str, message: &str| {
        format!("event Warning {reason} on PersistentVolumeClaim a/data uid=c-1: {message}\n")
    };
    let mut gone = cluster(&a_loop, &[bound.clone()], &[]);
    let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    assert_eq!(
        sync_claim(&mut gone, &a_loop),
        format!("get persistentvolumes pv\n{GET_CLAIM}{lost}{}", event("ClaimLost", message))
    );
    let transcript = cluster(&a_loop, &[bound.clone()], &[]).reconcile(&a_loop, claim_key());
    assert_eq!(puts(&transcript)[0].1["status"], json!({"phase": "Lost"}));
    // The cache of volumes is behind: nothing is written.
    let mut behind =
        cluster(&a_loop, &[bound.clone()], &[]).with_live::<PersistentVolume>(volume_bound.clone());
    assert!(!sync_claim(&mut behind, &a_loop).contains("put "));
    let nameless = with(bound.clone(), &[("/spec/volumeName", Value::Null)]);
    let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
    assert_eq!(
        sync_claim(&mut cluster(&a_loop, &[nameless], &[]), &a_loop),
        format!("{GET_CLAIM}{lost}{}", event("ClaimLost", message))
    );
    for uid in ["c-2", ""] {
        let taken = with(volume_bound.clone(), &[("/spec/claimRef/uid", json!(uid))]);
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        let mut misbound = cluster(&a_loop, &[bound.clone()], &[taken.clone()]);
        assert_eq!(
            sync_claim(&mut misbound, &a_loop),
            format!("get persistentvolumes pv\n{GET_CLAIM}{lost}{}", event("ClaimMisbound", message))
        );
        let already = with(bound.clone(), &[("/status", json!({"phase": "Lost"}))]);
        assert_eq!(sync_claim(&mut cluster(&a_loop, &[already], &[taken]), &a_loop), "");
    }
}

/// Proves PVB-43.
#[test]
fn claim_whose_volume_no_volume_can_be_named_as_is_lost() {
    let a_loop = claims_loop();
    let (bound, _) = bound_pair();
    for name in ["a/b", "..", "50%"] {
        let odd = with(bound.clone(), &[("/spec/volumeName", json!(name))]);
        let transcript = sync_claim(&mut cluster(&a_loop, &[odd], &[]), &a_loop);
        // A client refuses to send such a request, and the claim would be retried without end.
        assert!(!transcript.contains("get persistentvolumes"), "{transcript}");
        assert!(transcript.contains("because the claim lost its volume"), "{transcript}");
    }
}

/// Proves PVB-117.
#[test]
fn terminating_claim_is_bound_like_any_other() {
    let a_loop = claims_loop();
    let terminating = with(claim(), &[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))]);
    let transcript = sync_claim(&mut cluster(&a_loop, &[terminating], &[volume("pv")]), &a_loop);
    assert!(transcript.contains("because the claim became bound"), "{transcript}");
}

/// Proves PVB-116, PVB-134.
#[test]
fn grants_are_those_of_the_role_and_buckets_those_of_the_original() {
    let controller = controller(&PersistentVolumeBinderOptions::default());
    let may = |resource: &keleustes_objects::Resource, subresource: &str, verb: &str| {
        controller.grants.iter().any(|grant| grant.covers(resource, subresource, verb))
    };
    let (claims, volumes, pods) =
        (PersistentVolumeClaim::RESOURCE, PersistentVolume::RESOURCE, Pod::RESOURCE);
    for verb in ["create", "delete", "get", "update"] {
        assert!(may(&volumes, "", verb), "{verb}");
    }
    assert!(
        may(&claims, "", "update") && may(&claims, "status", "update") && may(&volumes, "status", "update")
    );
    assert!(!may(&claims, "", "create") && !may(&claims, "", "delete"));
    assert!(!may(&claims, "", "patch") && !may(&volumes, "", "patch") && !may(&pods, "", "update"));
    let histograms = controller.metrics.iter().filter_map(|metric| match metric.metric_type {
        keleustes_plan::MetricType::Histogram(buckets) => Some(buckets.bounds()),
        _ => None,
    });
    let expected = vec![0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
    assert_eq!(histograms.collect::<Vec<_>>(), [expected.clone(), expected]);
}
