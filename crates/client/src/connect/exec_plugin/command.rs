//! One call of an exec plugin: its input, its output and its errors.
//!
//! The plugin's output is a secret even if it is malformed. It is never quoted.

use std::io::{self, IsTerminal as _};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::connect::observer::{ExecPluginStatus, ObserverHandle};
use crate::layers::Token;

/// The environment variable with the plugin's input.
const EXEC_INFO_VARIABLE: &str = "KUBERNETES_EXEC_INFO";
const KIND: &str = "ExecCredential";
/// The timeout of a non-interactive plugin. All requests wait while it runs.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Why an exec plugin returned no usable credentials.
#[derive(Debug, thiserror::Error)]
pub(in crate::connect) enum PluginError {
    /// The plugin is interactive and standard input is not a terminal.
    #[error(
        "getting credentials: exec plugin cannot support interactive mode: standard input is not a terminal"
    )]
    NotATerminal,
    /// The executable is missing or cannot be run.
    #[error("getting credentials: exec: {command} cannot be run: {cause}{hint}")]
    CannotRun {
        /// The command from the kubeconfig.
        command: String,
        /// The system's error.
        cause: io::Error,
        /// The `installHint`.
        hint: String,
    },
    /// The plugin failed. Its own message went to this process's standard error.
    #[error("getting credentials: exec: executable {command} failed with {status}")]
    Failed {
        /// The command from the kubeconfig.
        command: String,
        /// The exit status.
        status: ExitStatus,
    },
    /// The plugin did not end in time.
    #[error("getting credentials: exec: executable {command} has not ended within {PLUGIN_TIMEOUT:?}")]
    TimedOut {
        /// The command from the kubeconfig.
        command: String,
    },
    /// The output is not a valid ExecCredential.
    #[error("getting credentials: exec: executable {command}: {problem}")]
    BadOutput {
        /// The command from the kubeconfig.
        command: String,
        /// The problem.
        problem: String,
    },
    /// The returned certificate and key cannot be used.
    #[error("getting credentials: exec plugin returned a certificate and key that cannot be used: {0}")]
    BadKeyPair(#[source] kube::Error),
}

/// The credentials that a plugin returned.
pub(super) struct Credentials {
    pub(super) token: Option<Token>,
    pub(super) key_pair: Option<ClientKeyPair>,
    pub(super) expires_at: Option<Timestamp>,
}

/// A client certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ClientKeyPair {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) not_before: Timestamp,
    pub(super) expires_at: Timestamp,
}

/// An exec plugin as configured in a kubeconfig.
pub(super) struct ExecPlugin {
    command: String,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    api_version: String,
    interactive: ExecInteractiveMode,
    /// Cluster information for the plugin, if `provideClusterInfo` is set.
    cluster: Option<ExecAuthCluster>,
    hint: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialRequest<'a> {
    kind: &'static str,
    api_version: &'a str,
    spec: ExecCredentialSpec<'a>,
}

