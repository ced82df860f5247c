//! Three controllers that are broken on purpose, one for each way in which controllers are known to break, and the
//! storms that catch them.

use std::sync::Arc;

use keleustes_controllers::all_controllers;
use keleustes_objects::{ErrorReason, Key, Namespace, Pod, ReplicaSet, RootCaConfigMap};
use keleustes_plan::{
    Action, BoxFuture, Context, Controller, Grant, Item, Loop, Outcome, Plan, ReconcileError, Reconciler,
    Requeue, View, Write,
};
use keleustes_sim::deeds::{
    Deed, Kind, Party, Pods, Schedule, Thing, Timed, Trouble, UserAction, Verdict, Which, Wish,
};
use keleustes_sim::storm::{Report, Stage, play, settings};
use serde_json::{Value, json};

const MAP: &str = "kube-root-ca.crt";
const PUBLISHER: &str = "root-ca-certificate-publisher-controller";
const COLLECTOR: &str = "garbage-collector-controller";

/// Plays with one controller replaced by a broken one.
fn played(managers: usize, deeds: Vec<(u64, Deed)>, replacement: fn() -> Controller) -> Report {
    played_on(&Stage::default(), managers, deeds, replacement)
}

fn played_on(
    stage: &Stage,
    managers: usize,
    deeds: Vec<(u64, Deed)>,
    replacement: fn() -> Controller,
) -> Report {
    let deeds = deeds.into_iter().map(|(at, deed)| Timed { at, deed }).collect();
    let schedule = Schedule { seed: 11, managers, nodes: 1, roles: false, deeds };
    let crew = Arc::new(move || {
        let broken = replacement();
        let mut crew = all_controllers(&settings());
        crew.retain(|there| there.name != broken.name);
        crew.push(broken);
        crew
    });
    play(&schedule, &Stage { crew, ..stage.clone() })
}

fn made(kind: Kind, namespace: &str, name: &str) -> Deed {
    let thing = Thing { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    let wish = Wish { replicas: 2, flavour: 0, pods: Pods::Well, otherwise: false };
    Deed::User(UserAction::Create(thing, wish))
}

fn trouble(manager: usize, what: Which, verdict: Verdict, lasts: u64) -> Deed {
    Deed::Trouble(Trouble { party: Party::Manager(manager), what, verdict, percent: 100, lasts })
}

fn catches(report: &Report, words: &str) {
    assert!(report.broken.iter().any(|line| line.contains(words)), "{:#?}", report.broken);
}

/// Deletes pods whose owner is not in its cache, which may only be behind.
fn hasty_collector() -> Controller {
    let decide = |view: &View<'_>, item: &Item| {
        let Some(pod) = view.get::<Pod>(item) else { return Plan::none() };
        let owner = pod.meta.controller_ref().filter(|owner| *owner.kind == *"ReplicaSet");
        let owner = owner.map(|owner| Key::namespaced(&*item.namespace, &*owner.name));
        if owner.is_none_or(|owner| view.get::<ReplicaSet>(&owner).is_some()) {
            return Plan::none();
        }
        Plan::of(Write::delete(&**pod).because("its owner is out of sight"))
    };
    Controller::new(COLLECTOR)
        .service_account("generic-garbage-collector")
        .may_write(&[Grant { group: "*", resource: "*", verbs: &["delete"] }])
        .with_loop(
            Loop::deciding("hasty", decide)
                .enqueue_on::<Pod>(|change, _, wakes| wakes.add(&change.latest().meta.key))
                .reads::<ReplicaSet>(),
        )
}

/// Stale state: the one who takes over has seen the pods, but not yet their owner. Managers that learn first what the
/// leader before has done never come into that state.
#[test]
fn a_collector_that_trusts_a_cache_that_is_behind_is_caught() {
    let takes_over = |leads: usize| {
        vec![
            (2_000, trouble(1 - leads, Which::ReplicaSets, Verdict::Stalls, 90_000)),
            (3_000, made(Kind::ReplicaSet, "default", "oar")),
            (8_000, Deed::Crash(leads)),
        ]
    };
    // Which of the two leads at first is the seed's choice.
    let broken = |catches_up: bool| {
        let stage = Stage { catches_up, ..Stage::default() };
        let played = |leads| played_on(&stage, 2, takes_over(leads), hasty_collector).broken;
        let mut lines = [0, 1].into_iter().flat_map(played);
        lines.any(|line| line.contains("which ReplicaSet default/oar owns"))
    };
    assert!(broken(false) && !broken(true));
}

