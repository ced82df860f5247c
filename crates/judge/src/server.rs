//! One of the two servers, and how requests are sent to it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT, WARNING};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use keleustes_client::layers::{ResponseBody, Transport};
use kube::client::Body;
use serde_json::Value;
use tower::{Service as _, ServiceExt as _};

use crate::normalize::{Answer, is_periodic_bookmark};
use crate::sequence::ConcreteRequest;

/// How long a response may take. Some rejections of the real server take three seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server.
#[derive(Clone)]
pub struct Server {
    transport: Transport,
}

/// The reply to a request.
pub enum Reply {
    /// A complete response.
    Answer(Answer),
    /// A stream of watch events.
    Stream(Stream),
}

impl Server {
    /// The server at the other end of `transport`.
    #[must_use]
    pub fn new(transport: Transport) -> Server {
        Server { transport }
    }

    /// Sends a request; the reply to a successful watch is a stream.
    ///
    /// # Errors
    /// If there is no response in time.
    pub async fn ask(&self, request: &ConcreteRequest, watch: bool) -> anyhow::Result<Reply> {
        let mut http_request = Request::builder()
            .method(request.method.clone())
            .uri(&request.target)
            .header(USER_AGENT, "judge/1");
        if !request.accept.is_empty() {
            http_request = http_request.header(ACCEPT, request.accept);
        }
        if !request.content_type.is_empty() {
            http_request = http_request.header(CONTENT_TYPE, request.content_type);
        }
        if !request.user.is_empty() {
            http_request = http_request.header("Impersonate-User", request.user);
        }
        let http_request = http_request.body(Body::from(request.body.clone()))?;
        let mut transport = self.transport.clone();
        let answer = async {
            let ready = transport.ready().await.map_err(|error| anyhow!(error))?;
            let response = ready.call(http_request).await.map_err(|error| anyhow!(error))?;
            if watch && response.status().is_success() {
                return Ok(Reply::Stream(Stream { body: response.into_body(), rest: Vec::new() }));
            }
            collect_response(response).await.map(Reply::Answer)
        };
        let late = || format!("no answer to {} {} within {TIMEOUT:?}", request.method, request.target);
        tokio::time::timeout(TIMEOUT, answer).await.with_context(late)?
    }

    /// Sends a request that is not a watch.
    ///
    /// # Errors
    /// If there is no response in time.
    pub async fn answer(&self, request: &ConcreteRequest) -> anyhow::Result<Answer> {
        match self.ask(request, false).await? {
            Reply::Answer(answer) => Ok(answer),
            Reply::Stream(_) => Err(anyhow!("{} was not asked to stream", request.target)),
        }
    }
}

async fn collect_response(response: Response<ResponseBody>) -> anyhow::Result<Answer> {
    let (parts, body) = response.into_parts();
    let mut headers = BTreeMap::new();
    for name in [CONTENT_TYPE, RETRY_AFTER, WARNING] {
        let values: Vec<&str> = parts.headers.get_all(&name).iter().filter_map(|v| v.to_str().ok()).collect();
        if !values.is_empty() {
            headers.insert(name.to_string(), values.join(", "));
        }
    }
    let bytes = body.collect().await.map_err(|error| anyhow!(error))?.to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
    Ok(Answer { code: parts.status.as_u16(), headers, body })
}

/// The events of a watch.
pub struct Stream {
    body: ResponseBody,
    /// Bytes after the last complete line.
    rest: Vec<u8>,
}

impl Stream {
    /// Returns `count` events, or fewer if none arrives for `idle_timeout`. Periodic bookmarks do not
    /// count.
    pub async fn events(&mut self, count: usize, idle_timeout: Duration) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let frame = match tokio::time::timeout(idle_timeout, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                // The stream has ended, is broken, or is idle.
                _ => break,
            };
            self.rest.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event = serde_json::from_slice(&line)
                    .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&line).into_owned()));
                events.extend((!is_periodic_bookmark(&event)).then_some(event));
            }
        }
        events
    }
}
