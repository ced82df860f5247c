//! The identity of a pod, its claims, and the owners of its claims.

use keleustes_plan::Action;
use keleustes_plan::rehearsal::is_retried_because;

use super::*;

fn created(set: Value) -> Value {
    body(cluster(set, []), "create pods ")
}

/// Proves STS-21, STS-22.
#[test]
fn a_new_pod_has_its_ordinal_in_name_labels_and_hostname() {
    let pod = created(set(1));
    assert_eq!(
        pod["metadata"],
        json!({
            "name": "web-0", "generateName": "web-", "namespace": "a", "ownerReferences": [owner()],
            "labels": {
                "app": "web", "statefulset.kubernetes.io/pod-name": "web-0",
                "apps.kubernetes.io/pod-index": "0", "controller-revision-hash": "web-2",
            },
        })
    );
    assert_eq!(
        pod["spec"],
        json!({
            "containers": [{"name": "c", "image": "v2", "resources": {}}], "hostname": "web-0", "subdomain": "svc",
        })
    );
}

/// Proves STS-23, STS-35.
#[test]
fn volumes_of_claims_replace_those_of_the_template() {
    let volumes = json!([{"name": "tmp", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]);
    let both = with_field(with_claim_template(set(1)), "/spec/template/spec/volumes", volumes);
    let mounted = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}},
        {"name": "tmp", "emptyDir": {}},
    ]);
    let pod = body(bare(both, []), "create pods ");
    assert_eq!(pod["spec"]["volumes"], mounted);
    // Only the template comes from an older revision; claims and service name come from the StatefulSet.
    let parted =
        with_field(with_claim_template(set(1)), "/spec/updateStrategy/rollingUpdate/partition", json!(1));
    let pod = created(with_field(parted, "/spec/serviceName", json!("other")));
    assert_eq!(
        (&pod["spec"]["containers"][0]["image"], &pod["spec"]["subdomain"]),
        (&json!("v1"), &json!("other"))
    );
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-web-0");
}

