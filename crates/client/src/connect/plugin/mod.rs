//! A way to the server with the credentials of a plugin, which is asked when they are first needed, when they
//! have run out, and when the server does not accept them.
//!
//! Parity: `client-go/plugin/pkg/client/auth/exec`.

mod call;
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

pub(super) use self::call::PluginError;
use self::call::{Credentials, Identity, Plugin};
use super::way::Route;
use crate::layers::{ResponseBody, Token, Transport};

/// A way with the credentials of a plugin.
#[derive(Clone)]
pub(super) struct Plugged(Arc<Shared>);

struct Shared {
    plugin: Plugin,
    route: Route,
    /// The kubeconfig that names the plugin.
    origin: String,
    /// Locked while the plugin runs, so that many requests that need credentials ask once.
    held: tokio::sync::Mutex<Option<Held>>,
}

/// What is shown to the server now.
#[derive(Clone)]
struct Held {
    /// A certificate is shown when a connection opens, so each has connections of its own.
    transport: Transport,
    token: Option<Token>,
    identity: Option<Identity>,
    ends_at: Option<Timestamp>,
    /// Tells these credentials from those before and after them.
    number: u64,
}

impl Plugged {
    pub(super) fn new(exec: &ExecConfig, route: Route, origin: &str) -> Self {
        let origin = origin.to_owned();
        let held = tokio::sync::Mutex::default();
        Self(Arc::new(Shared { plugin: Plugin::new(exec), route, origin, held }))
    }

    /// Has credentials, if need be from the plugin.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn prefetch_credentials(&self) -> Result<(), PluginError> {
        self.0.current().await.map(|_| ())
    }
}

impl Shared {
    async fn current(&self) -> Result<Held, PluginError> {
        let mut held = self.held.lock().await;
        match &*held {
            Some(known) if known.ends_at.is_none_or(|end| Timestamp::now() <= end) => Ok(known.clone()),
            _ => self.renew(&mut held).await,
        }
    }

    /// Asks for others in place of credentials that were refused, unless that has happened already. They stay
    /// in use if there are no others: the server may be the one that is wrong.
    async fn replace(&self, number: u64) {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|known| known.number == number)
            && let Err(error) = self.renew(&mut held).await
        {
            tracing::error!(origin = %self.origin, %error, "refused credentials could not be replaced");
        }
    }

    async fn renew(&self, held: &mut Option<Held>) -> Result<Held, PluginError> {
        let Credentials { token, identity, ends_at } = self.plugin.ask(&self.route.told).await?;
        let number = held.as_ref().map_or(0, |old| old.number + 1);
        let transport = match held {
            Some(old) if old.identity == identity => old.transport.clone(),
            _ => self.transport(identity.as_ref())?,
        };
        self.tell(held.as_ref().and_then(|old| old.identity.as_ref()), identity.as_ref());
        Ok(held.insert(Held { transport, token, identity, ends_at, number }).clone())
    }

    fn transport(&self, identity: Option<&Identity>) -> Result<Transport, PluginError> {
        let mut route = self.route.clone();
        if let Some(identity) = identity {
            let user = &mut route.config.auth_info;
            user.client_certificate_data = Some(STANDARD.encode(&identity.certificate));
            user.client_key_data = Some(STANDARD.encode(&identity.key).into());
        }
        route.open().map_err(PluginError::BadPair)
    }

    fn tell(&self, old: Option<&Identity>, new: Option<&Identity>) {
        self.route.told.tell(|observer| {
            if let Some(old) = old.filter(|old| Some(*old) != new) {
                let age = Timestamp::now().duration_since(old.begins_at);
                observer.exec_plugin_certificate_rotated(Duration::try_from(age).unwrap_or_default());
            }
            observer.exec_plugin_certificate_expires(&self.origin, new.map(|identity| identity.ends_at));
        });
    }
}

impl Service<Request<Body>> for Plugged {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let held = shared.current().await;
            let held =
                held.map_err(|error| ApiError::transport(ErrorReason::Unauthorized, error.to_string()))?;
            if let Some(token) = &held.token {
                request.headers_mut().insert(AUTHORIZATION, token.header());
            }
            let response = held.transport.oneshot(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                shared.replace(held.number).await;
            }
            Ok(response)
        })
    }
}
