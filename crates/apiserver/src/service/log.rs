//! The request log, for tests and debugging; bounded in number and size.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::kernel::{Answer, Reply, Request};

/// Maximum total size of the logged bodies and targets.
const BODIES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedRequest {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// `User-Agent` header, or empty.
    pub user_agent: String,
    /// The body of a write; empty for reads.
    pub body: Bytes,
    /// Name of the user, or empty if authentication failed.
    pub user: String,
    /// `get`, `list`, `watch`, `create`…; the lower-case method for non-resource paths.
    pub verb: String,
    /// `resource.group/subresource` as authorization names it; empty for non-resource paths.
    pub resource: String,
    /// HTTP status code of the response.
    pub code: u16,
}

impl LoggedRequest {
    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The latest requests.
pub(super) struct RequestLog {
    requests: VecDeque<LoggedRequest>,
    limit: usize,
    bytes: usize,
}

impl RequestLog {
    /// Keeps up to `limit` requests; 0 disables the log.
    pub(super) fn new(limit: usize) -> RequestLog {
        RequestLog { requests: VecDeque::new(), limit, bytes: 0 }
    }

    /// The requests, oldest first.
    pub(super) fn requests(&self) -> Vec<LoggedRequest> {
        self.requests.iter().cloned().collect()
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.bytes = 0;
    }

    pub(super) fn record(&mut self, request: &Request, answer: &Answer) {
        if self.limit == 0 {
            return;
        }
        let target = if request.query.is_empty() {
            request.path.clone()
        } else {
            format!("{}?{}", request.path, request.query)
        };
        let body = if request.method == Method::GET { Bytes::new() } else { request.body.clone() };
        self.bytes += body.len() + target.len();
        self.requests.push_back(LoggedRequest {
            method: request.method.clone(),
            target,
            user_agent: request.user_agent.clone(),
            body,
            user: answer.user.as_ref().map(|user| user.name.clone()).unwrap_or_default(),
            verb: answer.verb.clone(),
            resource: answer.resource.clone(),
            code: match &answer.reply {
                Reply::Document(document) => document.code,
                Reply::Watch { .. } => 200,
            },
        });
        while self.requests.len() > self.limit || self.bytes > BODIES_BYTES_MAX {
            let Some(oldest) = self.requests.pop_front() else { break };
            self.bytes -= oldest.body.len() + oldest.target.len();
        }
    }
}
