//! Several metrics, failed metrics, and failed writes.

use keleustes_objects::{ApiError, ErrorReason};

use super::*;

const QUEUE: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue";

fn two_metrics(size: i32, usage: i64, queue: Option<&str>) -> String {
    let a_loop = the_loop();
    let autoscaler = with_spec(|spec| {
        spec["metrics"] = json!([external(json!({"type": "Value", "value": "10"})), cpu(50)]);
    });
    let usages = vec![usage; usize::try_from(size).unwrap()];
    let (pods, metrics) = loaded(&usages);
    let mut cluster = cluster(&a_loop, autoscaler, size, &pods).with_response(POD_METRICS, metrics);
    if let Some(queue) = queue {
        cluster = cluster.with_response(QUEUE, values(&[queue]));
    }
    cluster.reconcile(&a_loop, key())
}

/// Proves HPA-31, HPA-174.
#[test]
fn largest_proposal_wins() {
    let transcript = two_metrics(2, 800, Some("15"));
    assert!(
        events(&transcript)[0]
            .ends_with("New size: 4; reason: cpu resource utilization (percentage of request) above target")
    );
    let transcript = two_metrics(2, 600, Some("20"));
    assert!(events(&transcript)[0].ends_with("New size: 4; reason: external metric queue(nil) above target"));
    assert_eq!(status(&transcript)["currentMetrics"][0]["type"], "External");
    assert_eq!(status(&transcript)["currentMetrics"][1]["type"], "Resource");
    let twice = with_spec(|spec| spec["metrics"] = json!([cpu(50), cpu(50)]));
    assert_eq!(status(&reconciled(twice, 1, &[500]))["currentMetrics"].as_array().unwrap().len(), 2);
}

/// Proves HPA-32, HPA-35, HPA-172.
#[test]
fn failed_metric_does_not_stop_scaling_up() {
    let transcript = two_metrics(2, 800, None);
    assert_eq!(written_size(&transcript), Some(4));
    assert_eq!(
        events(&transcript),
        [
            "Warning FailedGetExternalMetric: unable to get external metric shop/queue/nil: unable to fetch metrics from \
             external metrics API: the server could not find the requested resource",
            "Normal SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target"
        ]
    );
    assert_eq!(status(&transcript)["currentMetrics"][0], json!({"type": ""}));
    assert!(condition(&transcript, "ScalingActive").starts_with("True ValidMetricFound"));
    assert!(transcript.contains("reconciliations_total{scale_up,internal} 1"));
    assert!(transcript.contains("\nretry: invalid metrics (1 invalid out of 2)"), "{transcript}");
}

/// Proves HPA-33, HPA-34, HPA-37, HPA-38, HPA-39, HPA-109, HPA-155, HPA-156.
#[test]
fn failed_metric_stops_scaling_down() {
    let transcript = two_metrics(4, 100, None);
    assert_eq!(written_size(&transcript), None);
    let first = "unable to get external metric shop/queue/nil: unable to fetch metrics from external metrics API: the \
                 server could not find the requested resource";
    let events = events(&transcript);
    assert_eq!(events.len(), 2);
    assert_eq!(
        events[1],
        format!(
            "Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 2), first error is: failed to get queue \
             external metric value: failed to get external metric queue: {first}"
        )
    );
    assert_eq!(
        condition(&transcript, "ScalingActive"),
        format!("False FailedGetExternalMetric: the HPA was unable to compute the replica count: {first}")
    );
    assert_eq!(status(&transcript)["currentReplicas"], 4);
    assert_eq!(condition(&transcript, "ScalingLimited"), "");
    let position = |text: &str| transcript.find(text).unwrap();
    assert!(position("Warning FailedGetExternalMetric") < position("put horizontalpodautoscalers"));
    assert!(position("put horizontalpodautoscalers") < position("Warning FailedComputeMetricsReplicas"));
    assert!(!transcript.contains("desired_replicas{"));
}

