//! Claims that a provisioner is asked for, and the annotation of migrated plugins.

use super::*;

fn of_class(name: &str) -> Value {
    with(claim(), &[("/spec/storageClassName", json!(name))])
}

fn waiting_for(provisioner: &str) -> String {
    format!(
        "event Normal ExternalProvisioning on PersistentVolumeClaim a/data uid=c-1: Waiting for a volume to be created \
         either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation \
         is delayed, please verify that the provisioner is running and correctly registered.\n"
    )
}

const ASK: &str = "put persistentvolumeclaims a/data because the provisioner is asked for a volume\n";

fn failed(message: &str) -> String {
    format!("event Warning ProvisioningFailed on PersistentVolumeClaim a/data uid=c-1: {message}\n")
}

/// Proves PVB-33, PVB-80, PVB-81, PVB-98, PVB-124.
#[test]
fn external_provisioner_is_named_once_and_waited_for() {
    let a_loop = claims_loop();
    for (provisioner, driver) in
        [("csi.example.com", "csi.example.com"), ("kubernetes.io/aws-ebs", "ebs.csi.aws.com")]
    {
        let new =
            |claim: Value| cluster(&a_loop, &[claim], &[]).with::<StorageClass>(class("fast", provisioner));
        assert_eq!(
            sync_claim(&mut new(of_class("fast")), &a_loop),
            format!("{GET_CLAIM}{ASK}{}", waiting_for(driver))
        );
        let transcript = new(of_class("fast")).reconcile(&a_loop, claim_key());
        assert_eq!(
            puts(&transcript)[0].1["metadata"]["annotations"],
            json!({names::STORAGE_PROVISIONER: driver, names::BETA_STORAGE_PROVISIONER: driver})
        );
        let asked = annotated(of_class("fast"), &[(names::STORAGE_PROVISIONER, driver)]);
        let mut cluster = new(asked);
        assert_eq!(sync_claim(&mut cluster, &a_loop), waiting_for(driver));
        assert_eq!(sync_claim(&mut cluster, &a_loop), waiting_for(driver));
    }
}

/// Proves PVB-83, PVB-158.
#[test]
fn delayed_claim_is_provisioned_after_the_scheduler_selected_a_node() {
    let a_loop = claims_loop();
    let late = with(class("late", "d"), &[("/volumeBindingMode", json!("WaitForFirstConsumer"))]);
    let selected = annotated(of_class("late"), &[(names::SELECTED_NODE, "gone")]);
    for (claim, asks) in [(of_class("late"), false), (selected, true)] {
        let transcript = cluster(&a_loop, &[claim], &[])
            .with::<StorageClass>(late.clone())
            .reconcile(&a_loop, claim_key());
        assert_eq!(transcript.contains("because the provisioner is asked"), asks, "{transcript}");
        if asks {
            assert_eq!(puts(&transcript)[0].1["metadata"]["annotations"][names::SELECTED_NODE], "gone");
        }
    }
}

/// Proves PVB-77.
#[test]
fn nothing_is_provisioned_if_that_is_switched_off() {
    let options = PersistentVolumeBinderOptions { enable_dynamic_provisioning: false, ..Default::default() };
    let a_loop = controller(&options).loops.remove(0);
    let mut cluster = cluster(&a_loop, &[of_class("fast")], &[]).with::<StorageClass>(class("fast", "d"));
    assert_eq!(sync_claim(&mut cluster, &a_loop), "");
}

/// Proves PVB-78, PVB-79, PVB-93.
#[test]
fn class_without_a_provisioner_is_reported_at_each_sync() {
    let a_loop = claims_loop();
    let mut missing = cluster(&a_loop, &[of_class("fast")], &[]);
    let message = failed("storageclass.storage.k8s.io \"fast\" not found");
    assert_eq!(sync_claim(&mut missing, &a_loop), message);
    assert_eq!(sync_claim(&mut missing, &a_loop), message);
    for (provisioner, message) in [
        ("kubernetes.io/no-provisioner", "no volume plugin matched name: kubernetes.io/no-provisioner"),
        ("kubernetes.io/nfs", "no provisionable volume plugin matched"),
    ] {
        let class = class("fast", provisioner);
        let mut cluster = cluster(&a_loop, &[of_class("fast")], &[]).with::<StorageClass>(class);
        assert_eq!(sync_claim(&mut cluster, &a_loop), failed(message));
    }
}

