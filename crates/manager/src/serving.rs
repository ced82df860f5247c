//! The secure port: translates the manager's options into those of the `serving` crate.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use keleustes_client::{ClientFactory, ClientOptions, Connection};
use keleustes_options::{Options, SniCertKey, TlsVersion};
use keleustes_plan::{Controller, DebugPage};
use keleustes_runtime::clock::Random;
use keleustes_runtime::process_context::ProcessContext;
use keleustes_serving::{
    Access, ApiServerClient, AuthenticationOptions, AuthorizationOptions, BrowserLogin, CertificateSource,
    ConnectionLimits, DelegatingClients, FeatureGate, HealthChecks, NamedCertificate, PageOptions, Pages,
    RequestHeaderOptions, Server, ServingOptions, TlsOptions, VersionInfo,
};

use tokio_util::task::AbortOnDropHandle;

use crate::identity;
use crate::logging::Verbosity;

/// The secure port and its pages.
pub(crate) struct ServingHandle {
    /// `None` if the port is disabled or could not be bound.
    pub(crate) server: Option<Server>,
    pub(crate) pages: Pages,
}

/// Opens the secure port; `None` if it is disabled.
///
/// # Errors
/// A certificate, address or kubeconfig is invalid; the error names the flag.
pub(crate) async fn open(
    process: &ProcessContext,
    options: &Options,
    [health, readiness]: [HealthChecks; 2],
    missing: &[&'static str],
    verbosity: &Verbosity,
    browser_login: Option<BrowserLogin>,
) -> anyhow::Result<Option<ServingHandle>> {
    if !options.serving.is_enabled() {
        return Ok(None);
    }
    let registry = process.metrics.registry().clone();
    let access = access(options, process, browser_login).await?;
    let mut page_options = page_options(options, missing, verbosity, &process.random);
    page_options.readiness = Some(readiness);
    let pages = Pages::new(health, registry, SystemTime::now(), page_options);
    let server = Server::bind(&serving(options)?, pages.clone(), access)?;
    Ok(Some(ServingHandle { server, pages }))
}

/// Registers the controllers' debug pages.
pub(crate) fn register_debug_pages<'a>(pages: &Pages, controllers: impl IntoIterator<Item = &'a Controller>) {
    for controller in controllers {
        if let Some(page) = controller.debug_handler.clone() {
            pages.add_debug(controller.name, move |path, query| {
                let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
                answer(page(path, &query))
            });
        }
    }
}

