//! `kube-controller-manager explain TYPE/NAME`: asks a running manager, over its secure port and with the credentials of
//! the caller's kubeconfig, why an object is as it is. Installed as `kubectl-keleustes` it is a kubectl plugin.

mod yaml;

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http::Method;
use keleustes_client::{Call, ClientFactory, ClientOptions, Connection, OtherServer, ServerTrust};
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::Value;

const HELP: &str = "\
Explains why an object is as it is: what each controller wants of it, what it waits for, what it did.

Usage: kube-controller-manager explain (TYPE/NAME | TYPE NAME) [flags]
       kubectl keleustes explain (TYPE/NAME | TYPE NAME) [flags]

  -n, --namespace NAMESPACE       the namespace; by default that of the kubeconfig's context
  -o, --output FORMAT             text, json or yaml
  -w, --watch                     prints the explanation again whenever it changes
      --kubeconfig FILE           by default $KUBECONFIG or ~/.kube/config; its credentials are used
      --server URL                the secure port of the manager; by default what the kubeconfig names in the
                                  extension keleustes.dev/manager of its cluster, or https://127.0.0.1:10257
      --certificate-authority F   verifies the manager's certificate; by default the CA of the kubeconfig
      --insecure-skip-tls-verify  does not verify the manager's certificate

A manager of kubeadm listens on the loopback of its node. From elsewhere:
  kubectl -n kube-system port-forward pod/kube-controller-manager-NODE 10257
";

/// The extension of a cluster in a kubeconfig that names the manager's secure port.
pub(crate) const EXTENSION: &str = "keleustes.dev/manager";
const DEFAULT_SERVER: &str = "https://127.0.0.1:10257";
const PATH: &str = "/debug/keleustes/explain";
const PLUGIN: &str = "kubectl-keleustes";
/// The flags that take a value.
const TAKE_VALUES: [&str; 8] =
    ["-n", "--namespace", "-o", "--output", "--kubeconfig", "-s", "--server", "--certificate-authority"];
/// How often `--watch` asks.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// What the arguments ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    resource: String,
    name: String,
    namespace: Option<String>,
    pub(crate) output: String,
    pub(crate) watch: bool,
    kubeconfig: Option<PathBuf>,
    server: Option<String>,
    certificate_authority: Option<PathBuf>,
    insecure: bool,
}

/// If the program was called as a kubectl plugin with anything but `explain`, its exit code: a plugin must never become a
/// manager by a typing error.
pub(crate) fn refuse_as_plugin(program: &str, first: Option<&str>) -> Option<ExitCode> {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name != PLUGIN || first == Some("explain") {
        return None;
    }
    if matches!(first, None | Some("help" | "--help" | "-h")) {
        crate::command::say(HELP);
        return Some(ExitCode::SUCCESS);
    }
    eprintln!("Error: unknown command {:?} for \"kubectl keleustes\"\n\n{HELP}", first.unwrap_or_default());
    Some(ExitCode::FAILURE)
}

/// Runs the command.
pub(crate) fn run(args: &[&str]) -> ExitCode {
    run_with(args, HELP, |args| {
        let arguments = Arguments::read(args)?;
        block_on(explain(&arguments))
    })
}

/// Runs a command on an async runtime of its own.
pub(crate) fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

/// Runs a command, or prints its help.
pub(crate) fn run_with(
    args: &[&str],
    help: &str,
    command: impl FnOnce(&[&str]) -> anyhow::Result<()>,
) -> ExitCode {
    if args.iter().any(|arg| matches!(*arg, "--help" | "-h")) {
        crate::command::say(help);
        return ExitCode::SUCCESS;
    }
    match command(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn read(args: &[&str]) -> anyhow::Result<Self> {
        let (mut read, names) = Self::read_flags(args)?;
        (read.resource, read.name) = object_name(&names)?;
        Ok(read)
    }

    /// The flags of all commands that ask a running manager, and the other words.
    pub(crate) fn read_flags<'a>(args: &[&'a str]) -> anyhow::Result<(Self, Vec<&'a str>)> {
        let mut read = Self { output: "text".to_owned(), ..Self::default() };
        let mut names = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if !arg.starts_with('-') {
                names.push(*arg);
                continue;
            }
            let (flag, value) = match arg.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                // `-nshop`, as kubectl takes it.
                None if arg.len() > 2 && !arg.starts_with("--") && arg.is_char_boundary(2) => {
                    (&arg[..2], Some(&arg[2..]))
                }
                None => (*arg, None),
            };
            match flag {
                "-w" | "--watch" => read.watch = value != Some("false"),
                "--insecure-skip-tls-verify" => read.insecure = value != Some("false"),
                // Before a word is taken for its value.
                _ if !TAKE_VALUES.contains(&flag) => bail!("unknown flag: {flag}; --help lists all"),
                _ => {
                    let value = value.or_else(|| args.next().copied());
                    read.set(flag, value.with_context(|| format!("flag needs an argument: {flag}"))?)?;
                }
            }
        }
        Ok((read, names))
    }

    fn set(&mut self, flag: &str, value: &str) -> anyhow::Result<()> {
        match flag {
            "-n" | "--namespace" => self.namespace = Some(value.to_owned()),
            "-o" | "--output" if matches!(value, "text" | "json" | "yaml") => {
                value.clone_into(&mut self.output);
            }
            "-o" | "--output" => bail!(
                "unable to match a printer suitable for the output format {value:?}, allowed formats are: text, json, yaml"
            ),
            "--kubeconfig" => self.kubeconfig = Some(value.into()),
            "--server" | "-s" => self.server = Some(value.to_owned()),
            "--certificate-authority" => self.certificate_authority = Some(value.into()),
            _ => bail!("unknown flag: {flag}; --help lists all"),
        }
        Ok(())
    }

    fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.kubeconfig {
            return Ok(path.clone());
        }
        default_kubeconfig(&std::env::var_os("KUBECONFIG").unwrap_or_default(), std::env::var_os("HOME"))
    }
}