/// Proves PVB-84, PVB-131.
#[test]
fn failed_request_for_a_volume_backs_off_silently() {
    let a_loop = claims_loop();
    let path = PersistentVolumeClaim::RESOURCE.object_path(&claim_key());
    let refused = error(ErrorReason::Forbidden, "no");
    let mut cluster = cluster(&a_loop, &[of_class("fast")], &[])
        .with::<StorageClass>(class("fast", "d"))
        .failing_at("update", &path, refused, None);
    let transcript = sync_claim(&mut cluster, &a_loop);
    assert!(transcript.contains(&failed("Error saving claim: no")), "{transcript}");
    assert!(transcript.contains("measure volume_operation_errors_total{d,provision} 1\n"), "{transcript}");
    assert!(!transcript.contains("retry"), "{transcript}");
    assert_eq!(sync_claim(&mut cluster, &a_loop), "");
    cluster.advance_clock(Duration::from_millis(500));
    assert!(sync_claim(&mut cluster, &a_loop).contains("Error saving claim"));
    cluster.advance_clock(Duration::from_millis(999));
    assert_eq!(sync_claim(&mut cluster, &a_loop), "");
}

/// Proves PVB-82, PVB-132.
#[test]
fn latency_is_measured_from_the_first_request_until_the_volume_is_bound() {
    let a_loop = claims_loop();
    let mut cluster = cluster(&a_loop, &[of_class("fast")], &[]).with::<StorageClass>(class("fast", "d"));
    sync_claim(&mut cluster, &a_loop);
    cluster.advance_clock(Duration::from_secs(3));
    let provisioned = with(
        volume("pv"),
        &[
            ("/spec/claimRef", bound_ref("c-1")),
            ("/spec/storageClassName", json!("fast")),
            ("/status/phase", json!("Pending")),
        ],
    );
    cluster.put::<PersistentVolume>(&a_loop, provisioned);
    let transcript = sync_claim(&mut cluster, &a_loop);
    assert!(transcript.contains("because the claim became bound"), "{transcript}");
    assert!(transcript.contains("measure volume_operation_total_seconds{d,provision} 3\n"), "{transcript}");
    assert!(!sync_claim(&mut cluster, &a_loop).contains("volume_operation_total_seconds"));
}

/// Proves PVB-95, PVB-96, PVB-97.
#[test]
fn annotation_of_the_migrated_plugin_is_kept_right() {
    let a_loop = claims_loop();
    let after = |annotations: &[(&str, &str)]| {
        let (bound, volume) = bound_pair();
        let claim = annotated(bound, annotations);
        let transcript = cluster(&a_loop, &[claim], &[volume]).reconcile(&a_loop, claim_key());
        puts(&transcript).first().map(|(_, body)| body["metadata"]["annotations"][names::MIGRATED_TO].clone())
    };
    for (plugin, driver) in [
        ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
        ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
        ("kubernetes.io/azure-file", "file.csi.azure.com"),
        ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
        ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ] {
        assert_eq!(after(&[(names::STORAGE_PROVISIONER, plugin)]), Some(json!(driver)));
        assert_eq!(after(&[(names::BETA_STORAGE_PROVISIONER, plugin)]), Some(json!(driver)));
        assert_eq!(after(&[(names::STORAGE_PROVISIONER, plugin), (names::MIGRATED_TO, driver)]), None);
    }
    assert_eq!(after(&[(names::STORAGE_PROVISIONER, "csi.d"), (names::MIGRATED_TO, "x")]), Some(Value::Null));
    assert_eq!(after(&[(names::STORAGE_PROVISIONER, "csi.d")]), None);
    assert_eq!(after(&[(names::MIGRATED_TO, "x")]), None);
}

/// Remembers what is done to the host.
#[derive(Default)]
struct FakeHost(Mutex<Vec<String>>);

