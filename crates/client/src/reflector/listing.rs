//! Lists the newest state once, in pages. It fails as a whole, and buffers the text of one object at a time.

use keleustes_objects::{ApiError, Encoded, ErrorReason, ResourceVersion};
use kube::Client;
use tokio::time::Instant;

use super::ListWatch;
use super::decode;
use super::driver::{PAGE_TIMEOUT, next_chunk};
use super::framing::ListItems;
use super::policy::{PAGE_OBJECTS, ReflectorRequest};
use crate::call::unreadable_response;

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPage<T> {
    /// The resourceVersion of the list.
    pub resource_version: ResourceVersion,
    /// The objects.
    pub objects: Vec<T>,
    /// The continue token of the next page, if there is one.
    pub next: Option<String>,
}

impl<T> ListWatch<T> {
    /// Lists the newest state, stopping after `at_most` objects.
    ///
    /// # Errors
    /// If any page fails or any object cannot be decoded: a list without that object would claim that it does not
    /// exist.
    pub async fn list(&self, client: &Client, at_most: Option<u32>) -> Result<Vec<T>, ApiError> {
        match self.list_by(client, Some(PAGE_OBJECTS), at_most).await {
            // The continue token has expired (410): list without pages.
            Err(failure) if failure.reason == ErrorReason::Gone => self.list_by(client, None, at_most).await,
            listed => listed,
        }
    }

    async fn list_by(
        &self,
        client: &Client,
        page_objects: Option<u32>,
        at_most: Option<u32>,
    ) -> Result<Vec<T>, ApiError> {
        let (mut objects, mut continue_token) = (Vec::new(), None);
        let limit = match (page_objects, at_most) {
            (Some(page), Some(all)) => Some(page.min(all)),
            (page, all) => page.or(all),
        };
        loop {
            let request = ReflectorRequest::List { version: String::new(), limit, continue_token };
            let page = self.page(client, &request).await?;
            objects.extend(page.objects);
            continue_token = page.next;
            let enough = at_most.is_some_and(|all| objects.len() >= all as usize);
            if continue_token.is_none() || enough {
                return Ok(objects);
            }
        }
    }

    /// Lists one page of the newest state: the first one, or the one of a continue token.
    ///
    /// # Errors
    /// If the request fails, or any object cannot be decoded.
    pub async fn list_page(
        &self,
        client: &Client,
        limit: Option<u32>,
        continue_token: Option<String>,
    ) -> Result<ListPage<T>, ApiError> {
        self.page(client, &ReflectorRequest::List { version: String::new(), limit, continue_token }).await
    }

    async fn page(&self, client: &Client, request: &ReflectorRequest) -> Result<ListPage<T>, ApiError> {
        let deadline = Instant::now() + PAGE_TIMEOUT;
        let call = self.call(request);
        let timed_out = |_| {
            Err(ApiError::transport(ErrorReason::ConnectionLost, format!("no response to {call} in time")))
        };
        let mut body =
            tokio::time::timeout_at(deadline, call.open(client)).await.unwrap_or_else(timed_out)?.into_body();
        let (mut items, mut objects, mut bad) = (ListItems::default(), Vec::new(), false);
        while let Some(received) = next_chunk(&mut body, deadline).await? {
            let split = items.push(&received, |text| {
                match std::str::from_utf8(text).map(|text| self.decoder.decode(Encoded::Json(text))) {
                    Ok(Ok(object)) => objects.push(object),
                    _ => bad = true,
                }
            });
            split.map_err(|error| unreadable_response(&error.to_string()))?;
        }
        let envelope = items.finish().map_err(|error| unreadable_response(&error.to_string()))?;
        let (resource_version, next) = decode::envelope(&envelope)?;
        if bad {
            return Err(unreadable_response(&format!("an object of {} cannot be decoded", self.resource)));
        }
        Ok(ListPage { resource_version, objects, next })
    }
}