/// The first existing file of `KUBECONFIG`, or the one in the home directory if the variable is empty. If it names missing
/// files only, that file belongs to another cluster: kubectl does not read it either.
fn default_kubeconfig(listed: &OsStr, home: Option<OsString>) -> anyhow::Result<PathBuf> {
    if !listed.is_empty() {
        let found = std::env::split_paths(listed).find(|path| path.exists());
        return found.with_context(|| format!("KUBECONFIG={}: there is no such file", listed.display()));
    }
    let home = home.context("no kubeconfig: set --kubeconfig or KUBECONFIG")?;
    Ok(Path::new(&home).join(".kube/config"))
}

/// Resource and name: `deployment/web`, or `deployment web`.
fn object_name(names: &[&str]) -> anyhow::Result<(String, String)> {
    let (resource, name) = match names {
        [both] => both.split_once('/').with_context(|| {
            format!("arguments in resource/name form must have a single resource and name, such as pod/x: {both:?}")
        })?,
        [resource, name] if !resource.contains('/') && !name.contains('/') => (*resource, *name),
        [] => bail!("which object? for example deployment/web\n\n{HELP}"),
        _ => bail!("one object at a time: {}", names.join(" ")),
    };
    if resource.is_empty() || name.is_empty() || name.contains('/') {
        bail!("arguments in resource/name form must have a single resource and name: {}", names.join(" "));
    }
    Ok((resource.to_owned(), name.to_owned()))
}

/// A running manager, and the namespace of the caller's context.
struct RunningManager {
    client: kube::Client,
    server: OtherServer,
    namespace: Option<String>,
}

/// Connects to the manager that the arguments and the kubeconfig name.
async fn connect(arguments: &Arguments) -> anyhow::Result<RunningManager> {
    if let Some(url) = arguments.server.as_deref().filter(|url| !url.contains("://")) {
        bail!("--server={url} is not a URL, such as {DEFAULT_SERVER}");
    }
    let path = arguments.kubeconfig()?;
    if !path.exists() {
        bail!("kubeconfig {} does not exist", path.display());
    }
    let kubeconfig =
        Kubeconfig::read_from(&path).with_context(|| format!("kubeconfig {}", path.display()))?;
    let context = CallerContext::of(&kubeconfig);
    let server = OtherServer {
        url: arguments.server.clone().or(context.manager).unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
        trust: ServerTrust::Kubeconfig,
    };
    let server = OtherServer { trust: trust(arguments, &server.url, context.is_certificate), ..server };
    let connection = Connection::open_other_server(&path, &server)?;
    connection.prefetch_credentials().await?;
    let client = ClientFactory::new(connection, ClientOptions::default()).root("explain");
    Ok(RunningManager { client, server, namespace: context.namespace })
}

async fn explain(arguments: &Arguments) -> anyhow::Result<()> {
    let manager = connect(arguments).await?;
    let namespace = arguments.namespace.as_ref().or(manager.namespace.as_ref());
    let call = Call::raw(Method::GET, PATH)
        .query("resource", arguments.resource.as_str())
        .query("name", arguments.name.as_str())
        .query("namespace", namespace.map_or("default", String::as_str));
    show(&manager, arguments, call).await
}

/// Asks a running manager for one of its pages, and prints it.
pub(crate) async fn ask(arguments: &Arguments, path: &'static str) -> anyhow::Result<()> {
    show(&connect(arguments).await?, arguments, Call::raw(Method::GET, path)).await
}

