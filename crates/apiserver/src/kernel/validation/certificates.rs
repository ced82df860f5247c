//! Validation of CertificateSigningRequests, ClusterTrustBundles and PodCertificateRequests.
//!
//! Parity: pkg/apis/certificates/validation. The signature of a request is not verified here: the signer does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use keleustes_x509::{Certificate, CertificateRequest, Curve, PublicKey, pem};
use serde_json::{Value, json};

use super::super::naming;
use super::super::status::FieldError;
use super::{Errors, list, refuse_text, text};

/// Valid key usages.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Requests of this signer were stored by old API servers; new ones are refused.
const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// The bytes of a base64 field.
fn bytes(object: &Value, pointer: &str) -> Vec<u8> {
    STANDARD.decode(text(object, pointer)).unwrap_or_default()
}

/// Validates a new CertificateSigningRequest. Its spec never changes, so an update does not read it again.
pub(super) fn signing_request(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if old.is_some() {
        return;
    }
    if let Err(error) = CertificateRequest::from_pem(&bytes(new, "/spec/request")) {
        errors.push(FieldError::invalid("spec.request", &new["spec"]["request"], &error.to_string()));
    }
    let usages = list(new, "/spec/usages");
    for (at, usage) in usages.iter().enumerate() {
        let field = format!("spec.usages[{at}]");
        let word = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&word) {
            let supported: Vec<String> = USAGES.iter().map(|usage| format!("{usage:?}")).collect();
            errors.push(FieldError::not_supported(&field, word, &supported.join(", ")));
        }
        if usages[..at].contains(usage) {
            errors.push(FieldError::duplicate(&field, usage));
        }
    }
    let signer = text(new, "/spec/signerName");
    if signer == LEGACY_UNKNOWN {
        let why = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid("spec.signerName", &json!(signer), why));
    } else if !signer.is_empty() {
        signer_name(signer, errors);
    }
}

/// Validates the syntax of a signer's name. Parity: `ValidateSignerName`.
fn signer_name(signer: &str, errors: &mut Errors) {
    const FIELD: &str = "spec.signerName";
    const DOMAIN_MAX: usize = 253;
    const NAME_MAX: usize = DOMAIN_MAX + 1 + DOMAIN_MAX + 63 + 1;
    let Some((domain, path)) = signer.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid(FIELD, &json!(signer), why));
        return;
    };
    if domain.len() > DOMAIN_MAX {
        errors.push(FieldError::too_long(FIELD, DOMAIN_MAX));
    }
    // Only the first label with errors is reported.
    let mut refuse_label = |segment: &str, rule: fn(&str) -> naming::NameErrors| {
        let mut wrong = segment.split('.').map(|label| (label, rule(label)));
        let Some((label, found)) = wrong.find(|(_, found)| !found.is_empty()) else { return };
        for error in found {
            let why = format!("validating label {label:?}: {error}");
            errors.push(FieldError::invalid(FIELD, &json!(segment), &why));
        }
    };
    refuse_label(domain, naming::label);
    refuse_label(path, naming::subdomain);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(FIELD, &json!(domain), why));
    }
    if signer.len() > NAME_MAX {
        errors.push(FieldError::too_long(FIELD, NAME_MAX));
    }
}

/// Validates an update of the status or of the approval of a CertificateSigningRequest.
pub(super) fn request_status(approves: bool, old: &Value, new: &Value, errors: &mut Errors) {
    let (known, all) = (list(old, "/status/conditions"), list(new, "/status/conditions"));
    conditions(known, all, errors);
    let count =
        |list: &[Value], kind: &str| list.iter().filter(|condition| text(condition, "/type") == kind).count();
    for kind in ["Approved", "Denied", "Failed"] {
        let (before, after) = (count(known, kind), count(all, kind));
        if after > before && !approves && kind != "Failed" {
            let why = format!("updates may not add a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", &why));
        }
        if after < before {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", &why));
        }
    }
    let (before, after) = (bytes(old, "/status/certificate"), bytes(new, "/status/certificate"));
    if before == after {
        return;
    }
    // A malformed certificate that is stored may be replaced by another one that is malformed.
    if let (Ok(()), Err(why)) = (certificates(&before), certificates(&after)) {
        errors.push(FieldError::invalid("status.certificate", &json!("<certificate data>"), &why));
    }
    if !before.is_empty() {
        let why = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", why));
    }
}

