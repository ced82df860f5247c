//! The arguments each program is started with, as data: what a kubeadm cluster would use, adapted to loopback and tests.

use std::path::Path;

use serde_json::json;

use crate::pki::{FRONT_PROXY_NAME, Pki, User};

/// The advertised address must not be a loopback one, or the API server cannot publish its own endpoints. This one is
/// reserved for documentation: nothing answers on it, and no test calls it.
const ADVERTISED: &str = "192.0.2.1";

/// The range services get their addresses from.
const SERVICE_RANGE: &str = "10.96.0.0/16";

/// The range nodes get their pod addresses from: room for 32,768 nodes.
const POD_RANGE: &str = "10.128.0.0/9";

/// One member, no waiting for the disk: the data never outlive the test.
pub(crate) fn etcd(data: &Path, client_port: u16, peer_port: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{client_port}");
    let peer = format!("http://127.0.0.1:{peer_port}");
    vec![
        "--name=keleustes".into(),
        path("--data-dir", data),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=keleustes={peer}"),
        "--unsafe-no-fsync".into(),
        "--quota-backend-bytes=8589934592".into(),
        "--log-level=warn".into(),
    ]
}

/// The files and ports of the API server.
pub(crate) struct ApiServer<'a> {
    pub(crate) pki: &'a Pki,
    pub(crate) etcd_port: u16,
    pub(crate) port: u16,
    pub(crate) audit_policy: &'a Path,
    pub(crate) audit_log: &'a Path,
    pub(crate) cert_dir: &'a Path,
}

