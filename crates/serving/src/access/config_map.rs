//! The ConfigMap `extension-apiserver-authentication` with the client CAs, read at startup and watched from
//! then on.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use tokio::time::sleep;

use super::api::{ApiServerClient, RequestError};
use super::trust::{Authority, Headers, Proxies};

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// The role extension-apiserver-authentication-reader allows only this name, in lists and watches, too.
const LIST: &str = "/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dextension-apiserver-authentication";
const WATCH_SECONDS: u32 = 400;
const INITIAL_BACKOFF: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";

/// The ConfigMap's data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content(BTreeMap<String, String>);

impl Content {
    /// The client CA; `None` if it is not set.
    pub(super) fn clients(&self) -> Result<Option<Authority>, String> {
        self.authority(CLIENT_CA)
    }

    /// The request-header configuration; `None` if its CA is not set.
    pub(super) fn proxies(&self) -> Result<Option<Proxies>, String> {
        let headers = Headers {
            allowed_names: self.list("requestheader-allowed-names")?,
            username: self.list("requestheader-username-headers")?,
            uid: self.list("requestheader-uid-headers")?,
            group: self.list("requestheader-group-headers")?,
            extra_prefixes: self.list("requestheader-extra-headers-prefix")?,
        };
        Ok(self.authority(PROXY_CA)?.map(|authority| Proxies { authority, headers }))
    }

    fn authority(&self, key: &str) -> Result<Option<Authority>, String> {
        match self.0.get(key).filter(|pem| !pem.is_empty()) {
            Some(pem) => Authority::new(pem.as_bytes()).map(Some).map_err(|fault| format!("{key} {fault}")),
            None => Ok(None),
        }
    }

    fn list(&self, key: &str) -> Result<Vec<String>, String> {
        match self.0.get(key).filter(|text| !text.is_empty()) {
            Some(text) => serde_json::from_str(text).map_err(|error| format!("{key} is not a list: {error}")),
            None => Ok(Vec::new()),
        }
    }
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: Metadata,
    items: Vec<ConfigMap>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: ConfigMap,
}

/// Reads the ConfigMap; `None` if it does not exist.
pub(super) async fn read(api: &ApiServerClient) -> Result<Option<Content>, String> {
    match api.get(PATH).await {
        Ok(body) => {
            let map: ConfigMap = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
            Ok(Some(Content(map.data.unwrap_or_default())))
        }
        Err(RequestError { code: Some(StatusCode::NOT_FOUND), .. }) => Ok(None),
        Err(failure) => {
            if failure.code == Some(StatusCode::FORBIDDEN) {
                tracing::warn!(
                    "reading configmap/extension-apiserver-authentication in kube-system is forbidden; bind the \
                     role extension-apiserver-authentication-reader there to the user of --authentication-kubeconfig"
                );
            }
            Err(failure.text)
        }
    }
}

/// Calls `apply` with every state of the ConfigMap from now on; never ends. A deletion is ignored: the old
/// CAs stay in use.
pub(super) async fn watch(api: &ApiServerClient, mut apply: impl FnMut(Content)) {
    let mut backoff = INITIAL_BACKOFF;
    loop {
        match list_and_watch(api, &mut apply, &mut backoff).await {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot watch configmap/extension-apiserver-authentication");
            }
        }
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Lists and watches until the next list is due.
async fn list_and_watch(
    api: &ApiServerClient,
    apply: &mut impl FnMut(Content),
    backoff: &mut Duration,
) -> Result<(), String> {
    let body = api.get(LIST).await.map_err(|failure| failure.text)?;
    let list: List = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    let mut version = list.metadata.resource_version;
    for map in list.items {
        apply(Content(map.data.unwrap_or_default()));
    }
    loop {
        let path = format!(
            "{LIST}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        );
        let mut events = api.watch(&path).await.map_err(|failure| failure.text)?;
        let mut received_event = false;
        while let Some(line) = events.next().await {
            let event: Event = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
            match event.kind.as_str() {
                "ADDED" | "MODIFIED" => apply(Content(event.object.data.unwrap_or_default())),
                "DELETED" | "BOOKMARK" => {}
                // Usually a 410 Gone: the next list returns the current state.
                _ => return Ok(()),
            }
            version = event.object.metadata.resource_version;
            received_event = true;
            *backoff = INITIAL_BACKOFF;
        }
        if !received_event {
            // The watch ended without an event: wait before the next one.
            sleep(INITIAL_BACKOFF).await;
        }
    }
}
