//! The checks of the baseline level: what gives a container more than any ordinary one needs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::checks::{Check, PodView, Violation, counted, name, plural, quoted, setters, uses};

/// Sorted by id.
pub(super) const CHECKS: &[Check] = &[
    Check { id: "appArmorProfile", revisions: &[(0, app_armor_profile)], overrides: &[] },
    Check { id: "capabilities_baseline", revisions: &[(0, capabilities)], overrides: &[] },
    Check { id: "hostNamespaces", revisions: &[(0, host_namespaces)], overrides: &[] },
    Check { id: "hostPathVolumes", revisions: &[(0, host_path_volumes)], overrides: &[] },
    Check { id: "hostPorts", revisions: &[(0, host_ports)], overrides: &[] },
    Check { id: "hostProbesAndHostLifecycle", revisions: &[(34, hosts_of_probes)], overrides: &[] },
    Check { id: "privileged", revisions: &[(0, privileged)], overrides: &[] },
    Check { id: "procMount", revisions: &[(0, proc_mount), (35, proc_mount_of_host_user)], overrides: &[] },
    Check { id: "seLinuxOptions", revisions: &[(0, se_linux_0), (31, se_linux_31)], overrides: &[] },
    Check {
        id: "seccompProfile_baseline",
        revisions: &[(0, seccomp_annotations), (19, seccomp_profile)],
        overrides: &[],
    },
    Check {
        id: "sysctls",
        revisions: &[
            (0, |pod| sysctls(pod, 0)),
            (27, |pod| sysctls(pod, 27)),
            (29, |pod| sysctls(pod, 29)),
            (32, |pod| sysctls(pod, 32)),
            (37, |pod| sysctls(pod, 37)),
        ],
        overrides: &[],
    },
    Check { id: "windowsHostProcess", revisions: &[(0, windows_host_process)], overrides: &[] },
];

const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Safe sysctls, and the minor version since which each is allowed.
const SYSCTLS: &[(u32, &str)] = &[
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
    (37, "net.ipv4.tcp_slow_start_after_idle"),
    (37, "net.ipv4.tcp_notsent_lowat"),
];
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";

fn forbid(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

fn app_armor_profile(pod: PodView<'_>) -> Option<Violation> {
    let bad = |holder: &Value| {
        let profile = holder.pointer("/securityContext/appArmorProfile")?;
        let kind = profile["type"].as_str().unwrap_or_default();
        (!profile.is_null() && !matches!(kind, "RuntimeDefault" | "Localhost")).then(|| kind.to_owned())
    };
    let containers = pod.containers_where(|container| bad(container).is_some());
    let values: BTreeSet<String> = pod.containers().chain([pod.spec]).filter_map(bad).collect();
    let mut setters: Vec<String> = setters(bad(pod.spec).is_some(), &containers).into_iter().collect();
    let mut values: Vec<String> = values.into_iter().collect();
    let allowed =
        |profile: &str| matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/");
    let mut annotations: Vec<String> = texts(pod.annotations)
        .filter(|(key, profile)| key.starts_with(APP_ARMOR_ANNOTATION) && !allowed(profile))
        .map(|(key, profile)| format!("{key}={profile:?}"))
        .collect();
    annotations.sort();
    if !annotations.is_empty() {
        setters.push(format!("annotation{}", plural(annotations.len())));
        values.append(&mut annotations);
    }
    if setters.is_empty() {
        return None;
    }
    let reason = if values.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" };
    let setters = setters.join(" and ");
    forbid(reason, format!("{setters} must not set AppArmor profile type to {}", quoted(values)))
}

fn texts(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn capabilities(pod: PodView<'_>) -> Option<Violation> {
    let added = |container: &Value| -> Vec<String> {
        let added = strings(container.pointer("/securityContext/capabilities/add"));
        added.filter(|one| !CAPABILITIES.contains(one)).map(str::to_owned).collect()
    };
    let containers = pod.containers_where(|container| !added(container).is_empty());
    let capabilities: BTreeSet<String> = pod.containers().flat_map(added).collect();
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not include {} in securityContext.capabilities.add",
        counted("container", &containers),
        quoted(capabilities)
    );
    forbid("non-default capabilities", detail)
}

fn host_namespaces(pod: PodView<'_>) -> Option<Violation> {
    let fields = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let set: Vec<String> = fields.map(|field| format!("{field}=true")).collect();
    if set.is_empty() { None } else { forbid("host namespaces", set.join(", ")) }
}

fn host_path_volumes(pod: PodView<'_>) -> Option<Violation> {
    let volumes = pod.list("volumes").iter().filter(|volume| volume["hostPath"].is_object());
    let names: Vec<&str> = volumes.map(name).collect();
    if names.is_empty() { None } else { forbid("hostPath volumes", counted("volume", &names)) }
}

fn host_ports(pod: PodView<'_>) -> Option<Violation> {
    let used = |container: &Value| -> Vec<String> {
        let ports = container["ports"].as_array().into_iter().flatten();
        let ports = ports.filter_map(|port| port["hostPort"].as_i64()).filter(|port| *port != 0);
        ports.map(|port| port.to_string()).collect()
    };
    let containers = pod.containers_where(|container| !used(container).is_empty());
    let ports: BTreeSet<String> = pod.containers().flat_map(used).collect();
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} hostPort{} {}",
        counted("container", &containers),
        uses(containers.len()),
        plural(ports.len()),
        ports.into_iter().collect::<Vec<_>>().join(", ")
    );
    forbid("hostPort", detail)
}

