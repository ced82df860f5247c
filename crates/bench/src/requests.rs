//! Concurrent requests with objects written as JSON.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use keleustes_client::Call;
use keleustes_objects::Resource;
use kube::Client;
use serde_json::{Value, json};

pub(crate) const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces", "Namespace");
const DEFINITIONS: Resource =
    Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition");

/// How many requests are in flight.
const CONCURRENCY: usize = 16;

/// The object with its apiVersion and kind.
pub(crate) fn with_type(resource: &Resource, mut object: Value) -> Value {
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(resource.kind);
    object
}

/// Sends requests concurrently.
pub(crate) async fn send_all(
    client: &Client,
    what: &str,
    calls: impl IntoIterator<Item = Call>,
) -> anyhow::Result<()> {
    stream::iter(calls.into_iter().collect::<Vec<_>>())
        .map(async |call: Call| call.send_discarding_body(client).await)
        .buffer_unordered(CONCURRENCY)
        .try_collect::<Vec<()>>()
        .await
        .with_context(|| what.to_owned())?;
    Ok(())
}

/// The items of a list.
pub(crate) async fn items(client: &Client, list: &Call) -> anyhow::Result<Vec<Value>> {
    let mut list = list.send(client).await?;
    Ok(serde_json::from_value(list["items"].take()).unwrap_or_default())
}

/// Defines custom kinds with arbitrary fields, and waits until they are served.
pub(crate) async fn define(client: &Client, kinds: &[Resource]) -> anyhow::Result<()> {
    let calls =
        kinds.iter().map(|kind| Call::create(&DEFINITIONS, "", &with_type(&DEFINITIONS, definition(kind))));
    send_all(client, "defining kinds", calls).await?;
    for kind in kinds {
        let mut tries = 0;
        while Call::list(kind, "").send_discarding_body(client).await.is_err() {
            tries += 1;
            if tries > 600 {
                bail!("{kind} is not served");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

fn definition(kind: &Resource) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let names = json!({"plural": kind.plural, "singular": kind.kind.to_lowercase(), "kind": kind.kind});
    let versions = json!([{"name": kind.version, "served": true, "storage": true, "schema": schema}]);
    let spec = json!({"group": kind.group, "scope": "Namespaced", "names": names, "versions": versions});
    json!({"metadata": {"name": format!("{}.{}", kind.plural, kind.group)}, "spec": spec})
}
