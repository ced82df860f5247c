//! Controllers that are broken on purpose, at least one for each way in which controllers are known to break
//! (stale state, missed intermediate state, crash between two writes, dependents of another namespace), and the
//! storms that catch them.

use std::sync::Arc;

use keleustes_controllers::{all_controllers, deployment};
use keleustes_objects::{
    ErrorReason, Job, Key, Namespace, Pod, PodDisruptionBudget, ReplicaSet, RootCaConfigMap, ServiceCidr,
    TokenSecret,
};
use keleustes_plan::{
    Action as WriteAction, AnyReconciler, BoxFuture, Context, Controller, Grant, Item, KindEntry, Loop,
    Outcome, PatchKind, Plan, ReconcileError, Reconciler, Requeue, View, Write,
};
use keleustes_sim::actions::{
    Action, CustomEndpointsChange, DependentKind, Fault, FaultEffect, Kind, ListedKind, ObjectRef,
    ObjectSpec, Party, PodBehaviour, RequestClass, Schedule, ServiceRangeChange, TimedAction, UserAction,
};
use keleustes_sim::storm::{Report, StormOptions, controller_options, play};
use serde_json::{Value, json};

const MAP: &str = "kube-root-ca.crt";
const PUBLISHER: &str = "root-ca-certificate-publisher-controller";
const COLLECTOR: &str = "garbage-collector-controller";
const REPLICA_SETS: &str = "replicaset-controller";

/// Runs a storm with one controller replaced by a broken one.
fn play_with(managers: usize, actions: Vec<(u64, Action)>, replacement: fn() -> Controller) -> Report {
    play_with_options(&StormOptions::default(), managers, actions, replacement)
}

fn play_with_options(
    options: &StormOptions,
    managers: usize,
    actions: Vec<(u64, Action)>,
    replacement: fn() -> Controller,
) -> Report {
    let actions = actions.into_iter().map(|(at_ms, action)| TimedAction { at_ms, action }).collect();
    let schedule = Schedule { seed: 11, managers, nodes: 1, actions, ..Schedule::default() };
    let controllers = Arc::new(move || {
        let faulty = replacement();
        let mut controllers = all_controllers(&controller_options());
        controllers.retain(|there| there.name != faulty.name);
        controllers.push(faulty);
        controllers
    });
    play(&schedule, &StormOptions { controllers, ..options.clone() })
}

fn create(kind: Kind, namespace: &str, name: &str) -> Action {
    let object = ObjectRef { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    let spec =
        ObjectSpec { replicas: 2, template_version: 0, pods: PodBehaviour::Healthy, alternative: false };
    Action::User(UserAction::Create(object, spec))
}

fn fault(manager: usize, requests: RequestClass, effect: FaultEffect, duration_ms: u64) -> Action {
    Action::Fault(Fault { party: Party::Manager(manager), requests, effect, percent: 100, duration_ms })
}

fn expect_violation(report: &Report, words: &str) {
    assert!(report.violations.iter().any(|line| line.contains(words)), "{:#?}", report.violations);
}

/// Deletes pods whose owner is not in its cache, although the cache may be behind.
fn collector_trusting_its_cache() -> Controller {
    collector_reading_owners(|a_loop| a_loop.reads_unwatched::<ReplicaSet>("broken on purpose"))
}

fn collector_reading_owners(declare: fn(Loop) -> Loop) -> Controller {
    let decide = |view: &View<'_>, item: &Key| {
        let Some(pod) = view.get::<Pod>(item) else { return Plan::none() };
        let owner = pod.meta.controller_ref().filter(|owner| *owner.kind == *"ReplicaSet");
        let owner = owner.map(|owner| Key::namespaced(&*item.namespace, &*owner.name));
        if owner.is_none_or(|owner| view.get::<ReplicaSet>(&owner).is_some()) {
            return Plan::none();
        }
        Plan::of(Write::delete(&**pod).because("its owner is not in the cache"))
    };
    Controller::new(COLLECTOR)
        .service_account("generic-garbage-collector")
        .may_write(&[Grant { group: "*", resource: "*", verbs: &["delete"] }])
        .with_loop(declare(
            Loop::deciding("trusting", decide)
                .enqueue_on::<Pod>(|change, _, queue| queue.add(&change.latest().meta.key)),
        ))
}

