//! Entries are kept in order and within the limit, and contain no Secret data.

use keleustes_objects::{ApiError, ErrorReason, Namespace};
use keleustes_plan::InvolvedObject;
use serde_json::json;

use super::*;

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets", "Secret");
const SETS: Resource = Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet");

fn journal(bytes_max: usize) -> Journal {
    Journal::new(Clocks::new(|| 1_767_225_600_123_456_789), bytes_max)
}

fn write(resource: &Resource, name: &str) -> Write {
    let mut write = Write::create::<Namespace>(Key::namespaced("shop", name), json!({"data": "body"}));
    write.target.resource = resource.clone();
    write.because("three replicas are wanted")
}

fn item() -> Item {
    Key::namespaced("shop", "web").into()
}

#[tokio::test]
async fn entries_hold_time_controller_reason_and_outcome() {
    let journal = journal(BYTES_MAX_DEFAULT);
    journal.record_write("replicaset-controller", &item(), &write(&SETS, "web"), &Outcome::Unneeded);
    let refused = ApiError::transport(ErrorReason::Forbidden, "exceeded quota: small");
    journal.record_write("replicaset-controller", &item(), &write(&SETS, "web"), &Outcome::Failed(refused));
    let event = PlannedEvent {
        involved_object: InvolvedObject::named(&SETS, "shop", "web", "".into(), "".into()),
        event_type: EventType::Warning,
        reason: "FailedCreate".to_owned(),
        message: "Error creating".to_owned(),
        annotations: std::collections::BTreeMap::new(),
    };
    journal.record_event("replicaset-controller", &item(), &event);
    journal.record_failure("replicaset-controller", &item(), &ReconcileError::because("no"), 7, false);
    let lines: Vec<_> = journal.latest(10, |_| true).iter().map(JournalEntry::summary).collect();
    assert_eq!(
        lines,
        [
            "attempt 7 failed: no",
            "event FailedCreate on shop/web: Error creating",
            "create replicasets.apps shop/web because three replicas are wanted: failed: exceeded quota: small",
            "create replicasets.apps shop/web because three replicas are wanted: unneeded",
        ]
    );
    let first = &journal.latest(1, |entry| entry.resource == "replicasets.apps")[0];
    assert_eq!(first.unix_milliseconds, 1_767_225_600_123);
    assert_eq!((first.controller.as_str(), first.item.as_str()), ("replicaset-controller", "shop/web"));
}

#[tokio::test]
async fn latest_failure_of_each_item_is_found() {
    let journal = journal(BYTES_MAX_DEFAULT);
    let named = |name: &str| -> Item { Key::namespaced("shop", name).into() };
    let fail = |controller: &str, name: &str, error: &str| {
        journal.record_failure(controller, &named(name), &ReconcileError::because(error), 1, false);
    };
    fail("job-controller", "web-0", "another controller's");
    for error in ["first", "second"] {
        (0..300).for_each(|n| fail("replicaset-controller", &format!("web-{n}"), &format!("{error} {n}")));
    }
    // What came later fills more than a chunk, and is no failure.
    for _ in 0..2000 {
        journal.record_write(
            "replicaset-controller",
            &named("web-0"),
            &write(&SETS, "web"),
            &Outcome::Unneeded,
        );
    }
    let of = |name: &str| ("replicaset-controller".to_owned(), format!("shop/{name}"));
    let wanted = (0..300).map(|n| of(&format!("web-{n}"))).chain([of("absent")]).collect();
    let found = journal.latest_failures(&wanted);
    assert_eq!(found.len(), 300);
    assert_eq!((&*found[&of("web-0")], &*found[&of("web-299")]), ("second 0", "second 299"));
}

#[tokio::test]
async fn ring_is_bounded_by_bytes_and_keeps_the_newest_entries() {
    let journal = journal(3 * CHUNK_BYTES);
    for number in 0..5000 {
        let write = write(&SETS, &format!("web-{number}"));
        journal.record_write("replicaset-controller", &item(), &write, &Outcome::done());
    }
    assert_eq!(journal.bytes(), 3 * CHUNK_BYTES);
    let allocated: usize = journal.0.ring.lock().chunks.iter().map(Vec::capacity).sum();
    assert!(allocated <= 3 * CHUNK_BYTES, "{allocated} bytes are allocated");
    let kept = journal.latest(usize::MAX, |_| true);
    assert_eq!((kept[0].name.as_str(), kept[1].name.as_str()), ("web-4999", "web-4998"));
    let (added, dropped) = journal.counts();
    assert_eq!((added, dropped), (5000, 5000 - kept.len() as u64));
    journal.set_bytes_max(CHUNK_BYTES);
    assert_eq!(journal.bytes(), CHUNK_BYTES);
    journal.set_bytes_max(0);
    journal.record_write("replicaset-controller", &item(), &write(&SETS, "web"), &Outcome::done());
    assert_eq!((journal.bytes(), journal.latest(1, |_| true).len()), (0, 0), "zero switches it off");
}

