//! No write without a change: controllers of networks, nodes, policies and certificates do not repeat a write whose
//! effect is still there.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use super::objects::{describe, uid};
use crate::recorder::ObservedWrite;

/// Remembers who changed each object last.
#[derive(Default)]
pub struct UnchangedWrites {
    /// By UID: the process instance and component of the last change, if it knows that the change took effect.
    last_writers: BTreeMap<String, Option<(u32, String)>>,
    /// UIDs with the process instance and component of a writer that does not know the outcome of one of its writes. It may
    /// send this one again, also after another loop under the same account has changed the object.
    uncertain: BTreeSet<(String, (u32, String))>,
}

/// The service accounts of the checked controllers.
const CHECKED: [&str; 9] = [
    "bootstrap-signer",
    "certificate-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslicemirroring-controller",
    "node-controller",
    "resourcequota-controller",
    "service-cidrs-controller",
    "ttl-controller",
];

impl Checker for UnchangedWrites {
    fn name(&self) -> &'static str {
        "unchanged writes"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        if !write.succeeded() || write.request.is_routine() {
            return Ok(());
        }
        let Some(object) = write.after.as_deref().or(write.before.as_deref()) else { return Ok(()) };
        let writer = (write.process_instance, write.component.clone());
        let is_checked = write.by_manager() && CHECKED.contains(&write.component.as_str());
        let uncertain = (uid(object).to_owned(), writer.clone());
        let was_uncertain = self.uncertain.contains(&uncertain);
        if write.response_lost {
            self.uncertain.insert(uncertain);
        } else if write.before == write.after {
            self.uncertain.remove(&uncertain);
        }
        if write.before != write.after {
            let known = (!write.response_lost && write.by_manager()).then_some(writer);
            self.last_writers.insert(uid(object).to_owned(), known);
            return Ok(());
        }
        let is_repeated =
            !was_uncertain && self.last_writers.get(uid(object)).is_some_and(|last| *last == Some(writer));
        // The original writes the status of a budget that it cannot calculate at each attempt, that of a quota of which
        // nothing can be computed at each reconcile (RQ-127), and deletes a pod that terminates again when the taints of its
        // node change.
        let repeats_original = super::disruption::is_failed(object)
            || super::quota::is_uncomputed(object)
            || write.request.method == Method::DELETE;
        if is_repeated && is_checked && !repeats_original {
            return Err(format!("{} is written again without a change", describe(object)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::recorder::{RequestInfo, SendContext};

    fn write(component: &str, before: &Value, after: &Value, response_lost: bool) -> ObservedWrite {
        ObservedWrite {
            at: Duration::ZERO,
            party: "manager-0".into(),
            process_instance: 1,
            component: component.to_owned(),
            request: RequestInfo::parse(&Method::PUT, &"/api/v1/namespaces/n/endpoints/s".parse().unwrap()),
            body: Value::Null,
            response_lost,
            send_context: SendContext::default(),
            code: 200,
            before: Some(Arc::new(before.clone())),
            after: Some(Arc::new(after.clone())),
        }
    }

    #[test]
    fn repeated_write_is_reported_unless_its_response_was_lost_or_the_object_changed() {
        let object =
            |content: u8| json!({"kind": "Endpoints", "metadata": {"name": "s", "uid": "u"}, "x": content});
        let server = ApiServer::builder().build();
        let mut checker = UnchangedWrites::default();
        let mut judge = |component: &str, before: u8, after: u8, lost: bool| {
            checker.on_write(&write(component, &object(before), &object(after), lost), &server)
        };
        assert_eq!(judge("endpoint-controller", 0, 1, false), Ok(()));
        let error = judge("endpoint-controller", 1, 1, false).unwrap_err();
        assert_eq!(error, "Endpoints /s is written again without a change");
        assert_eq!(judge("other", 1, 1, false), Ok(()), "it may not have observed the change");
        assert_eq!(judge("other", 1, 2, false), Ok(()));
        assert_eq!(
            judge("endpoint-controller", 2, 2, false),
            Ok(()),
            "another controller changed the object"
        );
        assert_eq!(judge("endpoint-controller", 2, 3, true), Ok(()));
        assert_eq!(judge("endpoint-controller", 3, 3, false), Ok(()), "the response was lost");
        assert_eq!(judge("endpoint-controller", 3, 4, true), Ok(()));
        assert_eq!(judge("endpoint-controller", 4, 5, false), Ok(()), "by another loop of the controller");
        assert_eq!(judge("endpoint-controller", 5, 5, true), Ok(()), "repeats the first");
        assert_eq!(judge("endpoint-controller", 5, 5, false), Ok(()), "the repetition was lost as well");
        assert!(judge("endpoint-controller", 5, 5, false).is_err());
    }

    #[test]
    fn quota_is_written_again_while_nothing_of_it_can_be_computed() {
        let quota = |status: Value| json!({"kind": "ResourceQuota", "metadata": {"name": "q", "uid": "u"}, "status": status});
        let server = ApiServer::builder().build();
        let repeated = |status: Value| {
            let mut checker = UnchangedWrites::default();
            let mut judge = |before: Value| {
                checker.on_write(
                    &write("resourcequota-controller", &before, &quota(status.clone()), false),
                    &server,
                )
            };
            judge(quota(json!({"hard": {"other": "1"}}))).unwrap();
            judge(quota(status.clone()))
        };
        assert_eq!(repeated(json!({"hard": {"count/unknown": "1"}})), Ok(()));
        assert!(repeated(json!({"hard": {"pods": "1"}, "used": {"pods": "0"}})).is_err());
    }
}