/// The API server accepts two claim templates of one name; the original's map by name keeps the last one.
#[test]
fn last_claim_template_of_a_name_counts() {
    let template = |name: &str, size: &str| json!({"metadata": {"name": name}, "spec": {"resources": {"requests": {"storage": size}}}});
    let templates = json!([template("data", "1Gi"), template("log", "3Gi"), template("data", "2Gi")]);
    let twice = || with_field(set(1), "/spec/volumeClaimTemplates", templates.clone());
    let transcript = actions(cluster(twice(), []));
    assert_eq!(transcript.matches("create persistentvolumeclaims").count(), 2, "{transcript}");
    let claim = body(cluster(twice(), []), "create persistentvolumeclaims a/data-web-0");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "2Gi");
    let pod = body(cluster(twice(), []), "create pods ");
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let names: Vec<_> = volumes.iter().map(|volume| volume["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["log", "data"]);
}

/// Proves STS-24, STS-47, STS-100.
#[test]
fn claims_are_created_before_their_pod() {
    let needy = || cluster(with_claim_template(set(1)), []);
    assert_eq!(
        actions(needy()),
        "create persistentvolumeclaims a/data-web-0 because its pod needs it\n\
         event Normal SuccessfulCreate on StatefulSet a/web uid=u-web: Create Claim data-web-0 Pod web-0 in StatefulSet web success\n\
         create pods a/web-0 because the StatefulSet has no pod with this ordinal\n\
         event Normal SuccessfulCreate on StatefulSet a/web uid=u-web: Create Pod web-0 in StatefulSet web successful\n"
    );
    assert_eq!(
        body(needy(), "create persistentvolumeclaims "),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data-web-0", "namespace": "a", "labels": {"of": "db", "app": "web"}},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        })
    );
    let refusing =
        |reason| needy().failing::<PersistentVolumeClaim>("create", &key("data-web-0"), api_error(reason));
    assert_eq!(
        actions(refusing(ErrorReason::Forbidden)),
        "create persistentvolumeclaims a/data-web-0 because its pod needs it FAILED: refused\n\
         event Warning FailedCreate on StatefulSet a/web uid=u-web: Create Claim data-web-0 for Pod web-0 in StatefulSet web failed error: refused\n\
         event Warning FailedCreate on StatefulSet a/web uid=u-web: Create Pod web-0 in StatefulSet web failed error: \
         failed to create PVC data-web-0: refused\n\
         retry: create persistentvolumeclaims a/data-web-0 because its pod needs it: refused\n"
    );
    let unseen = actions(refusing(ErrorReason::AlreadyExists));
    assert!(!unseen.contains("Claim data-web-0") && is_retried_because(&unseen, "refused"), "{unseen}");
}

/// A pod whose claims fail does not keep other pods from theirs.
#[test]
fn in_parallel_a_failed_claim_stops_its_pod_and_later_batches() {
    let cluster = cluster(with_claim_template(parallel(set(5))), []);
    let cluster = cluster.failing::<PersistentVolumeClaim>(
        "create",
        &key("data-web-2"),
        api_error(ErrorReason::Forbidden),
    );
    assert_eq!(pod_actions(cluster), ["create web-0", "create web-1"]);
}

/// Proves STS-67, STS-68.
#[test]
fn an_existing_claim_is_not_changed() {
    let other = with_field(claim(0, &[]), "/spec", json!({"resources": {"requests": {"storage": "9Gi"}}}));
    let cluster = |claim| with_claims(cluster(with_claim_template(set(1)), []), [claim]);
    assert_eq!(pod_actions(cluster(other.clone())), ["create web-0"]);
    assert!(
        !reconcile(cluster(other.clone())).contains("persistentvolumeclaims"),
        "the claim is not written"
    );
    assert_eq!(
        actions(cluster(terminating(other))),
        "event Warning FailedCreate on StatefulSet a/web uid=u-web: Create Pod web-0 in StatefulSet web failed error: \
         pvc data-web-0 is being deleted\n\
         retry: pvc data-web-0 is being deleted\n"
    );
}

#[test]
fn several_claim_errors_are_joined_as_the_original_joins_them() {
    let two = json!([{"metadata": {"name": "data"}}, {"metadata": {"name": "logs"}}]);
    let two = with_field(set(1), "/spec/volumeClaimTemplates", two);
    let named = |name: &str| {
        let claim = with_field(claim(0, &[]), "/metadata/name", json!(format!("{name}-web-0")));
        terminating(with_field(claim, "/metadata/uid", json!(format!("u-{name}"))))
    };
    let why = "[pvc data-web-0 is being deleted, pvc logs-web-0 is being deleted]";
    assert_eq!(
        actions(with_claims(cluster(two, []), [named("data"), named("logs")])),
        format!(
            "event Warning FailedCreate on StatefulSet a/web uid=u-web: Create Pod web-0 in StatefulSet web failed error: {why}\nretry: {why}\n"
        )
    );
}

fn edited(cluster: &mut RehearsalCluster) -> bool {
    cluster
        .outline(&the_loop(), web())
        .contains("edit pods a/web-0 because its pod-name label or its claim volumes are wrong")
}

/// Proves STS-25.
#[test]
fn a_pod_without_its_pod_name_label_is_repaired() {
    let lost =
        with_field(pod(0), "/metadata/labels", json!({"app": "web", "controller-revision-hash": "web-2"}));
    let mut world_of_lost = cluster(up_to_date(1), [lost]);
    let transcript = world_of_lost.outline(&the_loop(), web());
    assert_eq!(
        transcript,
        format!(
            "edit pods a/web-0 because its pod-name label or its claim volumes are wrong\n\
             event Normal SuccessfulUpdate on StatefulSet a/web uid=u-web: Update Pod web-0 in StatefulSet web successful\n\
             {NONE_MISSING}{MAX}"
        )
    );
    let labels = &world_of_lost.live_object::<Pod>(&key("web-0")).unwrap()["metadata"]["labels"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-0");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "0");
    // Other labels are not checked, and neither is a pod that is not ready yet.
    let renamed = with_field(
        with_field(pod(0), "/spec/hostname", json!("x")),
        "/metadata/labels/apps.kubernetes.io~1pod-index",
        json!("9"),
    );
    let renamed = with_field(renamed, "/spec/subdomain", json!("elsewhere"));
    assert!(!edited(&mut cluster(up_to_date(1), [renamed])));
    let mut wrong = cluster(
        up_to_date(1),
        [with_field(pod(0), "/metadata/labels/statefulset.kubernetes.io~1pod-name", json!("web-1"))],
    );
    assert!(edited(&mut wrong), "the label of another pod");
    let labels = &wrong.live_object::<Pod>(&key("web-0")).unwrap()["metadata"]["labels"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-0");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "0");
    let lost_and_unready =
        unready(with_field(pod(0), "/metadata/labels/statefulset.kubernetes.io~1pod-name", json!("x")));
    assert!(!edited(&mut cluster(up_to_date(1), [lost_and_unready.clone()])));
    assert!(edited(&mut cluster(parallel(up_to_date(1)), [lost_and_unready])));
}

/// Proves STS-25, STS-26.
#[test]
fn a_pod_without_its_pod_name_label_keeps_its_volumes_and_needs_no_claims() {
    // An admission plugin has put a volume before the claim's.
    let token = json!({"name": "token", "projected": {"sources": []}});
    let data = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}});
    let lost =
        with_field(pod(0), "/metadata/labels", json!({"app": "web", "controller-revision-hash": "web-2"}));
    let lost = with_field(lost, "/spec/volumes", json!([token, data]));
    for claims in [vec![], vec![terminating(claim(0, &[]))], vec![claim(0, &[])]] {
        let mut cluster = with_claims(cluster(with_claim_template(up_to_date(1)), [lost.clone()]), claims);
        let transcript = cluster.outline(&the_loop(), web());
        assert!(
            transcript.starts_with("edit pods a/web-0") && !transcript.contains("persistentvolumeclaims")
        );
        let live = cluster.live_object::<Pod>(&key("web-0")).unwrap();
        assert_eq!(live["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"], "web-0");
        assert_eq!(live["spec"]["volumes"], json!([token, data]));
    }
    // Only the claims are wrong: the label is not touched.
    let unmounted = with_field(pod(0), "/spec/volumes", json!([token]));
    let mut cluster = with_claims(cluster(with_claim_template(up_to_date(1)), [unmounted]), [claim(0, &[])]);
    assert!(edited(&mut cluster));
    let live = cluster.live_object::<Pod>(&key("web-0")).unwrap();
    assert_eq!(live["spec"]["volumes"], json!([data, token]));
    assert_eq!(live["metadata"]["labels"].get("apps.kubernetes.io/pod-index"), None);
}