#[test]
fn metric_of_unknown_type_is_a_fault_of_the_spec() {
    let autoscaler = with_spec(|spec| spec["metrics"] = json!([{"type": "Odd"}, cpu(50)]));
    let transcript = reconciled(autoscaler, 2, &[800, 800]);
    assert_eq!(events(&transcript)[0], "Warning InvalidMetricSourceType: unknown metric source type \"Odd\"");
    assert_eq!(written_size(&transcript), Some(4), "the other metric is evaluated");
    assert!(transcript.contains("reconciliations_total{scale_up,spec} 1"));
    assert!(transcript.contains("metric_computation_total{none,spec,Odd} 1"));
    for r#type in ["Resource", "ContainerResource", "Pods", "Object", "External"] {
        let autoscaler = with_spec(|spec| spec["metrics"] = json!([{"type": r#type}]));
        assert!(reconciled(autoscaler, 1, &[1]).contains("Warning InvalidMetricSourceType"));
    }
}

/// Proves HPA-112, HPA-114, HPA-115.
#[test]
fn reconciles_and_metrics_are_measured() {
    let transcript = reconciled(autoscaler(), 2, &[800, 800]);
    for line in [
        "measure horizontal_pod_autoscaler_controller_reconciliations_total{scale_up,none} 1\n",
        "measure horizontal_pod_autoscaler_controller_reconciliation_duration_seconds{scale_up,none} 0\n",
        "measure horizontal_pod_autoscaler_controller_metric_computation_total{scale_up,none,Resource} 1\n",
        "measure horizontal_pod_autoscaler_controller_metric_computation_duration_seconds{scale_up,none,Resource} 0\n",
        "measure horizontal_pod_autoscaler_controller_desired_replicas{shop,web} 4\n",
    ] {
        assert!(transcript.contains(line), "{line}{transcript}");
    }
    let controller = controller(&HorizontalPodAutoscalerOptions::default());
    assert_eq!(controller.metrics.len(), 6);
    let a_loop = the_loop();
    assert!(!RehearsalCluster::of(&a_loop).reconcile(&a_loop, key()).contains("measure"));
}

fn conflict() -> ApiError {
    ApiError { code: 409, ..ApiError::transport(ErrorReason::Conflict, "modified") }
}

fn failing_scale(error: ApiError, times: Option<u32>) -> String {
    let a_loop = the_loop();
    let (pods, metrics) = loaded(&[800, 800]);
    let mut cluster = cluster(&a_loop, autoscaler(), 2, &pods)
        .with_response(POD_METRICS, metrics)
        .failing_at("update", "/apis/apps/v1/namespaces/shop/deployments/web", error, times);
    cluster.reconcile(&a_loop, key())
}

/// Proves HPA-97, HPA-106, HPA-141, HPA-171.
#[test]
fn conflict_is_retried_with_the_same_size() {
    let transcript = failing_scale(conflict(), Some(4));
    assert_eq!(transcript.matches("put deployments.apps/scale").count(), 5);
    assert_eq!(transcript.matches(&format!("get {SCALE}\n")).count(), 5);
    assert_eq!(transcript.matches(&format!("list {POD_METRICS}")).count(), 1);
    assert_eq!(written_size(&transcript.replace(" FAILED", "")), None);
    assert!(
        transcript.contains(r#""resourceVersion":"50""#) && transcript.contains(r#""uid":"d1""#),
        "{transcript}"
    );
    assert!(events(&transcript)[0].starts_with("Normal SuccessfulRescale: New size: 4"));
    let transcript = failing_scale(conflict(), None);
    assert_eq!(transcript.matches("put deployments.apps/scale").count(), 5);
    let forbidden = ApiError { code: 403, ..ApiError::transport(ErrorReason::Forbidden, "no") };
    assert_eq!(failing_scale(forbidden, None).matches("put deployments.apps/scale").count(), 1);
}

/// Proves HPA-99.
#[test]
fn failed_rescale_is_reported_and_kept_out_of_the_status() {
    let forbidden = ApiError { code: 403, ..ApiError::transport(ErrorReason::Forbidden, "no") };
    let transcript = failing_scale(forbidden, None);
    assert_eq!(
        events(&transcript),
        [
            "Warning FailedRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target; error: \
          no"
        ]
    );
    assert_eq!(
        condition(&transcript, "AbleToScale"),
        "False FailedUpdateScale: the HPA controller was unable to update the target scale: no"
    );
    let status = status(&transcript);
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(2), &json!(0)));
    assert!(
        status.get("lastScaleTime").is_none() && !status["currentMetrics"].as_array().unwrap().is_empty()
    );
    assert_eq!(condition(&transcript, "ScaledToZero"), "");
    assert!(transcript.contains("reconciliations_total{none,internal} 1"));
}

/// Proves HPA-107, HPA-108, HPA-140.
#[test]
fn failed_status_write_is_reported_and_the_size_stays() {
    let outcome = |error: ApiError| {
        let a_loop = the_loop();
        let (pods, metrics) = loaded(&[800, 800]);
        let mut cluster = cluster(&a_loop, autoscaler(), 2, &pods)
            .with_response(POD_METRICS, metrics)
            .failing::<HorizontalPodAutoscaler>("update", &key(), error);
        cluster.reconcile(&a_loop, key())
    };
    let transcript = outcome(conflict());
    assert_eq!(written_size(&transcript), Some(4));
    assert_eq!(
        transcript.matches("put horizontalpodautoscalers").count(),
        1,
        "no retry before the next period"
    );
    assert_eq!(events(&transcript)[1], "Warning FailedUpdateStatus: modified");
    assert!(transcript.contains("retry: failed to update status for web: modified"));
    let gone = ApiError { code: 404, ..ApiError::transport(ErrorReason::NotFound, "gone") };
    let transcript = outcome(gone);
    assert!(transcript.contains("Warning FailedUpdateStatus"), "{transcript}");
    assert!(transcript.contains("retry: failed to update status for web"));
}

/// Proves HPA-102, HPA-139.
#[test]
fn stable_autoscaler_writes_nothing() {
    let a_loop = the_loop();
    let (pods, metrics) = loaded(&[500, 500]);
    let mut cluster = cluster(&a_loop, autoscaler(), 2, &pods).with_response(POD_METRICS, metrics);
    let first = cluster.reconcile(&a_loop, key());
    let mut stored = autoscaler();
    stored["status"] = status(&first);
    stored["status"]["lastScaleTime"] = json!("2027-01-01T00:00:00Z");
    stored["status"]["currentMetrics"][0]["resource"]["current"]["averageValue"] = json!("0.5");
    put(&mut cluster, &a_loop, &mut stored);
    cluster.advance_clock(PERIOD);
    assert_eq!(essence(&cluster.reconcile(&a_loop, key())), "requeue after 15s\n");
}
