//! What every namespace is given: the default account and the CA.

use keleustes_apiserver::ApiServer;

use super::Checker;
use super::look::{going, named};
use crate::witness::text;

/// Looks into every namespace.
pub struct Accounts;

impl Checker for Accounts {
    fn name(&self) -> &'static str {
        "serviceaccount-controller and root-ca-certificate-publisher-controller"
    }

    fn calm(&self, server: &ApiServer) -> Result<(), String> {
        for namespace in server.objects("namespaces").iter().filter(|namespace| !going(namespace)) {
            let name = text(namespace, "/metadata/name");
            if server.object("serviceaccounts", name, "default").is_none() {
                return Err(format!("{} has no default account", named(namespace)));
            }
            let ca = server.object("configmaps", name, "kube-root-ca.crt");
            if ca.is_none_or(|ca| text(&ca, "/data/ca.crt") != "the CA") {
                return Err(format!("{} has no CA", named(namespace)));
            }
        }
        Ok(())
    }
}