/// Stale state: the new leader has observed the pods but not yet their owner. Managers that use the
/// predecessor's state never get there.
#[test]
fn collector_trusting_a_stale_cache_is_caught() {
    let takeover = |leads: usize| {
        vec![
            (2_000, fault(1 - leads, RequestClass::ReplicaSets, FaultEffect::StallWatches, 90_000)),
            (3_000, create(Kind::ReplicaSet, "default", "oar")),
            (8_000, Action::CrashManager(leads)),
        ]
    };
    // The seed decides which of the two leads first.
    let is_caught = |uses_predecessor_state: bool| {
        let options = StormOptions { uses_predecessor_state, ..StormOptions::default() };
        let play_with =
            |leads| play_with_options(&options, 2, takeover(leads), collector_trusting_its_cache).violations;
        let mut lines = [0, 1].into_iter().flat_map(play_with);
        lines.any(|line| line.contains("which ReplicaSet default/oar owns"))
    };
    assert!(is_caught(false) && !is_caught(true));
}

/// A reconcile that reads an object, and is not run again when that object changes.
#[test]
fn reconcile_that_reads_a_kind_without_a_watch_is_caught() {
    let actions = vec![(3_000, create(Kind::ReplicaSet, "default", "oar"))];
    let report = play_with(1, actions, || collector_reading_owners(Loop::reads::<ReplicaSet>));
    expect_violation(&report, "trusting reads replicasets.apps, which none of its watches covers");
}

