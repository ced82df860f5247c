//! Stabilization, policies and bounds over several reconciles.

use super::*;

/// An autoscaler under reconcile, whose target follows.
struct Story {
    a_loop: Loop,
    cluster: RehearsalCluster,
    autoscaler: Value,
    size: i32,
}

impl Story {
    fn new(autoscaler: Value, size: i32) -> Self {
        let a_loop = the_loop();
        let cluster = cluster(&a_loop, autoscaler.clone(), size, &[pod("a")]);
        Self { a_loop, cluster, autoscaler, size }
    }

    /// Reconciles after some seconds while a queue per pod asks for so many replicas.
    fn after(&mut self, seconds: u64, wanted: i32) -> String {
        self.cluster.advance_clock(Duration::from_secs(seconds));
        let cluster = std::mem::take(&mut self.cluster);
        self.cluster = cluster.with_response(SCALE, scale(self.size, self.size)).with_response(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue",
            values(&[&wanted.to_string()]),
        );
        let transcript = self.cluster.reconcile(&self.a_loop, key());
        if let Some(size) = written_size(&transcript) {
            self.size = i32::try_from(size).unwrap();
        }
        self.autoscaler = store(&mut self.cluster, &self.a_loop, self.autoscaler.clone(), &transcript);
        transcript
    }

    fn size_after(&mut self, seconds: u64, wanted: i32) -> i32 {
        self.after(seconds, wanted);
        self.size
    }
}

fn queue_autoscaler(max: i32, behavior: Option<Value>) -> Value {
    with_spec(|spec| {
        spec["metrics"] = json!([external(json!({"type": "AverageValue", "averageValue": "1"}))]);
        spec["maxReplicas"] = json!(max);
        if let Some(behavior) = behavior {
            spec["behavior"] = behavior;
        }
    })
}

fn rules(window: i32, policies: Value) -> Value {
    json!({"stabilizationWindowSeconds": window, "selectPolicy": "Max", "policies": policies})
}

/// Proves HPA-16, HPA-81, HPA-82, HPA-163, HPA-130.
#[test]
fn highest_recent_recommendation_holds_back_scaling_down() {
    let mut story = Story::new(queue_autoscaler(100, None), 8);
    let transcript = story.after(0, 2);
    assert_eq!(story.size, 8, "the size at the start counts as a recommendation");
    assert_eq!(
        condition(&transcript, "AbleToScale"),
        "True ScaleDownStabilized: recent recommendations were higher than current one, applying the highest recent \
         recommendation"
    );
    assert_eq!(story.size_after(300, 3), 8, "the window is not over");
    let transcript = story.after(1, 3);
    assert_eq!(story.size, 3);
    assert!(events(&transcript)[0].ends_with("New size: 3; reason: All metrics below target"));
    // Limited to twice the size, a high recommendation is applied later, whatever the reason says.
    assert_eq!(story.size_after(15, 30), 6);
    let transcript = story.after(15, 2);
    assert_eq!(story.size, 12);
    assert!(
        events(&transcript)[0].ends_with("New size: 12; reason: All metrics below target"),
        "{transcript}"
    );
}

/// Proves HPA-83, HPA-84, HPA-85, HPA-86.
#[test]
fn bounds_without_behavior() {
    let limited = |current: i32, wanted: i32, max: i32| {
        let mut story = Story::new(queue_autoscaler(max, None), current);
        let transcript = story.after(301, wanted);
        (story.size, condition(&transcript, "ScalingLimited"))
    };
    let rate =
        "True ScaleUpLimit: the desired replica count is increasing faster than the maximum scale rate";
    let many = "True TooManyReplicas: the desired replica count is more than the maximum replica count";
    let within = "False DesiredWithinRange: the desired count is within the acceptable range";
    assert_eq!(limited(1, 50, 100), (4, rate.to_owned()));
    assert_eq!(limited(10, 50, 100), (20, rate.to_owned()));
    assert_eq!(limited(10, 50, 20), (20, many.to_owned()));
    assert_eq!(limited(10, 50, 15), (15, many.to_owned()));
    assert_eq!(limited(10, 12, 100), (12, within.to_owned()));
    let mut story = Story::new(queue_autoscaler(10, None), 2);
    story.after(0, 0);
    let transcript = story.after(301, 0);
    assert_eq!(story.size, 1);
    assert_eq!(
        condition(&transcript, "ScalingLimited"),
        "True TooFewReplicas: the desired replica count is less than the minimum replica count"
    );
}

/// Proves HPA-87, HPA-142.
#[test]
fn unset_rules_have_the_defaults_of_the_server() {
    let mut story =
        Story::new(queue_autoscaler(100, Some(json!({"scaleDown": {"policies": [], "tolerance": "0"}}))), 10);
    assert_eq!(story.size_after(0, 50), 20, "100% or 4 pods");
    let mut story = Story::new(queue_autoscaler(100, Some(json!({"scaleUp": rules(0, json!([]))}))), 10);
    assert_eq!(story.size_after(0, 2), 10);
    assert_eq!(story.size_after(299, 2), 10, "the window of the flag");
    assert_eq!(story.size_after(1, 2), 2, "everything at once");
    let written = serde_json::to_string(&story.autoscaler["spec"]).unwrap();
    assert!(!written.contains("300"));
}

