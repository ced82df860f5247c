//! User actions on ServiceCIDRs and Services with addresses of them.

use keleustes_objects::{Key, Kind as _, Resource, Service, ServiceCidr};
use serde_json::json;

use crate::actions::ServiceRangeChange;
use crate::user::SimulatedUser;

const RANGES: Resource = ServiceCidr::RESOURCE;
const SERVICES: Resource = Service::RESOURCE;

/// Ranges, of which some contain others and none is another's equal, each with an address that no smaller range has.
const CIDRS: [(&str, &str); 4] = [
    ("10.97.0.0/24", "10.97.0.200"),
    ("10.97.0.0/27", "10.97.0.20"),
    ("10.97.0.0/28", "10.97.0.5"),
    ("10.98.0.0/24", "10.98.0.5"),
];
const NAMESPACE: &str = "default";

impl SimulatedUser {
    pub(crate) async fn change_service_range(&self, number: u8, change: ServiceRangeChange) {
        let number = usize::from(number) % CIDRS.len();
        let (cidr, address) = CIDRS[number];
        let (range, service) = (format!("range-{number}"), format!("in-range-{number}"));
        match change {
            ServiceRangeChange::Create => {
                let body = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
                    "metadata": {"name": range}, "spec": {"cidrs": [cidr]}});
                self.create(&RANGES, "", &body).await;
            }
            ServiceRangeChange::Delete => self.delete(&RANGES, &Key::cluster(range)).await,
            ServiceRangeChange::CreateService => {
                let body = json!({"apiVersion": "v1", "kind": "Service",
                    "metadata": {"name": service, "namespace": NAMESPACE},
                    "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
                self.create(&SERVICES, NAMESPACE, &body).await;
            }
            ServiceRangeChange::DeleteService => {
                self.delete(&SERVICES, &Key::namespaced(NAMESPACE, service)).await;
            }
        }
    }
}