/// A Deployment controller that waits for a kind that it does not need. Everything else converges without that kind.
#[test]
fn deployment_controller_waiting_for_secrets_is_caught() {
    let waiting_for_secrets = || {
        let mut controller = deployment::controller(&controller_options().deployment);
        controller.loops.iter_mut().for_each(|a_loop| a_loop.reads.push(KindEntry::of::<TokenSecret>()));
        controller
    };
    let actions = |kind| {
        vec![
            (2_000, Action::FailLists(kind)),
            (3_000, Action::CrashManager(0)),
            (4_000, create(Kind::Deployment, "default", "oar")),
        ]
    };
    let report = play_with(1, actions(ListedKind::Secret), waiting_for_secrets);
    expect_violation(&report, "deployment-controller: ");
    let report = play_with(1, actions(ListedKind::Secret), || {
        deployment::controller(&controller_options().deployment)
    });
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    let report = play_with(1, actions(ListedKind::ClusterRole), waiting_for_secrets);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// Two handovers in a row among managers that ignore the state of their predecessors: the standbys have not observed
/// the pods of the first leader.
#[test]
fn leaders_ignoring_two_handovers_in_a_row_are_caught() {
    let is_caught = |leads: usize| {
        let standbys = (0..3).filter(|manager| *manager != leads);
        let mut actions: Vec<_> = standbys
            .map(|manager| (2_000, fault(manager, RequestClass::Pods, FaultEffect::StallWatches, 90_000)))
            .collect();
        actions.extend([
            (3_000, create(Kind::ReplicaSet, "default", "oar")),
            (5_000, Action::StopLeader),
            (5_500, Action::StopLeader),
        ]);
        let actions = actions.into_iter().map(|(at_ms, action)| TimedAction { at_ms, action }).collect();
        let schedule = Schedule { seed: 11, managers: 3, nodes: 1, actions, ..Schedule::default() };
        let report =
            play(&schedule, &StormOptions { uses_predecessor_state: false, ..StormOptions::default() });
        report.violations.iter().any(|line| line.contains("where at most 2 were ever wanted"))
    };
    // The seed decides which of the three leads first.
    assert!((0..3).any(is_caught));
}

/// A lease lock file that names living processes as ended: a restarted standby takes the lease while the leader writes.
#[test]
fn lock_file_that_names_a_living_process_as_ended_is_caught() {
    let violations = |standby, shares_lock_file| {
        let object =
            ObjectRef { kind: Kind::ReplicaSet, namespace: "default".to_owned(), name: "oar".to_owned() };
        let scale = |step: u32| UserAction::Scale(object.clone(), 1 + step % 3);
        let mut actions = vec![
            (3_000, create(Kind::ReplicaSet, "default", "oar")),
            // The leader learns of another holder when it renews the lease, not from its watch.
            (4_000, fault(1 - standby, RequestClass::LeaderLease, FaultEffect::StallWatches, 20_000)),
            (5_000, Action::CrashManager(standby)),
        ];
        actions.extend((0..30).map(|step| (5_000 + u64::from(step) * 300, Action::User(scale(step)))));
        let actions = actions.into_iter().map(|(at_ms, action)| TimedAction { at_ms, action }).collect();
        let schedule = Schedule {
            seed: 11,
            managers: 2,
            nodes: 1,
            lease_lock_files: true,
            actions,
            ..Schedule::default()
        };
        play(&schedule, &StormOptions { shares_lock_file, ..StormOptions::default() }).violations
    };
    // The seed decides which of the two leads first.
    let caught: Vec<_> = [0, 1].into_iter().flat_map(|standby| violations(standby, true)).collect();
    assert!(caught.iter().any(|line| line.contains("VIOLATION lease: sent while manager-")), "{caught:#?}");
    let held: Vec<_> = [0, 1].into_iter().flat_map(|standby| violations(standby, false)).collect();
    assert!(held.is_empty(), "{held:#?}");
}

/// A standby whose caches lag takes over from the original, which has kept the handover record of the leader before it. The
/// standby must not use that record. If the original hides its term, the standby cannot know, and does.
#[test]
fn leader_using_a_record_from_before_a_term_of_the_original_is_caught() {
    let violations = |leads: usize, transitions: u32| {
        let refuse_lease = |manager, duration_ms| {
            fault(manager, RequestClass::LeaderLease, FaultEffect::Reject(503), duration_ms)
        };
        let actions = [
            (2_000, fault(1 - leads, RequestClass::Pods, FaultEffect::StallWatches, 90_000)),
            (4_900, refuse_lease(1 - leads, 3_000)),
            (5_000, Action::StopLeader),
            (5_000, Action::User(UserAction::LeadAsOriginal(4_000, transitions))),
            (6_500, refuse_lease(leads, 60_000)),
            (7_000, create(Kind::ReplicaSet, "default", "oar")),
            // The faults last until the last action.
            (20_000, Action::Compact),
        ];
        let actions = actions.into_iter().map(|(at_ms, action)| TimedAction { at_ms, action }).collect();
        let schedule = Schedule { seed: 11, managers: 2, nodes: 1, actions, ..Schedule::default() };
        play(&schedule, &StormOptions::default()).violations
    };
    // The seed decides which of the two leads first.
    let hidden: Vec<_> = [0, 1].into_iter().flat_map(|leads| violations(leads, 0)).collect();
    assert!(hidden.iter().any(|line| line.contains("where at most 2 were ever wanted")), "{hidden:#?}");
    let counted: Vec<_> = [0, 1].into_iter().flat_map(|leads| violations(leads, 1)).collect();
    assert!(counted.is_empty(), "{counted:#?}");
}

fn publisher(controller_loop: Loop) -> Controller {
    Controller::new(PUBLISHER)
        .service_account("root-ca-cert-publisher")
        .may_write(&[Grant { group: "", resource: "configmaps", verbs: &["create", "update", "get"] }])
        .with_loop(controller_loop.enqueue_on::<Namespace>(|change, _, queue| {
            if !change.is_deletion() {
                queue.add(&change.latest().meta.key);
            }
        }))
}

fn creation(item: &Key, ca: Option<&str>) -> Write {
    let mut body = json!({"metadata": {"name": MAP}});
    if let Some(ca) = ca {
        body["data"] = json!({"ca.crt": ca});
    }
    Write::create::<RootCaConfigMap>(Key::namespaced(&*item.name, MAP), body)
        .ignoring_errors(&[
            ErrorReason::NotFound,
            ErrorReason::NamespaceTerminating,
            ErrorReason::AlreadyExists,
        ])
        .because("the ConfigMap is missing")
}

/// Creates the map when it sees it missing, and never checks the content of an existing one.
fn publisher_needing_to_see_absence() -> Controller {
    let decide = |view: &View<'_>, item: &Key| {
        let there = view.get::<RootCaConfigMap>(&Key::namespaced(&*item.name, MAP));
        if there.is_some() { Plan::none() } else { Plan::of(creation(item, Some("the CA"))) }
    };
    publisher(Loop::deciding("needs-absence", decide).enqueue_on::<RootCaConfigMap>(|change, _, queue| {
        if change.is_deletion() {
            queue.add(Key::cluster(&*change.latest().meta.key.namespace));
        }
    }))
}

