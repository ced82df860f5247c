//! The checks of the restricted level: what a hardened pod must set.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::{is_confined, proc_mount, seccomp_profile, seccomp_type};
use super::checks::{Check, PodView, Violation, counted, name, plural, quoted, setters, uses};

/// Sorted by id.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "allowPrivilegeEscalation",
        revisions: &[(8, privilege_escalation), (25, |pod| unless_windows(pod, privilege_escalation))],
        overrides: &[],
    },
    Check {
        id: "capabilities_restricted",
        revisions: &[(22, capabilities), (25, |pod| unless_windows(pod, capabilities))],
        overrides: &["capabilities_baseline"],
    },
    Check { id: "procMount_restricted", revisions: &[(35, proc_mount)], overrides: &["procMount"] },
    Check { id: "restrictedVolumes", revisions: &[(0, volumes)], overrides: &["hostPathVolumes"] },
    Check {
        id: "runAsNonRoot",
        revisions: &[(0, run_as_non_root), (35, |pod| unless_user_namespace(pod, run_as_non_root))],
        overrides: &[],
    },
    Check {
        id: "runAsUser",
        revisions: &[(23, run_as_user), (35, |pod| unless_user_namespace(pod, run_as_user))],
        overrides: &[],
    },
    Check {
        id: "seccompProfile_restricted",
        revisions: &[(19, seccomp), (25, |pod| unless_windows(pod, seccomp))],
        overrides: &["seccompProfile_baseline"],
    },
];

const VOLUMES_ALLOWED: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const VOLUMES_FORBIDDEN: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn forbid(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

fn unless_windows(pod: PodView<'_>, check: fn(PodView<'_>) -> Option<Violation>) -> Option<Violation> {
    if pod.is_windows() { None } else { check(pod) }
}

fn unless_user_namespace(pod: PodView<'_>, check: fn(PodView<'_>) -> Option<Violation>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { check(pod) }
}

fn privilege_escalation(pod: PodView<'_>) -> Option<Violation> {
    let may_escalate = |container: &Value| container["securityContext"]["allowPrivilegeEscalation"] != false;
    let containers = pod.containers_where(may_escalate);
    if containers.is_empty() {
        return None;
    }
    let containers = counted("container", &containers);
    forbid(
        "allowPrivilegeEscalation != false",
        format!("{containers} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

fn capabilities(pod: PodView<'_>) -> Option<Violation> {
    let list = |container: &Value, field: &str| -> Vec<String> {
        let list = container["securityContext"]["capabilities"][field].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let added = |container: &Value| -> Vec<String> {
        list(container, "add").into_iter().filter(|one| one != "NET_BIND_SERVICE").collect()
    };
    let keeping = pod.containers_where(|container| !list(container, "drop").contains(&"ALL".to_owned()));
    let adding = pod.containers_where(|container| !added(container).is_empty());
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let containers = counted("container", &keeping);
        details.push(format!("{containers} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    if !adding.is_empty() {
        let capabilities: BTreeSet<String> = pod.containers().flat_map(added).collect();
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            counted("container", &adding),
            quoted(capabilities)
        ));
    }
    if details.is_empty() { None } else { forbid("unrestricted capabilities", details.join("; ")) }
}

fn volumes(pod: PodView<'_>) -> Option<Violation> {
    let has = |volume: &Value, kind: &str| volume.get(kind).is_some_and(|source| !source.is_null());
    let is_bad = |volume: &&Value| !VOLUMES_ALLOWED.iter().any(|kind| has(volume, kind));
    let bad: Vec<&Value> = pod.list("volumes").iter().filter(is_bad).collect();
    if bad.is_empty() {
        return None;
    }
    let kind = |volume: &&Value| {
        VOLUMES_FORBIDDEN.iter().find(|kind| has(volume, kind)).map_or("unknown", |kind| *kind)
    };
    let kinds: BTreeSet<&str> = bad.iter().map(kind).collect();
    let names: Vec<&str> = bad.iter().map(|volume| name(volume)).collect();
    let detail = format!(
        "{} {} restricted volume type{} {}",
        counted("volume", &names),
        uses(names.len()),
        plural(kinds.len()),
        quoted(kinds)
    );
    forbid("restricted volume types", detail)
}

fn run_as_non_root(pod: PodView<'_>) -> Option<Violation> {
    let of = |holder: &Value| holder["securityContext"]["runAsNonRoot"].as_bool();
    let explicit = pod.containers_where(|container| of(container) == Some(false));
    let reason = "runAsNonRoot != true";
    if let Some(setters) = setters(of(pod.spec) == Some(false), &explicit) {
        return forbid(reason, format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let implicit = pod.containers_where(|container| of(container).is_none());
    if of(pod.spec) == Some(true) || implicit.is_empty() {
        return None;
    }
    let containers = counted("container", &implicit);
    forbid(reason, format!("pod or {containers} must set securityContext.runAsNonRoot=true"))
}

fn run_as_user(pod: PodView<'_>) -> Option<Violation> {
    let is_root = |holder: &Value| holder["securityContext"]["runAsUser"] == 0;
    let setters = setters(is_root(pod.spec), &pod.containers_where(is_root))?;
    forbid("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}

/// A profile must be set, and be an allowed one.
fn seccomp(pod: PodView<'_>) -> Option<Violation> {
    if let Some(violation) = seccomp_profile(pod) {
        return Some(violation);
    }
    let implicit = pod.containers_where(|container| seccomp_type(container).is_none());
    if seccomp_type(pod.spec).is_some_and(is_confined) || implicit.is_empty() {
        return None;
    }
    let containers = counted("container", &implicit);
    forbid(
        "seccompProfile",
        format!(
            "pod or {containers} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        ),
    )
}
