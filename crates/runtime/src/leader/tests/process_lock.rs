//! A process that is proved to have ended does not keep its successor waiting.

use std::time::Duration;

use super::*;

/// A lock whose state a test sets: the ended processes, or `None` while another process has it.
#[derive(Default)]
struct TestLock(Mutex<Option<Vec<String>>>);

impl TestLock {
    fn grant(&self, ended: &[&str]) {
        *self.0.lock() = Some(ended.iter().map(|&identity| identity.to_owned()).collect());
    }
}

impl ProcessLock for TestLock {
    fn take(&self, _: &str) -> Result<Option<Vec<String>>, String> {
        Ok(self.0.lock().clone())
    }
}

/// A leader that is killed: it stops renewing, and its Lease stays.
async fn killed_leader(server: &ApiServer, name: &str) {
    let leader = contestant(server, name, 0).lead().await;
    leader.ended.abort();
    assert_eq!(holder(server), name);
}

fn with_lock(mut contestant: Contestant, lock: &Arc<TestLock>) -> Contestant {
    contestant.election = contestant.election.with_process_lock(lock.clone());
    contestant
}

#[tokio::test(start_paused = true)]
async fn lease_of_a_process_that_ended_on_this_machine_is_taken_at_once() {
    let server = server();
    killed_leader(&server, "old").await;
    let (lock, killed_at) = (Arc::<TestLock>::default(), Instant::now());
    lock.grant(&["older", "old"]);
    let mut successor = with_lock(contestant(&server, "new", 0), &lock);
    successor.election.read_lease().await;
    let leading = successor.election.acquire(never()).await.unwrap();
    assert!(killed_at.elapsed() < Duration::from_millis(100), "{:?}", killed_at.elapsed());
    assert_eq!(holder(&server), "new");
    assert_eq!(lease(&server)["spec"]["leaseTransitions"], 1, "a change of the holder is counted");
    // Caches that were listed since hold all of its writes.
    let Predecessor::LeftNoRecord(Some(writes_ended_at)) = leading.predecessor() else {
        panic!("{:?}", leading.predecessor())
    };
    assert!(*writes_ended_at <= machine(&server, 0).clocks.monotonic());
}

#[tokio::test(start_paused = true)]
async fn lease_of_another_machine_expires_first() {
    let server = server();
    killed_leader(&server, "elsewhere").await;
    let (lock, killed_at) = (Arc::<TestLock>::default(), Instant::now());
    lock.grant(&["old"]);
    with_lock(contestant(&server, "new", 0), &lock).lead().await;
    assert!(killed_at.elapsed() >= Duration::from_secs(15), "{:?}", killed_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lease_is_taken_when_the_other_process_of_this_machine_ends() {
    let server = server();
    killed_leader(&server, "old").await;
    let (lock, killed_at) = (Arc::<TestLock>::default(), Instant::now());
    let successor = tokio::spawn(with_lock(contestant(&server, "new", 0), &lock).lead());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(holder(&server), "old", "it may still write");
    lock.grant(&["old"]);
    successor.await.unwrap();
    let waited = killed_at.elapsed();
    assert!(waited < Duration::from_secs(10), "by the next try: {waited:?}");
}