/// Missed intermediate state.
#[test]
fn publisher_needing_to_see_a_missing_map_is_caught() {
    let actions = vec![
        (2_000, fault(0, RequestClass::Watches, FaultEffect::BreakWatches, 2_000)),
        (2_500, Action::User(UserAction::ReplaceRootCa("default".to_owned()))),
    ];
    expect_violation(
        &play_with(1, actions, publisher_needing_to_see_absence),
        "Namespace /default has no CA",
    );
}

/// Creates the map, then fills it; an existing map counts as filled.
struct TwoStepPublisher;

impl Reconciler for TwoStepPublisher {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let key = Key::namespaced(&*item.name, MAP);
        if cx.gather(|view| view.get::<RootCaConfigMap>(&key).is_some()) {
            return Ok(Requeue::Forget);
        }
        let created = cx.apply(Plan::of(creation(item, None))).await;
        let Some(Outcome::Done { resource_version: version, uid, .. }) = created.outcomes.first().cloned()
        else {
            return created.all_done().map(|()| Requeue::Forget);
        };
        let metadata =
            json!({"name": MAP, "namespace": key.namespace, "uid": uid, "resourceVersion": version});
        cx.apply(Plan::of(fill(key, &metadata))).await.all_done()?;
        Ok(Requeue::Forget)
    }
}

fn fill(key: Key, metadata: &Value) -> Write {
    let body = json!({"metadata": metadata, "data": {"ca.crt": "the CA"}});
    let mut write = Write::create::<RootCaConfigMap>(key, json!({})).because("the ConfigMap is empty");
    write.action = WriteAction::Put { body, subresource: "", conflict_tries: 1 };
    write
}

fn two_step_publisher() -> Controller {
    publisher(
        Loop::reconciling("two-steps", TwoStepPublisher)
            .reads_unwatched::<RootCaConfigMap>("broken on purpose"),
    )
}

/// A crash between two writes.
#[test]
fn publisher_crashing_between_two_writes_is_caught() {
    let actions = vec![
        (2_000, fault(0, RequestClass::Creates, FaultEffect::DelayResponse(4_000), 5_000)),
        (3_000, create(Kind::Namespace, "", "harbour")),
        (5_000, Action::CrashManager(0)),
    ];
    expect_violation(&play_with(1, actions, two_step_publisher), "Namespace /harbour has no CA");
}

/// Matches pods to ReplicaSets by UID alone.
fn replica_sets_by_uid(decide: fn(&View<'_>, &Pod, &ReplicaSet) -> Write) -> Controller {
    let decide = move |view: &View<'_>, item: &Key| {
        let Some(pod) = view.get::<Pod>(item) else { return Plan::none() };
        let Some(owner) = pod.meta.controller_ref() else { return Plan::none() };
        let set = view.all::<ReplicaSet>().find(|set| set.meta.uid == owner.uid);
        set.map_or_else(Plan::none, |set| Plan::of(decide(view, pod, set)))
    };
    Controller::new(REPLICA_SETS)
        .service_account(REPLICA_SETS)
        .may_write(&[
            Grant { group: "", resource: "pods", verbs: &["delete"] },
            Grant { group: "apps", resource: "replicasets/status", verbs: &["patch"] },
        ])
        .with_loop(
            Loop::deciding("by-uid", decide)
                .enqueue_on::<Pod>(|change, _, queue| queue.add(&change.latest().meta.key))
                .reads_unwatched::<ReplicaSet>("broken on purpose"),
        )
}