/// Proves STS-26, STS-51.
#[test]
fn a_pod_without_its_claims_is_repaired() {
    let mut bare_pod = cluster(with_claim_template(up_to_date(1)), [pod(0)]);
    assert!(bare_pod.outline(&the_loop(), web()).starts_with("create persistentvolumeclaims a/data-web-0"));
    let volumes = &bare_pod.live_object::<Pod>(&key("web-0")).unwrap()["spec"]["volumes"];
    assert_eq!(*volumes, json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]));
    let other =
        with_field(mounting(pod(0)), "/spec/volumes/0/persistentVolumeClaim/claimName", json!("mine"));
    assert!(edited(&mut with_claims(cluster(with_claim_template(up_to_date(1)), [other]), [claim(0, &[])])));
    assert!(!edited(&mut with_claims(
        cluster(with_claim_template(up_to_date(1)), [mounting(pod(0))]),
        [claim(0, &[])]
    )));
    // The API server rejects a change of volumes.
    let refusing = with_claims(cluster(with_claim_template(up_to_date(1)), [pod(0)]), [claim(0, &[])]);
    let refusing = refusing.failing::<Pod>("update", &key("web-0"), api_error(ErrorReason::Invalid));
    let transcript = actions(refusing);
    assert!(
        transcript.contains(
            "event Warning FailedUpdate on StatefulSet a/web uid=u-web: Update Pod web-0 in StatefulSet web failed error: refused"
        )
    );
    assert!(is_retried_because(&transcript, "refused"));
    let terminating_owner =
        with_claims(cluster(with_claim_template(up_to_date(1)), [pod(0)]), [terminating(claim(0, &[]))]);
    assert!(
        actions(terminating_owner)
            .starts_with("event Warning FailedUpdate on StatefulSet a/web uid=u-web: Update Pod web-0 in StatefulSet web failed error: pvc")
    );
    let set: StatefulSet = serde_json::from_value(set(1)).unwrap();
    let write = pods::repair(&max_unavailable::inputs(set, &[]), 0, &serde_json::from_value(pod(0)).unwrap());
    let Action::Edit(edit) = write.action else { panic!("an edit") };
    assert_eq!(edit.conflict_tries, 4);
}

