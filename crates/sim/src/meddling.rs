//! Meddles with what controllers make: slices, tokens, revisions, roles, and who owns what.

use keleustes_client::Call;
use keleustes_objects::{
    ClusterRole, ControllerRevision, EndpointSlice, Key, Kind as _, Node, Pod, ReplicaSet, Resource,
    ServiceAccount, TokenSecret,
};
use serde_json::{Value, json};

use crate::bodies;
use crate::deeds::{Child, SliceTampering, TokenTampering, UserAction, node};
use crate::user::{User, key};

const ACCOUNTS: Resource = ServiceAccount::RESOURCE;
const SECRETS: Resource = TokenSecret::RESOURCE;
const SLICES: Resource = EndpointSlice::RESOURCE;
const REVISIONS: Resource = ControllerRevision::RESOURCE;
const ROLES: Resource = ClusterRole::RESOURCE;
/// A taint of the users' own.
const TAINT: &str = "example.com/keep-off";

impl User {
    pub(crate) async fn meddle(&self, deed: &UserAction) {
        match deed {
            UserAction::Disown(kind, namespace, number) => {
                let resource = match kind {
                    Child::Pod => Pod::RESOURCE,
                    Child::ReplicaSet => ReplicaSet::RESOURCE,
                    Child::ControllerRevision => REVISIONS,
                };
                if let Some(child) = self.one_of(&resource, namespace, *number).await {
                    let change = json!({"metadata": {"ownerReferences": null}});
                    self.merge(&resource, &key(&child), change).await;
                }
            }
            UserAction::AskToken(namespace, name, secret_first) => {
                if *secret_first {
                    self.create(&SECRETS, namespace, &bodies::token(name)).await;
                }
                self.create(&ACCOUNTS, namespace, &bodies::account(name)).await;
                self.create(&SECRETS, namespace, &bodies::token(name)).await;
            }
            UserAction::SpoilToken(namespace, name, harm) => self.spoil_token(namespace, name, *harm).await,
            UserAction::DropAccount(namespace, name, again) => {
                self.delete(&ACCOUNTS, &Key::namespaced(namespace.as_str(), name.as_str())).await;
                if *again {
                    self.create(&ACCOUNTS, namespace, &bodies::account(name)).await;
                }
            }
            UserAction::SpoilSlice(namespace, number, harm) => {
                if let Some(slice) = self.one_of(&SLICES, namespace, *number).await {
                    self.spoil_slice(&slice, *harm).await;
                }
            }
            UserAction::Reselect(thing, name, port) => {
                let change = bodies::reselected(name, *port);
                self.merge(&thing.kind.resource(), &thing.key(), change).await;
            }
            UserAction::DeleteRevision(namespace, number) => {
                if let Some(revision) = self.one_of(&REVISIONS, namespace, *number).await {
                    self.delete(&REVISIONS, &key(&revision)).await;
                }
            }
            _ => self.rule(deed).await,
        }
    }

    /// What is of the whole cluster: nodes and roles.
    async fn rule(&self, deed: &UserAction) {
        match deed {
            UserAction::Move(number, zone) => {
                let labels = json!({"topology.kubernetes.io/zone": format!("zone-{zone}")});
                let change = json!({"metadata": {"labels": labels}});
                self.merge(&Node::RESOURCE, &Key::cluster(node(*number)), change).await;
            }
            UserAction::Taint(number, taint) => self.set_taint(&Key::cluster(node(*number)), *taint).await,
            UserAction::Role => {
                let (role, whole) = (Key::cluster(bodies::WHOLE_ROLE), bodies::whole_role());
                self.create(&ROLES, "", &whole).await;
                self.merge(&ROLES, &role, json!({"rules": whole["rules"]})).await;
            }
            UserAction::RolePart(name, Some(allows)) => {
                let part = bodies::part_role(name, *allows);
                self.create(&ROLES, "", &part).await;
                self.merge(&ROLES, &Key::cluster(name.as_str()), json!({"rules": part["rules"]})).await;
            }
            UserAction::RolePart(name, None) => self.delete(&ROLES, &Key::cluster(name.as_str())).await,
            _ => {}
        }
    }

    /// Puts the users' own taint onto a node, or takes it off. A list of taints is written as a whole, whatever
    /// has become of it meanwhile.
    pub(crate) async fn set_taint(&self, node: &Key, taint: bool) {
        let found = self.send(&Call::get(&Node::RESOURCE, node)).await;
        let mut taints = found["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let before = taints.len();
        taints.retain(|there| there["key"] != TAINT);
        if taint {
            taints.push(json!({"key": TAINT, "effect": "NoExecute"}));
        }
        if taints.len() != before {
            self.merge(&Node::RESOURCE, node, json!({"spec": {"taints": taints}})).await;
        }
    }

    async fn spoil_token(&self, namespace: &str, account: &str, harm: TokenTampering) {
        let secret = Key::namespaced(namespace, bodies::token_name(account));
        match harm {
            TokenTampering::Empty => self.merge(&SECRETS, &secret, json!({"data": {"token": null}})).await,
            // "another CA"
            TokenTampering::Forge => {
                self.merge(&SECRETS, &secret, json!({"data": {"ca.crt": "YW5vdGhlciBDQQ=="}})).await;
            }
            TokenTampering::Delete => self.delete(&SECRETS, &secret).await,
            TokenTampering::Recreate => {
                self.delete(&SECRETS, &secret).await;
                self.create(&SECRETS, namespace, &bodies::token(account)).await;
            }
        }
    }

    async fn spoil_slice(&self, slice: &Value, harm: SliceTampering) {
        let key = key(slice);
        match harm {
            SliceTampering::Empty => self.merge(&SLICES, &key, json!({"endpoints": []})).await,
            SliceTampering::Forge => {
                let somebody = json!({"addresses": ["192.0.2.1"], "conditions": {"ready": true}});
                self.merge(&SLICES, &key, json!({"endpoints": [somebody]})).await;
            }
            SliceTampering::Delete => self.delete(&SLICES, &key).await,
            SliceTampering::Disclaim => {
                let labels = json!({"endpointslice.kubernetes.io/managed-by": null});
                self.merge(&SLICES, &key, json!({"metadata": {"labels": labels}})).await;
            }
        }
    }
}
