//! A shadow beside the original, with the permissions of `packaging/shadow` and no others: it agrees with what the original
//! does, reports what other clients do to objects of controllers, and writes nothing.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use keleustes_control_plane::build::Program;
use keleustes_control_plane::{ControlPlane, Process, User};
use keleustes_hollow::Hollow;
use serde_json::Value;

use crate::TestCluster;
use crate::real::{Manager, built_manager, client_of, controllers_flag};

/// The subject of the bindings in `packaging/shadow`.
const ACCOUNT: &str = "system:serviceaccount:kube-system:keleustes-shadow";
const NAMESPACE: &str = "shop";
/// Shorter than by default: the original writes within a second here.
const WINDOW: Duration = Duration::from_secs(12);
/// How long everything may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);

const WORKLOADS: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: 'web:1'}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: 'db:1'}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: 'agent:1'}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  completions: 2
  parallelism: 1
  ttlSecondsAfterFinished: 5
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: 'once:1'}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
";

/// A shadow of ours beside the leader of a control plane, with the permissions of `packaging/shadow`.
pub struct ShadowBeside {
    port: u16,
    kubeconfig: PathBuf,
    window: Duration,
    process: Process,
}

impl ShadowBeside {
    /// Starts it with the flags of a kubeadm manifest, and `extra_flags` after them.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(plane: &ControlPlane, window: Duration, extra_flags: &[String]) -> anyhow::Result<Self> {
        let manifest = repository().join("packaging/shadow/shadow.yaml");
        // Everything but the Deployment, for which there is no image here.
        let manifest = manifest.display().to_string();
        kubectl(plane, &["apply", "-l", "app!=keleustes-shadow", "-f", &manifest])?;
        let own = plane.kubeconfig_for(ACCOUNT, None)?.display().to_string();
        let port = plane.free_port()?;
        let mut flags = vec![
            controllers_flag(),
            "--shadow".to_owned(),
            format!("--shadow-window={}s", window.as_secs()),
            format!("--kubeconfig={own}"),
            format!("--authentication-kubeconfig={own}"),
            format!("--authorization-kubeconfig={own}"),
        ];
        flags.extend_from_slice(extra_flags);
        let args = plane.manager_args_with(port, &flags);
        let process = Manager::Ours(built_manager()?).start_with(plane, "shadow", &args)?;
        Ok(Self { port, kubeconfig: plane.kubeconfig(User::Admin), window, process })
    }

    /// The report, as the command prints it.
    ///
    /// # Errors
    /// If the shadow does not answer.
    pub fn report(&self, output: &str) -> anyhow::Result<String> {
        let mut command = std::process::Command::new(built_manager()?);
        command.args(["shadow-report", "--output", output, "--insecure-skip-tls-verify"]);
        command.arg(format!("--server=https://127.0.0.1:{}", self.port));
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        let done = command.output()?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?)
    }

    /// The report for programs.
    ///
    /// # Errors
    /// If the shadow does not answer.
    pub fn report_json(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.report("json")?)?)
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// If it does not in time; the message has the end of its log.
    pub async fn wait_until_ready(&self) -> anyhow::Result<()> {
        let began = tokio::time::Instant::now();
        while let Err(error) = self.report_json() {
            ensure!(began.elapsed() < TIMEOUT, "{error:#}\n{}", self.process.log_tail());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        Ok(())
    }

    /// Waits until every decision has had its time.
    pub async fn wait_for_window(&self) {
        tokio::time::sleep(self.window + Duration::from_secs(8)).await;
    }
}

/// A control plane with the original and a shadow.
struct Beside {
    plane: ControlPlane,
    _original: Process,
    shadow: ShadowBeside,
}

impl Beside {
    async fn start() -> anyhow::Result<Self> {
        let mut builder = ControlPlane::builder().with_program(Program::KubeControllerManager);
        if let Some(folder) = std::env::var_os("KELEUSTES_LOGS") {
            builder = builder.keep_logs(std::path::Path::new(&folder).join("shadow"));
        }
        let plane = builder.start().context("a control plane")?;
        let original = Manager::Original.start(&plane, "original", &[controllers_flag()])?;
        let shadow = ShadowBeside::start(&plane, WINDOW, &[])?;
        Ok(Self { plane, _original: original, shadow })
    }

    /// The report of the shadow, as the command prints it.
    fn report(&self, output: &str) -> anyhow::Result<String> {
        self.shadow.report(output)
    }