/// The conditions of a CertificateSigningRequest. What is stored already is tolerated.
fn conditions(known: &[Value], all: &[Value], errors: &mut Errors) {
    let kinds = |list: &[Value]| -> Vec<String> {
        list.iter().map(|condition| text(condition, "/type").to_owned()).collect()
    };
    let has_duplicates = |kinds: &[String]| (0..kinds.len()).any(|at| kinds[..at].contains(&kinds[at]));
    let has_both =
        |kinds: &[String]| ["Approved", "Denied"].iter().all(|kind| kinds.iter().any(|one| one == kind));
    let (before, found) = (kinds(known), kinds(all));
    for (at, condition) in all.iter().enumerate() {
        let field = format!("status.conditions[{at}]");
        let (kind, status) = (found[at].as_str(), text(condition, "/status"));
        if kind.is_empty() && !before.iter().any(String::is_empty) {
            errors.push(FieldError::required(&format!("{field}.type"), ""));
        }
        let is_decision = matches!(kind, "Approved" | "Denied" | "Failed");
        let supported = if is_decision { "\"True\"" } else { "\"False\", \"True\", \"Unknown\"" };
        if status.is_empty() {
            errors.push(FieldError::required(&format!("{field}.status"), ""));
        } else if status != "True" && (is_decision || !matches!(status, "False" | "Unknown")) {
            errors.push(FieldError::not_supported(&format!("{field}.status"), status, supported));
        }
        if !has_duplicates(&before) && found[..at].contains(&found[at]) {
            errors.push(FieldError::duplicate(&format!("{field}.type"), &json!(kind)));
        }
    }
    if has_both(&found) && !has_both(&before) {
        let why = "must specify at most one of: `conditions[{\"type\": \"Approved\"}]`, `conditions[{\"type\": \
                   \"Denied\"}]`";
        errors.push(FieldError::invalid("status.conditions", &json!(all), why));
    }
}

/// Whether a text has only certificates, and at least one, or is empty.
fn certificates(text: &[u8]) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let mut found = false;
    for block in pem::blocks(text) {
        if block.kind != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.kind));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        Certificate::from_der(&block.bytes)?;
        found = true;
    }
    if found { Ok(()) } else { Err("must contain at least one CERTIFICATE PEM block".to_owned()) }
}

/// The longest bundle.
const BUNDLE_BYTES_MAX: usize = 1 << 20;

/// Validates a ClusterTrustBundle.
pub(super) fn trust_bundle(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    let signer = text(new, "/spec/signerName");
    bundle_name(new, signer, errors);
    if !signer.is_empty() {
        signer_name(signer, errors);
    }
    let bundle = text(new, "/spec/trustBundle");
    if old.is_none_or(|old| text(old, "/spec/trustBundle") != bundle) {
        trust_anchors(bundle, errors);
    }
}

/// The name of a bundle with a signer begins with the signer's, and so does the prefix of a generated name.
fn bundle_name(bundle: &Value, signer: &str, errors: &mut Errors) {
    let prefix = format!("{}:", signer.replace('/', ":"));
    for (field, pointer) in
        [("metadata.generateName", "/metadata/generateName"), ("metadata.name", "/metadata/name")]
    {
        let name = text(bundle, pointer);
        // The dash before the generated part is as good as a letter.
        let masked = match name.strip_suffix('-') {
            Some(start) if field.ends_with("generateName") => format!("{start}a"),
            _ => name.to_owned(),
        };
        // A missing name is reported with the metadata.
        let found = if name.is_empty() {
            Vec::new()
        } else if signer.is_empty() && name.contains(':') {
            vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()]
        } else if signer.is_empty() {
            naming::subdomain(&masked)
        } else if let Some(rest) = masked.strip_prefix(&prefix) {
            naming::subdomain(rest)
        } else {
            vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")]
        };
        refuse_text(field, name, &found, errors);
    }
}

/// A bundle has at least one certificate of a CA, each once, and nothing else.
fn trust_anchors(bundle: &str, errors: &mut Errors) {
    const FIELD: &str = "spec.trustBundle";
    if bundle.len() > BUNDLE_BYTES_MAX {
        errors.push(FieldError::too_long(FIELD, BUNDLE_BYTES_MAX));
        return;
    }
    let mut refused = Vec::new();
    let mut anchors: Vec<(Vec<u8>, Vec<usize>)> = Vec::new();
    for (at, block) in pem::blocks(bundle.as_bytes()).enumerate() {
        if let Err(why) = trust_anchor(&block) {
            refused.push(format!("entry {at} {why}"));
            continue;
        }
        match anchors.iter_mut().find(|(bytes, _)| *bytes == block.bytes) {
            Some((_, indices)) => indices.push(at),
            None => anchors.push((block.bytes, vec![at])),
        }
    }
    if refused.is_empty() {
        if anchors.is_empty() {
            refused.push("at least one trust anchor must be provided".to_owned());
        }
        for (_, indices) in anchors.iter().filter(|(_, indices)| indices.len() > 1) {
            let indices: Vec<_> = indices.iter().map(ToString::to_string).collect();
            refused.push(format!("duplicate trust anchor (indices [{}])", indices.join(" ")));
        }
    }
    errors.extend(refused.iter().map(|why| FieldError::invalid(FIELD, &json!("<value omitted>"), why)));
}

