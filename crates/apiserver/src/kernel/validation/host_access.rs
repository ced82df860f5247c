//! Validation of what a pod shares with its node: namespaces, ports, sysctls, and fields that only one operating system
//! knows.

use serde_json::Value;

use super::super::status::FieldError;
use super::{Errors, is_set, list, text};

/// Sysctls of the IPC namespace; those of the network namespace have a prefix.
const IPC_SYSCTLS: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];
/// Fields of a pod's securityContext that a Windows pod cannot have.
const LINUX_POD_FIELDS: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
/// The same of a container.
const LINUX_CONTAINER_FIELDS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Everything in this module.
pub(super) fn spec(path: &str, spec: &Value, errors: &mut Errors) {
    match text(spec, "/os/name") {
        "" => {}
        "linux" => refuse_fields(path, spec, &["windowsOptions"], &["windowsOptions"], LINUX, errors),
        "windows" => windows(path, spec, errors),
        other => {
            let supported = "\"linux\", \"windows\"";
            errors.push(FieldError::not_supported(&format!("{path}.os"), other, supported));
        }
    }
    if spec["hostNetwork"] == true {
        host_ports(path, spec, errors);
    }
    if spec["hostUsers"] == false {
        user_namespace(path, spec, errors);
    } else {
        unmasked_proc(path, spec, errors);
    }
    sysctls(path, spec, errors);
}

/// Only a pod with its own user namespace may see all of `/proc`.
fn unmasked_proc(path: &str, spec: &Value, errors: &mut Errors) {
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for (at, container) in list(spec, &format!("/{containers}")).iter().enumerate() {
            if text(container, "/securityContext/procMount") == "Unmasked" {
                let field = format!("{path}.{containers}[{at}].securityContext.procMount");
                let why = "`hostUsers` must be false to use `Unmasked`";
                errors.push(FieldError::invalid(&field, &"Unmasked".into(), why));
            }
        }
    }
}

const LINUX: &str = "windows options cannot be set for a linux pod";
const WINDOWS: &str = "cannot be set for a windows pod";

fn windows(path: &str, spec: &Value, errors: &mut Errors) {
    refuse_fields(path, spec, &LINUX_POD_FIELDS, &LINUX_CONTAINER_FIELDS, WINDOWS, errors);
    for field in ["hostUsers", "shareProcessNamespace"] {
        if is_set(spec, &format!("/{field}")) {
            errors.push(FieldError::forbidden(&format!("{path}.{field}"), WINDOWS));
        }
    }
    for field in ["hostPID", "hostIPC"].into_iter().filter(|field| spec[*field] == true) {
        errors.push(FieldError::forbidden(&format!("{path}.{field}"), WINDOWS));
    }
}

/// Refuses fields in the securityContext of the pod and of its containers.
fn refuse_fields(
    path: &str,
    spec: &Value,
    of_pod: &[&str],
    of_container: &[&str],
    why: &str,
    errors: &mut Errors,
) {
    let mut refuse = |path: &str, holder: &Value, fields: &[&str]| {
        for field in fields.iter().filter(|field| is_set(holder, &format!("/securityContext/{field}"))) {
            errors.push(FieldError::forbidden(&format!("{path}.securityContext.{field}"), why));
        }
    };
    refuse(path, spec, of_pod);
    for name in ["initContainers", "containers", "ephemeralContainers"] {
        for (at, container) in list(spec, &format!("/{name}")).iter().enumerate() {
            refuse(&format!("{path}.{name}[{at}]"), container, of_container);
        }
    }
}

/// A pod with its own user namespace shares no other namespace with the node.
fn user_namespace(path: &str, spec: &Value, errors: &mut Errors) {
    let why = "when `hostUsers` is false";
    // The original spells the fields like this.
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec[field] == true {
            errors.push(FieldError::forbidden(&format!("{path}.{shown}"), why));
        }
    }
    for name in ["initContainers", "containers", "ephemeralContainers"] {
        for (at, container) in list(spec, &format!("/{name}")).iter().enumerate() {
            if !list(container, "/volumeDevices").is_empty() {
                errors.push(FieldError::forbidden(&format!("{path}.{name}[{at}].volumeDevices"), why));
            }
        }
    }
}

/// Namespaced sysctls of a namespace that the pod shares with its node would change the node.
fn sysctls(path: &str, spec: &Value, errors: &mut Errors) {
    for (at, sysctl) in list(spec, "/securityContext/sysctls").iter().enumerate() {
        let name = text(sysctl, "/name");
        let is_ipc = IPC_SYSCTLS.contains(&name) || name.starts_with("fs.mqueue.");
        let why = if spec["hostNetwork"] == true && name.starts_with("net.") {
            "may not be specified when 'hostNetwork' is true"
        } else if spec["hostIPC"] == true && is_ipc {
            "may not be specified when 'hostIPC' is true"
        } else {
            continue;
        };
        let field = format!("{path}.securityContext.sysctls[{at}].name");
        errors.push(FieldError::invalid(&field, &Value::from(name), why));
    }
}

fn host_ports(path: &str, spec: &Value, errors: &mut Errors) {
    for (at, container) in list(spec, "/containers").iter().enumerate() {
        for (number, port) in list(container, "/ports").iter().enumerate() {
            // In a template it may be missing; the pod gets it as a default.
            if is_set(port, "/hostPort") && port["hostPort"] != port["containerPort"] {
                let field = format!("{path}.containers[{at}].ports[{number}].hostPort");
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(&field, &port["hostPort"], why));
            }
        }
    }
}