impl HostFiles for FakeHost {
    fn create_directory(&self, path: &str) -> Result<(), String> {
        self.0.lock().push(format!("create {path}"));
        Ok(())
    }

    fn remove_all(&self, path: &str) -> Result<(), String> {
        self.0.lock().push(format!("remove {path}"));
        Ok(())
    }

    fn new_uuid(&self) -> String {
        "uuid".to_owned()
    }
}

fn host_path_loops(host: &Arc<FakeHost>, enabled: bool) -> Vec<Loop> {
    let options = PersistentVolumeBinderOptions {
        enable_hostpath_provisioner: enabled,
        host_files: Some(host.clone()),
        ..Default::default()
    };
    controller(&options).loops
}

/// Proves PVB-10, PVB-88, PVB-89, PVB-123, PVB-133.
#[test]
fn directory_of_the_host_is_provisioned_once() {
    let host = Arc::new(FakeHost::default());
    let a_loop = host_path_loops(&host, true).remove(0);
    let asked = annotated(of_class("dir"), &[(names::STORAGE_PROVISIONER, names::HOST_PATH)]);
    let mut cluster = cluster(&a_loop, &[asked], &[]).with::<StorageClass>(class("dir", names::HOST_PATH));
    let transcript = cluster.reconcile(&a_loop, claim_key());
    let created = transcript.lines().find(|line| line.starts_with("create ")).unwrap();
    let body: Value = serde_json::from_str(&format!("{{{}", created.split_once(": {").unwrap().1)).unwrap();
    assert_eq!(body["metadata"]["name"], "pvc-c-1");
    assert_eq!(body["metadata"]["finalizers"], json!([names::IN_TREE_FINALIZER]));
    assert_eq!(
        body["metadata"]["annotations"],
        json!({"kubernetes.io/createdby": "hostpath-dynamic-provisioner", names::BOUND_BY_CONTROLLER: "yes",
               names::PROVISIONED_BY: names::HOST_PATH})
    );
    assert_eq!(body["spec"]["hostPath"]["path"], "/tmp/hostpath_pv/uuid");
    assert_eq!(body["spec"]["claimRef"]["uid"], "c-1");
    assert_eq!(body["spec"]["capacity"]["storage"], "1Gi");
    assert!(transcript.contains(
        "event Normal ProvisioningSucceeded on PersistentVolumeClaim a/data uid=c-1: Successfully provisioned volume \
         pvc-c-1 using kubernetes.io/host-path\n"
    ));
    assert!(transcript.contains(
        "measure storage_operation_duration_seconds{kubernetes.io/host-path,volume_provision,success,false}"
    ));
    assert_eq!(*host.0.lock(), ["create /tmp/hostpath_pv/uuid"]);
    let mut there = cluster.with_live::<PersistentVolume>(with(volume("pvc-c-1"), &[]));
    assert!(!there.reconcile(&a_loop, claim_key()).contains("create "));
    assert_eq!(host.0.lock().len(), 1);
}

