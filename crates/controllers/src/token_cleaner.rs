//! Deletes bootstrap token Secrets when they expire.
//!
//! Parity: pkg/controller/bootstrap/tokencleaner.go.

use std::time::Duration;

use keleustes_objects::{BootstrapToken, ErrorReason, Expiration, Key};
use keleustes_plan::{Change, Controller, Effects, Grant, Loop, Plan, View, Write};

/// Builds the controller. It runs only if `--controllers` names it.
#[must_use]
pub fn controller() -> Controller {
    Controller::new("token-cleaner-controller")
        .service_account("token-cleaner")
        .may_write(&[
            Grant { group: "", resource: "secrets", verbs: &["get", "list", "watch", "delete"] },
            Grant { group: "", resource: "events", verbs: &["create", "patch", "update"] },
        ])
        .with_loop(
            Loop::deciding("token_cleaner", decide)
                .keyed_by::<BootstrapToken>()
                .enqueue_on::<BootstrapToken>(token_changed)
                // A refused delete is not repeated; an outage of the API server is no refusal.
                .max_retries(0),
        )
}

/// The longest delay, which is that of Go's `time.Duration`: about 292 years.
const DELAY_MAX_NANOSECONDS: i128 = i64::MAX as i128;

fn token_changed(change: &Change<BootstrapToken>, _: &View<'_>, enqueue: &mut Effects) {
    if let Some(token) = change.new().filter(|_| !change.is_resync()) {
        enqueue.add(&token.meta.key);
    }
}

fn decide(view: &View<'_>, item: &Key) -> Plan {
    let Some(token) = view.get::<BootstrapToken>(item) else {
        return Plan::none();
    };
    let now = view.now().wall_nanoseconds();
    match token.expiration {
        Expiration::Unparsable => delete(token, "its expiration is no RFC 3339 time"),
        expiration if expiration.has_passed(now) => delete(token, "it has expired"),
        Expiration::Never => Plan::none(),
        Expiration::At(time) => {
            let remaining = (time - now).min(DELAY_MAX_NANOSECONDS);
            let mut plan = Plan::none();
            let remaining = Duration::from_nanos(u64::try_from(remaining).unwrap_or_default());
            plan.requeue_after(remaining, "the expiration of the token");
            plan
        }
    }
}

