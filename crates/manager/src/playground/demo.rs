//! A narrated minute: a rollout, the loss of a node, and the handover from one manager to another.
//!
//! The managers are two processes of this program, so that one really ends while the other takes over.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use keleustes_client::{Call, PatchType};
use keleustes_hollow::HollowHandle;
use keleustes_objects::{Key, Resource};
use kube::Client;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::say_line;

const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments", "Deployment");
const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");

const OARS: i64 = 8;
/// How often the cluster is polled.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The timeout of each act; the error names the act.
const ACT_ENDS: Duration = Duration::from_secs(30);

/// The heartbeat and grace periods of nodes: much shorter than in a real cluster.
pub(super) const LEASE_EVERY: Duration = Duration::from_millis(500);
const IMPATIENT: [&str; 3] =
    ["--node-monitor-period=500ms", "--node-monitor-grace-period=3s", "--node-eviction-rate=10"];

/// The parts of the demonstration.
pub(super) struct Demo<'a> {
    /// An administrator's client.
    pub(super) client: Client,
    /// The nodes.
    pub(super) nodes: &'a HollowHandle,
    /// Flags by which a manager connects to the API server.
    pub(super) manager_flags: Vec<String>,
    /// Where the managers write their logs.
    pub(super) folder: &'a Path,
}

/// A manager in a process of its own, killed when this value is dropped.
struct Manager(Child);