#[derive(Serialize)]
struct ExecCredentialSpec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
    interactive: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ExecCredentialStatus {
    expiration_timestamp: Option<Timestamp>,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

impl ExecPlugin {
    /// A plugin from a validated kubeconfig.
    pub(super) fn new(exec: &ExecConfig) -> Self {
        let variable = |entry: &std::collections::HashMap<String, String>| {
            Some((entry.get("name")?.clone(), entry.get("value")?.clone()))
        };
        Self {
            command: exec.command.clone().unwrap_or_default(),
            args: exec.args.clone().unwrap_or_default(),
            variables: exec.env.iter().flatten().filter_map(variable).collect(),
            api_version: exec.api_version.clone().unwrap_or_default(),
            interactive: exec.interactive_mode.clone().unwrap_or(ExecInteractiveMode::IfAvailable),
            cluster: exec.cluster.clone().filter(|_| exec.provide_cluster_info),
            hint: exec.install_hint.clone(),
        }
    }

    /// Runs the plugin and parses its output.
    pub(super) async fn call(&self, observer: &ObserverHandle) -> Result<Credentials, PluginError> {
        let output = self.run(observer).await?;
        self.parse(&output)
            .map_err(|problem| PluginError::BadOutput { command: self.command.clone(), problem })
    }

    async fn run(&self, observer: &ObserverHandle) -> Result<Vec<u8>, PluginError> {
        let interactive = self.is_interactive()?;
        let mut command = Command::new(&self.command);
        command.args(&self.args).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env(EXEC_INFO_VARIABLE, self.exec_info(interactive)).kill_on_drop(true);
        command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let timeout = if interactive { Duration::MAX } else { PLUGIN_TIMEOUT };
        // Not `output`, which would capture the plugin's standard error.
        let result = async { command.spawn()?.wait_with_output().await };
        let result = tokio::time::timeout(timeout, result).await;
        let command = self.command.clone();
        let (status, result) = match result {
            Err(_) => (ExecPluginStatus::ClientInternalError, Err(PluginError::TimedOut { command })),
            Ok(Err(cause)) => {
                let not_found =
                    matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
                let status = if not_found {
                    ExecPluginStatus::PluginNotFound
                } else {
                    ExecPluginStatus::ClientInternalError
                };
                (status, Err(PluginError::CannotRun { command, cause, hint: self.hint() }))
            }
            Ok(Ok(output)) if output.status.success() => (ExecPluginStatus::NoError, Ok(output.stdout)),
            Ok(Ok(output)) => {
                let status = output.status;
                (
                    ExecPluginStatus::ExecutionError(status.code().unwrap_or(-1)),
                    Err(PluginError::Failed { command, status }),
                )
            }
        };
        observer.notify(|observer| observer.exec_plugin_called(status));
        result
    }

    fn is_interactive(&self) -> Result<bool, PluginError> {
        match self.interactive {
            ExecInteractiveMode::Never => Ok(false),
            ExecInteractiveMode::IfAvailable => Ok(io::stdin().is_terminal()),
            ExecInteractiveMode::Always if io::stdin().is_terminal() => Ok(true),
            ExecInteractiveMode::Always => Err(PluginError::NotATerminal),
        }
    }

    fn exec_info(&self, interactive: bool) -> String {
        let spec = ExecCredentialSpec { cluster: self.cluster.as_ref(), interactive };
        let exec_info = ExecCredentialRequest { kind: KIND, api_version: &self.api_version, spec };
        // Strings and booleans always serialize.
        serde_json::to_string(&exec_info).unwrap_or_default()
    }

    /// The `installHint` on one line, as an error message needs it.
    fn hint(&self) -> String {
        let words = self.hint.iter().flat_map(|hint| hint.split_whitespace());
        let hint = words.collect::<Vec<_>>().join(" ");
        if hint.is_empty() { hint } else { format!("; {hint}") }
    }

    fn parse(&self, output: &[u8]) -> Result<Credentials, String> {
        let credential: ExecCredential = serde_json::from_slice(output)
            .or_else(|_| serde_saphyr::from_slice(output).map_err(|_| ()))
            .map_err(|()| "its output is not an ExecCredential".to_owned())?;
        if credential.kind != KIND || credential.api_version != self.api_version {
            return Err(format!("it must answer with an ExecCredential of version {}", self.api_version));
        }
        let status = credential.status.ok_or("its ExecCredential has no status")?;
        let pair = (status.client_certificate_data, status.client_key_data);
        let key_pair = match (pair.0.is_empty(), pair.1.is_empty()) {
            (true, true) if status.token.is_empty() => {
                return Err("its ExecCredential has neither a token nor a certificate and key".to_owned());
            }
            (true, true) => None,
            (false, false) => Some(ClientKeyPair::parse(pair.0, pair.1)?),
            _ => return Err("its ExecCredential has a certificate or a key but not both".to_owned()),
        };
        let token = match status.token.as_str() {
            "" => None,
            token => Some(Token::new(token).ok_or("its token is not a valid header value")?),
        };
        Ok(Credentials { token, key_pair, expires_at: status.expiration_timestamp })
    }
}

impl ClientKeyPair {
    fn parse(certificate: String, key: String) -> Result<Self, String> {
        let unreadable = || "its certificate cannot be read".to_owned();
        let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| unreadable())?;
        let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).map_err(|_| unreadable())?;
        let validity = leaf.validity();
        let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
        let (not_before, expires_at) =
            time(validity.not_before).zip(time(validity.not_after)).ok_or_else(unreadable)?;
        Ok(Self { certificate, key, not_before, expires_at })
    }
}