/// Proves STS-49, STS-65.
#[test]
fn a_pending_pod_gets_its_claims_on_every_reconcile() {
    let waiting = || with_phase("Pending", mounting(pod(0)));
    let set = || with_claim_template(with_retention_policy(up_to_date(1), "Retain", "Delete"));
    assert!(actions(cluster(set(), [waiting()])).starts_with("create persistentvolumeclaims a/data-web-0"));
    assert_eq!(
        actions(with_claims(cluster(set(), [waiting()]), [claim(0, &[])])),
        "edit persistentvolumeclaims a/data-web-0 because the retention policy determines its owners\n"
    );
    let terminating_owner = with_claims(cluster(set(), [waiting()]), [terminating(claim(0, &[owner()]))]);
    assert_eq!(
        actions(terminating_owner),
        "retry: pvc data-web-0 is being deleted\n",
        "without an event about the pod"
    );
    // The claims of a running pod are not recreated.
    assert_eq!(actions(cluster(set(), [mounting(pod(0))])), "");
}

fn owner_pod(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": uid, "controller": true, "blockOwnerDeletion": true})
}

/// The owners of a pod's claim after one reconcile, and the transcript.
fn owners_after(set: Value, pod: Value, owners: &[Value]) -> (Value, String) {
    let mut cluster = with_claims(cluster(with_claim_template(set), [mounting(pod)]), [claim(0, owners)]);
    let transcript = cluster.outline(&the_loop(), web());
    let claim = cluster.live_object::<PersistentVolumeClaim>(&key("data-web-0")).unwrap();
    (claim["metadata"]["ownerReferences"].clone(), transcript)
}

/// A StatefulSet for which `web-0` is in range, and one for which it is not.
fn wanting(scaled: &str, deleted: &str) -> Value {
    with_retention_policy(up_to_date(1), scaled, deleted)
}

fn not_wanting(scaled: &str, deleted: &str) -> Value {
    with_retention_policy(up_to_date(0), scaled, deleted)
}

/// Proves STS-57, STS-58, STS-59, STS-60, STS-64, STS-118.
#[test]
fn the_retention_policy_determines_the_owners_of_a_claim() {
    let (set, pod_ref) = (owner(), owner_pod("u-web-0"));
    let foreign = json!({"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u-o"});
    for (scaled, deleted, in_range, condemned) in [
        ("Retain", "Retain", vec![], vec![]),
        ("Retain", "Delete", vec![set.clone()], vec![set.clone()]),
        ("Delete", "Retain", vec![], vec![pod_ref.clone()]),
        ("Delete", "Delete", vec![set.clone()], vec![pod_ref.clone()]),
        ("Odd", "Odd", vec![], vec![]),
    ] {
        for before in [vec![], vec![set.clone()], vec![pod_ref.clone()], vec![pod_ref.clone(), set.clone()]] {
            for (of_set, wanted) in
                [(wanting(scaled, deleted), &in_range), (not_wanting(scaled, deleted), &condemned)]
            {
                // Other entries stay.
                let with_foreign = |owners: &[Value]| [std::slice::from_ref(&foreign), owners].concat();
                let (after, transcript) = owners_after(of_set, pod(0), &with_foreign(&before));
                assert_eq!(after, json!(with_foreign(wanted)), "{scaled} {deleted}: {before:?}");
                let written = transcript.contains("edit persistentvolumeclaims");
                assert_eq!(written, before != *wanted, "{scaled} {deleted}: {before:?}");
            }
        }
    }
    // Without a policy claims are retained.
    let (after, _) = owners_after(up_to_date(1), pod(0), &[owner()]);
    assert_eq!(after, json!([]));
}

