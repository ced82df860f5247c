//! Decisions and changes in order, and what the comparison says about them.

use std::sync::Arc;

use keleustes_objects::{Key, PartialObjectMeta, Uid};
use keleustes_plan::AnyObject;
use serde_json::{Value, json};

use super::super::effect::ObservedChange;
use super::*;

const WINDOW: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Moment {
    Moment {
        monotonic: Duration::from_secs(seconds),
        unix_milliseconds: i64::try_from(seconds).unwrap() * 1000,
    }
}

fn pods() -> Collection {
    Collection { group: String::new(), plural: "pods".into(), namespace: "shop".into() }
}

fn sets() -> Collection {
    Collection { group: "apps".into(), plural: "replicasets".into(), namespace: "shop".into() }
}

fn decider(name: &str) -> Decider {
    Decider {
        controller: "replicaset-controller",
        queue: "replicaset",
        item: Item::from(Key::namespaced("shop", name)),
    }
}

fn create_pod(owner: &str) -> Wanted {
    let effect = Effect::Create { name: String::new(), prefix: "web-".into(), owner: Some(Uid::from(owner)) };
    Wanted { effect: WriteEffect { collection: pods(), effect }, because: "too few pods".into() }
}

fn delete_pod(name: &str, owner: &str) -> Wanted {
    let effect = Effect::Delete { name: name.into(), owner: Some(Uid::from(owner)) };
    Wanted { effect: WriteEffect { collection: pods(), effect }, because: "too many pods".into() }
}

fn status(name: &str) -> Wanted {
    let effect = Effect::Update { name: name.into(), subresource: "status" };
    Wanted { effect: WriteEffect { collection: sets(), effect }, because: "the counts differ".into() }
}

fn saw(collection: Collection, name: &str, owner: Option<&str>, change: ObservedChange) -> Observed {
    Observed { collection, name: name.into(), owner: owner.map(Uid::from), change, is_spec_changed: false }
}

fn counts(comparison: &Comparison) -> Counts {
    comparison.counts().get("replicaset-controller").copied().unwrap_or_default()
}

#[test]
fn decision_that_the_leader_makes_is_an_agreement() {
    let mut comparison = Comparison::new(WINDOW);
    let web = decider("web");
    assert!(comparison.decided(&web, vec![create_pod("set"), create_pod("set")], at(0)).is_some());
    for name in ["web-a", "web-b"] {
        let created = saw(pods(), name, Some("set"), ObservedChange::Created);
        assert_eq!(comparison.observed(&created, at(1)), Some("replicaset-controller"));
    }
    assert_eq!(comparison.decided(&web, Vec::new(), at(1)), None);
    let expected = Counts { decisions: 2, agreements: 2, ..Counts::default() };
    assert_eq!(counts(&comparison), expected);
    assert_eq!(comparison.differences().count(), 0);
    assert_eq!(comparison.pending_of("replicaset-controller"), 0);
}

#[test]
fn decision_that_stays_is_only_ours_once_the_window_has_passed() {
    let mut comparison = Comparison::new(WINDOW);
    let web = decider("web");
    comparison.decided(&web, vec![create_pod("set"), create_pod("set")], at(0));
    comparison.decided(&web, vec![create_pod("set"), create_pod("set")], at(29));
    assert_eq!(comparison.differences().count(), 0, "the window has not passed");
    comparison.decided(&web, vec![create_pod("set"), create_pod("set")], at(30));
    comparison.decided(&web, vec![create_pod("set"), create_pod("set")], at(90));
    let found: Vec<_> = comparison.differences().collect();
    assert_eq!(found.len(), 1, "reported once");
    assert_eq!(
        (found[0].kind, found[0].name.as_str(), found[0].reason.as_str()),
        (DifferenceKind::OnlyOurs, "web-*", "wanted (2 times) because too few pods")
    );
    assert!(!found[0].resolved);
    comparison.decided(&web, Vec::new(), at(91));
    assert!(comparison.differences().all(|there| there.resolved));
    assert_eq!(counts(&comparison).withdrawn, 0);
}

#[test]
fn decision_that_disappears_without_a_change_is_withdrawn() {
    let mut comparison = Comparison::new(WINDOW);
    comparison.decided(&decider("web"), vec![status("web")], at(0));
    comparison.decided(&decider("web"), Vec::new(), at(2));
    assert_eq!(counts(&comparison), Counts { decisions: 1, withdrawn: 1, ..Counts::default() });
}