/// Node and RBAC authorisers, default admission, every request in the audit log.
pub(crate) fn api_server(spec: &ApiServer<'_>) -> Vec<String> {
    let pki = spec.pki;
    vec![
        format!("--etcd-servers=http://127.0.0.1:{}", spec.etcd_port),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", spec.port),
        format!("--advertise-address={ADVERTISED}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        path("--cert-dir", spec.cert_dir),
        path("--tls-cert-file", &pki.file("apiserver.crt")),
        path("--tls-private-key-file", &pki.file("apiserver.key")),
        path("--client-ca-file", &pki.file("ca.crt")),
        "--authorization-mode=Node,RBAC".into(),
        "--allow-privileged=true".into(),
        "--anonymous-auth=true".into(),
        "--enable-bootstrap-token-auth=true".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        path("--service-account-key-file", &pki.file("sa.pub")),
        path("--service-account-signing-key-file", &pki.file("sa.key")),
        path("--requestheader-client-ca-file", &pki.file("front-proxy-ca.crt")),
        format!("--requestheader-allowed-names={FRONT_PROXY_NAME}"),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        path("--proxy-client-cert-file", &pki.file("front-proxy-client.crt")),
        path("--proxy-client-key-file", &pki.file("front-proxy-client.key")),
        path("--audit-policy-file", spec.audit_policy),
        path("--audit-log-path", spec.audit_log),
        // In megabytes; a log that is rotated away in the middle of a test could not be read as one.
        "--audit-log-maxsize=100000".into(),
    ]
}

/// What a kubeadm manifest passes to kube-controller-manager, so that Go's manager and ours can be started alike.
pub(crate) fn controller_manager(pki: &Pki, secure_port: u16) -> Vec<String> {
    let kubeconfig = pki.kubeconfig(User::ControllerManager);
    vec![
        path("--kubeconfig", &kubeconfig),
        path("--authentication-kubeconfig", &kubeconfig),
        path("--authorization-kubeconfig", &kubeconfig),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={secure_port}"),
        path("--client-ca-file", &pki.file("ca.crt")),
        path("--requestheader-client-ca-file", &pki.file("front-proxy-ca.crt")),
        path("--root-ca-file", &pki.file("ca.crt")),
        path("--service-account-private-key-file", &pki.file("sa.key")),
        path("--cluster-signing-cert-file", &pki.file("ca.crt")),
        path("--cluster-signing-key-file", &pki.file("ca.key")),
        "--controllers=*,bootstrap-signer-controller,token-cleaner-controller".into(),
        "--use-service-account-credentials=true".into(),
        "--allocate-node-cidrs=true".into(),
        format!("--cluster-cidr={POD_RANGE}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--leader-elect=true".into(),
    ]
}

/// What a kubeadm manifest passes to kube-scheduler.
pub(crate) fn scheduler(pki: &Pki, secure_port: u16) -> Vec<String> {
    let kubeconfig = pki.kubeconfig(User::Scheduler);
    vec![
        path("--kubeconfig", &kubeconfig),
        path("--authentication-kubeconfig", &kubeconfig),
        path("--authorization-kubeconfig", &kubeconfig),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={secure_port}"),
        "--leader-elect=false".into(),
    ]
}

/// kwok simulates every node and renews its Lease as a kubelet would.
pub(crate) fn kwok(pki: &Pki, stages: &Path, port: u16) -> Vec<String> {
    vec![
        path("--kubeconfig", &pki.kubeconfig(User::Kwok)),
        path("--config", stages),
        "--manage-all-nodes=true".into(),
        "--node-lease-duration-seconds=40".into(),
        format!("--server-address=127.0.0.1:{port}"),
    ]
}

/// What kwok needs besides so that metrics-server finds it behind the address of every node.
pub(crate) fn kwok_usage(usage: &Path, port: u16) -> Vec<String> {
    vec![path("--config", usage), "--node-ip=127.0.0.1".into(), format!("--node-port={port}")]
}

/// What metrics-server's own manifest passes, adapted to kwok: one port without TLS serves all nodes.
pub(crate) fn metrics_server(kubeconfig: &Path, certs: &Path, port: u16) -> Vec<String> {
    let mut args = extension_server(kubeconfig, certs, port);
    args.extend([
        path("--kubeconfig", kubeconfig),
        // The shortest that it allows; a request must take less.
        "--metric-resolution=10s".into(),
        "--kubelet-request-timeout=5s".into(),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--kubelet-use-node-status-port".into(),
        "--deprecated-kubelet-completely-insecure".into(),
    ]);
    args
}

/// Values of custom metrics are written to `values_port`.
pub(crate) fn metrics_adapter(kubeconfig: &Path, certs: &Path, port: u16, values_port: u16) -> Vec<String> {
    let mut args = extension_server(kubeconfig, certs, port);
    args.push(path("--lister-kubeconfig", kubeconfig));
    args.push(format!("--values-address=127.0.0.1:{values_port}"));
    args
}

/// What every server behind the aggregation layer needs.
fn extension_server(kubeconfig: &Path, certs: &Path, port: u16) -> Vec<String> {
    vec![
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        path("--cert-dir", certs),
        path("--authentication-kubeconfig", kubeconfig),
        path("--authorization-kubeconfig", kubeconfig),
    ]
}

/// A Service that leads to a port on loopback, and the APIServices behind it. A Service with a cluster IP would lead
/// nowhere, because nothing routes it.
pub(crate) fn api_services(service: &str, port: u16, versions: &[(&str, &str)]) -> String {
    let reference = json!({"name": service, "namespace": "kube-system", "port": port});
    let api_service = |(group, version): &(&str, &str)| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {"group": group, "version": version, "service": reference, "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100},
        })
    };
    let mut items = vec![json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": service, "namespace": "kube-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    })];
    items.extend(versions.iter().map(api_service));
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// A list of nodes `node-0`, `node-1`, … for kwok, as a manifest for kubectl.
pub(crate) fn nodes(count: usize) -> String {
    let node = |index: usize| {
        let name = format!("node-{index}");
        let room = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {
                    "kwok.x-k8s.io/node": "fake",
                    "node.alpha.kubernetes.io/ttl": "0",
                    // Where metrics-server finds what kwok reports for this node.
                    "metrics.k8s.io/resource-metrics-path": format!("/metrics/nodes/{name}/metrics/resource"),
                },
                "labels": {
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "type": "kwok",
                },
            },
            "status": {"allocatable": room, "capacity": room},
        })
    };
    let items: Vec<_> = (0..count).map(node).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn path(flag: &str, value: &Path) -> String {
    format!("{flag}={}", value.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::KeyKind;

    #[test]
    fn the_api_server_runs_with_rbac_and_an_audit_log() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::create(dir.path(), KeyKind::Ecdsa).unwrap();
        let args = api_server(&ApiServer {
            pki: &pki,
            etcd_port: 1,
            port: 2,
            audit_policy: Path::new("/policy"),
            audit_log: Path::new("/audit.log"),
            cert_dir: Path::new("/certs"),
        });
        for wanted in ["--authorization-mode=Node,RBAC", "--audit-log-path=/audit.log", "--secure-port=2"] {
            assert!(args.iter().any(|arg| arg == wanted), "{wanted}");
        }
        assert!(!args.iter().any(|arg| arg.contains("admission")), "admission stays at its defaults");
    }

    #[test]
    fn nodes_are_a_list_with_distinct_names() {
        let list: serde_json::Value = serde_json::from_str(&nodes(3)).unwrap();
        let names: Vec<&str> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["node-0", "node-1", "node-2"]);
    }
}
