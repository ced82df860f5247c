//! ServiceCIDRs and IPAddresses.

use serde_json::{Value, json};

use super::{Errors, is_set, list, refuse_text, text};
use crate::kernel::naming;
use crate::kernel::status::FieldError;

const CIDRS: &str = "spec.cidrs";
const IMMUTABLE: &str = "field is immutable";

/// Parity: `ValidateServiceCIDR` and `ValidateServiceCIDRUpdate` of pkg/apis/networking/validation.
pub(super) fn service_cidr(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let Some(old) = old else { return cidrs(new, errors) };
    let (before, after) = (list(old, "/spec/cidrs"), list(new, "/spec/cidrs"));
    let mut kept = |at: usize| {
        if before[at] != after[at] {
            errors.push(FieldError::invalid(&format!("{CIDRS}[{at}]"), &after[at], IMMUTABLE));
        }
    };
    match (before.len(), after.len()) {
        (one, other) if one == other => (0..one).for_each(kept),
        // A second range makes it dual-stack.
        (1, 2) => {
            kept(0);
            cidrs(new, errors);
        }
        (_, 0) => errors.push(FieldError::invalid(CIDRS, &Value::Null, IMMUTABLE)),
        _ => errors.push(FieldError::invalid(CIDRS, &json!(after), IMMUTABLE)),
    }
}

fn cidrs(new: &Value, errors: &mut Errors) {
    let cidrs = list(new, "/spec/cidrs");
    if cidrs.is_empty() {
        return errors.push(FieldError::required(CIDRS, "at least one CIDR required"));
    }
    if cidrs.len() > 2 {
        let spec = json!({"CIDRs": cidrs});
        return errors.push(FieldError::invalid(CIDRS, &spec, "may only hold up to 2 values"));
    }
    let cidrs: Vec<&str> = cidrs.iter().map(|cidr| cidr.as_str().unwrap_or_default()).collect();
    for (at, cidr) in cidrs.iter().enumerate() {
        refuse_text(&format!("{CIDRS}[{at}]"), cidr, &naming::canonical_cidr(cidr), errors);
    }
    if let [one, other] = cidrs.as_slice()
        && let Some(family) = naming::cidr_is_ipv4(one)
        && Some(family) == naming::cidr_is_ipv4(other)
    {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(FieldError::invalid(CIDRS, &json!(cidrs), why));
    }
}

/// Parity: `ValidateIPAddress` and `ValidateIPAddressUpdate` of pkg/apis/networking/validation.
pub(super) fn ip_address(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let reference = &new["spec"]["parentRef"];
    let is_missing = !is_set(new, "/spec/parentRef");
    if is_missing {
        errors.push(FieldError::required("spec.parentRef", ""));
    }
    if old.is_some_and(|old| old["spec"]["parentRef"] != *reference) {
        errors.push(FieldError::invalid("spec.parentRef", reference, IMMUTABLE));
    }
    if is_missing {
        return;
    }
    let check = |field: &str, rule: fn(&str) -> naming::NameErrors, errors: &mut Errors| {
        let value = text(reference, &format!("/{field}"));
        if !value.is_empty() {
            refuse_text(&format!("spec.parentRef.{field}"), value, &rule(value), errors);
        }
    };
    check("group", naming::subdomain, errors);
    for field in ["resource", "name"] {
        if text(reference, &format!("/{field}")).is_empty() {
            errors.push(FieldError::required(&format!("spec.parentRef.{field}"), ""));
        }
        check(field, naming::path_segment, errors);
    }
    check("namespace", naming::path_segment, errors);
}