#[test]
fn leader_that_writes_something_else_has_other_content() {
    let mut comparison = Comparison::new(WINDOW);
    comparison.decided(&decider("web"), vec![status("web")], at(0));
    let updated = saw(sets(), "web", None, ObservedChange::Updated);
    assert!(comparison.observed(&updated, at(10)).is_some());
    comparison.decided(&decider("web"), vec![status("web")], at(35));
    assert_eq!(comparison.differences().count(), 0, "the window begins again with the leader's write");
    comparison.decided(&decider("web"), vec![status("web")], at(40));
    let kinds: Vec<_> = comparison.differences().map(|there| there.kind).collect();
    assert_eq!(kinds, [DifferenceKind::OtherContent]);
}

#[test]
fn which_of_several_equal_pods_is_deleted_does_not_matter() {
    let mut comparison = Comparison::new(WINDOW);
    comparison.decided(&decider("web"), vec![delete_pod("web-a", "set"), delete_pod("web-b", "set")], at(0));
    for name in ["web-c", "web-a"] {
        let deleted = saw(pods(), name, Some("set"), ObservedChange::Deleted);
        assert!(comparison.observed(&deleted, at(1)).is_some(), "{name}");
    }
    let other = saw(pods(), "web-d", Some("another"), ObservedChange::Deleted);
    assert_eq!(comparison.observed(&other, at(1)), None);
    comparison.decided(&decider("web"), Vec::new(), at(2));
    assert_eq!((counts(&comparison).agreements, counts(&comparison).withdrawn), (2, 0));
}

#[test]
fn decisions_of_other_items_do_not_explain_a_change() {
    let mut comparison = Comparison::new(WINDOW);
    comparison.decided(&decider("web"), vec![status("web")], at(0));
    assert_eq!(comparison.observed(&saw(sets(), "api", None, ObservedChange::Updated), at(1)), None);
    let mut elsewhere = sets();
    elsewhere.namespace = "other".into();
    assert_eq!(comparison.observed(&saw(elsewhere, "web", None, ObservedChange::Updated), at(1)), None);
    assert_eq!(comparison.observed(&saw(sets(), "web", None, ObservedChange::Deleted), at(1)), None);
}

#[test]
fn write_of_the_leader_alone_is_counted_and_repeated_ones_share_a_line() {
    let mut comparison = Comparison::new(WINDOW);
    let updated = saw(sets(), "web", None, ObservedChange::Updated);
    comparison.only_leader("deployment-controller", &updated, "wants no write", at(1));
    comparison.only_leader("deployment-controller", &updated, "wants no write", at(9));
    let found: Vec<_> = comparison.differences().cloned().collect();
    assert_eq!((found.len(), found[0].count, found[0].last_unix_milliseconds), (1, 2, 9000));
    assert_eq!((found[0].verb.as_str(), found[0].resource.as_str()), ("update", "replicasets.apps"));
    assert_eq!(comparison.counts()["deployment-controller"].differences, 2);
}

fn create_slice() -> (Decider, Vec<Wanted>) {
    let collection = Collection {
        group: "discovery.k8s.io".into(),
        plural: "endpointslices".into(),
        namespace: "shop".into(),
    };
    let effect = Effect::Create { name: String::new(), prefix: "web-".into(), owner: None };
    let slice = Wanted { effect: WriteEffect { collection, effect }, because: "it is missing".into() };
    let web = Decider { controller: "endpointslice-controller", queue: "endpoint_slice", ..decider("web") };
    (web, vec![slice])
}

fn object(name: &str, version: &str, labels: &Value) -> Arc<dyn AnyObject> {
    let metadata =
        json!({"namespace": "shop", "name": name, "uid": name, "resourceVersion": version, "labels": labels});
    let object: PartialObjectMeta = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    Arc::new(object)
}

