//! Memory and decoding time per object of the frequent kinds in a store.

use std::sync::Arc;
use std::time::Instant;

use keleustes_objects::{EndpointSlice, Lease, Node, Object, Pod, ReplicaSet, Service};
use keleustes_plan::Store;
use serde_json::{Value, json};

use crate::meters::Meter;

/// Fills one store after the other and prints the cost per object.
pub(crate) fn measure(objects: usize) -> anyhow::Result<()> {
    println!("| what | bytes of JSON | bytes in memory | µs to read |");
    println!("| --- | ---: | ---: | ---: |");
    // All stores are kept until the end, so that none reuses freed memory.
    fill::<Pod>("warm-up, ignore", 1000, deployment_pod)?;
    let deployments = fill::<Pod>("pod of a deployment", objects, deployment_pod)?;
    let restarted = fill::<Pod>("pod of a deployment, restarted once", objects, |n| {
        let mut pod = deployment_pod(n);
        pod["status"]["containerStatuses"][0]["restartCount"] = json!(1);
        pod
    })?;
    let stateful = fill::<Pod>("pod of a stateful set with a claim", objects, stateful_pod)?;
    let jobs = fill::<Pod>("succeeded pod of an indexed job", objects, job_pod)?;
    let sets = fill::<ReplicaSet>("replica set", objects / 10, replica_set)?;
    let slices = fill::<EndpointSlice>("endpoint slice of 100 endpoints", objects / 100, slice)?;
    let services = fill::<Service>("service", objects / 10, service)?;
    let nodes = fill::<Node>("node", objects / 10, node)?;
    let leases = fill::<Lease>("lease of a node", objects / 10, lease)?;
    drop((deployments, restarted, stateful, jobs, sets, slices, services, nodes, leases));
    Ok(())
}

/// Decodes objects into a store. Another thread generates the JSON, because the allocator keeps its memory
/// apart: as in a manager, the memory of the decoding thread holds only decoded objects for long.
fn fill<T: Object>(what: &str, objects: usize, sample: fn(usize) -> Value) -> anyhow::Result<Store<T>> {
    let mut table = Store::<T>::default();
    let (sender, texts) = std::sync::mpsc::sync_channel(64);
    let generator = std::thread::spawn(move || {
        (0..=objects).try_for_each(|n| sender.send(sample(n).to_string())).ok();
    });
    let (mut before, mut bytes_of_json, mut nanoseconds) = (0, 0, 0);
    for (n, text) in texts.into_iter().enumerate() {
        if n == 1 {
            // The first object has initialized what is not measured.
            (before, bytes_of_json, nanoseconds) = (Meter::own().anonymous()?, 0, 0);
        }
        let began = Instant::now();
        let object = Arc::new(serde_json::from_str(&text)?);
        nanoseconds += began.elapsed().as_nanos();
        bytes_of_json += text.len();
        table.apply(object);
    }
    let bytes = Meter::own().anonymous()?.saturating_sub(before) / objects as u64;
    let microseconds = nanoseconds / 1000 / objects as u128;
    println!("| {what} | {} | {bytes} | {microseconds} |", bytes_of_json / objects);
    generator.join().map_err(|_| anyhow::anyhow!("the thread that generates JSON failed"))?;
    Ok(table)
}

/// Metadata with the managed fields that every object of a real cluster carries.
fn metadata(kind: u32, n: usize, name: &str, labels: &Value, owner: &Value) -> Value {
    let managed = |manager: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
               "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}},
               "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}, "f:name": {}}}}}})
    };
    json!({
        "name": name, "generateName": &name[..name.len() - 5], "namespace": format!("team-{}", n / 1000),
        "uid": format!("{kind:08x}-7a52-4d6c-9a6b-{n:012x}"), "resourceVersion": (1_000_000 + n).to_string(),
        "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
        "annotations": {"prometheus.io/scrape": "true", "example.com/checksum": format!("{:x}", n / 100)},
        "ownerReferences": [owner], "managedFields": [managed("kube-controller-manager"), managed("kubelet")],
    })
}

fn owner(api_version: &str, kind: &str, n: usize, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "controller": true, "blockOwnerDeletion": true,
           "uid": format!("aaaaaaaa-7a52-4d6c-9a6b-{n:012x}")})
}

fn pod_spec(n: usize) -> Value {
    let container = |name: &str| {
        json!({"name": name, "image": format!("registry/{name}:1.2.3"), "imagePullPolicy": "IfNotPresent",
               "ports": [{"name": format!("{name}-http"), "containerPort": 8080, "protocol": "TCP"}],
               "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
               "env": [{"name": "A", "value": "b"}, {"name": "C", "value": "d"}],
               "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets"}]})
    };
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "nodeName": format!("node-{}", n % 1000), "containers": [container("web"), container("log")],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default", "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0,
        "tolerations": [toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")],
        "volumes": [{"name": "kube-api-access", "projected": {"sources": []}}],
    })
}

fn running(n: usize) -> Value {
    let condition = |name: &str| {
        json!({"type": name, "status": "True", "lastProbeTime": null, "observedGeneration": 1,
               "lastTransitionTime": "2026-01-01T00:00:05Z"})
    };
    let status = |name: &str| {
        json!({"name": name, "ready": true, "started": true, "restartCount": 0, "image": "registry/image:1.2.3",
               "imageID": "sha256:0123456789abcdef", "containerID": format!("containerd://{n:064x}"),
               "state": {"running": {"startedAt": "2026-01-01T00:00:03Z"}}, "lastState": {}})
    };
    let ip = format!("10.{}.{}.{}", n / 62_500, n / 250 % 250, n % 250);
    json!({
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "192.168.0.1", "qosClass": "Burstable",
        "startTime": "2026-01-01T00:00:01Z",
        "conditions": [condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
                       condition("ContainersReady"), condition("PodScheduled")],
        "containerStatuses": [status("web"), status("log")],
    })
}