/// Proves STS-56.
#[test]
fn claims_of_deleted_pods_get_their_owners_first() {
    let mut both = with_claims(
        cluster(
            parallel(with_claim_template(not_wanting("Delete", "Retain"))),
            [mounting(pod(0)), mounting(pod(1))],
        ),
        [claim(0, &[]), claim(1, &[])],
    );
    let written = "event Normal SuccessfulDelete on StatefulSet a/web uid=u-web: Delete Pod";
    let fixed = "edit persistentvolumeclaims a/data-web";
    let transcript = both.outline(&the_loop(), web());
    let at = |text: &str| transcript.find(text).unwrap_or_else(|| panic!("{text}: {transcript}"));
    assert!(at(&format!("{fixed}-0")) < at(&format!("{fixed}-1")) && at(&format!("{fixed}-1")) < at(written));
    let refusing = with_claims(
        cluster(with_claim_template(not_wanting("Delete", "Retain")), [mounting(pod(0))]),
        [claim(0, &[])],
    );
    let refusing = refusing.failing::<PersistentVolumeClaim>(
        "update",
        &key("data-web-0"),
        api_error(ErrorReason::Conflict),
    );
    let transcript = actions(refusing);
    assert!(
        !transcript.contains("delete pods") && is_retried_because(&transcript, "refused"),
        "{transcript}"
    );
}

/// Proves STS-61, STS-62, STS-63, STS-101.
#[test]
fn a_claim_with_another_controller_is_left_alone() {
    const CONFLICT_EVENT: &str = "event Warning ConflictingController on StatefulSet a/web uid=u-web: PersistentVolumeClaim data-web-0 has a conflicting \
                        OwnerReference that acts as a manging controller, the retention policy is ignored for this claim";
    let other_controller =
        json!({"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u-o", "controller": true});
    let with_other_uid = with_field(owner(), "/uid", json!("u-before"));
    let earlier_pod = owner_pod("u-before");
    let waiting = || with_phase("Pending", pod(0));
    // An owner reference has another UID of the StatefulSet or the pod: nothing is changed, but an event is
    // recorded.
    for stale in [with_other_uid, earlier_pod] {
        let (after, transcript) =
            owners_after(wanting("Retain", "Delete"), waiting(), std::slice::from_ref(&stale));
        assert_eq!(after, json!([stale]));
        assert!(transcript.contains(CONFLICT_EVENT) && !transcript.contains("edit"), "{transcript}");
        let (_, transcript) = owners_after(wanting("Retain", "Retain"), waiting(), &[stale]);
        assert!(!transcript.contains("event"), "{transcript}");
    }
    // Another object controls the claim: our entries are removed, and none is added.
    let (after, transcript) =
        owners_after(wanting("Retain", "Delete"), pod(0), &[owner(), other_controller.clone()]);
    assert_eq!(after, json!([other_controller]));
    assert!(transcript.contains(CONFLICT_EVENT));
    let (after, transcript) =
        owners_after(wanting("Retain", "Delete"), waiting(), std::slice::from_ref(&other_controller));
    assert_eq!(after, json!([other_controller]));
    assert!(transcript.contains(CONFLICT_EVENT) && !transcript.contains("edit"), "{transcript}");
    // Once nothing has to change, the claim is not checked any more.
    let (_, transcript) =
        owners_after(wanting("Retain", "Delete"), pod(0), std::slice::from_ref(&other_controller));
    assert!(!transcript.contains("event"), "{transcript}");
    // If claims are retained, other controllers do not matter.
    let (after, transcript) =
        owners_after(wanting("Retain", "Retain"), pod(0), &[owner(), other_controller.clone()]);
    assert_eq!(after, json!([other_controller]));
    assert!(!transcript.contains("event"), "{transcript}");
    // An entry with controller: false becomes one with controller: true.
    let (after, _) = owners_after(
        wanting("Retain", "Delete"),
        pod(0),
        &[with_field(owner(), "/controller", json!(false))],
    );
    assert_eq!(after, json!([owner()]));
}