/// Deletes the pods of every ReplicaSet.
fn replica_sets_deleting_by_uid() -> Controller {
    replica_sets_by_uid(|_, pod, _| Write::delete(pod).because("it is surplus"))
}

/// Counts the pods of every ReplicaSet.
fn replica_sets_counting_by_uid() -> Controller {
    replica_sets_by_uid(|view, _, set| {
        let is_its =
            |pod: &&Arc<Pod>| pod.meta.controller_ref().is_some_and(|owner| owner.uid == set.meta.uid);
        let status = json!({"replicas": view.all::<Pod>().filter(is_its).count()});
        let body = json!({"metadata": {"uid": set.meta.uid}, "status": status});
        Write::patch(set, PatchKind::Merge, body).on_subresource("status").because("the count has changed")
    })
}

/// A user creates a pod in another namespace that names the UID of a ReplicaSet.
fn pod_with_owner_elsewhere() -> Vec<(u64, Action)> {
    let owner = ObjectRef { kind: Kind::ReplicaSet, namespace: "default".to_owned(), name: "oar".to_owned() };
    let create_pod = UserAction::CreateWithOwnerElsewhere(DependentKind::Pod, "harbour".to_owned(), owner);
    vec![
        (2_000, create(Kind::Namespace, "", "harbour")),
        (3_000, create(Kind::ReplicaSet, "default", "oar")),
        (5_000, Action::User(create_pod)),
    ]
}

#[test]
fn controller_deleting_a_pod_of_another_namespace_is_caught() {
    let report = play_with(1, pod_with_owner_elsewhere(), replica_sets_deleting_by_uid);
    expect_violation(&report, "wrote to Pod harbour/stray-oar-1, whose owner is in another namespace");
}

#[test]
fn controller_counting_a_pod_of_another_namespace_is_caught() {
    let report = play_with(1, pod_with_owner_elsewhere(), replica_sets_counting_by_uid);
    expect_violation(&report, "status.replicas is 1, but it only ever had 0 dependents");
}

/// A controller that is registered and does nothing.
fn idle_cron_jobs() -> Controller {
    Controller::new("cronjob-controller")
}

fn idle_ttl() -> Controller {
    Controller::new("ttl-after-finished-controller")
}

#[test]
fn cron_job_that_never_runs_is_caught() {
    let actions = vec![(3_000, create(Kind::CronJob, "default", "oar")), (200_000, Action::Compact)];
    expect_violation(&play_with(1, actions, idle_cron_jobs), "has not run for minute");
}

#[test]
fn finished_job_that_outlives_its_ttl_is_caught() {
    let expire = UserAction::SetJobTtl("default".to_owned(), 0, Some(5));
    let actions = vec![
        (3_000, create(Kind::Job, "default", "oar")),
        (60_000, Action::User(expire)),
        (120_000, Action::Compact),
    ];
    expect_violation(&play_with(1, actions, idle_ttl), "has outlived its TTL");
}

/// Reads a finished Job live, and deletes it at once whatever its TTL.
struct HastyTtl;

impl Reconciler for HastyTtl {
    async fn reconcile(&self, cx: &mut Context<'_>, item: &Key) -> Result<Requeue, ReconcileError> {
        let live = cx.fetch::<Job>(item).await?;
        let Some(live) = live.filter(|job| job.finished_condition().is_some()) else {
            return Ok(Requeue::Forget);
        };
        let deletion = Plan::of(Write::delete(&live).because("broken on purpose"));
        cx.apply(deletion).await.all_done().map(|()| Requeue::Forget)
    }
}

fn hasty_ttl() -> Controller {
    let name = "ttl-after-finished-controller";
    let a_loop = Loop::reconciling(name, HastyTtl)
        .enqueue_on::<Job>(|change, _, queue| queue.add(&change.latest().meta.key));
    Controller::new(name)
        .service_account(name)
        .may_write(&[Grant { group: "batch", resource: "jobs", verbs: &["get", "list", "watch", "delete"] }])
        .with_loop(a_loop)
}