/// Proves PVB-85, PVB-86, PVB-87, PVB-91, PVB-92.
#[test]
fn directory_of_the_host_is_refused_with_an_event() {
    let host = Arc::new(FakeHost::default());
    let message = |enabled: bool, claim: Value, class: Value| {
        let a_loop = host_path_loops(&host, enabled).remove(0);
        let claim = annotated(claim, &[(names::STORAGE_PROVISIONER, names::HOST_PATH)]);
        let mut cluster = cluster(&a_loop, &[claim], &[]).with::<StorageClass>(class);
        sync_claim(&mut cluster, &a_loop)
    };
    let dir = || class("dir", names::HOST_PATH);
    let disabled =
        "Failed to create provisioner: provisioning in volume plugin \"kubernetes.io/host-path\" is disabled";
    assert!(message(false, of_class("dir"), dir()).contains(&failed(disabled)));
    let sourced = with(of_class("dir"), &[("/spec/dataSource", json!({"kind": "x", "name": "y"}))]);
    let text = "plugin \"kubernetes.io/host-path\" is not a CSI plugin. Only CSI plugin can provision a claim with a datasource";
    assert!(message(true, sourced, dir()).starts_with(&failed(text)));
    let options = with(dir(), &[("/mountOptions", json!(["a", "b"]))]);
    let text =
        "Mount options are not supported by the provisioner but StorageClass \"dir\" has mount options [a b]";
    assert!(message(true, of_class("dir"), options).contains(&failed(text)));
    let selected = annotated(of_class("dir"), &[(names::SELECTED_NODE, "n1")]);
    let text = "Failed to get target node: node \"n1\" not found";
    assert!(message(true, selected.clone(), dir()).contains(&failed(text)));
    let block = with(selected, &[("/spec/volumeMode", json!("Block"))]);
    let a_loop = host_path_loops(&host, true).remove(0);
    let block = annotated(block, &[(names::STORAGE_PROVISIONER, names::HOST_PATH)]);
    let transcript = cluster(&a_loop, &[block], &[])
        .with::<StorageClass>(dir())
        .with::<Node>(json!({"metadata": {"name": "n1"}}))
        .reconcile(&a_loop, claim_key());
    let text = "Failed to provision volume with StorageClass \"dir\": kubernetes.io/host-path does not support block volume provisioning";
    assert!(transcript.contains(&failed(text)), "{transcript}");
    assert_eq!(puts(&transcript)[0].1["metadata"]["annotations"][names::SELECTED_NODE], Value::Null);
    assert!(host.0.lock().is_empty());
}

/// Proves PVB-76, PVB-103, PVB-171.
#[test]
fn only_directories_below_tmp_are_removed_and_only_while_released() {
    let host = Arc::new(FakeHost::default());
    let a_loop = host_path_loops(&host, false).remove(1);
    let released = |path: &str| {
        with(
            volume("pv"),
            &[
                ("/spec/local", Value::Null),
                ("/spec/hostPath", json!({"path": path})),
                ("/spec/claimRef", bound_ref("c-1")),
                ("/spec/persistentVolumeReclaimPolicy", json!("Delete")),
                ("/metadata/finalizers", json!(["x/y", names::IN_TREE_FINALIZER])),
                ("/metadata/annotations", json!({names::PROVISIONED_BY: names::HOST_PATH})),
                ("/status/phase", json!("Released")),
            ],
        )
    };
    let transcript = cluster(&a_loop, &[], &[released("/data/tmp/x")]).reconcile(&a_loop, volume_key("pv"));
    assert_eq!(std::mem::take(&mut *host.0.lock()), ["remove /data/tmp/x"]);
    assert_eq!(puts(&transcript)[0].1["metadata"]["finalizers"], json!(["x/y"]));
    assert!(transcript.contains("delete persistentvolumes pv because"), "{transcript}");
    let transcript = sync_volume(&mut cluster(&a_loop, &[], &[released("/tmp/")]), &a_loop);
    let text = "host_path deleter only supports /tmp/.+ but received provided /tmp/\n";
    assert!(
        transcript
            .contains(&format!("event Warning VolumeFailedDelete on PersistentVolume pv uid=v-pv: {text}"))
    );
    let counted = "measure volume_operation_errors_total{kubernetes.io/host-path,delete} 1\n";
    assert!(transcript.contains(counted), "{transcript}");
    let failed_before = with(released("/tmp/"), &[("/status/phase", json!("Failed"))]);
    let mut backing_off = cluster(&a_loop, &[], &[failed_before]);
    assert_eq!(sync_volume(&mut backing_off, &a_loop), "");
    backing_off.advance_clock(Duration::from_millis(500));
    let transcript = sync_volume(&mut backing_off, &a_loop);
    assert!(transcript.contains(counted) && !transcript.contains("put "), "{transcript}");
    // A new process has no backoff.
    let a_loop = host_path_loops(&host, false).remove(1);
    let other = with(released("/tmp/x"), &[("/spec/hostPath", Value::Null)]);
    let transcript = sync_volume(&mut cluster(&a_loop, &[], &[other]), &a_loop);
    assert!(
        transcript.contains(
            "failed to create deleter for volume \"pv\": spec.PersistentVolumeSource.HostPath is nil"
        )
    );
    // A user has set the policy to Retain, and the cache does not show it yet.
    let a_loop = host_path_loops(&host, false).remove(1);
    let retained = with(
        released("/tmp/x"),
        &[
            ("/spec/persistentVolumeReclaimPolicy", json!("Retain")),
            ("/metadata/resourceVersion", json!("99")),
        ],
    );
    let mut behind = cluster(&a_loop, &[], &[released("/tmp/x")]).with_live::<PersistentVolume>(retained);
    let transcript = sync_volume(&mut behind, &a_loop);
    assert!(!transcript.contains("delete ") && !transcript.contains("put "), "{transcript}");
    assert!(host.0.lock().is_empty());
    // The claim exists after all, on the API server.
    let a_loop = host_path_loops(&host, false).remove(1);
    let (claim, _) = bound_pair();
    let mut cluster = cluster(&a_loop, &[], &[released("/tmp/x")]).with_live::<PersistentVolumeClaim>(claim);
    let transcript = sync_volume(&mut cluster, &a_loop);
    assert!(!transcript.contains("delete ") && !transcript.contains("put "), "{transcript}");
    assert!(host.0.lock().is_empty());
}

