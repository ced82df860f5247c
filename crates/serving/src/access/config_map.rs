//! What the cluster says about whom to believe: one ConfigMap, read at the start and followed from then on.

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use tokio::time::sleep;

use super::api::{ApiServerClient, Failure};
use super::trust::{Authority, Headers, Proxies};

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
/// Reading by name is all that the usual role allows, also in lists.
const LIST: &str = "/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dextension-apiserver-authentication";
const WATCH_SECONDS: u32 = 400;
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

const CLIENT_CA: &str = "client-ca-file";
const PROXY_CA: &str = "requestheader-client-ca-file";

/// The ConfigMap's data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content(BTreeMap<String, String>);

impl Content {
    /// The CA whose certificates name users; `None` if it is not told.
    pub(super) fn clients(&self) -> Result<Option<Authority>, String> {
        self.authority(CLIENT_CA)
    }

    /// The proxies that name users; `None` if none are told.
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
            Some(text) => serde_json::from_str(text).map_err(|error| format!("{key} is no list: {error}")),
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

/// Reads it; `None` if it is not there.
pub(super) async fn read(api: &ApiServerClient) -> Result<Option<Content>, String> {
    match api.get(PATH).await {
        Ok(body) => {
            let map: ConfigMap = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
            Ok(Some(Content(map.data.unwrap_or_default())))
        }
        Err(Failure { code: Some(StatusCode::NOT_FOUND), .. }) => Ok(None),
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

/// Tells every state of it from now on; never ends. That it was deleted is not told: better to believe
/// those believed so far than to shut everybody out.
pub(super) async fn follow(api: &ApiServerClient, mut tell: impl FnMut(Content)) {
    let mut pause = FIRST_PAUSE;
    loop {
        match list_and_watch(api, &mut tell, &mut pause).await {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "configmap/extension-apiserver-authentication cannot be followed");
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Follows it until the next list is due.
async fn list_and_watch(
    api: &ApiServerClient,
    tell: &mut impl FnMut(Content),
    pause: &mut Duration,
) -> Result<(), String> {
    let body = api.get(LIST).await.map_err(|failure| failure.text)?;
    let list: List = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    let mut version = list.metadata.resource_version;
    for map in list.items {
        tell(Content(map.data.unwrap_or_default()));
    }
    loop {
        let path = format!(
            "{LIST}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        );
        let mut events = api.watch(&path).await.map_err(|failure| failure.text)?;
        let mut seen = false;
        while let Some(line) = events.next().await {
            let event: Event = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
            match event.kind.as_str() {
                "ADDED" | "MODIFIED" => tell(Content(event.object.data.unwrap_or_default())),
                "DELETED" | "BOOKMARK" => {}
                // Mostly that the version is too old: the list tells what was missed.
                _ => return Ok(()),
            }
            version = event.object.metadata.resource_version;
            seen = true;
            *pause = FIRST_PAUSE;
        }
        if !seen {
            // Ends without a word; do not come back at once.
            sleep(FIRST_PAUSE).await;
        }
    }
}
