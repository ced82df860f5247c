//! Watches: where they start, what they deliver and how they end.

use super::*;

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true";

#[test]
fn watch_replays_from_its_resource_version_and_continues() {
    let mut server = TestServer::new();
    let first = server.created(CONFIG_MAPS, &config_map("a"));
    server.created(CONFIG_MAPS, &config_map("b"));
    let watch = server.watch(&format!("{WATCH}&resourceVersion={}", version(&first)));
    assert_eq!(server.frames(watch), ["ADDED b"]);
    server.created("/api/v1/namespaces/kube-system/configmaps", &config_map("elsewhere"));
    server.created("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "other-kind"}}));
    let mut changed = first;
    changed["data"] = json!({"k": "v"});
    server.put(&format!("{CONFIG_MAPS}/a"), &changed);
    server.delete(&format!("{CONFIG_MAPS}/b"), &Value::Null);
    assert_eq!(server.kernel.take_ready_watches(), [watch]);
    assert_eq!(server.frames(watch), ["MODIFIED a", "DELETED b"]);
}

#[test]
fn watch_without_resource_version_starts_with_the_state() {
    let mut server = TestServer::new();
    server.created(CONFIG_MAPS, &config_map("a"));
    for query in ["", "&resourceVersion=0"] {
        let watch = server.watch(&format!("{WATCH}{query}"));
        assert_eq!(server.frames(watch), ["ADDED a"], "{query}");
    }
}

#[test]
fn watch_list_ends_with_the_initial_events_end_bookmark() {
    let mut server = TestServer::new();
    let last = version(&server.created(CONFIG_MAPS, &config_map("a")));
    let stream = format!("{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let watch = server.watch(&format!("{stream}&allowWatchBookmarks=true&resourceVersion={last}"));
    let frames = server.kernel.take_frames(watch).unwrap();
    assert_eq!(frames.iter().map(|f| f.kind).collect::<Vec<_>>(), ["ADDED", "BOOKMARK"]);
    let mark = &frames[1].object;
    assert_eq!(mark["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    assert_eq!((version(mark), &mark["kind"]), (last, &json!("ConfigMap")));
    server.created(CONFIG_MAPS, &config_map("b"));
    assert_eq!(server.frames(watch), ["ADDED b"]);
    let no_bookmarks = server.watch(&stream);
    assert_eq!(server.frames(no_bookmarks), ["ADDED a", "ADDED b"]);
    // kube-apiserver opens the stream and then reports the too large resourceVersion in it.
    let future = server.watch(&format!("{stream}&resourceVersion=1000"));
    assert_eq!(server.frames(future), ["ERROR 504"]);
}

#[test]
fn bookmarks_are_sent_on_demand_to_watches_that_allow_them() {
    let mut server = TestServer::new();
    let with_bookmarks = server.watch(&format!("{WATCH}&allowWatchBookmarks=true"));
    let without_bookmarks = server.watch(WATCH);
    let revision = server.kernel.revision();
    // A watch at resourceVersion 0 gets the initial-events-end bookmark, as if it had asked for it.
    assert_eq!(server.frames(with_bookmarks), [format!("BOOKMARK {revision}")]);
    server.kernel.send_bookmarks();
    assert_eq!(server.frames(with_bookmarks), [format!("BOOKMARK {revision}")]);
    assert!(server.frames(without_bookmarks).is_empty());
}

#[test]
fn expired_resource_version_is_an_error_event_in_the_stream() {
    let mut server = TestServer::new();
    let first = version(&server.created(CONFIG_MAPS, &config_map("a")));
    let open = server.watch(&format!("{WATCH}&resourceVersion={first}"));
    server.created(CONFIG_MAPS, &config_map("b"));
    server.kernel.compact();
    let late = server.watch(&format!("{WATCH}&resourceVersion={first}"));
    assert_eq!(server.frames(late), ["ERROR 410"]);
    assert!(server.kernel.take_frames(late).is_none());
    // Compaction does not affect open watches.
    assert_eq!(server.frames(open), ["ADDED b"]);
}

#[test]
fn selected_watch_maps_updates_to_added_and_deleted() {
    let mut server = TestServer::new();
    let first = server.created(CONFIG_MAPS, &labelled("a", "app", "x"));
    let from = format!("{WATCH}&resourceVersion={}", version(&first));
    let x = server.watch(&format!("{from}&labelSelector=app=x"));
    let y = server.watch(&format!("{from}&labelSelector=app=y"));
    let (_, second) = server.put(&format!("{CONFIG_MAPS}/a"), &labelled("a", "app", "y"));
    let deleted = server.kernel.take_frames(x).unwrap();
    assert_eq!(deleted[0].kind, "DELETED");
    // The object that leaves the selection has its last matching state, with the resourceVersion of the change.
    assert_eq!(deleted[0].object["metadata"]["labels"]["app"], "x");
    assert_eq!(version(&deleted[0].object), version(&second));
    server.put(&format!("{CONFIG_MAPS}/a"), &labelled("a", "app", "x"));
    assert_eq!(server.frames(x), ["ADDED a"]);
    assert_eq!(server.frames(y), ["ADDED a", "DELETED a"]);
    server.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null);
    assert_eq!(server.frames(x), ["DELETED a"]);
    assert!(server.frames(y).is_empty());
}

#[test]
fn metadata_only_watches_deliver_only_metadata() {
    let mut server = TestServer::new();
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1".to_owned();
    let request =
        Request { accept, ..Request::new(Method::GET, &format!("{WATCH}&allowWatchBookmarks=1"), "") };
    let Reply::Watch { id, .. } = server.kernel.call(&request, server.now) else { panic!("a watch") };
    server.created(CONFIG_MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
    server.kernel.send_bookmarks();
    for frame in server.kernel.take_frames(id).unwrap() {
        assert_eq!(frame.object["kind"], "PartialObjectMetadata");
        assert!(frame.object.get("data").is_none());
    }
}

#[test]
fn watches_can_be_ended_expired_and_closed() {
    let mut server = TestServer::new();
    let (cut, left) = (server.watch(WATCH), server.watch(WATCH));
    server.kernel.close_watch(left);
    assert_eq!(server.kernel.open_watches(), 1);
    server.created(CONFIG_MAPS, &config_map("a"));
    server.kernel.cut_watches();
    assert_eq!(server.frames(cut), ["ADDED a"]);
    assert!(server.kernel.take_frames(cut).is_none());
    let expired = server.watch(&format!("{WATCH}&resourceVersion={}", server.kernel.revision()));
    server.kernel.expire_watches();
    assert_eq!(server.frames(expired), ["ERROR 410"]);
    assert_eq!(server.kernel.open_watches(), 0);
}

/// The timeout of the watch, and whether its client allows bookmarks.
fn watch_parameters(server: &mut TestServer, query: &str) -> (std::time::Duration, bool) {
    let request = Request::new(Method::GET, &format!("{WATCH}{query}"), "");
    match server.kernel.call(&request, server.now) {
        Reply::Watch { timeout, bookmarks, .. } => (timeout, bookmarks),
        Reply::Document(document) => panic!("{document:?}"),
    }
}

#[test]
fn timeouts_are_passed_to_the_service() {
    let mut server = TestServer::new();
    assert_eq!(watch_parameters(&mut server, "&timeoutSeconds=7").0.as_secs(), 7);
    assert!(watch_parameters(&mut server, "&allowWatchBookmarks=true").1);
    assert!(!watch_parameters(&mut server, "").1);
}

#[test]
fn watch_without_timeout_ends_randomly_between_30_and_60_minutes() {
    let minutes =
        |server: &mut TestServer| watch_parameters(server, "&timeoutSeconds=0").0.as_secs_f64() / 60.0;
    let mut server = TestServer::new();
    let timeouts: Vec<f64> = (0..50).map(|_| minutes(&mut server)).collect();
    assert!(timeouts.iter().all(|minutes| (30.0..60.0).contains(minutes)), "{timeouts:?}");
    assert!(timeouts.iter().any(|minutes| *minutes < 40.0) && timeouts.iter().any(|minutes| *minutes > 50.0));
    assert_eq!(timeouts[0], minutes(&mut TestServer::new()), "the seed decides");
}

#[test]
fn slowest_watch_is_ended_when_all_queues_exceed_the_limit() {
    let mut server = TestServer::with(KernelOptions { backlog_bytes_max: 4000, ..KernelOptions::default() });
    let (slow, quick) = (server.watch(WATCH), server.watch(WATCH));
    for at in 0..100 {
        server.created(CONFIG_MAPS, &config_map(&format!("c{at}")));
        assert_eq!(server.frames(quick).len(), 1);
    }
    assert_eq!(server.frames(slow), ["ERROR 410"]);
    assert!(server.kernel.take_frames(slow).is_none());
    assert_eq!(server.kernel.open_watches(), 1);
}