fn trust_anchor(block: &pem::Block) -> Result<(), String> {
    if block.kind != "CERTIFICATE" {
        return Err(format!("has bad block type: {}", block.kind));
    }
    if block.has_headers {
        return Err("has PEM block headers".to_owned());
    }
    let parsed = x509_parser::parse_x509_certificate(&block.bytes);
    let (Ok(_), Ok(([], certificate))) = (Certificate::from_der(&block.bytes), parsed) else {
        return Err("does not parse as X.509".to_owned());
    };
    if certificate.is_ca() { Ok(()) } else { Err("does not have the CA bit set".to_owned()) }
}

/// The longest certificate request of a pod, and the longest chain.
const POD_REQUEST_BYTES_MAX: usize = 10 * 1024;
const CHAIN_BYTES_MAX: usize = 100 * 1024;
const UID_BYTES_MAX: usize = 128;
const HOUR: i64 = 3600;
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Validates a PodCertificateRequest.
pub(super) fn pod_request(old: Option<&Value>, new: &Value, errors: &mut Errors) {
    if let Some(old) = old {
        if old["spec"] != new["spec"] {
            let shown = pod_request_spec_text(&new["spec"]);
            errors.push(FieldError::invalid_text("spec", &shown, "field is immutable"));
        }
        return;
    }
    let signer = text(new, "/spec/signerName");
    if signer.is_empty() {
        errors.push(FieldError::required("spec.signerName", ""));
    } else {
        signer_name(signer, errors);
    }
    user_annotations(&new["spec"]["unverifiedUserAnnotations"], errors);
    for (name, uid) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        let (name_field, uid_field) = (format!("spec.{name}"), format!("spec.{uid}"));
        let name = text(new, &format!("/spec/{name}"));
        refuse_text(&name_field, name, &naming::subdomain(name), errors);
        let uid = text(new, &format!("/spec/{uid}"));
        if uid.is_empty() {
            errors.push(FieldError::invalid(&uid_field, &json!(""), "must not be empty"));
        }
        if uid.len() > UID_BYTES_MAX {
            errors.push(FieldError::too_long(&uid_field, UID_BYTES_MAX));
        }
    }
    let domain = signer.split('/').next().unwrap_or_default();
    let is_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let days = if is_kubernetes { 1 } else { 91 };
    let life = new.pointer("/spec/maxExpirationSeconds").and_then(Value::as_i64).unwrap_or(0);
    let longest = days * 24 * HOUR;
    if !(HOUR..=longest).contains(&life) {
        let why = format!("must be in the range [{HOUR}, {longest}]");
        errors.push(FieldError::invalid("spec.maxExpirationSeconds", &json!(life), &why));
    }
    stub_request(new, errors);
}

fn user_annotations(annotations: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.unverifiedUserAnnotations";
    let mut length = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        length += key.len() + value.as_str().unwrap_or_default().len();
        let key = key.to_lowercase();
        if key.is_empty() {
            errors.push(FieldError::required(FIELD, ""));
            continue;
        }
        let found = naming::qualified(&key);
        refuse_text(FIELD, &key, &found, errors);
        if found.is_empty() && !key.contains('/') {
            let why = "must be a domain-prefixed key (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(FIELD, &json!(key), why));
        }
    }
    if length > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(FIELD, ANNOTATIONS_BYTES_MAX));
    }
}

