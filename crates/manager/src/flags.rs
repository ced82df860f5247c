//! The command line: those flags of the original that concern what is there, and those that a kubeadm
//! manifest also passes, which are taken and named in one warning.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::logging::ModuleLevel;

/// Runs the control loops that turn what users ask of a cluster into objects.
#[derive(Parser)]
#[command(name = "kube-controller-manager", version = VERSION, max_term_width = 100)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) api: ApiFlags,
    #[command(flatten)]
    pub(crate) election: ElectionFlags,
    #[command(flatten)]
    pub(crate) serving: ServingFlags,
    #[command(flatten)]
    pub(crate) controllers: ControllerFlags,
    #[command(flatten)]
    pub(crate) logging: LoggingFlags,
    #[command(flatten)]
    pub(crate) later: LaterFlags,
}

/// The version of the API that this program speaks, and its own.
const VERSION: &str = concat!("v1.37.1 (keleustes ", env!("CARGO_PKG_VERSION"), ")");

/// What else this program can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Starts a whole cluster to play with, in this one process (not there yet).
    Playground,
}

impl Command {
    pub(crate) fn run(&self) -> ExitCode {
        match self {
            Self::Playground => {
                eprintln!(
                    "playground: the embedded cluster is not there yet.\n\
                     To see the manager work on a real control plane (needs Go for its first build):\n\
                     \n    cargo xtask control-plane      starts etcd and kube-apiserver, prints a kubeconfig\n\
                     \n    cargo run --release -- --kubeconfig=FILE --leader-elect=false"
                );
                ExitCode::FAILURE
            }
        }
    }
}

/// Which API server, and how to speak to it.
#[derive(Args)]
#[command(next_help_heading = "API server")]
pub(crate) struct ApiFlags {
    /// Kubeconfig with the address and the credentials of the manager; the service account of the pod
    /// if neither this nor --master is given.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Address of the API server, in place of the one in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,
    /// Requests a second that each controller keeps to. Unset: as many as the server takes.
    #[arg(long, value_name = "N")]
    pub(crate) kube_api_qps: Option<f32>,
    /// Requests that may come at once after a quiet time.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) kube_api_burst: u32,
    /// Lets each controller work as a service account of its own.
    #[arg(long, value_name = "BOOL", default_value_t = false, default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) use_service_account_credentials: bool,
    /// Every cached object is shown to its controllers again in this time, or up to twice of it.
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = duration)]
    pub(crate) min_resync_period: Duration,
}

/// How several managers agree on one that works.
#[derive(Args)]
#[command(next_help_heading = "Leader election")]
pub(crate) struct ElectionFlags {
    /// Works only while holding a lease, so that several managers can stand by.
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) leader_elect: bool,
    /// How long others wait after the last sign of life before they take over.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub(crate) leader_elect_lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) leader_elect_renew_deadline: Duration,
    /// How long to wait between tries.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(crate) leader_elect_retry_period: Duration,
    /// Namespace of the lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub(crate) leader_elect_resource_namespace: String,
    /// Name of the lease.
    #[arg(long, value_name = "NAME", default_value = "kube-controller-manager")]
    pub(crate) leader_elect_resource_name: String,
}

/// Health and metrics.
#[derive(Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct ServingFlags {
    /// Address to listen on. Until callers can be authenticated, only /healthz is answered to callers
    /// from other machines.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub(crate) bind_address: IpAddr,
    /// Port to serve HTTPS on; 0 serves nothing.
    #[arg(long, value_name = "PORT", default_value_t = 10257)]
    pub(crate) secure_port: u16,
    /// Certificate to serve with; made up if neither this nor --cert-dir is given.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Key of the certificate to serve with.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// Where a made-up certificate is kept.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cert_dir: Option<PathBuf>,
}

/// Which controllers run, and what they need.
#[derive(Args)]
#[command(next_help_heading = "Controllers")]
pub(crate) struct ControllerFlags {
    /// Controllers to run: `*` is all that are on by default, `name` adds one, `-name` leaves one out.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Vec<String>,
    /// How long work under way may go on after the manager was told to stop.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(crate) controller_shutdown_timeout: Duration,
    /// Private key (RSA or ECDSA, PEM) that service account tokens are signed with. Without it the
    /// token controller does not run.
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_private_key_file: Option<PathBuf>,
    /// CA (PEM) that token Secrets carry; the one embedded in the kubeconfig if unset.
    #[arg(long, value_name = "FILE")]
    pub(crate) root_ca_file: Option<PathBuf>,
    /// How many accounts, and how many token Secrets, are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) concurrent_serviceaccount_token_syncs: u16,
}