/// A dry run, a shadow and a process that has lost the Lease plan the writes, as the leader would, and leave the host alone.
#[test]
fn only_the_leader_changes_directories_of_the_host() {
    let host = Arc::new(FakeHost::default());
    let a_loop = host_path_loops(&host, true).remove(0);
    let asked = annotated(of_class("dir"), &[(names::STORAGE_PROVISIONER, names::HOST_PATH)]);
    let pending = cluster(&a_loop, &[asked], &[]).with::<StorageClass>(class("dir", names::HOST_PATH));
    let transcript = sync_claim(&mut pending.without_leading(), &a_loop);
    assert!(!transcript.contains("event "), "{transcript}");
    assert!(host.0.lock().is_empty(), "{:?}", host.0.lock());
    let a_loop = host_path_loops(&host, true).remove(1);
    let changes = [
        ("/spec/local", Value::Null),
        ("/spec/hostPath", json!({"path": "/tmp/x"})),
        ("/spec/claimRef", bound_ref("c-1")),
        ("/spec/persistentVolumeReclaimPolicy", json!("Delete")),
        ("/metadata/finalizers", json!([names::IN_TREE_FINALIZER])),
        ("/metadata/annotations", json!({names::PROVISIONED_BY: names::HOST_PATH})),
        ("/status/phase", json!("Released")),
    ];
    let released = cluster(&a_loop, &[], &[with(volume("pv"), &changes)]);
    let transcript = sync_volume(&mut released.without_leading(), &a_loop);
    assert!(!transcript.contains("event "), "{transcript}");
    assert!(host.0.lock().is_empty(), "{:?}", host.0.lock());
}

/// Proves PVB-90, PVB-125.
#[test]
fn directory_is_removed_if_its_volume_cannot_be_created() {
    let host = Arc::new(FakeHost::default());
    let a_loop = host_path_loops(&host, true).remove(0);
    let asked = annotated(of_class("dir"), &[(names::STORAGE_PROVISIONER, names::HOST_PATH)]);
    let refusing = |reason: ErrorReason| {
        cluster(&a_loop, &[asked.clone()], &[])
            .with::<StorageClass>(class("dir", names::HOST_PATH))
            .failing::<PersistentVolume>("create", &volume_key("pvc-c-1"), error(reason, "quota"))
    };
    let transcript = sync_claim(&mut refusing(ErrorReason::AlreadyExists), &a_loop);
    assert!(!transcript.contains("event "), "{transcript}");
    host.0.lock().clear();
    let transcript = sync_claim(&mut refusing(ErrorReason::Forbidden), &a_loop);
    let text = "Error creating provisioned PV object for claim a/data: quota. Deleting the volume.";
    assert!(transcript.contains(&failed(text)), "{transcript}");
    assert_eq!(*host.0.lock(), ["create /tmp/hostpath_pv/uuid", "remove /tmp/hostpath_pv/uuid"]);
}
