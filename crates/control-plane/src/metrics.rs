//! metrics-server and an adapter for custom and external metrics, behind the aggregation layer.

use std::path::PathBuf;

use crate::build::Program;
use crate::cluster::{ControlPlane, run_kubectl, until_listening};
use crate::components;
use crate::error::Result;
use crate::process::Process;

const RESOURCE_METRICS: [(&str, &str); 1] = [("metrics.k8s.io", "v1beta1")];
const OTHER_METRICS: [(&str, &str); 2] =
    [("custom.metrics.k8s.io", "v1beta2"), ("external.metrics.k8s.io", "v1beta1")];

impl ControlPlane {
    /// Starts metrics-server and returns when its API is available.
    pub(crate) fn start_metrics_server(&self) -> Result<Process> {
        let (kubeconfig, certs, port) = self.extension_server(Program::MetricsServer)?;
        let args = components::metrics_server(&kubeconfig, &certs, port);
        self.start_extension_server(Program::MetricsServer, &args, port, &RESOURCE_METRICS)
    }

    /// Starts the adapter and returns when its APIs are available.
    pub(crate) fn start_metrics_adapter(&self) -> Result<Process> {
        let (kubeconfig, certs, port) = self.extension_server(Program::MetricsAdapter)?;
        let values_port = self.free_port()?;
        let values_port = *self.metric_values_port.get_or_init(|| values_port);
        let args = components::metrics_adapter(&kubeconfig, &certs, port, values_port);
        self.start_extension_server(Program::MetricsAdapter, &args, port, &OTHER_METRICS)
    }

    /// The kubeconfig, the folder of certificates and the port of a server.
    fn extension_server(&self, program: Program) -> Result<(PathBuf, PathBuf, u16)> {
        let kubeconfig = self.kubeconfig_for(program.name(), Some("system:masters"))?;
        Ok((kubeconfig, self.scratch_dir().join(format!("{program}-certs")), self.free_port()?))
    }

    fn start_extension_server(
        &self,
        program: Program,
        args: &[String],
        port: u16,
        versions: &[(&str, &str)],
    ) -> Result<Process> {
        let mut process = self.spawn(program, program.name(), args)?;
        until_listening(&mut process, port)?;
        let services = components::api_services(program.name(), port, versions);
        self.create_all(&format!("the APIServices of {program}"), &services)?;
        for (group, version) in versions {
            let name = format!("apiservice/{version}.{group}");
            let mut command = self.kubectl(crate::pki::User::Admin)?;
            command.args(["wait", "--for=condition=Available", "--timeout=120s", &name]);
            run_kubectl(command, &format!("waiting for {name}"))?;
        }
        Ok(process)
    }
}