impl Demo<'_> {
    /// Runs all acts.
    pub(super) async fn play(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        say(
            "Timings of nodes are shortened: a heartbeat every 0.5 s (10 s by default), 3 s of grace (50 s),",
        );
        say("and pods leave a lost node after 1 s (5 minutes).\n");
        say("Two managers start. One leads, the other is a standby with synced caches.");
        let leader = self.start_manager("first")?;
        self.until("a leader", |_| async { Ok(self.holder().await?.is_some().then_some(())) }).await?;
        let standby = self.start_manager("second")?;
        self.rollout().await?;
        self.lost_node().await?;
        self.failover(leader).await?;
        drop(standby);
        say(&format!("Done in {:.0} seconds.", began.elapsed().as_secs_f64()));
        Ok(())
    }

    async fn rollout(&self) -> anyhow::Result<()> {
        title("A rollout");
        say(&format!("A Deployment with {OARS} replicas of version 1."));
        // Pods are evicted after a second here; five minutes are the default.
        let tolerations: Vec<_> = ["not-ready", "unreachable"]
            .map(|what| {
                json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists", "effect": "NoExecute",
                       "tolerationSeconds": 1})
            })
            .into();
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "oars"},
            "spec": {
                "replicas": OARS,
                "selector": {"matchLabels": {"app": "oars"}},
                "strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}},
                "template": {
                    "metadata": {"labels": {"app": "oars"}},
                    "spec": {"containers": [{"name": "oar", "image": "oar:1"}], "tolerations": tolerations},
                },
            },
        });
        Call::create(&DEPLOYMENTS, "default", &deployment).send(&self.client).await?;
        self.watch_versions("oar:1").await?;
        say("Now version 2: maxSurge 2, maxUnavailable 1.");
        let image =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "oar", "image": "oar:2"}]}}}});
        self.patch(&image).await?;
        self.watch_versions("oar:2").await
    }

    async fn lost_node(&self) -> anyhow::Result<()> {
        title("A node is lost");
        let by_node = |pods: &[Value]| {
            let mut count: BTreeMap<String, usize> = BTreeMap::new();
            for pod in pods {
                *count.entry(text(pod, "/spec/nodeName").to_owned()).or_default() += 1;
            }
            count
        };
        let busiest = by_node(&self.pods().await?).into_iter().max_by_key(|(_, count)| *count);
        let (node, count) = busiest.context("there are no pods")?;
        say(&format!("{node} stops sending heartbeats, with {count} pods on it."));
        self.nodes.fail_node(&node).await;
        let began = Instant::now();
        let lost = node.clone();
        self.until("the pods to move", |shown: String| {
            let node = lost.clone();
            async move {
                let pods = self.pods().await?;
                let (there, elsewhere): (Vec<&Value>, Vec<&Value>) = pods
                    .iter()
                    .filter(|pod| is_not_terminating(pod))
                    .partition(|pod| text(pod, "/spec/nodeName") == node);
                let ready = elsewhere.iter().filter(|pod| is_ready(pod)).count();
                print_over(
                    &shown,
                    &format!(
                        "{} {} left behind, {ready} ready elsewhere",
                        bar(there.len(), ready),
                        there.len()
                    ),
                );
                Ok((there.is_empty() && ready >= usize::try_from(OARS)?).then_some(()))
            }
        })
        .await?;
        say(&format!(
            "All pods run on other nodes {:.1} seconds after the last heartbeat.",
            began.elapsed().as_secs_f64()
        ));
        self.nodes.recover_node(&node).await;
        say(&format!("{node} is Ready again."));
        Ok(())
    }

    async fn failover(&self, leader: Manager) -> anyhow::Result<()> {
        title("A manager ends");
        say("The leader gets SIGTERM, and a pod is deleted in the same moment.");
        let before = self.holder().await?.unwrap_or_default();
        let pods = self.pods().await?;
        let deleted_pod = pods.iter().find(|pod| is_not_terminating(pod)).context("there are no pods")?;
        let key = Key::namespaced("default", text(deleted_pod, "/metadata/name"));
        let known: Vec<_> = pods.iter().map(|pod| text(pod, "/metadata/name").to_owned()).collect();
        let began = Instant::now();
        leader.end()?;
        Call::delete(&PODS, &key, &keleustes_client::DeleteOptions::default()).send(&self.client).await?;
        let (known, before) = (&known, &before);
        // A busy machine may deliver the signal so late that the old leader still creates the pod.
        self.until("another pod and another leader", |_| async move {
            let pods = self.pods().await?;
            let is_new = |pod: &&Value| !known.iter().any(|there| there == text(pod, "/metadata/name"));
            let has_changed = self.holder().await?.is_some_and(|holder| holder != *before);
            Ok((has_changed && pods.iter().any(|pod| is_new(&pod))).then_some(()))
        })
        .await?;
        let took = began.elapsed().as_millis();
        say(&format!(
            "The standby leads and a new pod exists {took} ms later. The original keeps its Lease: 13.5 to 13.9 s."
        ));
        Ok(())
    }

    /// Draws how many pods have the new version, until all have.
    async fn watch_versions(&self, image: &str) -> anyhow::Result<()> {
        self.until("the rollout", |shown: String| async move {
            let pods = self.pods().await?;
            let ready = |new: bool| {
                let of = |pod: &&Value| (text(pod, "/spec/containers/0/image") == image) == new;
                pods.iter().filter(of).filter(|pod| is_not_terminating(pod) && is_ready(pod)).count()
            };
            let (old, new) = (ready(false), ready(true));
            print_over(&shown, &format!("{} {old} old, {new} new pods ready", bar(old, new)));
            Ok((old == 0 && new == usize::try_from(OARS)?).then_some(()))
        })
        .await
    }

    /// Polls until the condition holds.
    async fn until<F>(&self, what: &str, look: impl Fn(String) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<Option<()>>>,
    {
        let began = Instant::now();
        while began.elapsed() < ACT_ENDS {
            let since = format!("{:5.1} s", began.elapsed().as_secs_f64());
            if look(since).await?.is_some() {
                end_line();
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        end_line();
        bail!(
            "waited {} s for {what}; the managers' logs are in {}",
            ACT_ENDS.as_secs(),
            self.folder.display()
        )
    }

    async fn pods(&self) -> anyhow::Result<Vec<Value>> {
        let list = Call::list(&PODS, "default").send(&self.client).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    async fn patch(&self, change: &Value) -> anyhow::Result<()> {
        let key = Key::namespaced("default", "oars");
        Call::patch(&DEPLOYMENTS, &key, PatchType::Strategic, change).send(&self.client).await?;
        Ok(())
    }

    /// The holder of the Lease.
    async fn holder(&self) -> anyhow::Result<Option<String>> {
        let key = Key::namespaced("kube-system", "kube-controller-manager");
        let lease = Call::get(&LEASES, &key).send(&self.client).await;
        Ok(lease
            .ok()
            .map(|lease| text(&lease, "/spec/holderIdentity").to_owned())
            .filter(|who| !who.is_empty()))
    }

    fn start_manager(&self, name: &str) -> anyhow::Result<Manager> {
        let log = keleustes_apiserver::private_files::create(&self.folder.join(format!("{name}.log")))?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(&self.manager_flags)
            .args(IMPATIENT)
            .args(["--leader-elect=true", "--allow-missing-controllers"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        Ok(Manager(command.spawn().context("a second process of this program cannot be started")?))
    }
}

impl Manager {
    /// Sends SIGTERM, so that it releases the Lease.
    fn end(self) -> anyhow::Result<()> {
        let id = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        kill_process(id.context("the manager has exited already")?, Signal::TERM)?;
        // It exits by itself and must not be killed before.
        tokio::spawn(async move { self.0.wait_with_output().await });
        Ok(())
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_not_terminating(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Old pods as empty boxes, new ones as filled ones.
fn bar(old: usize, new: usize) -> String {
    let boxes = format!("{}{}", "▒".repeat(old), "█".repeat(new));
    format!("{boxes:<12}")
}

fn title(text: &str) {
    say_line!("\n── {text} ──");
}

fn say(text: &str) {
    say_line!("{text}");
}

/// Replaces the last printed line. Into a pipe or a file it prints lines, each once.
fn print_over(since: &str, text: &str) {
    use std::io::Write as _;
    if std::io::stdout().is_terminal() {
        crate::command::say(&format!("\r\x1b[K  {since}  {text}"));
    } else if is_new(text) {
        say_line!("  {since}  {text}");
    }
    // A closed terminal loses a line, nothing else.
    let _ = std::io::stdout().flush();
}

/// Whether the text differs from that of the last call.
fn is_new(text: &str) -> bool {
    static LAST: Mutex<String> = Mutex::new(String::new());
    let mut last = LAST.lock();
    let is_new = *last != text;
    text.clone_into(&mut last);
    is_new
}

/// Ends a line that [`print_over`] has left open.
fn end_line() {
    if std::io::stdout().is_terminal() {
        crate::command::say("\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_line_is_printed_once() {
        let printed = ["1 ready", "1 ready", "2 ready", "1 ready"].map(is_new);
        assert_eq!(printed, [true, false, true, true]);
    }
}
