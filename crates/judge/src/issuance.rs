//! Certificates for the key of a PodCertificateRequest that begin now: the server refuses to store others.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// The public key of `stubPKCS10Request` of the generated requests: an uncompressed point of P-256.
const POINT: &str =
    "BB089MRviYet8xuBgx489h8pxN1JIjgyR7r0z8Mg5QvvukR/bTmrapzeV8NAVim5EG1aKFOW41x6m5rM3sHtXm4=";

/// A placeholder of a certificate and the minutes for which it is valid.
const CHAINS: [(&str, i64); 3] = [("{chain}", 120), ("{short-chain}", 59), ("{long-chain}", 48 * 60)];

/// Values of placeholders: certificates and times.
#[derive(Debug, Clone, Default)]
pub struct Issuance(Vec<(&'static str, String)>);

struct StubKey(Vec<u8>);

impl rcgen::PublicKeyData for StubKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl Issuance {
    /// Certificates and times from now on; empty if there are none, which fails the requests that need them.
    #[must_use]
    pub fn now() -> Self {
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH);
        let after = |minutes: i64| now + SignedDuration::from_mins(minutes);
        let times = [
            ("{now}", 0),
            ("{later}", CHAINS[0].1),
            ("{soon}", CHAINS[1].1),
            ("{much-later}", CHAINS[2].1),
            ("{early}", 9),
            ("{refresh}", 60),
            ("{late}", CHAINS[0].1 - 9),
        ];
        let times = times.into_iter().map(|(name, minutes)| (name, after(minutes).to_string()));
        let chains =
            CHAINS.into_iter().filter_map(|(name, minutes)| Some((name, chain(now, after(minutes))?)));
        Self(times.chain(chains).collect())
    }

    /// The value of a placeholder.
    #[must_use]
    pub fn value(&self, placeholder: &str) -> Option<Value> {
        let found = self.0.iter().find(|(name, _)| *name == placeholder);
        found.map(|(_, value)| Value::from(value.as_str()))
    }
}

/// A certificate for the key of the stub by a new CA.
fn chain(from: Timestamp, to: Timestamp) -> Option<String> {
    let key = rcgen::KeyPair::generate().ok()?;
    let ca = rcgen::Issuer::new(rcgen::CertificateParams::default(), key);
    let mut parameters = rcgen::CertificateParams::default();
    let seconds = |time: Timestamp| {
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(time.as_second().unsigned_abs())
    };
    (parameters.not_before, parameters.not_after) = (seconds(from), seconds(to));
    Some(parameters.signed_by(&StubKey(BASE64_STANDARD.decode(POINT).ok()?), &ca).ok()?.pem())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_for_the_key_of_the_stub() {
        let issuance = Issuance::now();
        for (name, _) in CHAINS {
            let chain = issuance.value(name).unwrap();
            let issued = keleustes_x509::certificates_from_pem(chain.as_str().unwrap().as_bytes()).unwrap();
            let key = &issued[0].public_key;
            assert!(
                matches!(key, keleustes_x509::PublicKey::Ecdsa { point, .. } if BASE64_STANDARD.encode(point) == POINT),
                "{key:?}"
            );
        }
        assert!(issuance.value("{now}").unwrap().as_str().unwrap().ends_with('Z'));
        assert_eq!(issuance.value("now"), None);
    }
}
