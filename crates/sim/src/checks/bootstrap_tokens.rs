//! Bootstrap tokens: only expired ones are deleted, and in the end exactly the others sign cluster-info.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use keleustes_apiserver::ApiServer;
use keleustes_objects::SecretBytes;
use keleustes_runtime::signing::hmac_sha256;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Checker;
use super::objects::describe;
use crate::recorder::{ObservedWrite, text};
use crate::storm::START_NANOSECONDS;

/// Compares cluster-info with the bootstrap tokens.
pub struct BootstrapTokens {
    /// When the storm began.
    began: Instant,
    /// How far the clocks of managers may be ahead, in seconds.
    ahead: i64,
    /// A refused delete of an expired token is not repeated, by the original neither: the token is left until something
    /// happens to it, and does not authenticate.
    had_fault: bool,
}

impl Default for BootstrapTokens {
    fn default() -> Self {
        Self { began: Instant::now(), ahead: 0, had_fault: false }
    }
}

/// How far a clock jumps at most, in seconds.
const JUMP_MAX: i64 = 300;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
/// The tokens of every storm by id, with their expiration. No clock of a storm reaches the later ones, nor goes back
/// behind the earlier ones. Users add and delete others, which expire during the storm.
const TOKENS: [(&str, &str); 4] = [
    ("never0", ""),
    ("later0", "2099-01-01T00:00:00Z"),
    ("past00", "2001-01-01T00:00:00Z"),
    ("broken", "2099-01-01"),
];

/// cluster-info with an outdated signature, and the tokens, as they are when a storm begins.
pub(crate) fn initial_objects() -> Vec<Value> {
    let token = |(id, expiration): (&str, &str)| token(id, "0123456789abcdef", expiration);
    let info = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-public", "name": "cluster-info"},
        "data": {"kubeconfig": "kind: Config\n", "other": "kept", "jws-kubeconfig-stale0": "x"},
    });
    TOKENS.into_iter().map(token).chain([info]).collect()
}

/// A token that signs.
pub(crate) fn token(id: &str, secret: &str, expiration: &str) -> Value {
    let encode = |text: &str| json!(BASE64_STANDARD.encode(text));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": TYPE,
        "metadata": {"namespace": "kube-system", "name": format!("bootstrap-token-{id}")},
        "data": {"token-id": encode(id), "token-secret": encode(secret),
                 "expiration": encode(expiration), "usage-bootstrap-signing": encode("true")},
    })
}

fn is_token(secret: &Value) -> bool {
    text(secret, "/type") == TYPE
}

/// Whether a token has expired at a time in seconds since the start of the storm; one whose expiration is no time always has.
fn is_expired(secret: &Value, seconds: i64) -> bool {
    let expiration = BASE64_STANDARD.decode(text(secret, "/data/expiration")).unwrap_or_default();
    let expiration = String::from_utf8(expiration).unwrap_or_default();
    let now = START_NANOSECONDS + seconds * NANOSECONDS;
    !expiration.is_empty()
        && expiration.parse::<Timestamp>().map_or(true, |time| time.as_nanosecond() <= i128::from(now))
}

const NANOSECONDS: i64 = 1_000_000_000;

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

impl Checker for BootstrapTokens {
    fn name(&self) -> &'static str {
        "token-cleaner-controller and bootstrap-signer-controller"
    }

    fn on_fault(&mut self, _: Duration) {
        self.had_fault = true;
    }

    fn on_clock_jump(&mut self) {
        self.ahead += JUMP_MAX;
    }

    fn on_write(&mut self, write: &ObservedWrite, _: &ApiServer) -> Result<(), String> {
        let deleted = write.before.as_ref().filter(|before| write.after.is_none() && is_token(before));
        let now = seconds(write.at) + 1 + self.ahead;
        match deleted.filter(|before| write.by_manager() && write.succeeded() && !is_expired(before, now)) {
            Some(before) => Err(format!("{} was deleted, which has not expired", describe(before))),
            None => Ok(()),
        }
    }

    fn check_converged(&self, server: &ApiServer) -> Result<(), String> {
        let secrets = server.objects("secrets");
        let now = seconds(self.began.elapsed());
        let (expired, usable): (Vec<_>, Vec<_>) =
            secrets.iter().filter(|secret| is_token(secret)).partition(|secret| is_expired(secret, now));
        if let Some(expired) = expired.first().filter(|_| !self.had_fault) {
            return Err(format!("{} has expired and is left", describe(expired)));
        }
        let info =
            server.object("configmaps", "kube-public", "cluster-info").ok_or("cluster-info is gone")?;
        let content = text(&info, "/data/kubeconfig");
        let id_of = |secret: &Value| {
            Some(text(secret, "/metadata/name").strip_prefix("bootstrap-token-")?.to_owned())
        };
        let left: Vec<String> = expired
            .iter()
            .filter_map(|secret| Some(format!("{SIGNATURE_PREFIX}{}", id_of(secret)?)))
            .collect();
        let wanted: BTreeMap<String, String> = usable
            .iter()
            .filter_map(|secret| {
                let id = &id_of(secret)?;
                let key: SecretBytes = serde_json::from_value(secret["data"]["token-secret"].clone()).ok()?;
                Some((format!("{SIGNATURE_PREFIX}{id}"), signature(content, id, &key)))
            })
            .collect();
        let found: BTreeMap<String, String> = info["data"]
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.starts_with(SIGNATURE_PREFIX) && !left.contains(key))
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        if found != wanted {
            return Err(format!("cluster-info is signed by {:?}, not by {:?}", found.keys(), wanted.keys()));
        }
        if text(&info, "/data/other") != "kept" {
            return Err("cluster-info lost data that is no signature".to_owned());
        }
        Ok(())
    }
}