#[tokio::test]
async fn neither_bodies_nor_messages_about_secrets_are_kept() {
    const MARKER: &str = "c2VjcmV0LW1hcmtlcg";
    let journal = journal(BYTES_MAX_DEFAULT);
    let mut secret = write(&SECRETS, "token");
    secret.action = keleustes_plan::Action::Create(json!({"data": {"token": MARKER}}));
    let quoted = ApiError::transport(ErrorReason::Invalid, format!("data.token: Invalid value: {MARKER}"));
    journal.record_write("tokens", &item(), &secret, &Outcome::Failed(quoted.clone()));
    journal.record_failure("tokens", &item(), &ReconcileError::from_write(&secret, &quoted), 1, false);
    let entries = journal.latest(10, |_| true);
    assert_eq!(entries.len(), 2);
    assert_eq!(
        entries[0].summary(),
        "attempt 1 failed: create secrets shop/token because three replicas are wanted"
    );
    assert!(!format!("{entries:?}").contains(MARKER), "{entries:?}");
    let bytes: Vec<u8> = journal.0.ring.lock().chunks.iter().flatten().copied().collect();
    assert!(!String::from_utf8_lossy(&bytes).contains(MARKER));
}

#[tokio::test]
async fn long_texts_are_cut_between_characters() {
    let journal = journal(BYTES_MAX_DEFAULT);
    let long = ReconcileError::because(format!("x{}", "ü".repeat(100_000)));
    journal.record_failure("test", &item(), &long, 1, false);
    let Decision::Failure { error, .. } = &journal.latest(1, |_| true)[0].decision else { panic!() };
    assert_eq!(error.len(), TEXT_BYTES_MAX - 1);
    assert!(error.ends_with('ü'));
}

/// Writers do not wait for readers, so the oldest chunk may be dropped in the middle of a search.
#[tokio::test]
async fn entries_added_during_a_search_make_no_entry_appear_twice() {
    let journal = journal(3 * CHUNK_BYTES);
    let fill = |prefix: &str| {
        let (_, dropped) = journal.counts();
        let mut number = 0;
        while journal.counts().1 == dropped {
            number += 1;
            let write = write(&SETS, &format!("{prefix}-{number}"));
            journal.record_write("replicaset-controller", &item(), &write, &Outcome::Unneeded);
        }
    };
    fill("old");
    let is_first = std::cell::Cell::new(true);
    let found = journal.latest(usize::MAX, |_| {
        if is_first.take() {
            fill("new");
        }
        true
    });
    let names: std::collections::BTreeSet<_> = found.iter().map(|entry| &entry.name).collect();
    assert_eq!(names.len(), found.len());
}

#[tokio::test]
async fn reader_in_the_middle_of_a_search_blocks_no_write() {
    let journal = journal(BYTES_MAX_DEFAULT);
    journal.record_write("replicaset-controller", &item(), &write(&SETS, "old"), &Outcome::done());
    let found = journal.latest(10, |_| {
        let (writer, (done, is_done)) = (journal.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            writer.record_write("replicaset-controller", &item(), &write(&SETS, "new"), &Outcome::done());
            done.send(()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_secs(10)).is_ok(), "the write waits for the reader");
        true
    });
    assert_eq!((found.len(), journal.counts().0), (1, 2));
}

/// Prints the CPU time of an entry; docs/explain.md says what share of a write it is.
///
/// `cargo test --release -p keleustes-runtime --lib entry_cost -- --ignored --nocapture`
#[tokio::test]
#[ignore = "a measurement"]
async fn entry_cost() {
    const ENTRIES: u32 = 1_000_000;
    let wall = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as i64);
    let journal = Journal::new(Clocks::new(wall), BYTES_MAX_DEFAULT);
    let (item, mut write) = (item(), write(&SETS, "web-5578694d54-rr4ps"));
    write.target.resource = Resource::namespaced("", "v1", "pods", "Pod");
    let began = std::time::Instant::now();
    for _ in 0..ENTRIES {
        journal.record_write("replicaset-controller", &item, &write, &Outcome::Unneeded);
    }
    println!("{} ns per entry", (began.elapsed() / ENTRIES).as_nanos());
    assert!(journal.bytes() <= BYTES_MAX_DEFAULT);
}
