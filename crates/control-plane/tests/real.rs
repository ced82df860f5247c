//! The real thing: these tests build the control plane on first use, which needs Go and takes minutes.
//!
//! Run them with `cargo test -p keleustes-control-plane --test real -- --ignored`.

use std::time::{Duration, Instant};

use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, KeyKind, Stop, User};

/// What kubectl printed, or what it complained about.
fn kubectl(plane: &ControlPlane, user: User, args: &[&str]) -> Result<String, String> {
    let mut command = plane.kubectl(user).map_err(|err| err.to_string())?;
    let answer = command.args(args).output().map_err(|err| err.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if answer.status.success() { Ok(text(&answer.stdout)) } else { Err(text(&answer.stderr)) }
}

fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_until_equal(what, &true, holds);
}

/// Waits for a value, and shows the last one if it does not come.
fn wait_until_equal<T: PartialEq + std::fmt::Debug>(what: &str, wanted: &T, mut read: impl FnMut() -> T) {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        let found = read();
        if found == *wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {found:?} instead of {wanted:?}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

#[test]
#[ignore = "needs Go, or KUBEBUILDER_ASSETS"]
fn data_and_address_survive_every_kind_of_restart() {
    let plane = ControlPlane::builder().service_account_keys(KeyKind::Ecdsa).start().unwrap();
    let url = plane.api_server_url();
    kubectl(&plane, User::Admin, &["create", "namespace", "kept"]).unwrap();
    for how in [Stop::Gracefully, Stop::Kill] {
        let before = plane.api_server_pid();
        plane.restart_api_server(how).unwrap();
        assert_ne!(plane.api_server_pid(), before);
        kubectl(&plane, User::Admin, &["get", "namespace", "kept"]).unwrap();
        plane.restart_etcd(how).unwrap();
        kubectl(&plane, User::Admin, &["get", "namespace", "kept"]).unwrap();
    }
    assert_eq!(plane.api_server_url(), url);
    let created = plane.audit_entries().unwrap().into_iter().find(|entry| {
        entry.verb == "create" && entry.object.as_ref().is_some_and(|object| object.name == "kept")
    });
    assert_eq!(created.map(|entry| (entry.user, entry.code)), Some(("kubernetes-admin".into(), 201)));
}

#[test]
#[ignore = "needs Go, or KUBEBUILDER_ASSETS"]
fn rbac_refuses_what_a_role_lacks_and_the_audit_log_shows_it() {
    let plane = ControlPlane::builder().start().unwrap();
    let refused = kubectl(&plane, User::Scheduler, &["get", "secrets", "-A"]).unwrap_err();
    assert!(refused.contains("Forbidden"), "{refused}");
    let noted = plane.audit_entries().unwrap();
    let refusal =
        noted.iter().find(|entry| entry.user == User::Scheduler.name() && entry.code == 403).unwrap();
    assert_eq!(refusal.object.as_ref().unwrap().resource, "secrets");

    let stranger = plane.kubeconfig_for("jane", None).unwrap();
    let mut whoami = std::process::Command::new(plane.binary(Program::Kubectl).unwrap());
    let answer = whoami.args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
    let answer = answer.arg("--kubeconfig").arg(stranger).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "jane");
}

#[test]
#[ignore = "needs Go, or KUBEBUILDER_ASSETS"]
fn with_all_parts_a_deployment_comes_to_life() {
    let plane =
        ControlPlane::builder().with_scheduler().with_kwok(3).with_go_manager([""; 0]).start().unwrap();
    wait_until("the default account", || {
        kubectl(&plane, User::Admin, &["get", "serviceaccount", "default"]).is_ok()
    });
    let create = ["create", "deployment", "web", "--image=web", "--replicas=6"];
    kubectl(&plane, User::Admin, &create).unwrap();
    let count = ["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"];
    wait_until("six running pods", || kubectl(&plane, User::Admin, &count).as_deref() == Ok("6"));
    let mut manager = plane.go_manager();
    let manager = manager.as_mut().unwrap();
    manager.pause().unwrap();
    manager.resume().unwrap();
    manager.kill9().unwrap();
    assert!(!manager.is_running());
}

#[test]
#[ignore = "needs Go, or KUBEBUILDER_ASSETS"]
fn an_api_server_that_does_not_start_is_shown_with_its_own_words() {
    let error = ControlPlane::builder().api_server_arg("--no-such-flag=1").start().unwrap_err().to_string();
    assert!(error.contains("kube-apiserver ended") && error.contains("no-such-flag"), "{error}");
}

#[test]
#[ignore = "needs Go"]
fn metrics_are_served_behind_the_aggregation_layer() {
    // Without a manager the node would keep the taint of a node that is not ready.
    let builder = ControlPlane::builder().with_scheduler().with_kwok(1).with_go_manager([""; 0]);
    let plane = builder.with_metrics_server().with_metrics_adapter().start().unwrap();
    let admin = |args: &[&str]| kubectl(&plane, User::Admin, args);
    wait_until("the default account", || admin(&["get", "serviceaccount", "default"]).is_ok());
    let cpu = "--annotations=kwok.x-k8s.io/usage-cpu=250m";
    let memory = "--annotations=kwok.x-k8s.io/usage-memory=64Mi";
    admin(&["run", "oar", "--image=any", cpu, memory]).unwrap();
    wait_until_equal("metrics-server measures the pod", &Ok("about 250m, 64Mi".to_owned()), || {
        let used = admin(&["top", "pod", "oar", "--no-headers"])?;
        let used: Vec<&str> = used.split_whitespace().collect();
        let [_, cpu, memory] = used[..] else { return Err(format!("{used:?}")) };
        // A rate over an interval that is not exact.
        let millis = cpu.trim_end_matches('m').parse::<u32>().map_err(|err| err.to_string())?;
        let cpu = if (200..=300).contains(&millis) { "about 250m" } else { cpu };
        Ok(format!("{cpu}, {memory}"))
    });
    let node = admin(&["top", "node", "node-0", "--no-headers"]).unwrap();
    assert!(node.starts_with("node-0"), "{node}");
    let path =
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/my-external-metric?labelSelector=foo%3Dbar";
    let external = admin(&["get", "--raw", path]).unwrap();
    assert!(external.contains("\"value\":\"42\""), "{external}");
    assert!(
        admin(&["get", "--raw", "/apis/custom.metrics.k8s.io/v1beta2"]).unwrap().contains("APIResourceList")
    );
}
