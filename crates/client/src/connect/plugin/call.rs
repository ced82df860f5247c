//! One call of a credential plugin: what it is told, what it must answer, and what went wrong.
//!
//! What a plugin prints is a secret, even where it makes no sense. It is never quoted.

use std::io::{self, IsTerminal as _};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::connect::observer::{ExecPluginStatus, Told};
use crate::layers::Token;

/// Where a plugin finds what it is told.
const TOLD_IN: &str = "KUBERNETES_EXEC_INFO";
const KIND: &str = "ExecCredential";
/// A plugin that asks nobody is not waited for longer: all requests wait with it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Why a plugin has given no credentials.
#[derive(Debug, thiserror::Error)]
pub(in crate::connect) enum PluginError {
    /// It wants to talk to a person, and there is none.
    #[error(
        "getting credentials: exec plugin cannot support interactive mode: standard input is not a terminal"
    )]
    NobodyToAsk,
    /// It is not there, or cannot be run.
    #[error("getting credentials: exec: {command} cannot be run: {cause}{hint}")]
    CannotRun {
        /// What the kubeconfig names.
        command: String,
        /// What the system says.
        cause: io::Error,
        /// What its author says about getting it.
        hint: String,
    },
    /// It ended with an error, about which it has written to our own standard error.
    #[error("getting credentials: exec: executable {command} failed with {status}")]
    Failed {
        /// What the kubeconfig names.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// It has not ended.
    #[error("getting credentials: exec: executable {command} has not ended within {ANSWERS_WITHIN:?}")]
    Late {
        /// What the kubeconfig names.
        command: String,
    },
    /// It has answered nonsense.
    #[error("getting credentials: exec: executable {command}: {problem}")]
    BadAnswer {
        /// What the kubeconfig names.
        command: String,
        /// What is wrong with the answer.
        problem: String,
    },
    /// Its certificate and key cannot be used.
    #[error("getting credentials: exec plugin returned a certificate and key that cannot be used: {0}")]
    BadPair(#[source] kube::Error),
}

/// What a plugin hands out.
pub(super) struct Credentials {
    pub(super) token: Option<Token>,
    pub(super) identity: Option<Identity>,
    pub(super) ends_at: Option<Timestamp>,
}

/// A client certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) begins_at: Timestamp,
    pub(super) ends_at: Timestamp,
}

/// A plugin as a kubeconfig describes it.
pub(super) struct Plugin {
    command: String,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    api_version: String,
    interactive: ExecInteractiveMode,
    /// What it is told about the server, if it wants to know.
    cluster: Option<ExecAuthCluster>,
    hint: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    kind: &'static str,
    api_version: &'a str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
    interactive: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    expiration_timestamp: Option<Timestamp>,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

impl Plugin {
    /// A plugin that the rules for kubeconfigs have let pass.
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

    /// Runs it and reads what it answers.
    pub(super) async fn ask(&self, told: &Told) -> Result<Credentials, PluginError> {
        let printed = self.run(told).await?;
        self.read(&printed)
            .map_err(|problem| PluginError::BadAnswer { command: self.command.clone(), problem })
    }

    async fn run(&self, told: &Told) -> Result<Vec<u8>, PluginError> {
        let interactive = self.is_interactive()?;
        let mut command = Command::new(&self.command);
        command.args(&self.args).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env(TOLD_IN, self.question(interactive)).kill_on_drop(true);
        command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let patience = if interactive { Duration::MAX } else { ANSWERS_WITHIN };
        // Not `output`, which would keep what it writes to its standard error.
        let ended = async { command.spawn()?.wait_with_output().await };
        let ended = tokio::time::timeout(patience, ended).await;
        let command = self.command.clone();
        let (end, result) = match ended {
            Err(_) => (ExecPluginStatus::ClientInternalError, Err(PluginError::Late { command })),
            Ok(Err(cause)) => {
                let absent =
                    matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
                let end = if absent {
                    ExecPluginStatus::PluginNotFound
                } else {
                    ExecPluginStatus::ClientInternalError
                };
                (end, Err(PluginError::CannotRun { command, cause, hint: self.hint() }))
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
        told.tell(|observer| observer.exec_plugin_called(end));
        result
    }

    fn is_interactive(&self) -> Result<bool, PluginError> {
        match self.interactive {
            ExecInteractiveMode::Never => Ok(false),
            ExecInteractiveMode::IfAvailable => Ok(io::stdin().is_terminal()),
            ExecInteractiveMode::Always if io::stdin().is_terminal() => Ok(true),
            ExecInteractiveMode::Always => Err(PluginError::NobodyToAsk),
        }
    }

    fn question(&self, interactive: bool) -> String {
        let spec = Spec { cluster: self.cluster.as_ref(), interactive };
        let question = Question { kind: KIND, api_version: &self.api_version, spec };
        // Text and booleans can always be written.
        serde_json::to_string(&question).unwrap_or_default()
    }

    /// Hints may have several lines; an error has one.
    fn hint(&self) -> String {
        let words = self.hint.iter().flat_map(|hint| hint.split_whitespace());
        let hint = words.collect::<Vec<_>>().join(" ");
        if hint.is_empty() { hint } else { format!("; {hint}") }
    }

    fn read(&self, printed: &[u8]) -> Result<Credentials, String> {
        let answer: Answer = serde_json::from_slice(printed)
            .or_else(|_| serde_saphyr::from_slice(printed).map_err(|_| ()))
            .map_err(|()| "what it has printed is no ExecCredential".to_owned())?;
        if answer.kind != KIND || answer.api_version != self.api_version {
            return Err(format!("it must answer with an ExecCredential of version {}", self.api_version));
        }
        let status = answer.status.ok_or("it has answered without a status")?;
        let pair = (status.client_certificate_data, status.client_key_data);
        let identity = match (pair.0.is_empty(), pair.1.is_empty()) {
            (true, true) if status.token.is_empty() => {
                return Err("it has answered with neither a token nor a certificate and key".to_owned());
            }
            (true, true) => None,
            (false, false) => Some(Identity::read(pair.0, pair.1)?),
            _ => return Err("it has answered with a certificate or a key and not with both".to_owned()),
        };
        let token = match status.token.as_str() {
            "" => None,
            token => Some(Token::new(token).ok_or("its token cannot be sent")?),
        };
        Ok(Credentials { token, identity, ends_at: status.expiration_timestamp })
    }
}

impl Identity {
    fn read(certificate: String, key: String) -> Result<Self, String> {
        let unreadable = || "its certificate cannot be read".to_owned();
        let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|_| unreadable())?;
        let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).map_err(|_| unreadable())?;
        let validity = leaf.validity();
        let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
        let (begins_at, ends_at) =
            time(validity.not_before).zip(time(validity.not_after)).ok_or_else(unreadable)?;
        Ok(Self { certificate, key, begins_at, ends_at })
    }
}
