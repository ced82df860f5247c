//! A transport with the credentials of an exec plugin. The plugin is called when credentials are first
//! needed, when they have expired, and when the server responds with 401.
//!
//! Parity: `client-go/plugin/pkg/client/auth/exec`.

mod command;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use keleustes_objects::{ApiError, ErrorReason};
use kube::client::Body;
use kube::config::ExecConfig;
use tower::{BoxError, Service, ServiceExt as _};

pub(super) use self::command::PluginError;
use self::command::{ClientKeyPair, Credentials, ExecPlugin};
use super::http_transport::TransportConfig;
use crate::layers::{ResponseBody, Token, Transport};

/// A transport with the credentials of an exec plugin.
#[derive(Clone)]
pub(super) struct ExecTransport(Arc<Shared>);

struct Shared {
    plugin: ExecPlugin,
    config: TransportConfig,
    /// The kubeconfig that configures the plugin.
    origin: String,
    /// Locked while the plugin runs, so that concurrent requests cause one call.
    current: tokio::sync::Mutex<Option<CurrentCredentials>>,
}

/// The credentials in use.
#[derive(Clone)]
struct CurrentCredentials {
    /// The client certificate is presented when a connection opens, so each certificate has its own
    /// transport.
    transport: Transport,
    token: Option<Token>,
    key_pair: Option<ClientKeyPair>,
    expires_at: Option<Timestamp>,
    /// Increases with every renewal.
    sequence: u64,
}

/// The credentials, unless they have expired.
fn valid(current: Option<&CurrentCredentials>) -> Option<CurrentCredentials> {
    let is_valid = |end: Timestamp| Timestamp::now() <= end;
    current.filter(|credentials| credentials.expires_at.is_none_or(is_valid)).cloned()
}

impl ExecTransport {
    pub(super) fn new(exec: &ExecConfig, config: TransportConfig, origin: &str) -> Self {
        let origin = origin.to_owned();
        let current = tokio::sync::Mutex::default();
        Self(Arc::new(Shared { plugin: ExecPlugin::new(exec), config, origin, current }))
    }

    /// Ensures that there are credentials, by calling the plugin if needed.
    ///
    /// # Errors
    /// If the plugin returns no usable credentials.
    pub(super) async fn prefetch_credentials(&self) -> Result<(), PluginError> {
        self.0.current().await.map(|_| ())
    }
}

/// Runs a call of the plugin to its end, also if the request that needs it is given up: a renewal of the Lease waits for a
/// few seconds only, and would start a slow plugin again and again.
async fn to_the_end<T: Send + 'static>(call: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(call).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The async runtime is shutting down.
            Err(_) => std::future::pending().await,
        },
    }
}

impl Shared {
    async fn current(self: &Arc<Self>) -> Result<CurrentCredentials, PluginError> {
        if let Some(credentials) = valid(self.current.lock().await.as_ref()) {
            return Ok(credentials);
        }
        let shared = Arc::clone(self);
        to_the_end(async move {
            let mut current = shared.current.lock().await;
            match valid(current.as_ref()) {
                Some(credentials) => Ok(credentials),
                None => shared.renew(&mut current).await,
            }
        })
        .await
    }

    /// Renews credentials that the server refused, unless another request already did. The old ones stay in
    /// use if the plugin fails: the server may be at fault.
    async fn replace_refused(self: Arc<Self>, sequence: u64) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|credentials| credentials.sequence == sequence)
            && let Err(error) = self.renew(&mut current).await
        {
            tracing::error!(origin = %self.origin, %error, "cannot replace credentials refused with 401");
        }
    }

    async fn renew(
        &self,
        current: &mut Option<CurrentCredentials>,
    ) -> Result<CurrentCredentials, PluginError> {
        let Credentials { token, key_pair, expires_at } = self.plugin.call(&self.config.observer).await?;
        let sequence = current.as_ref().map_or(0, |old| old.sequence + 1);
        let transport = match current {
            Some(old) if old.key_pair == key_pair => old.transport.clone(),
            _ => self.transport(key_pair.as_ref())?,
        };
        self.notify(current.as_ref().and_then(|old| old.key_pair.as_ref()), key_pair.as_ref());
        Ok(current.insert(CurrentCredentials { transport, token, key_pair, expires_at, sequence }).clone())
    }

    fn transport(&self, key_pair: Option<&ClientKeyPair>) -> Result<Transport, PluginError> {
        let mut config = self.config.clone();
        if let Some(key_pair) = key_pair {
            let user = &mut config.config.auth_info;
            user.client_certificate_data = Some(STANDARD.encode(&key_pair.certificate));
            user.client_key_data = Some(STANDARD.encode(&key_pair.key).into());
        }
        config.open().map_err(PluginError::BadKeyPair)
    }

    fn notify(&self, old: Option<&ClientKeyPair>, new: Option<&ClientKeyPair>) {
        self.config.observer.notify(|observer| {
            if let Some(old) = old.filter(|old| Some(*old) != new) {
                let age = Timestamp::now().duration_since(old.not_before);
                observer.exec_plugin_certificate_rotated(Duration::try_from(age).unwrap_or_default());
            }
            observer.exec_plugin_certificate_expires(&self.origin, new.map(|key_pair| key_pair.expires_at));
        });
    }
}

impl Service<Request<Body>> for ExecTransport {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let current = shared.current().await;
            let current =
                current.map_err(|error| ApiError::transport(ErrorReason::Unauthorized, error.to_string()))?;
            if let Some(token) = &current.token {
                request.headers_mut().insert(AUTHORIZATION, token.header());
            }
            let response = current.transport.oneshot(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                to_the_end(shared.replace_refused(current.sequence)).await;
            }
            Ok(response)
        })
    }
}