/// RFC 7515 with HS256 and a detached payload, independent of the controller's code.
fn signature(content: &str, id: &str, key: &SecretBytes) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}"));
    let payload = BASE64_URL_SAFE_NO_PAD.encode(content);
    let mac = hmac_sha256(key, format!("{header}.{payload}").as_bytes());
    format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;

    use super::*;

    #[test]
    fn deletion_of_a_token_that_has_not_expired_is_reported() {
        let server = ApiServer::builder().build();
        let deletion = |id: &str| {
            let name = format!("bootstrap-token-{id}");
            let path = format!("/api/v1/namespaces/kube-system/secrets/{name}");
            let token =
                initial_objects().into_iter().find(|object| object["metadata"]["name"] == name.as_str());
            ObservedWrite {
                before: token.map(Arc::new),
                ..ObservedWrite::of_manager("token-cleaner", &Method::DELETE, &path)
            }
        };
        for id in ["past00", "broken"] {
            assert_eq!(BootstrapTokens::default().on_write(&deletion(id), &server), Ok(()));
        }
        for id in ["never0", "later0"] {
            let error = BootstrapTokens::default().on_write(&deletion(id), &server).unwrap_err();
            let token = format!("Secret kube-system/bootstrap-token-{id}");
            assert_eq!(error, format!("{token} was deleted, which has not expired"));
            let by_user = ObservedWrite { party: "user".into(), ..deletion(id) };
            assert_eq!(BootstrapTokens::default().on_write(&by_user, &server), Ok(()));
        }
    }

    #[test]
    fn token_that_expires_during_a_storm_is_deleted_then_and_not_before() {
        let server = ApiServer::builder().build();
        let expiration = Timestamp::from_second(START_NANOSECONDS / NANOSECONDS + 60).unwrap().to_string();
        let deletion = |at: u64| ObservedWrite {
            at: Duration::from_secs(at),
            before: Some(Arc::new(token("short0", "s", &expiration))),
            ..ObservedWrite::of_manager(
                "token-cleaner",
                &Method::DELETE,
                "/api/v1/namespaces/kube-system/secrets/x",
            )
        };
        let mut checker = BootstrapTokens::default();
        assert_eq!(checker.on_write(&deletion(60), &server), Ok(()));
        assert!(checker.on_write(&deletion(50), &server).is_err());
        checker.on_clock_jump();
        assert_eq!(checker.on_write(&deletion(50), &server), Ok(()), "a clock that is ahead");
        server.seed(token("short0", "s", &expiration)).unwrap();
        let minute_ago = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        let mut checker = BootstrapTokens { began: minute_ago, ..BootstrapTokens::default() };
        assert!(checker.check_converged(&server).unwrap_err().ends_with("has expired and is left"));
        checker.on_fault(Duration::ZERO);
        assert_eq!(
            checker.check_converged(&server).unwrap_err(),
            "cluster-info is gone",
            "its delete may be refused"
        );
    }

    #[test]
    fn expired_tokens_and_wrong_signatures_have_not_converged() {
        let server = ApiServer::builder().build();
        for object in initial_objects() {
            server.seed(object).unwrap();
        }
        let error = |server: &ApiServer| BootstrapTokens::default().check_converged(server).unwrap_err();
        assert!(error(&server).ends_with("has expired and is left"));
        for id in ["past00", "broken"] {
            assert!(server.remove("secrets", "kube-system", &format!("bootstrap-token-{id}")));
        }
        assert!(error(&server).starts_with("cluster-info is signed by [\"jws-kubeconfig-stale0\"]"));
        let key: SecretBytes =
            serde_json::from_value(json!(BASE64_STANDARD.encode("0123456789abcdef"))).unwrap();
        let signed = |id: &str| signature("kind: Config\n", id, &key);
        let info = |other: &str, later: &str| {
            let data = json!({"kubeconfig": "kind: Config\n", "other": other,
                "jws-kubeconfig-never0": signed("never0"), "jws-kubeconfig-later0": later});
            let metadata = json!({"namespace": "kube-public", "name": "cluster-info"});
            server
                .seed(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
                .unwrap();
        };
        info("kept", &signed("later0"));
        assert_eq!(BootstrapTokens::default().check_converged(&server), Ok(()));
        info("kept", &signed("never0"));
        assert!(error(&server).starts_with("cluster-info is signed by"));
        info("lost", &signed("later0"));
        assert_eq!(error(&server), "cluster-info lost data that is no signature");
        assert!(server.remove("configmaps", "kube-public", "cluster-info"));
        assert_eq!(error(&server), "cluster-info is gone");
    }
}
