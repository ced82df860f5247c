//! ValidatingAdmissionPolicies: the status of each generation is written once, and in the end every policy has one, with a
//! warning for each wrong expression.

use std::collections::BTreeSet;
use std::time::Duration;

use keleustes_apiserver::ApiServer;
use serde_json::Value;

use super::Checker;
use super::objects::{describe, expect_equal, expect_observed, number, uid};
use super::staleness::Faults;
use crate::recorder::{ObservedWrite, text};
use crate::user_reports::POLICY_EXPRESSIONS;

const NAME: &str = "validatingadmissionpolicy-status-controller";

/// Follows the status of policies.
#[derive(Default)]
pub struct PolicyStatus {
    faults: Faults,
    /// Process instance, UID and generation of every status that was written and whose response arrived.
    written: BTreeSet<(u32, String, i64)>,
    /// UIDs of policies that got the status of an earlier one of their name: an apply carries no UID, with the original
    /// neither. They are checked again only when their generation passes that of the earlier one.
    mistaken: BTreeSet<String>,
}

/// How many expressions of a policy are wrong.
fn wrong_expressions(policy: &Value) -> i64 {
    let expression = text(policy, "/spec/validations/0/expression");
    let known = POLICY_EXPRESSIONS.iter().find(|(known, ..)| *known == expression);
    known.map_or(-1, |(.., wrong)| i64::try_from(*wrong).unwrap_or(i64::MAX))
}

fn warnings(policy: &Value) -> i64 {
    let warnings = policy.pointer("/status/typeChecking/expressionWarnings").and_then(Value::as_array);
    i64::try_from(warnings.map_or(0, Vec::len)).unwrap_or(i64::MAX)
}

impl Checker for PolicyStatus {
    fn name(&self) -> &'static str {
        NAME
    }

    fn on_fault(&mut self, at: Duration) {
        self.faults.observe(at);
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let is_checked = write.by_manager() && write.succeeded() && write.component == NAME;
        if !is_checked || write.request.is_routine() {
            return Ok(());
        }
        if write.request.subresource != "status" {
            return Err("more than a status is written".to_owned());
        }
        let Some(after) = write.after.as_deref() else { return Ok(()) };
        let generation = number(&write.body, "/status/observedGeneration");
        if generation > number(after, "/metadata/generation") {
            self.mistaken.insert(uid(after).to_owned());
            return Ok(());
        }
        let is_first = self.written.insert((write.process_instance, uid(after).to_owned(), generation));
        if write.response_lost {
            self.written.remove(&(write.process_instance, uid(after).to_owned(), generation));
            return Ok(());
        }
        if !is_first {
            return Err(format!("generation {generation} of {} is checked twice", describe(after)));
        }
        Ok(())
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for policy in server.objects("validatingadmissionpolicies.admissionregistration.k8s.io") {
            if self.mistaken.contains(uid(&policy)) {
                continue;
            }
            expect_observed(&policy)?;
            // A kind whose schema cannot be read is left out, as by the original.
            if self.faults.is_calm() {
                let (found, wrong) = (warnings(&policy), wrong_expressions(&policy));
                expect_equal(&policy, "the number of warnings", found, wrong)?;
            }
        }
        Ok(())
    }
}
