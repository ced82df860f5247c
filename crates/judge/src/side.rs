//! One of the two servers, and how it is asked.

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

use crate::normal::{Answer, is_chatter};
use crate::sequence::Concrete;

/// How long an answer may take. Some refusals of the real server take three seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that can be asked.
#[derive(Clone)]
pub struct Side {
    transport: Transport,
}

/// What a server says to a request.
pub enum Reply {
    /// All there is.
    Answer(Answer),
    /// A stream of events that has begun.
    Stream(Stream),
}

impl Side {
    /// The server at the other end of `transport`.
    #[must_use]
    pub fn new(transport: Transport) -> Side {
        Side { transport }
    }

    /// Asks; a successful watch is a stream.
    ///
    /// # Errors
    /// If no answer comes, which neither server may do.
    pub async fn ask(&self, request: &Concrete, watch: bool) -> anyhow::Result<Reply> {
        let mut built = Request::builder()
            .method(request.method.clone())
            .uri(&request.target)
            .header(USER_AGENT, "judge/1");
        if !request.accept.is_empty() {
            built = built.header(ACCEPT, request.accept);
        }
        if !request.content_type.is_empty() {
            built = built.header(CONTENT_TYPE, request.content_type);
        }
        let built = built.body(Body::from(request.body.clone()))?;
        let mut transport = self.transport.clone();
        let answer = async {
            let ready = transport.ready().await.map_err(|error| anyhow!(error))?;
            let response = ready.call(built).await.map_err(|error| anyhow!(error))?;
            if watch && response.status().is_success() {
                return Ok(Reply::Stream(Stream { body: response.into_body(), rest: Vec::new() }));
            }
            whole(response).await.map(Reply::Answer)
        };
        let late = || format!("no answer to {} {} within {PATIENCE:?}", request.method, request.target);
        tokio::time::timeout(PATIENCE, answer).await.with_context(late)?
    }

    /// Asks for something that is no watch.
    ///
    /// # Errors
    /// If no answer comes.
    pub async fn answer(&self, request: &Concrete) -> anyhow::Result<Answer> {
        match self.ask(request, false).await? {
            Reply::Answer(answer) => Ok(answer),
            Reply::Stream(_) => Err(anyhow!("{} was not asked to stream", request.target)),
        }
    }
}

async fn whole(response: Response<ResponseBody>) -> anyhow::Result<Answer> {
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
    /// What came after the last whole line.
    rest: Vec<u8>,
}

impl Stream {
    /// The events that come until there are `wanted`, or until nothing has come for so long. Bookmarks that servers send
    /// when they like are none.
    pub async fn events(&mut self, wanted: usize, quiet: Duration) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < wanted {
            let frame = match tokio::time::timeout(quiet, self.body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                // The end of the stream, a broken one, or silence.
                _ => break,
            };
            self.rest.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event = serde_json::from_slice(&line)
                    .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&line).into_owned()));
                events.extend((!is_chatter(&event)).then_some(event));
            }
        }
        events
    }
}
