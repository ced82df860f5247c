//! User actions on bootstrap tokens, cluster-info, legacy tokens and the bundle of the API server's CA.

use jiff::Timestamp;
use keleustes_objects::{BootstrapToken, ClusterInfo, ClusterTrustBundle, Key, Kind as _, Resource};
use serde_json::{Value, json};

use crate::actions::CredentialChange;
use crate::checks::{bootstrap_tokens, legacy_tokens, trust_bundles};
use crate::storm::START_NANOSECONDS;
use crate::user::SimulatedUser;

const SECRETS: Resource = BootstrapToken::RESOURCE;
const CONFIG_MAPS: Resource = ClusterInfo::RESOURCE;
const BUNDLES: Resource = ClusterTrustBundle::RESOURCE;

fn token_id(number: u8) -> String {
    format!("user{number:02}")
}

impl SimulatedUser {
    pub(crate) async fn change_credentials(&self, change: CredentialChange) {
        let info = Key::namespaced("kube-public", "cluster-info");
        let published = || Key::cluster(trust_bundles::published_name());
        match change {
            CredentialChange::SetKubeconfig(number) => {
                let kubeconfig = format!("kind: Config\nnumber: {number}\n");
                self.merge(&CONFIG_MAPS, &info, json!({"data": {"kubeconfig": kubeconfig}})).await;
            }
            CredentialChange::BreakSignatures => {
                let broken: Value = json!({"jws-kubeconfig-never0": "x", "jws-kubeconfig-later0": null});
                self.merge(&CONFIG_MAPS, &info, json!({"data": broken})).await;
            }
            CredentialChange::ReplaceToken(number, seconds) => {
                let name = Key::namespaced("kube-system", format!("bootstrap-token-{}", token_id(number)));
                self.delete(&SECRETS, &name).await;
                let start = START_NANOSECONDS / 1_000_000_000;
                let expiration =
                    seconds.and_then(|seconds| Timestamp::from_second(start + i64::from(seconds)).ok());
                let expiration = expiration.map(|time| time.to_string()).unwrap_or_default();
                let secret = format!("{number:08}{:08}", seconds.unwrap_or_default());
                let token = bootstrap_tokens::token(&token_id(number), &secret, &expiration);
                self.create(&SECRETS, "kube-system", &token).await;
            }
            CredentialChange::DeleteToken(number) => {
                let name = format!("bootstrap-token-{}", token_id(number));
                self.delete(&SECRETS, &Key::namespaced("kube-system", name)).await;
            }
            CredentialChange::RestoreLegacyToken => {
                let (secret, labels) = legacy_tokens::restored();
                self.merge(&SECRETS, &secret, labels).await;
            }
            CredentialChange::ReplaceBundle => {
                let change = json!({"spec": {"trustBundle": trust_bundles::OTHER_CA}});
                self.merge(&BUNDLES, &published(), change).await;
            }
            CredentialChange::LabelBundle(number) => {
                let change = json!({"metadata": {"labels": {"number": number.to_string()}}});
                self.merge(&BUNDLES, &published(), change).await;
            }
            CredentialChange::DeleteBundle => self.delete(&BUNDLES, &published()).await,
            CredentialChange::AddBundle(number) => {
                let name = format!("{}user{number}", trust_bundles::PREFIX);
                let other =
                    trust_bundles::bundle(&name, Some(trust_bundles::SIGNER), trust_bundles::OTHER_CA);
                self.create(&BUNDLES, "", &other).await;
            }
        }
    }
}