#[test]
fn finished_job_that_is_deleted_before_its_ttl_is_over_is_caught() {
    let with_ttl = |ttl| {
        let set = UserAction::SetJobTtl("default".to_owned(), 0, ttl);
        vec![(3_000, create(Kind::Job, "default", "oar")), (3_500, Action::User(set))]
    };
    let shipped = || Controller::new("idle-controller");
    for ttl in [Some(60), None] {
        let report = play_with(1, with_ttl(ttl), shipped);
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
    }
    let report = play_with(1, with_ttl(Some(60)), hasty_ttl);
    expect_violation(&report, "Job default/oar is deleted ");
    expect_violation(&report, " s before its TTL is over");
    let report = play_with(1, with_ttl(None), hasty_ttl);
    expect_violation(&report, "Job default/oar is deleted and has no TTL or is not finished");
}

/// A controller whose reconciles are left out at some times, given in seconds since 1970.
fn leaving_out(mut controller: Controller, left_out: fn(i64) -> Option<Requeue>) -> Controller {
    struct LeavingOut(Arc<dyn AnyReconciler>, fn(i64) -> Option<Requeue>);
    impl AnyReconciler for LeavingOut {
        fn accepts(&self, item: &Item) -> bool {
            self.0.accepts(item)
        }

        fn reconcile_boxed<'a>(
            &'a self,
            cx: &'a mut Context<'_>,
            item: &'a Item,
        ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
            Box::pin(async move {
                match (self.1)(cx.gather(|view| view.now()).wall.unix_seconds()) {
                    Some(requeue) => Ok(requeue),
                    None => self.0.reconcile_boxed(cx, item).await,
                }
            })
        }
    }
    for a_loop in &mut controller.loops {
        a_loop.reconciler = Arc::new(LeavingOut(a_loop.reconciler.clone(), left_out));
    }
    controller
}

/// The shipped controller, which runs no time that is due in the second or third minute.
fn forgetful_cron_jobs() -> Controller {
    let shipped = keleustes_controllers::cronjob::controller(&controller_options().cronjob);
    leaving_out(shipped, |seconds| {
        let later = Requeue::after(std::time::Duration::from_secs(20), "a test");
        matches!(seconds / 60 % 60, 2 | 3).then_some(later)
    })
}