/// Hosts that probes and lifecycle handlers name; they let the kubelet connect anywhere.
fn hosts_of_probes(pod: PodView<'_>) -> Option<Violation> {
    let hosts = |container: &Value| -> Vec<String> {
        let handlers = [
            "/livenessProbe",
            "/readinessProbe",
            "/startupProbe",
            "/lifecycle/postStart",
            "/lifecycle/preStop",
        ];
        let handlers = handlers.into_iter().filter_map(|pointer| container.pointer(pointer));
        let hosts = handlers.flat_map(|one| ["/httpGet/host", "/tcpSocket/host"].map(|at| one.pointer(at)));
        let hosts = hosts.flatten().filter_map(Value::as_str);
        hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect()
    };
    let containers = pod.containers_where(|container| !hosts(container).is_empty());
    let containers: BTreeSet<&str> = containers.into_iter().collect();
    let hosts: BTreeSet<String> = pod.containers().flat_map(hosts).collect();
    if containers.is_empty() {
        return None;
    }
    let containers: Vec<&str> = containers.into_iter().collect();
    let detail = format!(
        "{} {} probe or lifecycle host{} {}",
        counted("container", &containers),
        uses(containers.len()),
        plural(hosts.len()),
        quoted(hosts)
    );
    forbid("probe or lifecycle host", detail)
}

fn privileged(pod: PodView<'_>) -> Option<Violation> {
    let containers = pod.containers_where(|container| container["securityContext"]["privileged"] == true);
    if containers.is_empty() {
        return None;
    }
    let containers = counted("container", &containers);
    forbid("privileged", format!("{containers} must not set securityContext.privileged=true"))
}

/// An unmasked `/proc`.
pub(super) fn proc_mount(pod: PodView<'_>) -> Option<Violation> {
    let bad = |container: &Value| {
        let kind = container.pointer("/securityContext/procMount").and_then(Value::as_str)?;
        (kind != "Default").then(|| kind.to_owned())
    };
    let containers = pod.containers_where(|container| bad(container).is_some());
    let kinds: BTreeSet<String> = pod.containers().filter_map(bad).collect();
    if containers.is_empty() {
        return None;
    }
    let containers = counted("container", &containers);
    forbid("procMount", format!("{containers} must not set securityContext.procMount to {}", quoted(kinds)))
}

fn proc_mount_of_host_user(pod: PodView<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { proc_mount(pod) }
}