fn delete(token: &BootstrapToken, because: &'static str) -> Plan {
    let write = Write::delete(token).ignoring_errors(&[ErrorReason::NotFound, ErrorReason::Conflict]);
    Plan::of(write.because(because))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use keleustes_objects::{ApiError, Kind as _};
    use keleustes_plan::RateLimiter;
    use keleustes_plan::rehearsal::RehearsalCluster;
    use serde_json::{Value, json};

    use super::*;

    /// The clock of a rehearsal: 1,800,000,000 seconds after 1970.
    const NOW: &str = "2027-01-15T08:00:00Z";
    const DELETED: &str = "delete secrets kube-system/bootstrap-token-abcdef because it has expired\n";

    fn the_loop() -> Loop {
        controller().loops.remove(0)
    }

    fn token(expiration: Option<&str>) -> Value {
        let data = expiration.map(|text| json!({"expiration": BASE64_STANDARD.encode(text)}));
        json!({
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system", "uid": "u1",
                         "resourceVersion": "7"},
            "type": "bootstrap.kubernetes.io/token", "data": data.unwrap_or_default(),
        })
    }

    /// The same token after a change.
    fn changed(expiration: Option<&str>, resource_version: &str) -> Value {
        let mut token = token(expiration);
        token["metadata"]["resourceVersion"] = json!(resource_version);
        token
    }

    fn key() -> Key {
        Key::namespaced("kube-system", "bootstrap-token-abcdef")
    }

    fn sync(expiration: Option<&str>) -> String {
        let a_loop = the_loop();
        let mut cluster = RehearsalCluster::of(&a_loop).with::<BootstrapToken>(token(expiration));
        cluster.reconcile(&a_loop, key())
    }

    /// Proves TOK-1, TOK-2.
    #[test]
    fn added_and_updated_tokens_are_enqueued_and_deleted_ones_are_not() {
        let a_loop = the_loop();
        let mut cluster = RehearsalCluster::of(&a_loop);
        let added = cluster.put::<BootstrapToken>(&a_loop, token(None));
        assert_eq!(added, ["kube-system/bootstrap-token-abcdef"]);
        assert_eq!(cluster.put::<BootstrapToken>(&a_loop, changed(Some(NOW), "8")), added);
        let cached = cluster.view().get::<BootstrapToken>(&key()).unwrap().clone();
        assert!(cluster.enqueued_by(&a_loop, Change::resync(cached)).is_empty());
        assert!(cluster.take::<BootstrapToken>(&a_loop, &key()).is_empty());
        assert_eq!((a_loop.queue, a_loop.workers), ("token_cleaner", 1));
        assert_eq!((a_loop.rate_limiter, a_loop.resync_period), (RateLimiter::DEFAULT, None));
        let projection = BootstrapToken::PROJECTION;
        assert_eq!(projection.namespace, "kube-system");
        assert_eq!(projection.field_selector, Some("type=bootstrap.kubernetes.io/token"));
    }

    /// Proves TOK-10, TOK-46.
    #[test]
    fn deleted_token_needs_nothing_and_a_new_one_is_judged_by_its_own_data() {
        let a_loop = the_loop();
        let mut cluster = RehearsalCluster::of(&a_loop);
        assert_eq!(cluster.reconcile(&a_loop, key()), "");
        let mut cluster = cluster.with::<BootstrapToken>(token(Some("2027-01-15T08:00:10Z")));
        assert_eq!(cluster.reconcile(&a_loop, key()), "requeue after 10s\n");
        cluster.take::<BootstrapToken>(&a_loop, &key());
        cluster.advance_clock(Duration::from_secs(10));
        assert_eq!(cluster.reconcile(&a_loop, key()), "");
        let mut cluster = cluster.with::<BootstrapToken>(token(Some("2027-01-15T08:01:00Z")));
        assert_eq!(cluster.reconcile(&a_loop, key()), "requeue after 50s\n");
    }

    /// Proves TOK-11, TOK-45.
    #[test]
    fn token_without_expiration_is_kept() {
        assert_eq!(sync(None), "");
        assert_eq!(sync(Some("")), "");
        let a_loop = the_loop();
        let mut cluster =
            RehearsalCluster::of(&a_loop).with::<BootstrapToken>(token(Some("2027-01-15T08:00:10Z")));
        cluster.reconcile(&a_loop, key());
        cluster.put::<BootstrapToken>(&a_loop, changed(None, "8"));
        cluster.advance_clock(Duration::from_secs(10));
        assert_eq!(cluster.reconcile(&a_loop, key()), "", "removed before the timer fired");
    }

    /// Proves TOK-12.
    #[test]
    fn token_with_unparsable_expiration_is_deleted() {
        let deleted =
            "delete secrets kube-system/bootstrap-token-abcdef because its expiration is no RFC 3339 time\n";
        for text in [
            "2099-01-01T00:00:00Z\n",
            "2099-01-01t00:00:00z",
            "2099-01-01 00:00:00Z",
            "2099-01-01",
            " ",
            "never",
        ] {
            assert_eq!(sync(Some(text)), deleted, "{text:?}");
        }
    }

    /// Proves TOK-13, TOK-14, TOK-35.
    #[test]
    fn token_is_deleted_at_its_expiration_and_requeued_before() {
        assert_eq!(sync(Some(NOW)), DELETED, "exactly now");
        assert_eq!(sync(Some("2020-01-01T00:00:00Z")), DELETED);
        assert_eq!(sync(Some("2027-01-15T10:00:00+02:00")), DELETED);
        assert_eq!(sync(Some("2027-01-15T08:00:01Z")), "requeue after 1s\n");
        assert_eq!(sync(Some("2027-01-15T08:00:00.000000001Z")), "requeue after 1ns\n");
        assert_eq!(sync(Some("2027-01-15T10:00:00.5+01:00")), "requeue after 3600.5s\n");
        let a_loop = the_loop();
        let mut cluster = RehearsalCluster::of(&a_loop)
            .with::<BootstrapToken>(token(Some("2027-01-15T08:00:01Z")))
            .with_clock_advanced(Duration::from_millis(999));
        assert_eq!(cluster.reconcile(&a_loop, key()), "requeue after 1ms\n", "the clock has fractions, too");
    }

    /// Proves TOK-41.
    #[test]
    fn distant_expiration_is_cut_to_292_years() {
        for distant in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999999-24:60", "2400-01-01T00:00:00Z"]
        {
            assert_eq!(sync(Some(distant)), "requeue after 9223372036.854775807s\n", "{distant}");
        }
        assert_eq!(sync(Some("0000-01-01T00:00:00Z")), DELETED);
    }

    /// Proves TOK-15, TOK-42, TOK-48.
    #[test]
    fn name_id_usage_and_deletion_timestamp_do_not_matter() {
        let a_loop = the_loop();
        let mut odd = token(Some(NOW));
        odd["metadata"]["name"] = json!("Some.other-name");
        odd["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
        odd["metadata"]["finalizers"] = json!(["example.com/x"]);
        let mut cluster = RehearsalCluster::of(&a_loop).with::<BootstrapToken>(odd);
        let transcript = cluster.reconcile(&a_loop, Key::namespaced("kube-system", "Some.other-name"));
        assert_eq!(transcript, "delete secrets kube-system/Some.other-name because it has expired\n");
    }

    /// Proves TOK-30, TOK-31, TOK-36.
    #[test]
    fn changed_expiration_and_clock_count_at_evaluation() {
        let a_loop = the_loop();
        let mut cluster =
            RehearsalCluster::of(&a_loop).with::<BootstrapToken>(token(Some("2027-01-15T08:00:10Z")));
        assert_eq!(cluster.reconcile(&a_loop, key()), "requeue after 10s\n");
        cluster.put::<BootstrapToken>(&a_loop, changed(Some("2027-01-15T08:00:30Z"), "8"));
        cluster.advance_clock(Duration::from_secs(10));
        assert_eq!(cluster.reconcile(&a_loop, key()), "requeue after 20s\n", "extended");
        cluster.put::<BootstrapToken>(&a_loop, changed(Some("2027-01-15T08:00:15Z"), "9"));
        assert_eq!(cluster.reconcile(&a_loop, key()), "requeue after 5s\n", "shortened");
        cluster.advance_clock(Duration::from_secs(3600));
        assert_eq!(cluster.reconcile(&a_loop, key()), DELETED, "the clock jumped");
    }

    /// Proves TOK-20, TOK-43, TOK-32.
    #[test]
    fn delete_has_a_uid_precondition_and_no_resource_version() {
        let plan = {
            let a_loop = the_loop();
            let cluster = RehearsalCluster::of(&a_loop).with::<BootstrapToken>(token(Some(NOW)));
            decide(&cluster.view(), &key())
        };
        let [keleustes_plan::Step::One(write)] = plan.steps() else { panic!("one write") };
        assert_eq!(write.target.uid.to_string(), "u1");
        let keleustes_plan::Action::Delete { resource_version_precondition, .. } = &write.action else {
            panic!("a delete")
        };
        assert!(resource_version_precondition.is_none());
        for reason in [ErrorReason::NotFound, ErrorReason::Conflict] {
            let a_loop = the_loop();
            let mut cluster =
                RehearsalCluster::of(&a_loop)
                    .with::<BootstrapToken>(token(Some(NOW)))
                    .failing::<BootstrapToken>("delete", &key(), ApiError::transport(reason, "refused"));
            let transcript = cluster.reconcile(&a_loop, key());
            assert!(!transcript.contains("retry"), "{transcript}");
        }
    }

    /// Proves TOK-3, TOK-16, TOK-25.
    #[test]
    fn descriptor_matches_the_role_and_allows_no_retries() {
        let controller = controller();
        assert_eq!(
            (controller.name, crate::names::aliases_of(controller.name)),
            ("token-cleaner-controller", &["tokencleaner"][..])
        );
        assert_eq!(controller.service_account, Some("token-cleaner"));
        assert!(controller.event_component.is_none() && controller.metrics.is_empty());
        assert_eq!(controller.loops[0].max_retries, Some(0));
    }
}