/// The certificate request of a pod: only its key counts.
fn stub_request(new: &Value, errors: &mut Errors) {
    const FIELD: &str = "spec.stubPKCS10Request";
    let request = bytes(new, "/spec/stubPKCS10Request");
    if request.is_empty() {
        let why = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
        errors.push(FieldError::invalid_without_value("spec", why));
        return;
    }
    if request.len() > POD_REQUEST_BYTES_MAX {
        errors.push(FieldError::too_long(FIELD, POD_REQUEST_BYTES_MAX));
        return;
    }
    let Ok(request) = CertificateRequest::from_der(&request) else {
        errors.push(FieldError::invalid_without_value(FIELD, "must be a valid PKCS#10 CSR"));
        return;
    };
    match &request.public_key {
        PublicKey::Ed25519(_) => {}
        PublicKey::Ecdsa { curve: Curve::P224, .. } => {
            let why = "elliptic public keys must use curve P256, P384, or P521";
            errors.push(FieldError::invalid(FIELD, &json!("curve P-224"), why));
        }
        PublicKey::Ecdsa { .. } => {}
        PublicKey::Rsa { modulus, .. } if matches!(modulus.len(), 384 | 512) => {}
        PublicKey::Rsa { modulus, .. } => {
            let found = format!("{}-bit modulus", modulus.len() * 8);
            let why = "RSA keys must have modulus size 3072 or 4096";
            errors.push(FieldError::invalid(FIELD, &json!(found), why));
        }
        PublicKey::Unsupported => {
            let why = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            errors.push(FieldError::invalid_without_value(FIELD, why));
        }
    }
}

