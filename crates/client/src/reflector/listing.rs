//! Lists once and as of now: all or nothing, page by page, holding one object's text at a time.

use keleustes_objects::{ApiError, Encoded, ErrorReason};
use kube::Client;
use tokio::time::Instant;

use super::ListWatch;
use super::decode;
use super::driver::{PAGE_WITHIN, chunk};
use super::pieces::Items;
use super::policy::{Ask, PAGE_OBJECTS};
use crate::writes::unreadable;

/// One page: its objects, and where the next one starts.
struct Page<T> {
    objects: Vec<T>,
    next: Option<String>,
}

impl<T> ListWatch<T> {
    /// Lists the newest state, at most so many objects of it.
    ///
    /// # Errors
    /// Whatever kept the list from being read as a whole. An object that cannot be read is such a
    /// reason: a list without it would say that it is not there.
    pub async fn list(&self, client: &Client, at_most: Option<u32>) -> Result<Vec<T>, ApiError> {
        match self.list_by(client, Some(PAGE_OBJECTS), at_most).await {
            // The pages are those of one moment, which the server has forgotten while they were read.
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
            let ask = Ask::List { version: String::new(), limit, continue_token };
            let page = self.page(client, &ask).await?;
            objects.extend(page.objects);
            continue_token = page.next;
            let enough = at_most.is_some_and(|all| objects.len() >= all as usize);
            if continue_token.is_none() || enough {
                return Ok(objects);
            }
        }
    }

    async fn page(&self, client: &Client, ask: &Ask) -> Result<Page<T>, ApiError> {
        let deadline = Instant::now() + PAGE_WITHIN;
        let call = self.call(ask);
        let late =
            |_| Err(ApiError::transport(ErrorReason::ConnectionLost, format!("no answer to {call} in time")));
        let mut body =
            tokio::time::timeout_at(deadline, call.open(client)).await.unwrap_or_else(late)?.into_body();
        let (mut items, mut objects, mut bad) = (Items::default(), Vec::new(), false);
        while let Some(received) = chunk(&mut body, deadline).await? {
            let cut = items.push(&received, |text| {
                match std::str::from_utf8(text).map(|text| (self.decode)(Encoded::Json(text))) {
                    Ok(Ok(object)) => objects.push(object),
                    _ => bad = true,
                }
            });
            cut.map_err(|malformed| unreadable(&malformed.to_string()))?;
        }
        let envelope = items.finish().map_err(|malformed| unreadable(&malformed.to_string()))?;
        let (_, next) = decode::envelope(&envelope)?;
        if bad {
            return Err(unreadable(&format!("an object of {} cannot be read", self.resource)));
        }
        Ok(Page { objects, next })
    }
}

#[cfg(test)]
mod tests {
    use keleustes_apiserver::{ApiServer, FaultRule, Faults, InjectedFault};
    use keleustes_objects::{Kind as _, Object as _, PartialObjectMeta, ServiceAccount};
    use serde_json::json;
    use tower::Layer as _;

    use super::*;

    fn world(accounts: usize) -> (ApiServer, Faults, Client) {
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
    async fn all_pages_make_one_list() {
        let (server, _, client) = world(1201);
        let listed = metadata().list(&client, None).await.unwrap();
        assert_eq!(listed.len(), 1201);
        assert_eq!(&*listed[1200].key().name, "n1200");
        assert_eq!(listed[0].meta.finalizers[0], "hold/it");
        assert_eq!(targets(&server).len(), 3);
        let elsewhere = metadata().in_namespace("kube-system").list(&client, None).await.unwrap();
        assert_eq!(elsewhere, []);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_asked_for_than_is_wanted() {
        let (server, _, client) = world(3);
        assert_eq!(metadata().list(&client, Some(1)).await.unwrap().len(), 1);
        assert_eq!(targets(&server), ["/api/v1/namespaces/default/serviceaccounts?limit=1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn pages_of_a_forgotten_moment_are_given_up_for_one_whole_list() {
        let (server, faults, client) = world(501);
        let gone = InjectedFault::status(410, "Expired", "too old");
        faults.add(FaultRule::new(gone).target("continue="));
        assert_eq!(metadata().list(&client, None).await.unwrap().len(), 501);
        assert_eq!(targets(&server).last().unwrap(), "/api/v1/namespaces/default/serviceaccounts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_whole_or_a_failure() {
        let (_, faults, client) = world(501);
        faults.add(FaultRule::new(InjectedFault::status(500, "InternalError", "boom")).target("continue="));
        assert_eq!(metadata().list(&client, None).await.unwrap_err().code, 500);
        let body = json!({"kind": "PartialObjectMetadataList", "items": [{"metadata": {"name": 7}}]});
        faults.add(FaultRule::new(InjectedFault::RawBody { code: 200, body: body.to_string().into() }));
        assert_eq!(metadata().list(&client, None).await.unwrap_err().reason, ErrorReason::UnreadableResponse);
    }
}
