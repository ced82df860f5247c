//! StatefulSets start, roll and stop their pods one after the other, and keep or give up their claims.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{Yard, image, is_ready, template};
use crate::World;
use crate::world::hold;

/// A StatefulSet `web` in a yard of its own.
struct Ranks<'w> {
    yard: Yard<'w>,
    sets: Api<StatefulSet>,
    claims: Api<PersistentVolumeClaim>,
}

impl<'w> Ranks<'w> {
    async fn form(world: &'w World, prefix: &str, wishes: Value) -> anyhow::Result<Self> {
        let yard = Yard::open(world, prefix).await?;
        let mut spec = json!({
            "serviceName": "peers", "selector": {"matchLabels": {"app": "web"}}, "template": template("v1"),
        });
        for (field, value) in wishes.as_object().context("wishes are an object")? {
            spec[field] = value.clone();
        }
        let (sets, claims) = (world.api(&yard.name), world.api(&yard.name));
        world.create(&sets, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
        Ok(Self { yard, sets, claims })
    }

    async fn change(&self, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.sets.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn change_image(&self, image: &str) -> anyhow::Result<()> {
        self.change(json!({"template": template(image)})).await
    }

    async fn set_partition(&self, partition: i32) -> anyhow::Result<()> {
        self.change(json!({"updateStrategy": {"rollingUpdate": {"partition": partition}}})).await
    }

    /// All pods by rank, also those on their way out: name, image and whether they stay.
    async fn line(&self) -> anyhow::Result<Vec<(String, String, bool)>> {
        let pods = self.yard.pods.list(&ListParams::default()).await?;
        let told = |pod: &Pod| (pod.name_any(), image(pod), pod.metadata.deletion_timestamp.is_none());
        let mut line: Vec<_> = pods.iter().map(told).collect();
        line.sort();
        Ok(line)
    }

    /// Waits until the pods are these and no others: an image for each rank.
    async fn becomes(&self, images: &[&str]) -> anyhow::Result<()> {
        let rank = |(at, image): (usize, &&str)| (format!("web-{at}"), (*image).to_owned(), true);
        let wanted: Vec<_> = images.iter().enumerate().map(rank).collect();
        let ask = async || Ok((self.line().await? == wanted).then_some(()));
        self.yard.world.eventually(&format!("pods {images:?}"), ask).await
    }

    /// Waits until the pods are these, and some more for the next thing that must not happen yet.
    async fn stops_at(&self, images: &[&str]) -> anyhow::Result<()> {
        self.becomes(images).await?;
        self.yard.world.settle().await;
        self.becomes(images).await?;
        self.yard.world.stand_still(&format!("{images:?}")).await;
        Ok(())
    }

    async fn say_ready(&self, at: usize) -> anyhow::Result<()> {
        self.yard.say_ready(&self.yard.pods.get(&format!("web-{at}")).await?).await
    }

    /// Waits until the status says this, field by field; what is not there is 0.
    async fn says(&self, wanted: Value) -> anyhow::Result<()> {
        let ask = async || {
            let set = serde_json::to_value(self.sets.get("web").await?)?;
            let seen = set["status"]["observedGeneration"] == set["metadata"]["generation"];
            let count = |field: &String| set["status"][field].as_i64().unwrap_or(0);
            let mut fields = wanted.as_object().into_iter().flatten();
            Ok((seen && fields.all(|(field, value)| *value == count(field))).then_some(()))
        };
        self.yard.world.eventually(&format!("a status of {wanted}"), ask).await
    }

    /// Lets pods become ready, and with that the rollout go on, until all are of the newest revision.
    async fn roll(&self, replicas: i32, missing_max: usize) -> anyhow::Result<()> {
        let ask = async || {
            let pods = self.yard.active_pods().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let least = usize::try_from(replicas)?.saturating_sub(missing_max);
            if let Some(pod) = pods.iter().find(|pod| !is_ready(pod)) {
                self.yard.say_ready(pod).await?;
            }
            let set = self.sets.get("web").await?;
            let status = set.status.unwrap_or_default();
            let counts = [status.updated_replicas, status.ready_replicas, status.current_replicas];
            let done = status.observed_generation == set.metadata.generation
                && status.current_revision == status.update_revision
                && counts == [Some(replicas); 3];
            Ok((done || ready < least).then_some(ready >= least))
        };
        ensure!(self.yard.world.eventually("the end of a rollout", ask).await?, "too few are ready");
        self.yard.world.stand_still("the rollout is over").await;
        Ok(())
    }

    /// The owners of a claim by kind; none if the claim is gone or on its way out.
    async fn claim(&self, name: &str) -> anyhow::Result<Option<Vec<String>>> {
        let claim = self.claims.get_opt(name).await?;
        let staying = claim.filter(|claim| claim.metadata.deletion_timestamp.is_none());
        let kinds = |claim: &PersistentVolumeClaim| {
            claim.owner_references().iter().map(|owner| owner.kind.clone()).collect()
        };
        Ok(staying.as_ref().map(kinds))
    }
}

fn claims_of(when_scaled: &str) -> Value {
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    json!({
        "replicas": 3,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        "persistentVolumeClaimRetentionPolicy": {"whenScaled": when_scaled, "whenDeleted": "Retain"},
    })
}

fn identity_is_right(pod: &Pod) -> anyhow::Result<()> {
    let pod = serde_json::to_value(pod)?;
    let labels = &pod["metadata"]["labels"];
    ensure!(labels["statefulset.kubernetes.io/pod-name"] == "web-2", "{labels}");
    ensure!(labels["apps.kubernetes.io/pod-index"] == "2", "{labels}");
    let hash = labels["controller-revision-hash"].as_str().unwrap_or_default();
    ensure!(hash.starts_with("web-"), "{labels}");
    let spec = &pod["spec"];
    ensure!(spec["hostname"] == "web-2" && spec["subdomain"] == "peers", "{spec}");
    ensure!(spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == "data-web-2", "{spec}");
    Ok(())
}

/// Proves STS-21, STS-22, STS-24, STS-42, STS-47, STS-50, STS-53, STS-58, STS-98, STS-100.
pub(crate) async fn a_stateful_set_starts_and_stops_in_order(world: &World) -> anyhow::Result<()> {
    let ranks = Ranks::form(world, "ordered", claims_of("Delete")).await?;
    for at in 0..3 {
        ranks.stops_at(&vec!["v1"; at + 1]).await?;
        ranks.say_ready(at).await?;
    }
    ranks.says(json!({"replicas": 3, "readyReplicas": 3, "availableReplicas": 3})).await?;
    identity_is_right(&ranks.yard.pods.get("web-2").await?)?;
    for at in 0..3 {
        let owners = ranks.claim(&format!("data-web-{at}")).await?;
        ensure!(owners.as_ref().is_some_and(Vec::is_empty), "data-web-{at} belongs to {owners:?}");
    }

    // The last goes first, and the next waits until it is gone.
    let pods = &ranks.yard.pods;
    hold(pods, "web-2", &["example.com/held"]).await?;
    ranks.change(json!({"replicas": 1})).await?;
    let line = |last| {
        let rank = |at: usize| (format!("web-{at}"), "v1".to_owned(), at < 2 || last);
        (0..3).map(rank).collect::<Vec<_>>()
    };
    let going = async || Ok((ranks.line().await? == line(false)).then_some(()));
    world.eventually("the last pod goes", going).await?;
    world.settle().await;
    ensure!(ranks.line().await? == line(false), "the next does not wait");
    world.stand_still("the last pod goes").await;
    hold(pods, "web-2", &[]).await?;
    ranks.becomes(&["v1"]).await?;
    for name in ["data-web-1", "data-web-2"] {
        let given_up = async || Ok(ranks.claim(name).await?.is_none().then_some(()));
        world.eventually(&format!("{name} goes"), given_up).await?;
    }
    ensure!(ranks.claim("data-web-0").await? == Some(Vec::new()), "the first keeps its claim");
    ranks.says(json!({"replicas": 1, "readyReplicas": 1, "currentReplicas": 1})).await?;
    let is_right = |messages: &[String]| {
        let told = |text: &str| messages.iter().filter(|message| *message == text).count() == 1;
        told("SuccessfulCreate Create Claim data-web-1 Pod web-1 in StatefulSet web success")
            && told("SuccessfulCreate Create Pod web-1 in StatefulSet web successful")
            && told("SuccessfulDelete Delete Pod web-1 in StatefulSet web successful")
    };
    ranks.yard.told("StatefulSet", is_right).await
}

/// Proves STS-29, STS-30, STS-44, STS-70, STS-86, STS-93, STS-117.
pub(crate) async fn a_stateful_set_rolls_down_to_its_partition(world: &World) -> anyhow::Result<()> {
    let ranks = Ranks::form(world, "partition", json!({"replicas": 3})).await?;
    ranks.roll(3, 3).await?;
    ranks.set_partition(2).await?;
    ranks.change_image("v2").await?;
    ranks.becomes(&["v1", "v1", "v2"]).await?;
    ranks.say_ready(2).await?;
    ranks.says(json!({"readyReplicas": 3, "currentReplicas": 2, "updatedReplicas": 1})).await?;
    // Below the partition what is lost comes back as it was.
    ranks.yard.pods.delete("web-0", &DeleteParams::default()).await?;
    ranks.says(json!({"readyReplicas": 2})).await?;
    ranks.stops_at(&["v1", "v1", "v2"]).await?;
    ranks.say_ready(0).await?;
    ranks.says(json!({"readyReplicas": 3, "currentReplicas": 2, "updatedReplicas": 1})).await?;

    ranks.set_partition(0).await?;
    ranks.stops_at(&["v1", "v2", "v2"]).await?;
    ranks.say_ready(1).await?;
    ranks.stops_at(&["v2", "v2", "v2"]).await?;
    ranks.roll(3, 1).await?;
    let told = |numbers: [(i64, &str); 2]| numbers.map(|(at, image)| (at, image.to_owned())).into();
    let revisions = ranks.yard.revisions().await?;
    ensure!(revisions == told([(1, "v1"), (2, "v2")]), "{revisions:?}");
    let name = ranks.sets.get("web").await?.status.and_then(|status| status.update_revision);

    // Back, and forth again: what is remembered is used.
    ranks.change_image("v1").await?;
    ranks.roll(3, 1).await?;
    let revisions = ranks.yard.revisions().await?;
    ensure!(revisions == told([(2, "v2"), (3, "v1")]), "{revisions:?}");
    ranks.change_image("v2").await?;
    ranks.roll(3, 1).await?;
    let revisions = ranks.yard.revisions().await?;
    ensure!(revisions == told([(3, "v1"), (4, "v2")]), "{revisions:?}");
    let again = ranks.sets.get("web").await?.status.and_then(|status| status.update_revision);
    ensure!(name == again, "{name:?} became {again:?}");
    Ok(())
}

/// Proves STS-41, STS-55, STS-71, STS-75.
pub(crate) async fn a_parallel_stateful_set_waits_for_nobody(world: &World) -> anyhow::Result<()> {
    let wishes = json!({
        "replicas": 4, "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
    });
    let ranks = Ranks::form(world, "parallel", wishes).await?;
    ranks.becomes(&["v1"; 4]).await?;
    ranks.roll(4, 4).await?;
    ranks.change_image("v2").await?;
    ranks.stops_at(&["v1", "v1", "v2", "v2"]).await?;
    ranks.roll(4, 2).await?;
    // Nobody's readiness is asked for on the way down, either.
    ranks.change(json!({"replicas": 6})).await?;
    ranks.becomes(&["v2"; 6]).await?;
    world.stand_still("all are there at once").await;
    ranks.change(json!({"replicas": 1})).await?;
    ranks.becomes(&["v2"]).await?;
    ranks.says(json!({"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1})).await
}

pub(crate) async fn a_stateful_set_changes_by_hand_and_takes_its_claims_along(
    world: &World,
) -> anyhow::Result<()> {
    let mut wishes = claims_of("Retain");
    wishes["replicas"] = json!(2);
    wishes["ordinals"] = json!({"start": 3});
    wishes["updateStrategy"] = json!({"type": "OnDelete"});
    wishes["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = json!("Delete");
    let ranks = Ranks::form(world, "by-hand", wishes).await?;
    let pods = &ranks.yard.pods;
    let stands = async |wanted: &[(&str, &str)]| {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, image)| ((*name).to_owned(), (*image).to_owned(), true)).collect();
        let ask = async || Ok((ranks.line().await? == wanted).then_some(()));
        world.eventually(&format!("pods {wanted:?}"), ask).await
    };
    stands(&[("web-3", "v1")]).await?;
    ranks.say_ready(3).await?;
    stands(&[("web-3", "v1"), ("web-4", "v1")]).await?;
    ranks.say_ready(4).await?;
    ranks.says(json!({"readyReplicas": 2, "updatedReplicas": 2})).await?;
    world.stand_still("all are there").await;

    ranks.change_image("v2").await?;
    ranks.says(json!({"readyReplicas": 2, "updatedReplicas": 0})).await?;
    world.stand_still("nothing moves by itself").await;
    pods.delete("web-4", &DeleteParams::default()).await?;
    stands(&[("web-3", "v1"), ("web-4", "v2")]).await?;
    ranks.say_ready(4).await?;
    ranks.says(json!({"readyReplicas": 2, "updatedReplicas": 1, "currentReplicas": 1})).await?;
    let owners = ranks.claim("data-web-4").await?;
    ensure!(owners == Some(vec!["StatefulSet".to_owned()]), "data-web-4 belongs to {owners:?}");
    world.stand_still("one was changed by hand").await;

    ranks.sets.delete("web", &DeleteParams::default()).await?;
    stands(&[]).await?;
    for name in ["data-web-3", "data-web-4"] {
        let given_up = async || Ok(ranks.claim(name).await?.is_none().then_some(()));
        world.eventually(&format!("{name} goes"), given_up).await?;
    }
    Ok(())
}
