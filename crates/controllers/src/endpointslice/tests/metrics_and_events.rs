//! Names, events and metrics.

use std::time::Duration;

use keleustes_objects::{ApiError, ErrorReason};
use serde_json::{Value, json};

use super::super::{EndpointSliceOptions, controller};
use super::{TestCluster, pod, service, service_with, slice_of, unready, with};

/// Proves EPS-1, EPS-5, EPS-18, EPS-19, EPS-115.
#[test]
fn names_and_limits_are_those_of_upstream() {
    let controller = controller(&EndpointSliceOptions { workers: 7, ..EndpointSliceOptions::default() });
    assert_eq!(
        (controller.name, crate::names::aliases_of(controller.name)),
        ("endpointslice-controller", &["endpointslice"][..])
    );
    assert_eq!(controller.service_account, Some("endpointslice-controller"));
    assert_eq!(controller.event_component, Some("endpoint-slice-controller"));
    let [a_loop] = &controller.loops[..] else { panic!("one loop") };
    assert_eq!((a_loop.queue, a_loop.workers, a_loop.max_retries), ("endpoint_slice", 7, Some(15)));
    // The delay doubles from one second up to the maximum within fifteen retries.
    let limiter = a_loop.rate_limiter;
    assert_eq!((limiter.base_delay, limiter.max_delay), (Duration::from_secs(1), Duration::from_secs(1000)));
    let last_delay = limiter.base_delay * 2_u32.pow(a_loop.max_retries.unwrap() - 1);
    assert!(last_delay > limiter.max_delay, "{last_delay:?}");
    assert!(controller.debug_handler.is_none() && controller.observer.is_none());
    assert_eq!((limiter.retries_per_second, limiter.retries_burst), (10.0, 100));
    // A loop starts when all its caches are synced.
    let mut reads: Vec<_> = a_loop.reads.iter().map(|kind| kind.resource().to_string()).collect();
    reads.sort();
    assert_eq!(reads, ["endpointslices.discovery.k8s.io", "nodes", "pods", "services"]);
    let defaults = EndpointSliceOptions::default();
    assert_eq!(
        (defaults.workers, defaults.max_endpoints_per_slice, defaults.updates_batch_period),
        (5, 100, Duration::ZERO)
    );
}

/// Proves EPS-26, EPS-102.
#[test]
fn an_error_is_recorded_as_an_event_and_retried() {
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..1);
    let result = cluster.failing("create", "", ApiError::transport(ErrorReason::Forbidden, "no")).sync();
    let text = "failed to create EndpointSlice for Service a/web: no";
    assert_eq!(result.retry.as_deref(), Some(text));
    assert_eq!(
        result.events,
        [format!(
            "Warning FailedToUpdateEndpointSlices on Service a/web uid=service-1: Error updating Endpoint Slices for Service a/web: {text}"
        )]
    );
}

/// Proves EPS-108.
#[test]
fn hint_events_are_recorded_after_the_writes_even_if_one_failed() {
    let mut cluster = TestCluster::new();
    cluster
        .service(service_with("metadata/annotations", json!({"service.kubernetes.io/topology-mode": "Auto"})))
        .pods(0..1);
    let result = cluster.failing("create", "", ApiError::transport(ErrorReason::Forbidden, "no")).sync();
    let reasons: Vec<_> = result.events.iter().map(|event| event.split([' ', ':']).nth(1).unwrap()).collect();
    assert_eq!(reasons, ["TopologyAwareHintsDisabled", "FailedToUpdateEndpointSlices"]);
}

/// Proves EPS-109.
#[test]
fn added_and_removed_endpoints_are_counted_per_address_type() {
    let mut cluster = TestCluster::new();
    cluster.service(service_with("spec/ipFamilies", json!(["IPv4", "IPv6"]))).pods(0..3);
    let result = cluster.sync();
    assert_eq!(result.measured("endpoints_added_per_sync"), ["{} 3", "{} 0"]);
    assert_eq!(result.measured("endpoints_removed_per_sync"), ["{} 0", "{} 0"]);
    let result = cluster.no_pod("p000").pods(5..6).sync();
    assert_eq!(result.measured("endpoints_added_per_sync"), ["{} 1", "{} 0"]);
    assert_eq!(result.measured("endpoints_removed_per_sync"), ["{} 1", "{} 0"]);
    let bounds = match super::super::metrics::ADDED.metric_type {
        keleustes_plan::MetricType::Histogram(buckets) => buckets.bounds(),
        _ => panic!("a histogram"),
    };
    assert_eq!((bounds.len(), bounds[0], bounds[14]), (15, 2.0, 32768.0));
}

/// The last value of a gauge.
fn gauge(result: &super::SyncResult, name: &str) -> String {
    result.measured(name).last().unwrap().trim_start_matches("{} ").to_owned()
}