/// What is logged and how.
#[derive(Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LoggingFlags {
    /// How much to log: 0 is what an operator needs, 4 tells every write, 6 every request.
    #[arg(long, short, value_name = "LEVEL", default_value_t = 0)]
    pub(crate) v: u8,
    /// Other levels for some files: `loops=4,exec*=6`, names without their ending.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = module_level)]
    pub(crate) vmodule: Vec<ModuleLevel>,
    /// `text` or `json`.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) logging_format: String,
}

macro_rules! later_flags {
    ($($field:ident = $name:literal),* $(,)?) => {
        /// Flags of a kubeadm manifest whose part of the manager is not there yet.
        #[derive(Args)]
        #[command(next_help_heading = "Taken, but without effect yet")]
        pub(crate) struct LaterFlags {
            $(
                /// Without effect yet.
                #[arg(long = $name, value_name = "VALUE", num_args = 0..=1, require_equals = true)]
                $field: Option<Option<String>>,
            )*
        }

        impl LaterFlags {
            /// Those that were given.
            pub(crate) fn given(&self) -> Vec<&'static str> {
                let mut given = Vec::new();
                $( if self.$field.is_some() { given.push(concat!("--", $name)); } )*
                given
            }
        }
    };
}

later_flags! {
    allocate_node_cidrs = "allocate-node-cidrs",
    authentication_kubeconfig = "authentication-kubeconfig",
    authorization_kubeconfig = "authorization-kubeconfig",
    client_ca_file = "client-ca-file",
    cluster_cidr = "cluster-cidr",
    cluster_name = "cluster-name",
    cluster_signing_cert_file = "cluster-signing-cert-file",
    cluster_signing_key_file = "cluster-signing-key-file",
    profiling = "profiling",
    requestheader_client_ca_file = "requestheader-client-ca-file",
    service_cluster_ip_range = "service-cluster-ip-range",
}

fn module_level(text: &str) -> Result<ModuleLevel, String> {
    let bad = || format!("{text:?} is not a pattern and a number, such as loops=4");
    let (pattern, verbosity) = text.split_once('=').ok_or_else(bad)?;
    Ok(ModuleLevel { pattern: pattern.to_owned(), verbosity: verbosity.parse().map_err(|_| bad())? })
}

/// The original takes `--some_flag` for `--some-flag`; so do we.
pub(crate) fn normalised(args: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    args.map(|arg| match arg.strip_prefix("--") {
        Some(flag) => {
            let (name, value) = flag.split_at(flag.find('=').unwrap_or(flag.len()));
            format!("--{}{value}", name.replace('_', "-"))
        }
        None => arg,
    })
}

/// Reads durations as Go writes them: `1h30m`, `2.5s`, `300ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration such as 1h30m, 15s or 300ms");
    let mut rest = text;
    let mut seconds = 0.0;
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit_seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(bad()),
        };
        seconds += number.parse::<f64>().map_err(|_| bad())? * unit_seconds;
        rest = after;
    }
    if text.is_empty() { Err(bad()) } else { Duration::try_from_secs_f64(seconds).map_err(|_| bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Flags::command().debug_assert();
    }

    #[test]
    fn a_kubeadm_manifest_is_taken() {
        let flags = "kube-controller-manager --allocate-node-cidrs=true --authentication-kubeconfig=/c \
            --authorization-kubeconfig=/c --bind-address=127.0.0.1 --client-ca-file=/ca --cluster-cidr=10.0.0.0/16 \
            --cluster-name=kubernetes --cluster-signing-cert-file=/ca --cluster-signing-key-file=/key \
            --controllers=*,bootstrapsigner,-tokencleaner --kubeconfig=/c --leader-elect=true \
            --requestheader-client-ca-file=/r --root-ca-file=/ca --service-account-private-key-file=/sa \
            --service-cluster-ip-range=10.1.0.0/16 --use_service_account_credentials=true";
        let flags = Flags::parse_from(normalised(flags.split_whitespace().map(str::to_owned)));
        assert_eq!(flags.controllers.controllers, ["*", "bootstrapsigner", "-tokencleaner"]);
        assert!(flags.api.use_service_account_credentials && flags.election.leader_elect);
        assert_eq!(flags.later.given().len(), 10);
        assert!(flags.later.given().contains(&"--cluster-cidr"));
    }

    #[test]
    fn booleans_may_be_bare() {
        let parse = |arg: &str| Flags::parse_from(["kcm", arg]);
        assert!(parse("--use-service-account-credentials").api.use_service_account_credentials);
        assert!(!parse("--leader-elect=false").election.leader_elect);
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, seconds) in
            [("12h", 43200.0), ("1h30m", 5400.0), ("2.5s", 2.5), ("300ms", 0.3), ("0", 0.0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for bad in ["", "5", "s", "1x", "1h-5m", "1.2.3s", "-1s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