fn delete_slice(comparison: &mut Comparison) {
    let slices = Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");
    let labels = json!({"kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
    let deleted = AnyChange { old: Some(object("web-a", "5", &labels)), new: None, resync: false };
    comparison.note_change(&slices, &deleted, false);
}

fn known_and_unlisted(comparison: &Comparison) -> (u64, u64) {
    let counts = comparison.counts()["endpointslice-controller"];
    let listed = comparison.differences().filter(|there| there.known.is_some()).count();
    assert_eq!(listed > 0, counts.known_differences > 0);
    (counts.known_differences, counts.differences)
}

#[test]
fn known_differences_are_counted_apart() {
    let (web, wanted) = create_slice();
    let mut comparison = Comparison::new(WINDOW);
    delete_slice(&mut comparison);
    comparison.decided(&web, wanted.clone(), at(0));
    comparison.decided(&web, wanted, at(30));
    assert_eq!(known_and_unlisted(&comparison), (1, 0));
}

#[test]
fn slice_that_the_leader_never_created_is_no_known_difference() {
    let (web, wanted) = create_slice();
    let mut comparison = Comparison::new(WINDOW);
    comparison.decided(&web, wanted.clone(), at(0));
    comparison.decided(&web, wanted, at(30));
    assert_eq!(known_and_unlisted(&comparison), (0, 1));
}

#[test]
fn lost_slice_is_no_excuse_once_the_service_has_changed() {
    let (web, wanted) = create_slice();
    let mut comparison = Comparison::new(WINDOW);
    delete_slice(&mut comparison);
    comparison.decided(&web, wanted.clone(), at(0));
    comparison.decided(&web, wanted.clone(), at(30));
    let services = Resource::namespaced("", "v1", "services", "Service");
    let changed = AnyChange { old: None, new: Some(object("web", "9", &json!({}))), resync: false };
    comparison.note_change(&services, &changed, false);
    comparison.decided(&web, wanted.clone(), at(40));
    comparison.decided(&web, wanted.clone(), at(69));
    assert_eq!(known_and_unlisted(&comparison), (1, 0), "the leader has a window to create the slice");
    comparison.decided(&web, wanted, at(70));
    assert_eq!(known_and_unlisted(&comparison), (1, 1));
}

#[test]
fn what_an_item_wanted_since_a_change_is_what_was_expected() {
    let mut comparison = Comparison::new(WINDOW);
    let (web, api) = (decider("web"), decider("api"));
    let deleted = saw(pods(), "web-x", Some("set"), ObservedChange::Deleted);
    let wanted_since = |comparison: &Comparison, second| {
        comparison.wanted_since(Duration::from_secs(second), &deleted, std::slice::from_ref(&web))
    };
    comparison.decided(&web, vec![delete_pod("web-b", "set")], at(1));
    comparison.decided(&web, vec![status("web"), create_pod("set"), create_pod("set")], at(5));
    comparison.decided(&api, vec![status("api")], at(6));
    let create = "replicaset-controller: create pods shop/web-* because too few pods";
    let update = "replicaset-controller: update status replicasets.apps shop/web because the counts differ";
    assert_eq!(wanted_since(&comparison, 5), [create, update], "first what is of the same kind");
    assert_eq!(wanted_since(&comparison, 7), [""; 0]);
    comparison.agreed(&web, &delete_pod("web-a", "set"), at(8));
    let delete = "replicaset-controller: delete pods shop/web-a because too many pods";
    assert_eq!(wanted_since(&comparison, 7), [delete]);
}

#[test]
fn everything_that_is_kept_is_bounded() {
    let mut comparison = Comparison::new(WINDOW);
    for number in 0..PENDING_MAX + 5 {
        comparison.decided(&decider(&format!("web-{number}")), vec![status(&format!("web-{number}"))], at(0));
    }
    assert_eq!((comparison.pending_count, comparison.not_kept), (PENDING_MAX, 5));
    for number in 0..KEPT_MAX + 3 {
        let updated = saw(sets(), &format!("web-{number}"), None, ObservedChange::Updated);
        comparison.only_leader("deployment-controller", &updated, &"x".repeat(1000), at(1));
        comparison.foreign(&updated, "kubectl", vec!["x".repeat(1000)], at(1));
    }
    assert_eq!(
        (comparison.differences().count(), comparison.foreign_changes().count()),
        (KEPT_MAX, KEPT_MAX)
    );
    assert!(comparison.differences().all(|there| there.reason.len() <= TEXT_BYTES_MAX));
    assert_eq!(comparison.recent.len(), RECENT_MAX);
    for number in 0..PENDING_MAX {
        comparison.decided(&decider(&format!("web-{number}")), Vec::new(), at(1));
    }
    assert_eq!((comparison.pending_count, comparison.places.len()), (0, 0), "nothing stays behind");
}

#[test]
fn pending_decision_is_looked_at_again_soon_and_a_reported_one_rarely() {
    let seconds = |age| next_look(Duration::from_secs(age), WINDOW).as_secs();
    assert_eq!([seconds(0), seconds(4), seconds(5), seconds(27), seconds(30)], [1, 1, 5, 3, 60]);
}
