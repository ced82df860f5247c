//! Managers send only requests that are well-formed and that RBAC grants them.

use http::Method;
use keleustes_apiserver::ApiServer;

use super::Checker;
use crate::recorder::ObservedWrite;

/// Checks rejected requests.
pub struct Access;

impl Checker for Access {
    fn name(&self) -> &'static str {
        "access"
    }

    fn on_write(&mut self, write: &ObservedWrite, server: &ApiServer) -> Result<(), String> {
        if !write.by_manager() {
            return Ok(());
        }
        match write.code {
            // Creates in a terminating namespace are forbidden to every client, and pods beyond a quota.
            403 if !namespace_is_terminating(server, &write.request.namespace)
                && !may_exceed_a_quota(write, server) =>
            {
                Err("the role does not grant this request (403)".to_owned())
            }
            400 | 405 | 415 => Err("the request is malformed (400, 405 or 415)".to_owned()),
            _ => Ok(()),
        }
    }
}

fn namespace_is_terminating(server: &ApiServer, namespace: &str) -> bool {
    server
        .object("namespaces", "", namespace)
        .is_none_or(|namespace| super::objects::is_terminating(&namespace))
}

fn may_exceed_a_quota(write: &ObservedWrite, server: &ApiServer) -> bool {
    let namespace = &write.request.namespace;
    let has_quota = || {
        let quotas = server.objects("resourcequotas");
        quotas.iter().any(|quota| super::objects::namespace(quota) == namespace)
    };
    write.request.resource == "pods" && write.request.method == Method::POST && has_quota()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refused_requests_are_reported_unless_a_quota_may_refuse_them() {
        let check = |has_quota: bool, path: &str| {
            let server = ApiServer::builder().build();
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
            server.seed(namespace).unwrap();
            if has_quota {
                let metadata = json!({"namespace": "default", "name": "oar"});
                let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata});
                server.seed(quota).unwrap();
            }
            let write = ObservedWrite::of_manager("job-controller", &Method::POST, path);
            Access.on_write(&ObservedWrite { code: 403, ..write }, &server)
        };
        let (pods, jobs) = ("/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs");
        let refused = Err("the role does not grant this request (403)".to_owned());
        assert_eq!(check(false, pods), refused);
        assert_eq!(check(true, pods), Ok(()));
        assert_eq!(check(true, jobs), refused);
    }
}
