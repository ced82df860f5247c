//! Which pods go first when there are too many: those that do the least, and of equals the youngest.
//!
//! Ages are compared by their order of magnitude, so that among pods of about the same age the choice is
//! as good as random and no generation of pods is wiped out as a whole.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use keleustes_objects::{Pod, PodPhase, Time, Uid, Word};

/// By what pods are ranked beside what they say themselves.
pub(crate) struct Ranking<'a> {
    /// The moment against which ages are taken.
    pub(crate) now: Time,
    /// How many pods of the same family are on each node: crowded nodes are relieved first.
    pub(crate) crowds: &'a BTreeMap<Word, usize>,
    /// Whether a pod may say what its deletion costs.
    pub(crate) heeds_cost: bool,
}

/// Sorts pods, the first to be deleted first.
pub(crate) fn sort_for_deletion(pods: &mut [Arc<Pod>], ranking: &Ranking<'_>) {
    let ready_times = Generations::of(pods, |pod| pod.ready_since());
    let birth_times = Generations::of(pods, |pod| pod.meta.created_at);
    pods.sort_by_cached_key(|pod| {
        let crowd = ranking.crowds.get(&pod.node_name).copied().unwrap_or(0);
        let ready_age = pod.is_ready().then(|| ready_times.age(pod.ready_since(), ranking.now));
        let (restarts, sidecar_restarts) = pod.max_restarts();
        (
            (!pod.node_name.is_empty(), phase_rank(pod.phase), pod.is_ready()),
            if ranking.heeds_cost { deletion_cost(pod) } else { 0 },
            Reverse(crowd),
            ready_age,
            (Reverse(restarts), Reverse(sidecar_restarts)),
            birth_times.age(pod.meta.created_at, ranking.now),
            pod.meta.uid.clone(),
        )
    });
}

/// Where a pod of this phase stands: what has not begun to run goes first.
pub(crate) fn phase_rank(phase: PodPhase) -> u8 {
    match phase {
        PodPhase::Unknown => 1,
        PodPhase::Running => 2,
        _ => 0,
    }
}

/// What a pod says its deletion costs. Anything but a plain number is taken for silence. Behind a minus
/// zeros may lead: the server lets such numbers in, and the original reads them.
fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.deletion_cost().unwrap_or_default();
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| plain).unwrap_or(0)
}

/// Pods that came to something in the same second, by the smallest uid among them.
///
/// Of two pods whose ages differ but are of the same magnitude the smaller uid decides; of two of exactly
/// the same age it does not, other things do. To make one order of both rules, each generation is
/// represented by its smallest uid.
struct Generations(BTreeMap<Time, Uid>);

/// An age to sort by: its magnitude, then its generation.
type Age = (i64, Option<Uid>);

impl Generations {
    fn of(pods: &[Arc<Pod>], since: impl Fn(&Pod) -> Option<Time>) -> Self {
        let mut smallest: BTreeMap<Time, Uid> = BTreeMap::new();
        for pod in pods {
            let Some(since) = since(pod) else { continue };
            let uid = smallest.entry(since).or_insert_with(|| pod.meta.uid.clone());
            if pod.meta.uid < *uid {
                *uid = pod.meta.uid.clone();
            }
        }
        Self(smallest)
    }

    /// Who does not say since when counts as the newest.
    fn age(&self, since: Option<Time>, now: Time) -> Age {
        since.map_or((i64::MIN, None), |since| (magnitude(since, now), self.0.get(&since).cloned()))
    }
}

/// The power of two below an age in nanoseconds; -1 for what is not in the past.
fn magnitude(since: Time, now: Time) -> i64 {
    let seconds = now.unix_seconds().saturating_sub(since.unix_seconds());
    let nanoseconds = seconds.saturating_mul(1_000_000_000);
    if nanoseconds <= 0 { -1 } else { i64::from(nanoseconds.ilog2()) }
}