fn se_linux_0(pod: PodView<'_>) -> Option<Violation> {
    se_linux_options(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

fn se_linux_31(pod: PodView<'_>) -> Option<Violation> {
    se_linux_options(pod, &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
}

fn se_linux_options(pod: PodView<'_>, types_allowed: &[&str]) -> Option<Violation> {
    let options = |holder: &Value| holder.pointer("/securityContext/seLinuxOptions").cloned();
    let text = |options: &Value, field: &str| options[field].as_str().unwrap_or_default().to_owned();
    let is_bad = |holder: &Value| {
        options(holder).is_some_and(|options| {
            let [kind, user, role] = ["type", "user", "role"].map(|field| text(&options, field));
            !types_allowed.contains(&kind.as_str()) || !user.is_empty() || !role.is_empty()
        })
    };
    let setters = setters(is_bad(pod.spec), &pod.containers_where(is_bad))?;
    let all: Vec<Value> = pod.containers().chain([pod.spec]).filter_map(options).collect();
    let types: BTreeSet<String> = all.iter().map(|options| text(options, "type")).collect();
    let types: Vec<String> =
        types.into_iter().filter(|kind| !types_allowed.contains(&kind.as_str())).collect();
    let mut faults = Vec::new();
    if !types.is_empty() {
        faults.push(counted("type", &types));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| !text(options, field).is_empty()) {
            faults.push(format!("{field} may not be set"));
        }
    }
    let faults = faults.join("; ");
    forbid("seLinuxOptions", format!("{setters} set forbidden securityContext.seLinuxOptions: {faults}"))
}

/// The seccomp profile type of a pod or container, if it has one.
pub(super) fn seccomp_type(holder: &Value) -> Option<&str> {
    let profile = holder.pointer("/securityContext/seccompProfile").filter(|profile| profile.is_object())?;
    Some(profile["type"].as_str().unwrap_or_default())
}

/// Whether a seccomp profile type is allowed.
pub(super) fn is_confined(kind: &str) -> bool {
    matches!(kind, "Localhost" | "RuntimeDefault")
}

fn seccomp_annotations(pod: PodView<'_>) -> Option<Violation> {
    let allowed = |profile: &str| {
        matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/")
    };
    let of_containers =
        pod.containers().map(|container| format!("{SECCOMP_CONTAINER_ANNOTATION}{}", name(container)));
    let keys = of_containers.chain([SECCOMP_ANNOTATION.to_owned()]);
    let set = keys.filter_map(|key| Some((pod.annotations.get(&key)?.as_str()?, key)));
    let bad: BTreeSet<String> = set
        .filter(|(profile, _)| !allowed(profile))
        .map(|(profile, key)| format!("{key}={profile:?}"))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let ending = plural(bad.len());
    let bad = bad.into_iter().collect::<Vec<_>>().join(", ");
    forbid("seccompProfile", format!("forbidden annotation{ending} {bad}"))
}

/// Profiles that are set must be allowed ones.
pub(super) fn seccomp_profile(pod: PodView<'_>) -> Option<Violation> {
    let bad = |holder: &Value| seccomp_type(holder).filter(|kind| !is_confined(kind)).map(str::to_owned);
    let containers = pod.containers_where(|container| bad(container).is_some());
    let setters = setters(bad(pod.spec).is_some(), &containers)?;
    let values: BTreeSet<String> = pod.containers().chain([pod.spec]).filter_map(bad).collect();
    let values = quoted(values);
    forbid(
        "seccompProfile",
        format!("{setters} must not set securityContext.seccompProfile.type to {values}"),
    )
}

fn sysctls(pod: PodView<'_>, minor: u32) -> Option<Violation> {
    let set = pod.spec.pointer("/securityContext/sysctls").and_then(Value::as_array);
    let is_safe = |sysctl: &str| SYSCTLS.iter().any(|(since, safe)| *since <= minor && *safe == sysctl);
    let unsafe_ones: Vec<&str> =
        set.into_iter().flatten().map(name).filter(|sysctl| !is_safe(sysctl)).collect();
    if unsafe_ones.is_empty() { None } else { forbid("forbidden sysctls", unsafe_ones.join(", ")) }
}

fn windows_host_process(pod: PodView<'_>) -> Option<Violation> {
    let is_set = |holder: &Value| holder["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let setters = setters(is_set(pod.spec), &pod.containers_where(is_set))?;
    forbid("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}