/// The edit applies to the live object: the cache may be stale, and a change of a claim enqueues nothing.
#[test]
fn owners_are_updated_on_the_live_claim() {
    let moved = with_field(
        claim(0, &[json!({"apiVersion": "v1", "kind": "New", "name": "n", "uid": "u-n"})]),
        "/metadata/resourceVersion",
        json!("9"),
    );
    let mut cluster = cluster(with_claim_template(wanting("Retain", "Delete")), [mounting(pod(0))])
        .with_cached::<PersistentVolumeClaim>(claim(0, &[]))
        .with_live::<PersistentVolumeClaim>(moved);
    cluster.reconcile(&the_loop(), web());
    let after = cluster.live_object::<PersistentVolumeClaim>(&key("data-web-0")).unwrap();
    assert_eq!(after["metadata"]["ownerReferences"][0]["kind"], "New");
    assert_eq!(after["metadata"]["ownerReferences"][1], owner());
}

/// Proves STS-46, STS-66.
#[test]
fn a_new_pod_waits_until_the_claim_of_an_earlier_one_is_deleted() {
    let claimed = |policy: &str, owners: &[Value]| {
        let set = with_claim_template(with_retention_policy(set(1), policy, "Retain"));
        pod_actions(with_claims(cluster(set, []), [claim(0, owners)]))
    };
    assert!(claimed("Delete", &[owner_pod("u-before")]).is_empty());
    assert_eq!(claimed("Delete", &[owner()]), ["create web-0"]);
    assert_eq!(claimed("Retain", &[owner_pod("u-before")]), ["create web-0"]);
    // This is no error; in parallel the other pods are created.
    let set = with_claim_template(with_retention_policy(parallel(set(2)), "Delete", "Retain"));
    let cluster = with_claims(cluster(set, []), [claim(0, &[owner_pod("u-before")])]);
    assert_eq!(pod_actions(cluster), ["create web-1"]);
    // No event reports that the claim is deleted.
    let requeued = |policy: &str, terminates: bool| {
        let set = with_claim_template(with_retention_policy(super::set(1), policy, "Retain"));
        let set = if terminates { terminating(set) } else { set };
        let waiting = with_claims(super::cluster(set, []), [claim(0, &[owner_pod("u-before")])]);
        reconcile(waiting).contains("requeue after 5s")
    };
    assert!(requeued("Delete", false));
    assert!(!requeued("Retain", false) && !requeued("Delete", true));
}

/// Proves STS-69, STS-119.
#[test]
fn the_controller_never_deletes_claims() {
    let grants = controller(&StatefulSetOptions::default()).grants;
    let of_claims = grants.iter().find(|grant| grant.resource == "persistentvolumeclaims").unwrap();
    assert!(!of_claims.verbs.contains(&"delete"));
    // The owners of a terminating StatefulSet's claims are not updated.
    let (after, _) = owners_after(terminating(wanting("Delete", "Delete")), pod(0), &[]);
    assert_eq!(after, json!([]));
}

/// Proves STS-102.
#[test]
fn a_pod_that_was_not_found_counts_as_deleted() {
    let cluster =
        cluster(set(0), [pod(0)]).failing::<Pod>("delete", &key("web-0"), api_error(ErrorReason::NotFound));
    let written = "event Normal SuccessfulDelete on StatefulSet a/web uid=u-web: Delete Pod web-0 in StatefulSet web successful\n";
    assert!(actions(cluster).ends_with(written));
    // A change of a claim's owners records no event about the pod.
    let (_, transcript) = owners_after(wanting("Retain", "Delete"), pod(0), &[]);
    assert!(!transcript.contains("edit pods") && !transcript.contains("event"), "{transcript}");
}

/// Proves STS-115.
#[test]
fn a_name_that_is_too_long_for_a_label_is_not_truncated() {
    let name = "w".repeat(60);
    let long = with_field(with_field(set(1), "/metadata/name", json!(name)), "/status", json!({}));
    let mut cluster = RehearsalCluster::of(&the_loop()).with::<StatefulSet>(long);
    let pod = cluster.bodies(&the_loop(), key(&name), "create pods ").remove(0).1;
    let label = pod["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap();
    assert!(label.starts_with(&name) && label.len() > 63, "{label}");
}
