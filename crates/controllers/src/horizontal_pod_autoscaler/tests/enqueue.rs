//! What enqueues an autoscaler, and when.

use keleustes_plan::Change;

use super::*;

fn delays(
    a_loop: &Loop,
    cluster: &RehearsalCluster,
    old: Option<Value>,
    new: Value,
) -> Vec<(String, Duration)> {
    let decode =
        |json: Value| std::sync::Arc::new(serde_json::from_value::<HorizontalPodAutoscaler>(json).unwrap());
    let mut scratch = RehearsalCluster::of(a_loop);
    if let Some(old) = old {
        scratch.put::<HorizontalPodAutoscaler>(a_loop, old);
        let cached = scratch.view().get::<HorizontalPodAutoscaler>(&key()).unwrap().clone();
        let new = decode(new);
        if *cached == *new {
            return cluster.enqueued_with_delays(a_loop, Change::resync(cached));
        }
        return cluster.enqueued_with_delays(a_loop, Change::updated(cached, new));
    }
    cluster.enqueued_with_delays(a_loop, Change::added(decode(new)))
}

/// Proves HPA-5, HPA-6, HPA-1, HPA-136.
#[test]
fn new_autoscalers_and_new_generations_are_enqueued_at_once() {
    let a_loop = the_loop();
    let cluster = RehearsalCluster::of(&a_loop);
    let now = vec![("shop/web".to_owned(), Duration::ZERO)];
    let later = vec![("shop/web".to_owned(), PERIOD)];
    assert_eq!(delays(&a_loop, &cluster, None, autoscaler()), now);
    let mut next = autoscaler();
    next["metadata"]["generation"] = json!(3);
    assert_eq!(delays(&a_loop, &cluster, Some(autoscaler()), next.clone()), now);
    let mut labelled = autoscaler();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(delays(&a_loop, &cluster, Some(autoscaler()), labelled), later);
    assert_eq!(delays(&a_loop, &cluster, Some(autoscaler()), autoscaler()), later, "a resync");
    let gate_off = with_options(|options| options.generation = false);
    let cluster = RehearsalCluster::of(&gate_off);
    assert_eq!(delays(&gate_off, &cluster, Some(autoscaler()), next), later);
    assert_eq!(a_loop.resync_period, Some(PERIOD));
    let kinds: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().plural.to_string()).collect();
    assert_eq!(kinds, ["horizontalpodautoscalers", "pods"]);
}

/// Proves HPA-4, HPA-8, HPA-2, HPA-3, HPA-111.
#[test]
fn every_reconcile_is_followed_by_another_after_one_period() {
    let a_loop = the_loop();
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("horizontalpodautoscaler", 5, None));
    assert_eq!((a_loop.rate_limiter.base_delay, a_loop.rate_limiter.max_delay), (PERIOD, PERIOD));
    assert!(a_loop.rate_limiter.retries_burst > 1_000_000);
    assert!(reconciled(autoscaler(), 1, &[500]).ends_with("requeue after 15s\n"));
    assert!(reconciled(autoscaler(), 1, &[]).contains("\nretry: failed to compute"));
    let options = HorizontalPodAutoscalerOptions::default();
    assert_eq!(
        (options.downscale_stabilization, options.cpu_initialization_period, options.initial_readiness_delay),
        (Duration::from_secs(300), Duration::from_secs(300), Duration::from_secs(30))
    );
    let strict = with_options(|options| options.tolerance = 0.0);
    let (pods, metrics) = loaded(&[510, 510]);
    let mut cluster = cluster(&strict, autoscaler(), 2, &pods).with_response(POD_METRICS, metrics);
    assert_eq!(written_size(&cluster.reconcile(&strict, key())), Some(3));
    let controller = controller(&options);
    assert_eq!(controller.event_component, Some("horizontal-pod-autoscaler"));
    assert_eq!(controller.service_account, Some("horizontal-pod-autoscaler"));
}

/// Proves HPA-148.
#[test]
fn zero_period_is_no_busy_loop() {
    let a_loop = with_options(|options| options.sync_period = Duration::ZERO);
    assert_eq!(a_loop.resync_period, Some(PERIOD));
    let (pods, metrics) = loaded(&[500]);
    let mut cluster = cluster(&a_loop, autoscaler(), 1, &pods).with_response(POD_METRICS, metrics);
    assert!(cluster.reconcile(&a_loop, key()).ends_with("requeue after 15s\n"));
}

/// Proves HPA-9, HPA-146, HPA-147.
#[test]
fn history_outlives_a_quick_recreation_and_not_a_reconcile_without_the_object() {
    let run = |reconciles_between: bool| {
        let a_loop = the_loop();
        let (pods, high) = loaded(&[800, 800]);
        let mut cluster = cluster(&a_loop, autoscaler(), 2, &pods).with_response(POD_METRICS, high);
        assert_eq!(written_size(&cluster.reconcile(&a_loop, key())), Some(4));
        assert!(cluster.take::<HorizontalPodAutoscaler>(&a_loop, &key()).is_empty());
        if reconciles_between {
            assert_eq!(cluster.reconcile(&a_loop, key()), "");
        }
        let mut again = autoscaler();
        again["metadata"]["deletionTimestamp"] = json!(NOW);
        again["metadata"]["finalizers"] = json!(["a/b"]);
        cluster.put::<HorizontalPodAutoscaler>(&a_loop, again);
        let (_, low) = loaded(&[1, 1]);
        let mut cluster = cluster.with_response(POD_METRICS, low);
        status(&cluster.reconcile(&a_loop, key()))["desiredReplicas"].as_i64().unwrap()
    };
    assert_eq!(run(false), 4, "the recommendation of before");
    assert_eq!(run(true), 2, "only the size at the first reconcile");
}