/// The spec as kube-apiserver shows it: its internal type has no names for JSON.
fn pod_request_spec_text(spec: &Value) -> String {
    let text = |field: &str| json!(spec[field].as_str().unwrap_or_default());
    let fields = [
        ("SignerName", text("signerName")),
        ("PodName", text("podName")),
        ("PodUID", text("podUID")),
        ("ServiceAccountName", text("serviceAccountName")),
        ("ServiceAccountUID", text("serviceAccountUID")),
        ("NodeName", text("nodeName")),
        ("NodeUID", text("nodeUID")),
        ("MaxExpirationSeconds", spec["maxExpirationSeconds"].clone()),
        ("PKIXPublicKey", Value::Null),
        ("ProofOfPossession", Value::Null),
        ("StubPKCS10Request", spec["stubPKCS10Request"].clone()),
        ("UnverifiedUserAnnotations", spec["unverifiedUserAnnotations"].clone()),
    ];
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// Validates an update of the status of a PodCertificateRequest: it is issued, denied or failed once.
pub(super) fn pod_request_status(old: &Value, new: &Value, errors: &mut Errors) {
    // kube-apiserver validates the status only if the metadata are valid; clients can send another uid.
    if old["metadata"]["uid"] != new["metadata"]["uid"] {
        return;
    }
    let before = errors.len();
    let all = list(new, "/status/conditions");
    for (at, condition) in all.iter().enumerate() {
        let field = format!("status.conditions.[{at}]");
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        if !is_decision(condition) {
            let supported = "\"Issued\", \"Denied\", \"Failed\"";
            errors.push(FieldError::not_supported(&format!("{field}.type"), kind, supported));
            continue;
        }
        if all[..at].iter().any(is_decision) {
            let why = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.push(FieldError::invalid(&format!("{field}.type"), &json!(kind), why));
        }
        if status != "True" {
            errors.push(FieldError::not_supported(&format!("{field}.status"), status, "\"True\""));
        }
    }
    standard_conditions(all, errors);
    if errors.len() > before {
        return;
    }
    let decided = |object: &Value, kind: &str| {
        list(object, "/status/conditions").iter().any(|one| text(one, "/type") == kind)
    };
    let refuse =
        |why: &str, errors: &mut Errors| errors.push(FieldError::invalid_without_value("status", why));
    let is_changed = old["status"] != new["status"];
    if ["Issued", "Denied", "Failed"].iter().any(|kind| decided(old, kind)) {
        if is_changed {
            refuse("immutable after PodCertificateRequest is issued, denied, or failed", errors);
        }
    } else if decided(new, "Denied") || decided(new, "Failed") {
        let mut others = new["status"].as_object().into_iter().flat_map(|status| status.keys());
        if others.any(|field| field != "conditions") {
            let why =
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
            refuse(why, errors);
        }
    } else if decided(new, "Issued") {
        if let Err(error) = issued_chain(new, errors) {
            errors.push(error);
        }
    } else if is_changed {
        refuse("status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"", errors);
    }
}

fn is_decision(condition: &Value) -> bool {
    matches!(text(condition, "/type"), "Issued" | "Denied" | "Failed")
}

/// Parity: `ValidateConditions` of metav1, for conditions of known types.
pub(super) fn standard_conditions(all: &[Value], errors: &mut Errors) {
    for (at, condition) in all.iter().enumerate() {
        let field = format!("status.conditions[{at}]");
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        if all[..at].iter().any(|one| text(one, "/type") == kind) {
            errors.push(FieldError::duplicate(&field, &json!(kind)));
        }
        if kind.is_empty() {
            errors.push(FieldError::required(&format!("{field}.type"), "is required"));
        }
        if status.is_empty() {
            errors.push(FieldError::required(&format!("{field}.status"), ""));
        } else if !matches!(status, "True" | "False" | "Unknown") {
            let supported = "\"False\", \"True\", \"Unknown\"";
            errors.push(FieldError::not_supported(&format!("{field}.status"), status, supported));
        }
        for name in ["lastTransitionTime", "reason"] {
            if text(condition, &format!("/{name}")).is_empty() {
                errors.push(FieldError::required(&format!("{field}.{name}"), ""));
            }
        }
    }
}

/// The chain that a signer has issued: its leaf is for the requested key, and the times are those of the leaf.
fn issued_chain(new: &Value, errors: &mut Errors) -> Result<(), FieldError> {
    const CHAIN: &str = "status.certificateChain";
    let chain = text(new, "/status/certificateChain");
    let refuse = |why: &str| Err(FieldError::invalid(CHAIN, &json!(chain), why));
    if chain.len() > CHAIN_BYTES_MAX {
        return Err(FieldError::too_long(CHAIN, CHAIN_BYTES_MAX));
    }
    let mut blocks = pem::blocks(chain.as_bytes());
    let Some(leaf) = blocks.next() else {
        return refuse("issued certificate chain must contain at least one certificate");
    };
    if leaf.kind != "CERTIFICATE" {
        return refuse("issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let (Ok(parsed), Ok((_, details))) =
        (Certificate::from_der(&leaf.bytes), x509_parser::parse_x509_certificate(&leaf.bytes))
    else {
        return refuse("leaf certificate does not parse as valid X.509");
    };
    let requested = CertificateRequest::from_der(&bytes(new, "/spec/stubPKCS10Request"));
    if requested.is_ok_and(|request| request.public_key != parsed.public_key) {
        return refuse("leaf certificate was not issued to the requested public key");
    }
    let validity = details.validity();
    let leaf_times = (validity.not_before.timestamp(), validity.not_after.timestamp());
    issued_times(new, leaf_times, errors)?;
    for block in blocks {
        if block.kind != "CERTIFICATE" {
            return refuse("issued certificate chain must consist entirely of CERTFICATE PEM blocks");
        }
        if Certificate::from_der(&block.bytes).is_err() {
            return refuse("intermediate certificate does not parse as valid X.509");
        }
    }
    Ok(())
}

/// The times in the status are those of the leaf, which lives as long as was asked at most. That it begins about now
/// is checked together with the permission to sign.
fn issued_times(
    new: &Value,
    (leaf_begins, leaf_ends): (i64, i64),
    errors: &mut Errors,
) -> Result<(), FieldError> {
    const MARGIN: i64 = 600;
    let time = |field: &str| text(new, &format!("/status/{field}")).parse::<Timestamp>().ok();
    let consistent = "must be present and consistent with the issued certificate";
    let within = "must be present and in the range [notbefore+10min, notafter-10min]";
    let times = [("notBefore", consistent), ("notAfter", consistent), ("beginRefreshAt", within)];
    let before = errors.len();
    for (field, why) in times {
        if time(field).is_none() {
            errors.push(FieldError::required(&format!("status.{field}"), why));
        }
    }
    let [Some(begins), Some(ends), Some(refresh)] = times.map(|(field, _)| time(field)) else {
        debug_assert!(errors.len() > before, "a missing time is reported above");
        return Ok(());
    };
    let refuse = |field: &str, why: &str| {
        let field = format!("status.{field}");
        Err(FieldError::invalid(&field, &json!(text(new, &format!("/{}", field.replace('.', "/")))), why))
    };
    if begins.as_second() != leaf_begins {
        return refuse("notBefore", "must be set to the NotBefore time encoded in the leaf certificate");
    }
    if ends.as_second() != leaf_ends {
        return refuse("notAfter", "must be set to the NotAfter time encoded in the leaf certificate");
    }
    let life = leaf_ends - leaf_begins;
    let longest = new.pointer("/spec/maxExpirationSeconds").and_then(Value::as_i64).unwrap_or(0);
    let refuse_life =
        |why: &str| Err(FieldError::invalid("status.certificateChain", &json!(life * 1_000_000_000), why));
    if life < HOUR {
        return refuse_life("leaf certificate lifetime must be >= 1 hour");
    }
    if life > longest {
        let why = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})");
        return refuse_life(&why);
    }
    if refresh.as_second() < leaf_begins + MARGIN {
        return refuse("beginRefreshAt", "must be at least 10 minutes after status.notBefore");
    }
    if refresh.as_second() > leaf_ends - MARGIN {
        return refuse("beginRefreshAt", "must be at least 10 minutes before status.notAfter");
    }
    Ok(())
}
