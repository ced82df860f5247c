//! Says of nodes that are silent that nobody can tell how they are, after making sure that it is they who
//! are silent and not we who are deaf.

use std::sync::Arc;

use keleustes_objects::{Key, Lease, NODE_LEASE_NAMESPACE, Node, Object as _, ResourceVersion, Time};
use keleustes_plan::{Context, Now, OnFailure, Outcome, PatchKind, Plan, PlannedEvent, Write};
use serde_json::json;

use super::health::{Ready, ready, unknown_status};
use super::monitor::Monitor;

/// How often a node's state is written, read afresh and written again.
const TRIES: usize = 5;

/// A node in a pass.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) node: Arc<Node>,
    /// The state that writes are made from: the node's own, or the one that we have led it to since.
    pub(super) version: ResourceVersion,
    /// The state of its lease that is cached; empty if none is.
    pub(super) lease: ResourceVersion,
    /// Whether it said that it is ready when the pass began.
    pub(super) was_ready: bool,
    pub(super) standing: Standing,
}

/// What a pass makes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// This is how it fares; without a word of it if it never said.
    Judged(Option<Ready>),
    /// It is silent, which is to be written.
    Silent,
    /// Nobody can tell in this pass. It does not count, and nothing is done about it.
    Skipped,
}

impl Monitor {
    /// How a node fares, by what it and its lease say.
    pub(super) fn standing(&self, node: &Node, lease: Option<&Lease>, now: Now) -> Standing {
        let grace_periods = &self.settings.grace_periods;
        let is_silent =
            self.fleet.with(|fleet| fleet.observe(node, lease, now).is_expired(grace_periods, now));
        let is_known = ready(node) == Some(Ready::Unknown);
        if is_silent && !is_known { Standing::Silent } else { Standing::Judged(ready(node)) }
    }

    /// Asks the server itself about the leases of those who seem silent. If one is in another state than the
    /// cached one, the cache is behind and nobody is said to be silent on its word, nor in any pass before it
    /// has caught up.
    pub(super) async fn verify(&self, cx: &mut Context<'_>, nodes: &mut [Checked]) {
        let mut silent: Vec<&mut Checked> =
            nodes.iter_mut().filter(|checked| checked.standing == Standing::Silent).collect();
        let key = |checked: &&mut Checked| Key::namespaced(NODE_LEASE_NAMESPACE, &*checked.node.key().name);
        let keys: Vec<Key> = silent.iter().map(key).collect();
        let answers = if keys.is_empty() { Vec::new() } else { cx.fetch_all::<Lease>(&keys).await };
        let mut is_behind = false;
        for (checked, answer) in silent.iter_mut().zip(answers) {
            match answer {
                Ok(Some(live)) if live.meta.resource_version != checked.lease => {
                    is_behind = true;
                    self.fleet
                        .with(|fleet| fleet.require_lease_resource_version(&live.meta.resource_version));
                }
                Ok(_) => {}
                Err(_) => checked.standing = Standing::Skipped,
            }
        }
        if is_behind {
            silent.iter_mut().for_each(|checked| checked.standing = Standing::Skipped);
        }
    }

    /// Writes that nobody can tell how the silent ones are. One whose state cannot be written is read
    /// afresh and judged again; one that cannot be read either is skipped.
    pub(super) async fn mark(&self, cx: &mut Context<'_>, nodes: &mut [Checked]) {
        for _ in 0..TRIES {
            let now = cx.gather(|view| view.now());
            let mut left = self.try_to_mark(cx, nodes, now.wall).await;
            let keys: Vec<Key> = left.iter().map(|checked| checked.node.key().clone()).collect();
            if keys.is_empty() {
                return;
            }
            let answers = cx.fetch_all::<Node>(&keys).await;
            let leases =
                cx.gather(|view| keys.iter().map(|key| lease_of(view, &key.name)).collect::<Vec<_>>());
            let mut plan = Plan::none();
            for ((checked, answer), lease) in left.iter_mut().zip(answers).zip(leases) {
                let Ok(Some(live)) = answer else {
                    checked.standing = Standing::Skipped;
                    continue;
                };
                checked.standing = self.standing(&live, lease.as_deref(), now);
                checked.version = live.meta.resource_version.clone();
                checked.node = Arc::new(live);
                // Our write may have taken effect although no answer came.
                if checked.standing == Standing::Judged(Some(Ready::Unknown)) {
                    note(&mut plan, checked);
                }
            }
            cx.apply(plan).await;
        }
        let left = nodes.iter_mut().filter(|checked| checked.standing == Standing::Silent);
        left.for_each(|checked| checked.standing = Standing::Skipped);
    }

    /// Writes once, and gives back those for whom it failed.
    async fn try_to_mark<'n>(
        &self,
        cx: &mut Context<'_>,
        nodes: &'n mut [Checked],
        now: Time,
    ) -> Vec<&'n mut Checked> {
        let (mut plan, mut writes, mut sent) = (Plan::none(), Vec::new(), Vec::new());
        for checked in nodes.iter_mut().filter(|checked| checked.standing == Standing::Silent) {
            if let Some(status) = unknown_status(&checked.node, now) {
                self.fleet.with(|fleet| fleet.expect_mark(&checked.node));
                let body = json!({"metadata": {"resourceVersion": checked.version}, "status": status});
                let write = Write::patch(&*checked.node, PatchKind::Strategic, body).on_subresource("status");
                writes.push(
                    write.on_failure(OnFailure::LogOnly).because("nothing was heard of it for too long"),
                );
                sent.push(checked);
            }
        }
        plan.push_parallel(writes);
        let outcomes = if sent.is_empty() { Vec::new() } else { cx.apply(plan).await.outcomes };
        let (mut events, mut left) = (Plan::none(), Vec::new());
        for (checked, outcome) in sent.into_iter().zip(outcomes) {
            if let Outcome::Done { resource_version: version, .. } = outcome {
                checked.version = version;
                checked.standing = Standing::Judged(Some(Ready::Unknown));
                note(&mut events, checked);
            } else {
                left.push(checked);
            }
        }
        cx.apply(events).await;
        left
    }
}

/// Tells people of a node that was ready and is silent now.
fn note(plan: &mut Plan, checked: &Checked) {
    if checked.was_ready {
        let name = &checked.node.key().name;
        let message = format!("Node {name} status is now: NodeNotReady");
        plan.record(PlannedEvent::normal(
            super::about(name, &checked.node.meta.uid),
            "NodeNotReady",
            message,
        ));
    }
}

/// The cached lease of a node.
pub(super) fn lease_of(view: &keleustes_plan::View<'_>, node: &str) -> Option<Arc<Lease>> {
    view.get::<Lease>(&Key::namespaced(NODE_LEASE_NAMESPACE, node)).cloned()
}
