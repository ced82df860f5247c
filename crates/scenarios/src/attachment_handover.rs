//! Leaders alternate between the original and ours in the middle of attaching and detaching a volume, and each continues
//! what the other has begun.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use keleustes_control_plane::User;
use keleustes_hollow::annotations;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::TestCluster;
use crate::attachments::AttachFixture;
use crate::real::client_of;
use crate::workloads::handover::leaders::AlternatingLeaders;
use crate::workloads::handover::plane;

/// How long a step may take on a busy machine, with a lease that has to expire.
const TIMEOUT: Duration = Duration::from_secs(180);
/// How long attaching and detaching takes: longer than a change of leaders.
const OPERATION: &str = "20s";

const CONTROLLERS: &str = "--controllers=persistentvolume-attach-detach-controller,persistentvolume-binder-controller,\
     persistentvolumeclaim-protection-controller,persistentvolume-protection-controller,node-lifecycle-controller,\
     taint-eviction-controller,serviceaccount-controller";

/// What a volume is doing.
struct Swap<'w> {
    cluster: &'w TestCluster,
    fixture: AttachFixture<'w>,
    leaders: AlternatingLeaders<'w>,
}

impl Swap<'_> {
    async fn attachment(&self, at: usize) -> anyhow::Result<Option<VolumeAttachment>> {
        let all = self.fixture.attachments.list(&ListParams::default()).await?;
        let node = self.fixture.node(at);
        Ok(all.into_iter().find(|one| one.spec.node_name == node))
    }

    /// Waits until the volume is being attached to a node, and returns the UID of the VolumeAttachment.
    async fn is_being_attached(&self, at: usize) -> anyhow::Result<Option<String>> {
        let begun = async || {
            let attachment = self.attachment(at).await?;
            let is_running =
                |one: &VolumeAttachment| one.status.as_ref().is_none_or(|status| !status.attached);
            Ok(attachment.filter(is_running).map(|one| one.uid()))
        };
        self.cluster.eventually("the attach has begun", begun).await
    }

    async fn is_being_detached(&self, at: usize) -> anyhow::Result<()> {
        let begun = async || {
            let attachment = self.attachment(at).await?;
            Ok(attachment.filter(|one| one.metadata.deletion_timestamp.is_some()).map(drop))
        };
        self.cluster.eventually("the detach has begun", begun).await
    }

    async fn replace_leader(&mut self) -> anyhow::Result<()> {
        let fixture = &self.fixture;
        self.leaders.replace_leader(self.cluster, async || Ok(fixture.attached().await?.len())).await
    }

    /// The next leader ends the attach that the previous one has begun, with the same object.
    async fn attach_across_a_swap(&mut self, pod: &str, at: usize) -> anyhow::Result<()> {
        self.fixture.pod(pod, at).await?;
        let begun = self.is_being_attached(at).await?;
        self.replace_leader().await?;
        self.fixture.attachments_become(&[(self.fixture.node(at), true)]).await?;
        let ended = self.attachment(at).await?.and_then(|one| one.uid());
        ensure!(begun == ended, "the VolumeAttachment was replaced");
        self.fixture.pod_runs(pod).await?;
        self.fixture.node_reports(at, true).await
    }
}

/// Proves AD-31, AD-142.
pub(crate) async fn leaders_change_during_attach_and_detach(_: &TestCluster) -> anyhow::Result<()> {
    let plane = plane()?;
    let cluster = TestCluster::new(client_of(&plane, User::Admin).await?, None, TIMEOUT);
    let seed = std::env::var("KELEUSTES_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("        seed {seed}");
    let rng = fastrand::Rng::with_seed(seed);
    let leaders = AlternatingLeaders::start(&plane, &cluster, rng, CONTROLLERS).await?;
    let fixture = AttachFixture::create(&cluster, "swap").await?;
    let slow = json!({annotations::ATTACH_DELAY: OPERATION, annotations::DETACH_DELAY: OPERATION});
    let patch = Patch::Merge(json!({"metadata": {"annotations": slow}}));
    fixture.volumes.patch("swap", &PatchParams::default(), &patch).await?;
    let mut swap = Swap { cluster: &cluster, fixture, leaders };
    // The original begins to attach, ours ends it.
    swap.attach_across_a_swap("one", 0).await?;
    // Ours begins to detach, the original ends it.
    swap.fixture.pods.delete("one", &DeleteParams::default()).await?;
    swap.is_being_detached(0).await?;
    swap.replace_leader().await?;
    swap.fixture.attachments_become(&[]).await?;
    swap.fixture.node_reports(0, false).await?;
    swap.fixture.pod("two", 1).await?;
    swap.fixture.pod_runs("two").await?;
    // The original begins to detach while another node waits. Ours attaches it there only afterwards.
    swap.fixture.pods.delete("two", &DeleteParams::default()).await?;
    swap.is_being_detached(1).await?;
    swap.fixture.pod("three", 0).await?;
    swap.replace_leader().await?;
    let on_both = std::cell::Cell::new(false);
    let is_detached = async || {
        let (from, to) = (swap.attachment(1).await?, swap.attachment(0).await?);
        on_both.set(on_both.get() || from.is_some() && to.is_some());
        Ok(from.is_none().then_some(()))
    };
    cluster.eventually("the volume is detached", is_detached).await?;
    ensure!(!on_both.get(), "the volume had VolumeAttachments on two nodes");
    // Ours begins to attach, the original ends it.
    let begun = swap.is_being_attached(0).await?;
    swap.replace_leader().await?;
    swap.fixture.attachments_become(&[(swap.fixture.node(0), true)]).await?;
    ensure!(
        begun == swap.attachment(0).await?.and_then(|one| one.uid()),
        "the VolumeAttachment was replaced"
    );
    swap.fixture.pod_runs("three").await?;
    swap.fixture.delete_pod("three").await?;
    swap.fixture.attachments_become(&[]).await?;
    swap.fixture.clear().await
}