/// An unknown page gets the original's 404 text.
fn answer(shown: Option<DebugPage>) -> Response<Bytes> {
    let (status, content_type, body) = match shown {
        Some(shown) => (StatusCode::OK, shown.content_type, shown.body),
        None => (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "\n".to_owned()),
    };
    let mut answer = Response::new(Bytes::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

pub(crate) fn serving(options: &Options) -> anyhow::Result<ServingOptions> {
    let flags = &options.serving;
    let certificate = match (flags.cert_file.as_str(), flags.cert_dir.as_str()) {
        ("", "") => CertificateSource::Generated,
        ("", directory) => CertificateSource::Directory(directory.into()),
        (certificate, _) => {
            CertificateSource::Files { certificate: certificate.into(), key: flags.key_file.as_str().into() }
        }
    };
    let min_version = match flags.min_version {
        None => "",
        Some(TlsVersion::Tls10) => "VersionTLS10",
        Some(TlsVersion::Tls11) => "VersionTLS11",
        Some(TlsVersion::Tls12) => "VersionTLS12",
        Some(TlsVersion::Tls13) => "VersionTLS13",
    };
    let streams = u32::try_from(flags.http2_max_streams).ok().filter(|streams| *streams > 0);
    let defaults = ConnectionLimits::default();
    Ok(ServingOptions {
        bind_address: flags.bind_address,
        port: u16::try_from(flags.secure_port).context("--secure-port")?,
        certificate,
        sni: flags.sni.iter().map(named_certificate).collect(),
        tls: TlsOptions::parse(min_version, &flags.cipher_suites, &flags.curves)?,
        http2: !flags.disable_http2,
        unauthenticated_http2_dos_mitigation: options.gates.enabled("UnauthenticatedHTTP2DOSMitigation"),
        permit_address_sharing: flags.permit_address_sharing,
        permit_port_sharing: flags.permit_port_sharing,
        limits: ConnectionLimits {
            http2_streams_max: streams.unwrap_or(defaults.http2_streams_max),
            ..defaults
        },
        ..ServingOptions::default()
    })
}

fn named_certificate(sni: &SniCertKey) -> NamedCertificate {
    NamedCertificate {
        certificate: PathBuf::from(&sni.cert_file),
        key: PathBuf::from(&sni.key_file),
        names: sni.names.clone(),
    }
}

/// Delegated authentication and authorization: through the API server that the two kubeconfigs name, or the in-cluster one.
async fn access(
    options: &Options,
    process: &ProcessContext,
    browser_login: Option<BrowserLogin>,
) -> anyhow::Result<Access> {
    let [authentication, authorization] = kubeconfigs(options);
    let delegates = DelegatingClients {
        authentication: delegate(options, process, authentication).await?,
        authorization: delegate(options, process, authorization).await?,
    };
    let (authentication, authorization) = access_options(options);
    let authentication = AuthenticationOptions { browser_login, ..authentication };
    let registry = process.metrics.registry();
    Ok(Access::open(&authentication, &authorization, delegates, registry, process.random.fork()).await?)
}

/// The flags that name kubeconfigs for delegated requests, with their values.
pub(crate) fn kubeconfigs(options: &Options) -> [(&'static str, &str); 2] {
    [
        ("--authentication-kubeconfig", &options.authentication.kubeconfig),
        ("--authorization-kubeconfig", &options.authorization.kubeconfig),
    ]
}

pub(crate) fn access_options(options: &Options) -> (AuthenticationOptions, AuthorizationOptions) {
    let flags = &options.authentication;
    let header = &flags.request_header;
    let some_file = |file: &str| (!file.is_empty()).then(|| PathBuf::from(file));
    let authentication = AuthenticationOptions {
        client_ca_file: some_file(&flags.client_ca_file),
        request_header: RequestHeaderOptions {
            client_ca_file: some_file(&header.client_ca_file),
            allowed_names: header.allowed_names.clone(),
            username_headers: header.username_headers.clone(),
            uid_headers: header.uid_headers.clone(),
            group_headers: header.group_headers.clone(),
            extra_header_prefixes: header.extra_header_prefixes.clone(),
        },
        token_cache_ttl: flags.token_cache_ttl.to_std(),
        skip_lookup: flags.skip_lookup,
        tolerate_lookup_failure: flags.tolerate_lookup_failure,
        browser_login: None,
    };
    let authorization = AuthorizationOptions {
        always_allow_paths: options.authorization.always_allow_paths.clone(),
        allowed_cache_ttl: options.authorization.authorized_ttl.to_std(),
        denied_cache_ttl: options.authorization.unauthorized_ttl.to_std(),
    };
    (authentication, authorization)
}

/// The API server that a kubeconfig names; without a kubeconfig the in-cluster one, if this runs in a pod.
async fn delegate(
    options: &Options,
    process: &ProcessContext,
    (flag, kubeconfig): (&str, &str),
) -> anyhow::Result<Option<ApiServerClient>> {
    let observer = Arc::new(process.metrics.clone());
    // Manifests name one file three times; its connections and its plugin are then shared with the manager.
    let connection = if kubeconfig == options.client.kubeconfig && options.client.master.is_empty() {
        process.factory.connection().clone()
    } else if kubeconfig.is_empty() {
        match Connection::open(None, None, Some(observer.clone())) {
            Ok(connection) => connection,
            Err(_) => return Ok(None),
        }
    } else {
        let named = || format!("{flag}={kubeconfig}");
        let connection =
            Connection::open(Some(kubeconfig.as_ref()), None, Some(observer.clone())).with_context(named)?;
        connection.prefetch_credentials().await.with_context(named)?;
        connection
    };
    let client_options = ClientOptions { observer: Some(observer), ..ClientOptions::default() };
    let client = ClientFactory::new(connection, client_options).root("delegated-access");
    // Requests are sent here and not on the serving thread: controllers may share their connections.
    let runtime = tokio::runtime::Handle::current();
    Ok(Some(ApiServerClient::from_service(tower::service_fn(move |request: http::Request<bytes::Bytes>| {
        let client = client.clone();
        let sent = async move { client.send(request.map(kube::client::Body::from)).await };
        let sent = AbortOnDropHandle::new(runtime.spawn(sent));
        async move { Ok::<_, tower::BoxError>(sent.await??) }
    }))))
}

pub(crate) fn page_options(
    options: &Options,
    missing: &[&'static str],
    verbosity: &Verbosity,
    random: &Random,
) -> PageOptions {
    let verbosity = verbosity.clone();
    let features = options.gates.all().map(|gate| FeatureGate {
        name: gate.name.to_owned(),
        stage: gate.stage.name().to_owned(),
        enabled: gate.enabled,
    });
    let configuration = options.configz();
    // The page nests the fields below the group's name; the options return both.
    let configuration =
        configuration.as_object().and_then(|map| map.values().next()).map(ToString::to_string);
    PageOptions {
        version_info: VersionInfo {
            version: options.reported_version.trim_start_matches('v').to_owned(),
            emulation_version: options.versions.emulation.to_string(),
            min_compatibility_version: options.versions.min_compatibility.to_string(),
            program: identity::program(),
            program_version: identity::VERSION.to_owned(),
            git_commit: identity::COMMIT.to_owned(),
            build_date: option_env!("KELEUSTES_BUILD_DATE").unwrap_or_default().to_owned(),
            ..VersionInfo::default()
        },
        profiling: options.debugging.profiling,
        flags: options.gates.enabled("ComponentFlagz").then(|| options.flagz()),
        statusz: options.gates.enabled("ComponentStatusz"),
        configuration,
        features: features.collect(),
        disabled_metrics: options.metrics.disabled.iter().cloned().collect(),
        missing_controllers: missing.iter().map(|name| (*name).to_owned()).collect(),
        readiness: None,
        set_verbosity: Some(Arc::new(move |level| {
            verbosity.change(level);
            Ok(())
        })),
        rng: random.fork(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    /// Proves GC-105, GC-106.
    #[test]
    fn debug_pages_of_controllers_are_served_and_unknown_ones_are_not_found() {
        let header = |answer: &Response<Bytes>, name| answer.headers()[name].to_str().unwrap().to_owned();
        let shown = answer(Some(DebugPage { content_type: "text/vnd.graphviz", body: "graph".to_owned() }));
        assert_eq!((shown.status(), &shown.body()[..]), (StatusCode::OK, &b"graph"[..]));
        assert_eq!(header(&shown, CONTENT_TYPE), "text/vnd.graphviz");
        assert_eq!(header(&shown, X_CONTENT_TYPE_OPTIONS), "nosniff");
        let nothing = answer(None);
        assert_eq!((nothing.status(), &nothing.body()[..]), (StatusCode::NOT_FOUND, &b"\n"[..]));
        assert_eq!(header(&nothing, CONTENT_TYPE), "text/plain; charset=utf-8");
    }

    /// Proves SRV-11, SRV-17, SRV-100.
    #[test]
    fn flags_and_gates_set_the_limits_of_http2() {
        let serving = |args: &[&str]| serving(&command::read(args.iter().map(Into::into)).unwrap()).unwrap();
        let usual = serving(&[]);
        assert!(usual.http2 && usual.unauthenticated_http2_dos_mitigation);
        assert_eq!(usual.limits.http2_streams_max, 100);
        let other = serving(&[
            "--disable-http2-serving",
            "--http2-max-streams-per-connection=7",
            "--feature-gates=UnauthenticatedHTTP2DOSMitigation=false",
        ]);
        assert!(!other.http2 && !other.unauthenticated_http2_dos_mitigation);
        assert_eq!(other.limits.http2_streams_max, 7);
    }
}