fn deployment_pod(n: usize) -> Value {
    let set = format!("web-{}-5d4f8c7b9d", n / 100);
    let labels = json!({"app": format!("web-{}", n / 100), "pod-template-hash": "5d4f8c7b9d"});
    let metadata =
        metadata(1, n, &format!("{set}-{n:05}"), &labels, &owner("apps/v1", "ReplicaSet", n / 100, &set));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(n), "status": running(n)})
}

fn stateful_pod(n: usize) -> Value {
    let (set, ordinal) = (format!("database-{}", n / 10), n % 10);
    let name = format!("{set}-{ordinal}");
    let labels = json!({"app": set, "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": ordinal.to_string(), "controller-revision-hash": format!("{set}-776999688b")});
    let metadata = metadata(2, n, &name, &labels, &owner("apps/v1", "StatefulSet", n / 10, &set));
    let mut spec = pod_spec(n);
    spec["hostname"] = json!(name);
    spec["subdomain"] = json!("database");
    spec["volumes"][0] =
        json!({"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{name}")}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": running(n)})
}

fn job_pod(n: usize) -> Value {
    let (job, index) = (format!("sum-{}", n / 100), (n % 100).to_string());
    let labels = json!({"batch.kubernetes.io/job-name": job, "job-name": job,
        "batch.kubernetes.io/job-completion-index": index,
        "batch.kubernetes.io/controller-uid": format!("aaaaaaaa-7a52-4d6c-9a6b-{:012x}", n / 100)});
    let mut metadata =
        metadata(3, n, &format!("{job}-{index}-{n:05}"), &labels, &owner("batch/v1", "Job", n / 100, &job));
    metadata["annotations"] = json!({"batch.kubernetes.io/job-completion-index": index});
    let (mut spec, mut status) = (pod_spec(n), running(n));
    spec["hostname"] = json!(format!("{job}-{index}"));
    status["phase"] = json!("Succeeded");
    for container in 0..2 {
        status["containerStatuses"][container]["state"] = json!({"terminated": {"exitCode": 0, "reason": "Completed",
            "startedAt": "2026-01-01T00:00:03Z", "finishedAt": "2026-01-01T00:01:00Z"}});
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
}

fn replica_set(n: usize) -> Value {
    let deployment = format!("web-{}", n / 10);
    let labels = json!({"app": deployment, "pod-template-hash": format!("{n:010}")});
    let metadata = metadata(
        4,
        n,
        &format!("{deployment}-{n:010}"),
        &labels,
        &owner("apps/v1", "Deployment", n / 10, &deployment),
    );
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata,
        "spec": {"replicas": 0, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": pod_spec(0)}},
        "status": {"replicas": 0, "observedGeneration": 1, "terminatingReplicas": 0}})
}

fn slice(n: usize) -> Value {
    let service = format!("web-{n}");
    let labels = json!({"app": service, "kubernetes.io/service-name": service,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
    let metadata = metadata(5, n, &format!("{service}-x7k2p"), &labels, &owner("v1", "Service", n, &service));
    let endpoints: Vec<Value> = (n * 100..n * 100 + 100)
        .map(|pod| {
            json!({"addresses": [format!("10.{}.{}.{}", pod / 62_500, pod / 250 % 250, pod % 250)],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": format!("node-{}", pod % 1000), "zone": format!("zone-{}", pod % 3),
                "targetRef": {"kind": "Pod", "namespace": format!("team-{}", n / 1000),
                    "name": format!("web-{n}-5d4f8c7b9d-{pod:05}"), "uid": format!("00000001-7a52-4d6c-9a6b-{pod:012x}")}})
        })
        .collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]})
}

fn service(n: usize) -> Value {
    let name = format!("web-{n:05}");
    let metadata = metadata(6, n, &name, &json!({"app": name}), &owner("example.com/v1", "Shop", n, &name));
    let ip = format!("10.96.{}.{}", n / 250, n % 250);
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "status": {"loadBalancer": {}},
        "spec": {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"],
                 "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
                 "selector": {"app": name},
                 "ports": [{"name": "http", "port": 80, "targetPort": "web-http", "protocol": "TCP"}]}})
}

fn node(n: usize) -> Value {
    let condition = |name: &str, status: &str, reason: &str, message: &str| {
        json!({"type": name, "status": status, "reason": reason, "message": message,
               "lastHeartbeatTime": "2026-01-01T00:05:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let name = format!("node-{n:05}");
    let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": format!("zone-{}", n % 3), "topology.kubernetes.io/region": "region"});
    let metadata = metadata(7, n, &name, &labels, &owner("example.com/v1", "Machine", n, &name));
    let images: Vec<Value> = (0..50)
        .map(|image| json!({"names": [format!("registry/image-{image}:1")], "sizeBytes": 1}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata,
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": format!("cloud:///{n}")},
        "status": {"allocatable": {"cpu": "7910m", "memory": "31Gi", "pods": "110"}, "images": images,
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}, "nodeInfo": {"kubeletVersion": "v1.37.1"},
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")]}})
}

fn lease(n: usize) -> Value {
    let name = format!("node-{n:05}");
    let metadata = metadata(8, n, &name, &json!({}), &owner("v1", "Node", n, &name));
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:05:00.123456Z"}})
}
