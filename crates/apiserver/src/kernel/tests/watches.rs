//! Watches: where they start, what they deliver and how they end.

use super::*;

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true";

#[test]
fn a_watch_replays_from_its_version_and_goes_on() {
    let mut world = World::new();
    let first = world.created(CONFIG_MAPS, &config_map("a"));
    world.created(CONFIG_MAPS, &config_map("b"));
    let watch = world.watch(&format!("{WATCH}&resourceVersion={}", version(&first)));
    assert_eq!(world.frames(watch), ["ADDED b"]);
    world.created("/api/v1/namespaces/kube-system/configmaps", &config_map("elsewhere"));
    world.created("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "other-kind"}}));
    let mut changed = first;
    changed["data"] = json!({"k": "v"});
    world.put(&format!("{CONFIG_MAPS}/a"), &changed);
    world.delete(&format!("{CONFIG_MAPS}/b"), &Value::Null);
    assert_eq!(world.kernel.take_ready_watches(), [watch]);
    assert_eq!(world.frames(watch), ["MODIFIED a", "DELETED b"]);
}

#[test]
fn without_a_version_the_state_comes_first() {
    let mut world = World::new();
    world.created(CONFIG_MAPS, &config_map("a"));
    for query in ["", "&resourceVersion=0"] {
        let watch = world.watch(&format!("{WATCH}{query}"));
        assert_eq!(world.frames(watch), ["ADDED a"], "{query}");
    }
}

#[test]
fn a_streaming_list_is_closed_by_the_marked_bookmark() {
    let mut world = World::new();
    let last = version(&world.created(CONFIG_MAPS, &config_map("a")));
    let stream = format!("{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let watch = world.watch(&format!("{stream}&allowWatchBookmarks=true&resourceVersion={last}"));
    let frames = world.kernel.take_frames(watch).unwrap();
    assert_eq!(frames.iter().map(|f| f.kind).collect::<Vec<_>>(), ["ADDED", "BOOKMARK"]);
    let mark = &frames[1].object;
    assert_eq!(mark["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    assert_eq!((version(mark), &mark["kind"]), (last, &json!("ConfigMap")));
    world.created(CONFIG_MAPS, &config_map("b"));
    assert_eq!(world.frames(watch), ["ADDED b"]);
    let quiet = world.watch(&stream);
    assert_eq!(world.frames(quiet), ["ADDED a", "ADDED b"]);
    // kube-apiserver opens the stream and then reports the too large resourceVersion in it.
    let future = world.watch(&format!("{stream}&resourceVersion=1000"));
    assert_eq!(world.frames(future), ["ERROR 504"]);
}

#[test]
fn bookmarks_come_on_demand_to_those_who_allow_them() {
    let mut world = World::new();
    let willing = world.watch(&format!("{WATCH}&allowWatchBookmarks=true"));
    let unwilling = world.watch(WATCH);
    let revision = world.kernel.revision();
    // A watch at resourceVersion 0 gets the initial-events-end bookmark, as if it had asked for it.
    assert_eq!(world.frames(willing), [format!("BOOKMARK {revision}")]);
    world.kernel.send_bookmarks();
    assert_eq!(world.frames(willing), [format!("BOOKMARK {revision}")]);
    assert!(world.frames(unwilling).is_empty());
}

#[test]
fn a_forgotten_version_is_told_inside_the_stream() {
    let mut world = World::new();
    let first = version(&world.created(CONFIG_MAPS, &config_map("a")));
    let open = world.watch(&format!("{WATCH}&resourceVersion={first}"));
    world.created(CONFIG_MAPS, &config_map("b"));
    world.kernel.compact();
    let late = world.watch(&format!("{WATCH}&resourceVersion={first}"));
    assert_eq!(world.frames(late), ["ERROR 410"]);
    assert!(world.kernel.take_frames(late).is_none());
    // Compaction does not affect open watches.
    assert_eq!(world.frames(open), ["ADDED b"]);
}

#[test]
fn selectors_turn_changes_into_arrivals_and_departures() {
    let mut world = World::new();
    let first = world.created(CONFIG_MAPS, &labelled("a", "app", "x"));
    let from = format!("{WATCH}&resourceVersion={}", version(&first));
    let x = world.watch(&format!("{from}&labelSelector=app=x"));
    let y = world.watch(&format!("{from}&labelSelector=app=y"));
    let (_, second) = world.put(&format!("{CONFIG_MAPS}/a"), &labelled("a", "app", "y"));
    let departed = world.kernel.take_frames(x).unwrap();
    assert_eq!(departed[0].kind, "DELETED");
    // The object that leaves the selection has its last matching state, with the resourceVersion of the change.
    assert_eq!(departed[0].object["metadata"]["labels"]["app"], "x");
    assert_eq!(version(&departed[0].object), version(&second));
    world.put(&format!("{CONFIG_MAPS}/a"), &labelled("a", "app", "x"));
    assert_eq!(world.frames(x), ["ADDED a"]);
    assert_eq!(world.frames(y), ["ADDED a", "DELETED a"]);
    world.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null);
    assert_eq!(world.frames(x), ["DELETED a"]);
    assert!(world.frames(y).is_empty());
}

#[test]
fn metadata_only_watches_show_metadata_only() {
    let mut world = World::new();
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1".to_owned();
    let request =
        Request { accept, ..Request::new(Method::GET, &format!("{WATCH}&allowWatchBookmarks=1"), "") };
    let Reply::Watch { id, .. } = world.kernel.call(&request, world.now) else { panic!("a watch") };
    world.created(CONFIG_MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    world.kernel.send_bookmarks();
    for frame in world.kernel.take_frames(id).unwrap() {
        assert_eq!(frame.object["kind"], "PartialObjectMetadata");
        assert!(frame.object.get("data").is_none());
    }
}

#[test]
fn watches_can_be_cut_expired_and_left() {
    let mut world = World::new();
    let (cut, left) = (world.watch(WATCH), world.watch(WATCH));
    world.kernel.close_watch(left);
    assert_eq!(world.kernel.open_watches(), 1);
    world.created(CONFIG_MAPS, &config_map("a"));
    world.kernel.cut_watches();
    assert_eq!(world.frames(cut), ["ADDED a"]);
    assert!(world.kernel.take_frames(cut).is_none());
    let expired = world.watch(&format!("{WATCH}&resourceVersion={}", world.kernel.revision()));
    world.kernel.expire_watches();
    assert_eq!(world.frames(expired), ["ERROR 410"]);
    assert_eq!(world.kernel.open_watches(), 0);
}

/// The timeout of the watch, and whether its client allows bookmarks.
fn terms(world: &mut World, query: &str) -> (std::time::Duration, bool) {
    let request = Request::new(Method::GET, &format!("{WATCH}{query}"), "");
    match world.kernel.call(&request, world.now) {
        Reply::Watch { timeout, bookmarks, .. } => (timeout, bookmarks),
        Reply::Document(document) => panic!("{document:?}"),
    }
}

#[test]
fn timeouts_are_handed_to_the_face() {
    let mut world = World::new();
    assert_eq!(terms(&mut world, "&timeoutSeconds=7").0.as_secs(), 7);
    assert!(terms(&mut world, "&allowWatchBookmarks=true").1);
    assert!(!terms(&mut world, "").1);
}

#[test]
fn a_watch_without_a_wish_ends_by_chance_between_half_an_hour_and_an_hour() {
    let minutes = |world: &mut World| terms(world, "&timeoutSeconds=0").0.as_secs_f64() / 60.0;
    let mut world = World::new();
    let drawn: Vec<f64> = (0..50).map(|_| minutes(&mut world)).collect();
    assert!(drawn.iter().all(|minutes| (30.0..60.0).contains(minutes)), "{drawn:?}");
    assert!(drawn.iter().any(|minutes| *minutes < 40.0) && drawn.iter().any(|minutes| *minutes > 50.0));
    assert_eq!(drawn[0], minutes(&mut World::new()), "the seed decides");
}

#[test]
fn when_all_watchers_together_hold_too_much_the_slowest_is_cut_off() {
    let mut world = World::with(KernelOptions { backlog_bytes_max: 4000, ..KernelOptions::default() });
    let (slow, quick) = (world.watch(WATCH), world.watch(WATCH));
    for at in 0..100 {
        world.created(CONFIG_MAPS, &config_map(&format!("c{at}")));
        assert_eq!(world.frames(quick).len(), 1);
    }
    assert_eq!(world.frames(slow), ["ERROR 410"]);
    assert!(world.kernel.take_frames(slow).is_none());
    assert_eq!(world.kernel.open_watches(), 1);
}