    fn kubectl(&self, arguments: &str) -> anyhow::Result<String> {
        kubectl(&self.plane, &["-n", NAMESPACE].into_iter().chain(arguments.split(' ')).collect::<Vec<_>>())
    }

    async fn until(&self, what: &str, ask: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let began = tokio::time::Instant::now();
        loop {
            match ask().await {
                Ok(true) => return Ok(()),
                Ok(false) | Err(_) if began.elapsed() < TIMEOUT => {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                Ok(false) => anyhow::bail!("{what}: not in time\n{}", self.report("text")?),
                Err(error) => {
                    return Err(error.context(format!("{what}\n{}", self.shadow.process.log_tail())));
                }
            }
        }
    }

    /// Waits until an object's field has a value.
    async fn becomes(&self, object: &str, field: &str, wanted: &str) -> anyhow::Result<()> {
        let ask = async || {
            Ok(self.kubectl(&format!("get {object} -o jsonpath={{{field}}} --ignore-not-found"))? == wanted)
        };
        self.until(&format!("{object} {field} {wanted}"), ask).await
    }

    /// Waits until a slice has an endpoint for each of so many pods and stays as it is. Before, a user's change of it
    /// looks like one of the controller that follows the pods.
    async fn slice_is_at_rest(&self, slice: &str, pods: usize) -> anyhow::Result<()> {
        let words = |text: String| text.split_whitespace().count();
        let state = || {
            let ips = words(self.kubectl("get pods -l app=web -o jsonpath={.items[*].status.podIP}")?);
            let addresses =
                words(self.kubectl(&format!(
                    "get endpointslice {slice} -o jsonpath={{.endpoints[*].addresses[0]}}"
                ))?);
            let version = self
                .kubectl(&format!("get endpointslice {slice} -o jsonpath={{.metadata.resourceVersion}}"))?;
            anyhow::Ok((ips == pods && addresses == pods).then_some(version))
        };
        let rests = async || {
            let Some(before) = state()? else { return Ok(false) };
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(state()? == Some(before))
        };
        self.until(&format!("{slice} with {pods} endpoints at rest"), rests).await
    }

    /// Waits until every decision has had its time, and expects no unlisted difference.
    async fn no_difference(&self, after: &str) -> anyhow::Result<Value> {
        self.shadow.wait_for_window().await;
        let report = self.shadow.report_json()?;
        let differences = report["differences"].as_array().map_or(0, Vec::len);
        ensure!(differences == 0, "after {after}:\n{}", self.report("text")?);
        Ok(report)
    }
}

/// A shadow agrees with the original, and other clients are noticed.
pub(crate) async fn shadow_agrees_with_the_original(_: &TestCluster) -> anyhow::Result<()> {
    let beside = Beside::start().await?;
    let admin = client_of(&beside.plane, User::Admin).await?;
    let nodes = Hollow::builder(admin).nodes(2).scheduler(true).untaint(true).start();
    beside.shadow.wait_until_ready().await?;
    kubectl(&beside.plane, &["create", "namespace", NAMESPACE])?;
    beside.becomes("serviceaccount/default", ".metadata.name", "default").await?;
    work(&beside).await?;
    let report = beside.no_difference("the usual work").await?;
    for controller in ["deployment", "replicaset", "statefulset", "daemonset", "job", "endpointslice"] {
        let found = report["controllers"].as_array().into_iter().flatten();
        let name = format!("{controller}-controller");
        let agreements = found.clone().find(|one| one["name"] == name.as_str()).map(|one| &one["agreements"]);
        let agreements = agreements.and_then(Value::as_u64).unwrap_or(0);
        ensure!(agreements > 0, "{name} agreed with nothing:\n{}", beside.report("text")?);
    }
    interfere(&beside).await?;
    println!("{}", beside.report("text")?);
    nodes.stop().await;
    shadow_writes_nothing(&beside.plane)
}

/// What users do every day.
async fn work(beside: &Beside) -> anyhow::Result<()> {
    let manifest = beside.plane.logs_dir().join("workloads.yaml");
    std::fs::write(&manifest, WORKLOADS)?;
    beside.kubectl(&format!("apply -f {}", manifest.display()))?;
    beside.becomes("deployment/web", ".status.readyReplicas", "3").await?;
    beside.becomes("statefulset/db", ".status.readyReplicas", "2").await?;
    beside.becomes("daemonset/agent", ".status.numberReady", "2").await?;
    beside.kubectl("set image deployment/web c=web:2")?;
    beside.becomes("deployment/web", ".status.updatedReplicas", "3").await?;
    beside.becomes("deployment/web", ".status.replicas", "3").await?;
    beside.kubectl("scale deployment/web --replicas=5")?;
    beside.kubectl("set image statefulset/db c=db:2")?;
    beside.becomes("deployment/web", ".status.readyReplicas", "5").await?;
    beside.kubectl("scale deployment/web --replicas=2")?;
    beside.becomes("deployment/web", ".status.replicas", "2").await?;
    beside.becomes("statefulset/db", ".status.updatedReplicas", "2").await?;
    for object in ["statefulset/db", "daemonset/agent", "service/web"] {
        beside.kubectl(&format!("delete {object}"))?;
    }
    beside.becomes("pod -l app=db", ".items[*].metadata.name", "").await?;
    beside.kubectl(&format!("apply -f {}", manifest.display()))?;
    beside.becomes("deployment/web", ".status.readyReplicas", "3").await
}

/// What a script does to objects of controllers: each change is reported with what was expected.
async fn interfere(beside: &Beside) -> anyhow::Result<()> {
    let name_of = |what: &str| {
        let names = beside.kubectl(&format!("get {what} -o jsonpath={{.items[*].metadata.name}}"))?;
        names.split(' ').next().map(str::to_owned).filter(|name| !name.is_empty()).context("an object")
    };
    let pod = name_of("pods -l app=web")?;
    beside.kubectl(&format!("delete pod {pod} --wait=false"))?;
    beside.becomes("deployment/web", ".status.readyReplicas", "3").await?;
    let sets = beside.kubectl("get rs -o jsonpath={.items[?(@.spec.replicas>0)].metadata.name}")?;
    let set = sets.split(' ').next().unwrap_or_default().to_owned();
    beside.kubectl(&format!("scale rs {set} --replicas=6"))?;
    beside.becomes(&format!("rs/{set}"), ".spec.replicas", "3").await?;
    let slice = name_of("endpointslices -l kubernetes.io/service-name=web")?;
    beside.slice_is_at_rest(&slice, 3).await?;
    beside.kubectl(&format!("patch endpointslice {slice} --type=merge -p {{\"endpoints\":[]}}"))?;
    let report = beside.no_difference("interference").await?;
    for (verb, name, expected) in [
        ("delete", pod.as_str(), "replicaset-controller: create pods"),
        ("update", set.as_str(), "deployment-controller: update replicasets.apps"),
        ("update", slice.as_str(), "endpointslice-controller: "),
    ] {
        let found = report["foreignChanges"].as_array().into_iter().flatten();
        let mut found = found.filter(|change| change["verb"] == verb && change["name"] == name);
        let is_expected = |change: &Value| {
            let lines = change["expected"].as_array().into_iter().flatten();
            lines.filter_map(Value::as_str).any(|line| line.starts_with(expected))
        };
        ensure!(found.any(is_expected), "{verb} {name}, {expected}:\n{}", beside.report("text")?);
    }
    Ok(())
}

/// The audit log has no write of the shadow besides reviews, and no refused request.
///
/// # Errors
/// If it has one, or cannot be read.
pub fn shadow_writes_nothing(plane: &ControlPlane) -> anyhow::Result<()> {
    let entries = plane.audit_entries()?;
    let own: Vec<_> = entries.iter().filter(|entry| entry.user == ACCOUNT).collect();
    ensure!(own.len() > 50, "the audit log has {} requests of the shadow", own.len());
    let line = |entry: &&&keleustes_control_plane::AuditEntry| {
        format!("{} {} {}", entry.code, entry.verb, entry.uri)
    };
    let is_review = |uri: &str| uri.contains("tokenreviews") || uri.contains("subjectaccessreviews");
    let writes: Vec<_> = own
        .iter()
        .filter(|entry| entry.is_write() && !is_review(&entry.uri))
        .map(|entry| line(&entry))
        .collect();
    ensure!(writes.is_empty(), "the shadow wrote:\n{}", writes.join("\n"));
    let refused: Vec<_> =
        own.iter().filter(|entry| [401, 403].contains(&entry.code)).map(|entry| line(&entry)).collect();
    ensure!(refused.is_empty(), "the shadow was refused:\n{}", refused.join("\n"));
    Ok(())
}

fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> anyhow::Result<String> {
    let done = plane.kubectl(User::Admin)?.args(arguments).output()?;
    ensure!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
