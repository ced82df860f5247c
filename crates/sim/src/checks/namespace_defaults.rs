//! In the end every namespace has its default ServiceAccount and the root CA ConfigMap.

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::objects::{describe, is_terminating};
use crate::recorder::text;

/// Checks every namespace.
pub struct NamespaceDefaults;

impl Checker for NamespaceDefaults {
    fn name(&self) -> &'static str {
        "serviceaccount-controller and root-ca-certificate-publisher-controller"
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        for namespace in server.objects("namespaces").iter().filter(|namespace| !is_terminating(namespace)) {
            let name = text(namespace, "/metadata/name");
            if server.object("serviceaccounts", name, "default").is_none() {
                return Err(format!("{} has no default ServiceAccount", describe(namespace)));
            }
            let ca = server.object("configmaps", name, "kube-root-ca.crt");
            if ca.is_none_or(|ca| text(&ca, "/data/ca.crt") != "the CA") {
                return Err(format!("{} has no CA", describe(namespace)));
            }
        }
        Ok(())
    }
}
