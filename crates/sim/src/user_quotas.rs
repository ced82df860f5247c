//! User actions about ResourceQuotas, and about objects of a custom kind that they count.

use keleustes_objects::{CustomResourceDefinition, Key, Kind as _, Resource, ResourceQuota};
use serde_json::{Map, json};

use crate::actions::UserAction;
use crate::bodies;
use crate::generate::NAMESPACES;
use crate::user::{SimulatedUser, key};

const QUOTAS: Resource = ResourceQuota::RESOURCE;
const WIDGETS: Resource = Resource::namespaced(bodies::WIDGETS.1, "v1", bodies::WIDGETS.0, "Widget");

impl SimulatedUser {
    /// Performs an action about quotas; false if it is about something else.
    pub(crate) async fn change_quotas(&self, action: &UserAction) -> bool {
        match action {
            UserAction::CreateQuota(namespace, name) => {
                let hard = json!({"pods": "9999", "count/pods": "9999", "services": "9999", "count/configmaps": "9999"});
                let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
                self.create(&QUOTAS, namespace, &quota).await;
            }
            UserAction::ChangeQuota(namespace, name) => {
                let hard = json!({"pods": "8888", "services": null, "secrets": "9999"});
                let key = Key::namespaced(namespace.as_str(), name.as_str());
                self.merge(&QUOTAS, &key, json!({"spec": {"hard": hard}})).await;
            }
            UserAction::SetQuota(namespace, name, spec) => {
                // Scopes cannot be changed.
                self.delete(&QUOTAS, &Key::namespaced(namespace.as_str(), name.as_str())).await;
                if let Some(spec) = spec {
                    self.create(&QUOTAS, namespace, &bodies::quota(name, *spec)).await;
                }
            }
            UserAction::LiftQuotas => self.lift_quotas().await,
            UserAction::DefineWidgets => {
                self.create(&CustomResourceDefinition::RESOURCE, "", &bodies::widget_definition()).await;
            }
            UserAction::SetWidget(namespace, name, true) => {
                self.create(&WIDGETS, namespace, &bodies::widget(name)).await;
            }
            UserAction::SetWidget(namespace, name, false) => {
                self.delete(&WIDGETS, &Key::namespaced(namespace.as_str(), name.as_str())).await;
            }
            _ => return false,
        }
        true
    }

    /// Raises all limits, so that they refuse nothing more.
    pub(crate) async fn lift_quotas(&self) {
        for namespace in NAMESPACES {
            for quota in self.list(&QUOTAS, namespace).await {
                let limits = quota["spec"]["hard"].as_object().into_iter().flatten();
                let hard: Map<_, _> = limits.map(|(name, _)| (name.clone(), json!("9999Gi"))).collect();
                self.merge(&QUOTAS, &key(&quota), json!({"spec": {"hard": hard}})).await;
            }
        }
    }
}
