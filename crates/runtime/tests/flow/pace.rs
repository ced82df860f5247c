//! What only tells how things stand is spaced, and the last of it is told all the same.

use std::time::Duration;

use keleustes_objects::Key;
use keleustes_plan::{Controller, Grant, Item, Loop, PatchKind, Plan, StatusUrgency, View, Write};
use keleustes_runtime::status_coalescing::{INTERVAL_FIRST, INTERVAL_MAX};
use serde_json::json;

use crate::world::{ConfigMap, World, settle, wait};

const GRANTS: &[Grant] = &[Grant { group: "", resource: "configmaps", verbs: &["patch"] }];

/// Tells in one map the colour of another. That it is golden must be known at once.
fn tell_the_colour(view: &View<'_>, _: &Item) -> Plan {
    let map = |name| view.get::<ConfigMap>(&Key::namespaced("a", name));
    let Some((sky, report)) = map("sky").zip(map("report")) else { return Plan::none() };
    if sky.colour == report.colour {
        return Plan::none();
    }
    let telling = if sky.colour == "gold" { StatusUrgency::Immediate } else { StatusUrgency::Coalesce };
    let write = Write::patch(&**report, PatchKind::Merge, json!({"data": {"colour": sky.colour}}));
    Plan::of(write.status_urgency(telling).because("the sky has another colour"))
}

async fn world() -> (World, keleustes_runtime::loops::RunningController) {
    let world = World::new();
    world.put("a/sky", "blue");
    world.put("a/report", "blue");
    let a_loop = Loop::deciding("test", tell_the_colour).enqueue_on::<ConfigMap>(|change, _, wakes| {
        if change.latest().meta.key.name == "sky" {
            wakes.add(&change.latest().meta.key);
        }
    });
    let running = world.start(Controller::new("test").may_write(GRANTS).with_loop(a_loop)).await;
    (world, running)
}

#[tokio::test(start_paused = true)]
async fn a_change_that_comes_alone_is_told_at_once() {
    let (world, running) = world().await;
    for colour in ["red", "grey", "white"] {
        world.put("a/sky", colour);
        settle().await;
        assert_eq!(world.colour("a/report").as_deref(), Some(colour));
        wait(INTERVAL_MAX).await;
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_many_changes_some_are_told_and_the_last_one_without_anything_waking_it() {
    let (world, running) = world().await;
    for shade in 0..100 {
        world.put("a/sky", &format!("shade {shade}"));
        wait(Duration::from_millis(10)).await;
    }
    let told = world.writes().len();
    assert!((2..=5).contains(&told), "the first, and then fewer and fewer: {told}");
    assert_ne!(world.colour("a/report").as_deref(), Some("shade 99"));
    wait(INTERVAL_MAX).await;
    assert_eq!(world.colour("a/report").as_deref(), Some("shade 99"));
    assert_eq!(world.writes().len(), told + 1);
    wait(10 * INTERVAL_MAX).await;
    assert_eq!(world.writes().len(), told + 1, "then there is nothing left to tell");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_waits_for_is_told_at_once_however_much_was_told() {
    let (world, running) = world().await;
    for colour in ["red", "grey", "gold"] {
        world.put("a/sky", colour);
        settle().await;
    }
    assert_eq!(world.colour("a/report").as_deref(), Some("gold"));
    assert_eq!(world.writes().len(), 2, "nobody heard of the grey");
    wait(10 * INTERVAL_MAX).await;
    assert_eq!(world.writes().len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_has_passed_by_the_time_it_could_be_told_is_not_told() {
    let (world, running) = world().await;
    for colour in ["red", "grey", "red"] {
        world.put("a/sky", colour);
        settle().await;
    }
    wait(INTERVAL_FIRST).await;
    assert_eq!(world.colour("a/report").as_deref(), Some("red"));
    assert_eq!(world.writes().len(), 1);
    running.stop().await;
}