/// Proves HPA-88, HPA-89, HPA-90.
#[test]
fn windows_of_both_directions() {
    let generous = json!([{"type": "Pods", "value": 100, "periodSeconds": 1}]);
    let behavior = json!({"scaleUp": rules(60, generous.clone()), "scaleDown": rules(60, generous)});
    let mut story = Story::new(queue_autoscaler(100, Some(behavior)), 10);
    let transcript = story.after(0, 20);
    assert_eq!(story.size, 10);
    assert_eq!(
        condition(&transcript, "AbleToScale"),
        "True ScaleUpStabilized: recent recommendations were lower than current one, applying the lowest recent \
         recommendation"
    );
    assert_eq!(story.size_after(60, 18), 18, "an entry as old as the window no longer counts");
    let transcript = story.after(1, 5);
    assert_eq!(story.size, 18);
    assert!(condition(&transcript, "AbleToScale").contains("ScaleDownStabilized"));
    assert_eq!(story.size_after(60, 7), 7);
}

/// Proves HPA-91, HPA-92, HPA-93, HPA-94.
#[test]
fn policies_limit_the_change_within_a_period() {
    let up = |select: &str| {
        json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": [
            {"type": "Pods", "value": 5, "periodSeconds": 60}, {"type": "Percent", "value": 10, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": [
            {"type": "Pods", "value": 5, "periodSeconds": 60}, {"type": "Percent", "value": 80, "periodSeconds": 60}]}})
    };
    let mut story = Story::new(queue_autoscaler(500, Some(up("Max"))), 100);
    let transcript = story.after(0, 400);
    assert_eq!(story.size, 111, "floats: 100 + 10% is above 110");
    assert!(condition(&transcript, "ScalingLimited").contains("ScaleUpLimit"));
    assert_eq!(story.size_after(30, 400), 111, "the period is not over");
    assert_eq!(story.size_after(30, 400), 123);
    assert_eq!(Story::new(queue_autoscaler(500, Some(up("Min"))), 100).size_after(0, 400), 105);
    assert_eq!(Story::new(queue_autoscaler(500, Some(up("Disabled"))), 100).size_after(0, 400), 100);
    assert_eq!(Story::new(queue_autoscaler(500, Some(up("Later"))), 100).size_after(0, 400), 111);
    let mut story = Story::new(queue_autoscaler(103, Some(up("Max"))), 100);
    assert!(condition(&story.after(0, 400), "ScalingLimited").contains("TooManyReplicas"));
    assert_eq!(story.size, 103);
    let mut story = Story::new(queue_autoscaler(500, Some(up("Max"))), 5);
    assert!(condition(&story.after(0, 0), "ScalingLimited").contains("TooFewReplicas"));
    assert_eq!(story.size, 1, "5 - 80% is 0 in floats");
    let mut story = Story::new(queue_autoscaler(500, Some(up("Min"))), 100);
    assert!(condition(&story.after(0, 0), "ScalingLimited").contains("ScaleDownLimit"));
    assert_eq!(story.size, 95);
}

/// Proves HPA-131, HPA-132.
#[test]
fn stricter_policy_never_scales_down_by_itself() {
    let behavior = |value: i32| {
        let policies = json!([{"type": "Pods", "value": value, "periodSeconds": 600}]);
        json!({"scaleUp": rules(0, policies), "scaleDown": rules(0, json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]))})
    };
    let mut story = Story::new(queue_autoscaler(100, Some(behavior(30))), 10);
    assert_eq!(story.size_after(0, 40), 40);
    story.autoscaler["spec"]["behavior"] = behavior(5);
    put(&mut story.cluster, &story.a_loop, &mut story.autoscaler);
    let transcript = story.after(15, 50);
    assert_eq!(story.size, 40);
    assert!(condition(&transcript, "ScalingLimited").contains("ScaleUpLimit"));
    story.autoscaler["spec"].as_object_mut().unwrap().remove("behavior");
    put(&mut story.cluster, &story.a_loop, &mut story.autoscaler);
    assert_eq!(story.size_after(15, 20), 50, "recommendations are shared by both ways");
}

/// Proves HPA-168.
#[test]
fn policy_of_unknown_type_repeats_the_one_before() {
    let odd = json!({"type": "Odd", "value": 9, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 3, "periodSeconds": 15});
    let sized = |policies: Value| {
        Story::new(queue_autoscaler(100, Some(json!({"scaleUp": rules(0, policies)}))), 10).size_after(0, 50)
    };
    assert_eq!(sized(json!([odd])), 10, "zero, raised to the current size");
    assert_eq!(sized(json!([pods, odd])), 13);
}

/// Proves HPA-166.
#[test]
fn windows_are_measured_on_the_monotonic_clock() {
    let mut story = Story::new(queue_autoscaler(100, None), 8);
    assert_eq!(story.size_after(0, 2), 8);
    story.cluster.set_wall_clock(keleustes_objects::Time::from_unix_seconds(1_900_000_000), 0);
    assert_eq!(story.size_after(1, 2), 8, "a jump of the wall clock ends no window");
    assert_eq!(story.size_after(300, 2), 2);
}

#[test]
fn tolerances_of_each_direction_override_the_flag() {
    let sized = |behavior: Value, wanted: &str| {
        let a_loop = the_loop();
        let autoscaler = queue_autoscaler(100, Some(behavior));
        let mut cluster = cluster(&a_loop, autoscaler, 10, &[pod("a")])
            .with_response("/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue", values(&[wanted]));
        status(&cluster.reconcile(&a_loop, key()))["desiredReplicas"].as_i64().unwrap()
    };
    let up = |tolerance: &str| {
        json!({"scaleUp": {"tolerance": tolerance, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 9, "periodSeconds": 15}]}})
    };
    assert_eq!(sized(up("50m"), "10.6"), 11);
    assert_eq!(sized(up("0.2"), "11.9"), 10);
    let down = json!({"scaleDown": {"tolerance": "0", "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}});
    assert_eq!(sized(down, "8.9"), 9);
}