#[cfg(test)]
mod tests {
    use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
    use keleustes_objects::{Kind as _, Object as _, PartialObjectMeta, ServiceAccount};
    use serde_json::json;
    use tower::Layer as _;

    use super::*;

    fn test_cluster(accounts: usize) -> (ApiServer, Faults, Client) {
        let (server, faults) = (ApiServer::default(), Faults::new());
        for n in 0..accounts {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"namespace": "default", "name": format!("n{n:04}"), "finalizers": ["hold/it"]}});
            server.seed(account).unwrap();
        }
        let client = Client::new(faults.layer(server.clone()), "default");
        (server, faults, client)
    }

    fn metadata() -> ListWatch<PartialObjectMeta> {
        ListWatch::metadata_of(ServiceAccount::RESOURCE).in_namespace("default")
    }

    fn targets(server: &ApiServer) -> Vec<String> {
        server.requests().into_iter().map(|request| request.target).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn list_combines_all_pages() {
        let (server, _, client) = test_cluster(1201);
        let listed = metadata().list(&client, None).await.unwrap();
        assert_eq!(listed.len(), 1201);
        assert_eq!(&*listed[1200].key().name, "n1200");
        assert_eq!(listed[0].meta.finalizers[0], "hold/it");
        assert_eq!(targets(&server).len(), 3);
        let elsewhere = metadata().in_namespace("kube-system").list(&client, None).await.unwrap();
        assert_eq!(elsewhere, []);
    }

    #[tokio::test(start_paused = true)]
    async fn page_has_the_resource_version_of_the_list_and_the_token_of_the_next_page() {
        let (server, _, client) = test_cluster(3);
        let first = metadata().list_page(&client, Some(2), None).await.unwrap();
        assert_eq!(first.objects.len(), 2);
        assert!(
            !first.objects[1].meta.resource_version.is_older_than(&first.objects[0].meta.resource_version)
        );
        assert!(!first.resource_version.is_older_than(&first.objects[1].meta.resource_version));
        let last = metadata().list_page(&client, Some(2), first.next).await.unwrap();
        assert_eq!((&*last.objects[0].key().name, last.next), ("n0002", None));
        // A namespace that cannot exist is listed, too, for the resourceVersion alone.
        let nowhere =
            metadata().in_namespace("@fake:svm_ns!").list_page(&client, Some(1), None).await.unwrap();
        assert_eq!((nowhere.objects.len(), &nowhere.resource_version), (0, &last.resource_version));
        let path = "/api/v1/namespaces/@fake:svm_ns%21/serviceaccounts?limit=1";
        assert_eq!(targets(&server).last().unwrap(), path);
    }

    #[tokio::test(start_paused = true)]
    async fn limit_is_not_larger_than_at_most() {
        let (server, _, client) = test_cluster(3);
        assert_eq!(metadata().list(&client, Some(1)).await.unwrap().len(), 1);
        assert_eq!(targets(&server), ["/api/v1/namespaces/default/serviceaccounts?limit=1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_continue_token_falls_back_to_a_list_without_pages() {
        let (server, faults, client) = test_cluster(501);
        let gone = InjectedFault::status(410, "Expired", "too old");
        faults.add(FaultRule::new(gone).target("continue="));
        assert_eq!(metadata().list(&client, None).await.unwrap().len(), 501);
        assert_eq!(targets(&server).last().unwrap(), "/api/v1/namespaces/default/serviceaccounts");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_page_or_undecodable_object_fails_the_list() {
        let (_, faults, client) = test_cluster(501);
        faults.add(FaultRule::new(InjectedFault::status(500, "InternalError", "boom")).target("continue="));
        assert_eq!(metadata().list(&client, None).await.unwrap_err().code, 500);
        let body = json!({"kind": "PartialObjectMetadataList", "items": [{"metadata": {"name": 7}}]});
        faults.add(FaultRule::new(InjectedFault::RawBody { code: 200, body: body.to_string().into() }));
        assert_eq!(metadata().list(&client, None).await.unwrap_err().reason, ErrorReason::UnreadableResponse);
    }
}
