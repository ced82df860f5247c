//! `kube-controller-manager shadow-report`: asks a running shadow, as `explain` asks a manager, where it differs from the
//! leader.

use std::process::ExitCode;

use anyhow::bail;

use crate::explain_command::{Arguments, ask, block_on, run_with};

const HELP: &str = "\
Reports what a manager that runs with --shadow would have done differently from the leader.

Usage: kube-controller-manager shadow-report [flags]

  -o, --output FORMAT             text, json or yaml
  -w, --watch                     prints the report again whenever it changes
      --kubeconfig FILE           by default $KUBECONFIG or ~/.kube/config; its credentials are used
      --server URL                the secure port of the shadow; by default what the kubeconfig names in the
                                  extension keleustes.dev/manager of its cluster, or https://127.0.0.1:10257
      --certificate-authority F   verifies the shadow's certificate; by default the CA of the kubeconfig
      --insecure-skip-tls-verify  does not verify the shadow's certificate

The Deployment of packaging/shadow listens on port 10357 of its pod. From elsewhere:
  kubectl -n kube-system port-forward deployment/keleustes-shadow 10357
  kube-controller-manager shadow-report --server=https://127.0.0.1:10357
";

const PATH: &str = "/debug/keleustes/shadow";

/// Runs the command.
pub(crate) fn run(args: &[&str]) -> ExitCode {
    run_with(args, HELP, |args| {
        let (arguments, words) = Arguments::read_flags(args)?;
        if !words.is_empty() {
            bail!("shadow-report takes no arguments, but got {:?}\n\n{HELP}", words.join(" "));
        }
        block_on(ask(&arguments, PATH))
    })
}