/// Prints a page, and again whenever it changes if it is watched.
async fn show(manager: &RunningManager, arguments: &Arguments, call: Call) -> anyhow::Result<()> {
    let RunningManager { client, server, .. } = manager;
    let call = call.query("output", if arguments.output == "text" { "text" } else { "json" });
    let mut last = String::new();
    loop {
        let answer = call.send_for_bytes(client).await;
        let answer = answer.map_err(|error| anyhow!("{}", hint(server, &error.to_string())))?;
        let text = print(&arguments.output, &String::from_utf8_lossy(&answer))?;
        if text != last {
            let separator = if last.is_empty() || arguments.output == "json" { "" } else { "---\n" };
            crate::command::say(&format!("{separator}{text}"));
            last = text;
        }
        if !arguments.watch {
            return Ok(());
        }
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(WATCH_EVERY) => {}
        }
    }
}

/// What the answer looks like to the user.
fn print(output: &str, answer: &str) -> anyhow::Result<String> {
    if output == "text" {
        return Ok(answer.to_owned());
    }
    let value: Value = serde_json::from_str(answer).context("the manager's answer is not JSON")?;
    Ok(match output {
        "yaml" => yaml::text(&value),
        _ => format!("{}\n", serde_json::to_string_pretty(&value)?),
    })
}

/// Adds what the user can do about an error.
fn hint(server: &OtherServer, error: &str) -> String {
    let url = &server.url;
    // The manager is asked as an API server would be.
    let error = error.strip_prefix(&format!("API server {url}: ")).unwrap_or(error);
    let advice = if error.contains("certificate") {
        "its certificate cannot be verified: use --certificate-authority or --insecure-skip-tls-verify"
    } else if error.contains("forbidden") || error.contains("Forbidden") || error.contains("cannot get path")
    {
        "the ClusterRole keleustes-explain in packaging/explain grants it"
    } else if error.contains("without --shadow") {
        "ask the shadow, which has a port of its own: --server"
    } else if error.contains("404") || error.contains("not found") && !error.contains("resource type") {
        "is this a manager that can explain?"
    } else if error.contains("onnection refused") {
        "does a manager listen there? --server names another address, and --help says how to forward its port"
    } else {
        return format!("asking {url}: {error}");
    };
    format!("asking {url}: {error} ({advice})")
}

/// Who vouches for the manager's certificate. It generates one unless it is given one, so on loopback no CA does; a
/// caller that identifies itself by a client certificate gives nothing away to a wrong server, while a token would be
/// stolen.
fn trust(arguments: &Arguments, url: &str, caller_has_certificate: bool) -> ServerTrust {
    if let Some(file) = &arguments.certificate_authority {
        return ServerTrust::CertificateAuthority(file.clone());
    }
    if arguments.insecure || caller_has_certificate && is_loopback(url) {
        return ServerTrust::Anyone;
    }
    ServerTrust::Kubeconfig
}

fn is_loopback(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What the current context of a kubeconfig says.
#[derive(Debug, Default, PartialEq, Eq)]
struct CallerContext {
    namespace: Option<String>,
    manager: Option<String>,
    /// The user is identified by a client certificate and sends no secret.
    is_certificate: bool,
}

impl CallerContext {
    fn of(kubeconfig: &Kubeconfig) -> Self {
        let current = kubeconfig.current_context.as_deref().unwrap_or_default();
        let context = kubeconfig.contexts.iter().find(|named| named.name == current);
        let Some(context) = context.and_then(|named| named.context.as_ref()) else { return Self::default() };
        let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
        let extensions = cluster.and_then(|named| named.cluster.as_ref()?.extensions.as_ref());
        let extension = extensions.and_then(|all| all.iter().find(|extension| extension.name == EXTENSION));
        let manager = extension.and_then(|extension| {
            let value = serde_json::to_value(extension).ok()?;
            Some(value["extension"]["server"].as_str()?.to_owned())
        });
        let user = context.user.as_deref().unwrap_or_default();
        let user = kubeconfig.auth_infos.iter().find(|named| named.name == user);
        let user = user.and_then(|named| named.auth_info.as_ref());
        let namespace = context.namespace.clone().filter(|namespace| !namespace.is_empty());
        Self { namespace, manager, is_certificate: user.is_some_and(is_certificate_only) }
    }
}

fn is_certificate_only(user: &AuthInfo) -> bool {
    let has_certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
    let sends_secrets = user.token.is_some()
        || user.token_file.is_some()
        || user.exec.is_some()
        || user.auth_provider.is_some()
        || user.username.is_some()
        || user.password.is_some();
    has_certificate && !sends_secrets
}

#[cfg(test)]
mod tests;
