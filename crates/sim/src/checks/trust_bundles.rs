//! ClusterTrustBundles: only those of the API server's signer are written, and in the end one of them holds the CA.

use keleustes_apiserver::ApiServer;
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher::{
    ClusterTrustBundlePublisherOptions, ClusterTrustBundleVersion,
};
use keleustes_runtime::signing::sha256;
use serde_json::{Value, json};

use super::Checker;
use super::objects::describe;
use crate::recorder::{ObservedWrite, text};

/// The CA that the managers publish.
pub(crate) const CA: &str = include_str!("trust_bundle.pem");
/// Another CA.
pub(crate) const OTHER_CA: &str = include_str!("other_trust_bundle.pem");
pub(crate) const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
pub(crate) const PREFIX: &str = "kubernetes.io:kube-apiserver-serving:";
const RESOURCE: &str = "clustertrustbundles";
/// Bundles of no signer and of another one.
const FOREIGN: [(&str, Option<&str>); 2] =
    [("kept", None), ("example.com:own:kept", Some("example.com/own"))];

/// Follows the writes to bundles.
pub struct TrustBundles;

/// The options of the publisher.
pub(crate) fn publisher_options() -> ClusterTrustBundlePublisherOptions {
    let mut ca_hash = [0; 12];
    ca_hash.copy_from_slice(&sha256(CA.as_bytes())[..12]);
    ClusterTrustBundlePublisherOptions { ca: CA.into(), ca_hash, version: ClusterTrustBundleVersion::V1 }
}

/// The name of the bundle that is published.
pub(crate) fn published_name() -> String {
    let digits = sha256(CA.as_bytes()).iter().take(12).map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{PREFIX}{digits}")
}

/// A bundle with this text.
pub(crate) fn bundle(name: &str, signer: Option<&str>, text: &str) -> Value {
    let mut spec = json!({"trustBundle": text});
    if let Some(signer) = signer {
        spec["signerName"] = json!(signer);
    }
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": {"name": name}, "spec": spec,
    })
}

/// A bundle that a manager with another CA has left, and foreign ones, as they are when a storm begins.
pub(crate) fn initial_objects() -> Vec<Value> {
    let foreign = FOREIGN.map(|(name, signer)| bundle(name, signer, CA));
    foreign.into_iter().chain([bundle(&format!("{PREFIX}stale"), Some(SIGNER), OTHER_CA)]).collect()
}

impl Checker for TrustBundles {
    fn name(&self) -> &'static str {
        "kube-apiserver-serving-clustertrustbundle-publisher-controller"
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        if write.request.resource != RESOURCE || !write.by_manager() || !write.succeeded() {
            return Ok(());
        }
        let Some(object) = write.after.as_ref().or(write.before.as_ref()) else { return Ok(()) };
        if text(object, "/spec/signerName") != SIGNER {
            return Err(format!("{} was written, which is another signer's", describe(object)));
        }
        let is_published = text(object, "/metadata/name") == published_name();
        match &write.after {
            None if is_published => Err(format!("{} was deleted, which holds the CA", describe(object))),
            Some(_) if !is_published => Err(format!("{} was written under another name", describe(object))),
            Some(after) if text(after, "/spec/trustBundle") != CA => {
                Err(format!("{} was written with another CA", describe(object)))
            }
            _ => Ok(()),
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let bundles = server.objects(&format!("{RESOURCE}.certificates.k8s.io"));
        let of_signer: Vec<_> =
            bundles.iter().filter(|bundle| text(bundle, "/spec/signerName") == SIGNER).collect();
        let names: Vec<_> = of_signer.iter().map(|bundle| text(bundle, "/metadata/name")).collect();
        if names != [published_name().as_str()] {
            return Err(format!("the bundles of the API server are {names:?}"));
        }
        if text(of_signer[0], "/spec/trustBundle") != CA {
            return Err(format!("{} does not hold the CA", names[0]));
        }
        let is_there = |name: &str| bundles.iter().any(|bundle| text(bundle, "/metadata/name") == name);
        match FOREIGN.iter().find(|(name, _)| !is_there(name)) {
            Some((name, _)) => Err(format!("the bundle {name} is gone")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;

    #[test]
    fn writes_to_other_bundles_and_wrong_texts_are_reported() {
        let server = ApiServer::builder().build();
        let judged = |before: Option<Value>, after: Option<Value>| {
            let path = "/apis/certificates.k8s.io/v1/clustertrustbundles/b";
            let write = ObservedWrite {
                before: before.map(Arc::new),
                after: after.map(Arc::new),
                ..ObservedWrite::of_manager("publisher", &Method::PUT, path)
            };
            TrustBundles.on_write(&write, &server)
        };
        let own = |name: &str, text: &str| Some(bundle(name, Some(SIGNER), text));
        let (published, stale) = (published_name(), format!("{PREFIX}stale"));
        assert_eq!(judged(None, own(&published, CA)), Ok(()));
        assert_eq!(judged(own(&published, OTHER_CA), own(&published, CA)), Ok(()));
        assert_eq!(judged(own(&stale, OTHER_CA), None), Ok(()));
        for (before, after, words) in [
            (own(&published, CA), None, "which holds the CA"),
            (None, own(&published, OTHER_CA), "with another CA"),
            (None, own(&stale, CA), "under another name"),
            (Some(bundle("kept", None, CA)), None, "which is another signer's"),
            (
                None,
                Some(bundle("example.com:own:x", Some("example.com/own"), CA)),
                "which is another signer's",
            ),
        ] {
            let error = judged(before, after).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn one_bundle_with_the_ca_and_the_foreign_ones_have_converged() {
        let server = ApiServer::builder().build();
        initial_objects().into_iter().for_each(|object| drop(server.seed(object).unwrap()));
        let error = || TrustBundles.check_converged(&server).unwrap_err();
        assert!(error().contains("stale"));
        let bundles = "clustertrustbundles.certificates.k8s.io";
        assert!(server.remove(bundles, "", &format!("{PREFIX}stale")));
        assert!(error().ends_with("are []"));
        server.seed(bundle(&published_name(), Some(SIGNER), OTHER_CA)).unwrap();
        assert!(error().ends_with("does not hold the CA"));
        server.seed(bundle(&published_name(), Some(SIGNER), CA)).unwrap();
        assert_eq!(TrustBundles.check_converged(&server), Ok(()));
        assert!(server.remove(bundles, "", "kept"));
        assert_eq!(error(), "the bundle kept is gone");
    }
}