/// Proves EPS-110, EPS-114.
#[test]
fn totals_are_observed_over_all_services() {
    let mut cluster = TestCluster::of_slices(10);
    let totals = |result: &super::SyncResult| {
        ["endpoints_desired", "num_endpoint_slices", "desired_endpoint_slices"]
            .map(|name| gauge(result, name))
    };
    assert_eq!(totals(&cluster.service(service()).sync()), ["0", "1", "1"]);
    assert_eq!(totals(&cluster.pods(0..25).sync()), ["25", "3", "3"]);
    assert_eq!(totals(&cluster.no_pods().pods(12..25).sync()), ["13", "2", "2"]);
    assert_eq!(totals(&cluster.pod(pod("p000")).sync()), ["14", "2", "2"]);
    let other = with(service_with("metadata/name", json!("other")), "spec/selector", json!({"app": "other"}));
    cluster.service(other);
    let result = cluster.sync_item(keleustes_objects::Key::namespaced("a", "other"));
    assert_eq!(totals(&result), ["14", "3", "3"]);
    assert_eq!(totals(&cluster.no_service().sync()), ["0", "1", "1"]);
}

/// Proves EPS-129.
#[test]
fn with_two_address_types_the_last_one_is_counted() {
    let mut cluster = TestCluster::new();
    cluster.service(service_with("spec/ipFamilies", json!(["IPv4", "IPv6"]))).pods(0..3);
    let result = cluster.sync();
    assert_eq!(result.measured("endpoints_desired"), ["{} 3", "{} 0"]);
}

/// Proves EPS-111.
#[test]
fn writes_are_counted_by_operation_and_syncs_by_result() {
    let mut cluster = TestCluster::of_slices(2);
    cluster
        .service(service())
        .pods(0..3)
        .slice(slice_of("web-1", 0..2))
        .slice(slice_of("web-2", 7..8))
        .slice(slice_of("web-3", 8..9));
    let result = cluster.pod(unready(pod("p000"))).sync();
    assert_eq!(result.measured("changes"), ["{update} 1", "{update} 1", "{delete} 1"]);
    assert_eq!(result.measured("syncs"), ["{success} 1"]);
    let result =
        cluster.pods(3..6).failing("create", "", ApiError::transport(ErrorReason::Forbidden, "no")).sync();
    assert_eq!((result.measured("changes"), result.measured("syncs")), (vec![], vec!["{error} 1"]));
    assert_eq!(cluster.no_service().sync().measured("syncs"), ["{success} 1"]);
    assert!(cluster.sync_zones().measured("syncs").is_empty());
}

/// Proves EPS-112.
#[test]
fn changed_slices_are_observed_by_topology_and_traffic_distribution() {
    let changed = |service: Value| {
        let mut cluster = TestCluster::new();
        cluster.service(service).pods(0..1).sync().measured("endpointslices_changed_per_sync").join(" ")
    };
    let auto = json!({"service.kubernetes.io/topology-mode": "Auto"});
    let prefers = || service_with("spec/trafficDistribution", json!("PreferSameZone"));
    assert_eq!(changed(service()), "{Disabled,} 1");
    assert_eq!(changed(prefers()), "{Disabled,PreferSameZone} 1");
    assert_eq!(changed(service_with("spec/trafficDistribution", json!("Strange"))), "{Disabled,} 1");
    assert_eq!(changed(with(prefers(), "metadata/annotations", auto)), "{Auto,} 1");
    let mut cluster = TestCluster::new();
    cluster.service(service()).pods(0..1).failing(
        "create",
        "",
        ApiError::transport(ErrorReason::Forbidden, "no"),
    );
    assert!(cluster.sync().measured("endpointslices_changed_per_sync").is_empty());
    assert_eq!(cluster.no_failures().sync().measured("endpointslices_changed_per_sync"), ["{Disabled,} 1"]);
    assert_eq!(cluster.sync().measured("endpointslices_changed_per_sync"), ["{Disabled,} 0"]);
}

/// Proves EPS-113.
#[test]
fn services_are_counted_by_their_traffic_distribution() {
    let mut cluster = TestCluster::new();
    let by = |result: &super::SyncResult| result.measured("services_count_by_traffic_distribution").join(" ");
    let prefers = |distribution: &str| service_with("spec/trafficDistribution", json!(distribution));
    assert_eq!(by(&cluster.service(prefers("Strange")).sync()), "");
    assert_eq!(by(&cluster.service(prefers("PreferClose")).sync()), "{PreferClose} 1");
    assert_eq!(by(&cluster.service(prefers("PreferSameNode")).sync()), "{PreferClose} 0 {PreferSameNode} 1");
    let auto = json!({"service.kubernetes.io/topology-mode": "Auto"});
    let annotated = with(prefers("PreferSameNode"), "metadata/annotations", auto);
    assert_eq!(by(&cluster.service(annotated).sync()), "{PreferClose} 0 {PreferSameNode} 0");
    cluster.service(prefers("PreferClose")).sync();
    assert_eq!(by(&cluster.no_service().sync()), "{PreferClose} 0 {PreferSameNode} 0");
}