fn publisher(a_loop: Loop) -> Controller {
    Controller::new(PUBLISHER)
        .service_account("root-ca-cert-publisher")
        .may_write(&[Grant { group: "", resource: "configmaps", verbs: &["create", "update", "get"] }])
        .with_loop(a_loop.enqueue_on::<Namespace>(|change, _, wakes| {
            if !change.is_deletion() {
                wakes.add(&change.latest().meta.key);
            }
        }))
}

fn creation(item: &Item, ca: Option<&str>) -> Write {
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
        .because("there is none")
}

/// Makes what is missing when it sees it missing, and never looks at what is there.
fn inattentive_publisher() -> Controller {
    let decide = |view: &View<'_>, item: &Item| {
        let there = view.get::<RootCaConfigMap>(&Key::namespaced(&*item.name, MAP));
        if there.is_some() { Plan::none() } else { Plan::of(creation(item, Some("the CA"))) }
    };
    publisher(Loop::deciding("inattentive", decide).enqueue_on::<RootCaConfigMap>(|change, _, wakes| {
        if change.is_deletion() {
            wakes.add(Key::cluster(&*change.latest().meta.key.namespace));
        }
    }))
}

/// Missed intermediate state.
#[test]
fn a_publisher_that_must_see_a_map_missing_is_caught() {
    let deeds = vec![
        (2_000, trouble(0, Which::Watches, Verdict::Cuts, 2_000)),
        (2_500, Deed::User(UserAction::Forge("default".to_owned()))),
    ];
    catches(&played(1, deeds, inattentive_publisher), "Namespace /default has no CA");
}

/// Makes the map, then fills it; whoever finds a map takes it for filled.
struct InTwoSteps;

impl Reconciler for InTwoSteps {
    fn reconcile<'a>(
        &'a self,
        cx: &'a mut Context<'_>,
        item: &'a Item,
    ) -> BoxFuture<'a, Result<Requeue, ReconcileError>> {
        Box::pin(async move {
            let key = Key::namespaced(&*item.name, MAP);
            if cx.gather(|view| view.get::<RootCaConfigMap>(&key).is_some()) {
                return Ok(Requeue::Forget);
            }
            let made = cx.apply(Plan::of(creation(item, None))).await;
            let Some(Outcome::Done { resource_version: version, uid, .. }) = made.outcomes.first().cloned()
            else {
                return made.all_done().map(|()| Requeue::Forget);
            };
            let metadata =
                json!({"name": MAP, "namespace": key.namespace, "uid": uid, "resourceVersion": version});
            cx.apply(Plan::of(filled(key, &metadata))).await.all_done()?;
            Ok(Requeue::Forget)
        })
    }
}

fn filled(key: Key, metadata: &Value) -> Write {
    let body = json!({"metadata": metadata, "data": {"ca.crt": "the CA"}});
    let mut write = Write::create::<RootCaConfigMap>(key, json!({})).because("it is empty");
    write.action = Action::Put { body, subresource: "", conflict_tries: 1 };
    write
}

fn slow_publisher() -> Controller {
    publisher(Loop::reconciling("slow", InTwoSteps).reads::<RootCaConfigMap>())
}

/// A crash between two writes.
#[test]
fn a_publisher_that_dies_between_two_writes_is_caught() {
    let deeds = vec![
        (2_000, trouble(0, Which::Creates, Verdict::LateAnswer(4_000), 5_000)),
        (3_000, made(Kind::Namespace, "", "harbour")),
        (5_000, Deed::Crash(0)),
    ];
    catches(&played(1, deeds, slow_publisher), "Namespace /harbour has no CA");
}
