//! A default StorageClass whose claims a stand-in CSI driver serves, so that claims are bound as on most clusters.

use keleustes_client::Call;
use keleustes_hollow::{StorageDriver, StorageDriverHandle};
use keleustes_objects::{ErrorReason, Resource};
use kube::Client;
use serde_json::{Value, json};

static STORAGE_CLASSES: Resource =
    Resource::cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass");
/// The provisioner of the class.
const DRIVER: &str = "storage.hollow.keleustes.io";

/// Creates the class unless it exists, and starts the driver.
pub(super) async fn start(client: Client) -> anyhow::Result<StorageDriverHandle> {
    match Call::create(&STORAGE_CLASSES, "", &class()).send(&client).await {
        Ok(_) => {}
        Err(error) if error.reason == ErrorReason::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    Ok(StorageDriver::new(client, DRIVER).start())
}

fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": DRIVER, "allowVolumeExpansion": true,
    })
}