#[test]
fn cron_job_that_skips_a_time_is_caught() {
    let actions = || {
        let created = create(Kind::CronJob, "default", "oar");
        vec![(3_000, created), (420_000, Action::User(UserAction::SetRolePart("idle".to_owned(), None)))]
    };
    expect_violation(&play_with(1, actions(), forgetful_cron_jobs), "has skipped minute 2");
    let shipped = || keleustes_controllers::cronjob::controller(&controller_options().cronjob);
    let report = play_with(1, actions(), shipped);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

fn autoscaled_deployment() -> Vec<(u64, Action)> {
    let (namespace, name) = ("default".to_owned(), "oar".to_owned());
    vec![
        (3_000, create(Kind::Deployment, "default", "oar")),
        (4_000, Action::User(UserAction::SetLoad(namespace.clone(), name.clone(), 6))),
        (5_000, Action::User(UserAction::SetAutoscaler(namespace.clone(), name.clone(), Some(1)))),
        (200_000, Action::User(UserAction::SetLoad(namespace, name, 3))),
    ]
}

#[test]
fn size_that_does_not_follow_the_load_is_caught() {
    let idle = || Controller::new("horizontal-pod-autoscaler-controller");
    let report = play_with(1, autoscaled_deployment(), idle);
    expect_violation(&report, "has 2 replicas instead of 3");
    let shipped = || {
        keleustes_controllers::horizontal_pod_autoscaler::controller(
            &controller_options().horizontal_pod_autoscaler,
        )
    };
    let report = play_with(1, autoscaled_deployment(), shipped);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// The endpoints controllers and the TTL controller, doing nothing.
#[test]
fn missing_endpoints_mirrored_slices_and_ttls_are_noticed() {
    let custom = CustomEndpointsChange::SetAddresses(1);
    let actions = || {
        let change = UserAction::ChangeCustomEndpoints("default".to_owned(), "a".to_owned(), custom);
        vec![(1000, create(Kind::Service, "default", "web")), (2000, Action::User(change))]
    };
    let report = play_with(1, actions(), || Controller::new("endpoints-controller"));
    expect_violation(&report, "it has no Endpoints");
    let report = play_with(1, actions(), || Controller::new("endpointslice-mirroring-controller"));
    expect_violation(&report, "its mirrored slices are");
    let report = play_with(1, actions(), || Controller::new("ttl-controller"));
    expect_violation(&report, "its TTL is not 0");
    let report = play_with(1, actions(), keleustes_controllers::ttl::controller);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// Removes the finalizer of every ServiceCIDR that is deleted.
fn remover_of_ranges() -> Controller {
    let decide = |view: &View<'_>, item: &Key| {
        let Some(range) = view.get::<ServiceCidr>(item) else { return Plan::none() };
        if range.meta.deletion_timestamp.is_none() || range.meta.finalizers.is_empty() {
            return Plan::none();
        }
        let body = json!({"metadata": {"finalizers": null}});
        Plan::of(Write::patch(&**range, PatchKind::Merge, body).because("broken on purpose"))
    };
    Controller::new("remover-of-ranges")
        .service_account("service-cidrs-controller")
        .may_write(&[Grant { group: "networking.k8s.io", resource: "servicecidrs", verbs: &["patch"] }])
        .with_loop(
            Loop::deciding("ranges", decide)
                .enqueue_on::<ServiceCidr>(|change, _, queue| queue.add(&change.latest().meta.key)),
        )
}

#[test]
fn service_cidr_that_is_removed_while_in_use_is_caught() {
    let actions = || {
        let change = |change| Action::User(UserAction::ChangeServiceRange(3, change));
        vec![
            (2_000, change(ServiceRangeChange::Create)),
            (6_000, change(ServiceRangeChange::CreateService)),
            (9_000, change(ServiceRangeChange::Delete)),
        ]
    };
    let report = play_with(1, actions(), remover_of_ranges);
    expect_violation(&report, "was the last range of 10.98.0.5 and loses its finalizer");
    let report = play_with(1, actions()[..1].to_vec(), || Controller::new("service-cidr-controller"));
    expect_violation(&report, "ServiceCIDR /range-3 has no finalizer");
    let report = play_with(1, actions(), keleustes_controllers::service_cidr::controller);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// The shipped controller, which counts nothing any more after a while.
fn tired_quotas() -> Controller {
    let shipped = keleustes_controllers::resourcequota::controller(&controller_options().resourcequota);
    // Every simulated cluster starts with the first of January.
    leaving_out(shipped, |seconds| (seconds % 86_400 >= 85).then_some(Requeue::Forget))
}

/// What deleted objects have used is given back by the controller alone.
#[test]
fn quota_that_is_not_recounted_is_caught() {
    let (namespace, name) = ("default".to_owned(), "oar".to_owned());
    let actions = |spec: u8| {
        let set = UserAction::SetQuota(namespace.clone(), name.clone(), Some(spec));
        let widget = |is_there| UserAction::SetWidget(namespace.clone(), name.clone(), is_there);
        let object = ObjectRef { kind: Kind::ReplicaSet, namespace: namespace.clone(), name: name.clone() };
        let pods =
            ObjectSpec { replicas: 2, template_version: 11, pods: PodBehaviour::Healthy, alternative: false };
        let actions = [
            (2_000, UserAction::DefineWidgets),
            (60_000, set),
            (63_000, UserAction::Create(object.clone(), pods)),
            (64_000, widget(true)),
            (80_000, UserAction::LiftQuotas),
            (90_000, widget(false)),
            (91_000, UserAction::Scale(object, 1)),
        ];
        actions.map(|(at_ms, action)| (at_ms, Action::User(action))).to_vec()
    };
    for (spec, words) in [(1, "pods is 1, not \"2\""), (4, "count/widgets.example.com is 0, not \"1\"")] {
        expect_violation(&play_with(1, actions(spec), tired_quotas), words);
        let shipped =
            || keleustes_controllers::resourcequota::controller(&controller_options().resourcequota);
        let report = play_with(1, actions(spec), shipped);
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
    }
}

/// Publishes that every pod of a namespace is healthy.
fn budgets_of_all_pods() -> Controller {
    let decide = |view: &View<'_>, item: &Key| {
        let Some(budget) = view.get::<PodDisruptionBudget>(item) else { return Plan::none() };
        let pods = view.in_namespace::<Pod>(&item.namespace).count();
        let condition = json!({"type": "DisruptionAllowed", "status": if pods > 1 { "True" } else { "False" },
            "reason": if pods > 1 { "SufficientPods" } else { "InsufficientPods" }, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"observedGeneration": 1, "currentHealthy": pods, "expectedPods": pods, "desiredHealthy": 1,
            "disruptionsAllowed": pods.saturating_sub(1), "conditions": [condition]});
        Plan::of(Write::put_status(&**budget, &status).because("broken on purpose"))
    };
    Controller::new("disruption-controller")
        .service_account("disruption-controller")
        .may_write(&[Grant { group: "policy", resource: "poddisruptionbudgets/status", verbs: &["update"] }])
        .with_loop(
            Loop::deciding("all", decide)
                .enqueue_on::<PodDisruptionBudget>(|change, _, queue| queue.add(&change.latest().meta.key))
                .reads_unwatched::<Pod>("broken on purpose"),
        )
}

/// Publishes shares of fewer pods than there should be.
fn budgets_of_fewer_pods() -> Controller {
    let decide = |view: &View<'_>, item: &Key| {
        let Some(budget) = view.get::<PodDisruptionBudget>(item) else { return Plan::none() };
        let healthy = view.in_namespace::<Pod>(&item.namespace).count();
        let condition = json!({"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"observedGeneration": 1, "currentHealthy": healthy, "expectedPods": 1,
            "desiredHealthy": 1, "disruptionsAllowed": 1, "conditions": [condition]});
        Plan::of(Write::put_status(&**budget, &status).because("broken on purpose"))
    };
    Controller::new("disruption-controller")
        .service_account("disruption-controller")
        .may_write(&[Grant { group: "policy", resource: "poddisruptionbudgets/status", verbs: &["update"] }])
        .with_loop(
            Loop::deciding("fewer", decide)
                .enqueue_on::<PodDisruptionBudget>(|change, _, queue| queue.add(&change.latest().meta.key))
                .reads_unwatched::<Pod>("broken on purpose"),
        )
}

/// Half of the pods of a Deployment must be available.
#[test]
fn budget_that_takes_its_share_of_fewer_pods_is_caught() {
    let budget = UserAction::SetBudget("default".to_owned(), "oar".to_owned(), Some(1));
    let actions =
        || vec![(3_000, create(Kind::Deployment, "default", "oar")), (20_000, Action::User(budget.clone()))];
    expect_violation(
        &play_with(1, actions(), budgets_of_fewer_pods),
        "expects 1 pods, and its controllers want 2 to ",
    );
    let report = play_with(1, actions(), || Controller::new("idle-controller"));
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// Two pods of a budget, which are not ready at once.
#[test]
fn budget_that_counts_unready_pods_is_caught() {
    let actions = || {
        let (namespace, name) = ("default".to_owned(), "oar".to_owned());
        let object = ObjectRef { kind: Kind::ReplicaSet, namespace: namespace.clone(), name: name.clone() };
        let slow = ObjectSpec {
            replicas: 2,
            template_version: 0,
            pods: PodBehaviour::SlowStart,
            alternative: false,
        };
        vec![
            (3_000, Action::User(UserAction::Create(object, slow))),
            (6_000, Action::User(UserAction::SetBudget(namespace, name, Some(0)))),
        ]
    };
    expect_violation(
        &play_with(1, actions(), budgets_of_all_pods),
        "counts 2 healthy of 2 pods, as there never were",
    );
    let shipped = || keleustes_controllers::disruption::controller(controller_options().disruption);
    let report = play_with(1, actions(), shipped);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}
