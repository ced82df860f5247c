//! Versions, suites and curves by the names the original's flags have for them.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::version::{TLS12, TLS13};
use rustls::{NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};

use crate::ServingError;

const VERSION_FLAG: &str = "--tls-min-version";
const SUITES_FLAG: &str = "--tls-cipher-suites";
const CURVES_FLAG: &str = "--tls-curve-preferences";

/// Suites of TLS 1.2 that can be spoken here, by the names of the original; two have an old name as well.
const SUITES: [(&str, SupportedCipherSuite); 8] = {
    use rustls::crypto::aws_lc_rs::cipher_suite as suite;
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ]
};

/// Suites of TLS 1.3; the original takes their names and offers all of them whatever the flag says.
const SUITES_OF_TLS13: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// Suites that the original can speak and we cannot: no forward secrecy, CBC, RC4 or 3DES.
const SUITES_NOT_SPOKEN: [&str; 15] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Curves that the original knows and we cannot use: P-521 and the larger hybrid.
const CURVES_NOT_SPOKEN: [u16; 2] = [25, 4589];

/// Which TLS is spoken. The default is TLS 1.2 and up, with all suites and curves there are.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    only_tls13: bool,
    /// All if `None`.
    suites: Option<Vec<SupportedCipherSuite>>,
    /// All if empty.
    curves: Vec<NamedGroup>,
    /// What was asked for and is not done, to be told when serving begins.
    left_out: Vec<String>,
}

impl TlsOptions {
    /// Reads `--tls-min-version`, `--tls-cipher-suites` and `--tls-curve-preferences`; an empty value is
    /// the default.
    ///
    /// What the original would offer on top and we cannot (TLS 1.0 and 1.1, suites without forward
    /// secrecy, P-521) is left out with a warning as long as something remains: such lists say what is
    /// allowed, not what must be.
    ///
    /// # Errors
    /// Names the flag whose value is unknown or leaves nothing to speak.
    pub fn parse(
        min_version: &str,
        cipher_suites: &[String],
        curve_preferences: &[i32],
    ) -> Result<Self, ServingError> {
        let mut options = Self::default();
        options.read_version(min_version)?;
        options.read_suites(cipher_suites)?;
        options.read_curves(curve_preferences)?;
        Ok(options)
    }

    fn read_version(&mut self, name: &str) -> Result<(), ServingError> {
        match name {
            "" | "VersionTLS12" => {}
            "VersionTLS13" => self.only_tls13 = true,
            "VersionTLS10" | "VersionTLS11" => {
                self.left_out.push(format!("{VERSION_FLAG}={name}: clients need TLS 1.2 or 1.3"));
            }
            _ => return Err(bad(VERSION_FLAG, format!("unknown tls version {name:?}"))),
        }
        Ok(())
    }

    fn read_suites(&mut self, names: &[String]) -> Result<(), ServingError> {
        if names.is_empty() {
            return Ok(());
        }
        let mut suites = Vec::new();
        let mut known = 0;
        for name in names {
            if let Some((_, suite)) = SUITES.iter().find(|(known, _)| known == name) {
                suites.push(*suite);
            } else if SUITES_NOT_SPOKEN.contains(&name.as_str()) {
                self.left_out.push(format!("{SUITES_FLAG}: {name} is not spoken here"));
                known += 1;
            } else if !SUITES_OF_TLS13.contains(&name.as_str()) {
                let fault = format!("Cipher suite {name} not supported or doesn't exist");
                return Err(bad(SUITES_FLAG, fault));
            }
        }
        if known == names.len() && !self.only_tls13 {
            let fault = "none of these suites is spoken here (no forward secrecy, CBC, RC4 or 3DES)";
            return Err(bad(SUITES_FLAG, fault.to_owned()));
        }
        self.suites = Some(suites);
        Ok(())
    }

    fn read_curves(&mut self, ids: &[i32]) -> Result<(), ServingError> {
        let mut seen = Vec::new();
        for id in ids {
            let Some(curve) = u16::try_from(*id).ok().filter(|id| *id > 0) else {
                let fault = format!("curve preference {id} is out of range (must be 1-65535)");
                return Err(bad(CURVES_FLAG, fault));
            };
            if seen.contains(&curve) {
                return Err(bad(CURVES_FLAG, format!("duplicate curve preference {id}")));
            }
            seen.push(curve);
            if groups().any(|group| u16::from(group.name()) == curve) {
                self.curves.push(curve.into());
            } else if CURVES_NOT_SPOKEN.contains(&curve) {
                self.left_out.push(format!("{CURVES_FLAG}: curve {curve} is not spoken here"));
            } else {
                return Err(bad(CURVES_FLAG, format!("curve preference {id} is not supported")));
            }
        }
        if !seen.is_empty() && self.curves.is_empty() {
            return Err(bad(CURVES_FLAG, "none of these curves is spoken here".to_owned()));
        }
        Ok(())
    }

    /// What was asked for and is not done.
    pub(crate) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static NEW: [&SupportedProtocolVersion; 1] = [&TLS13];
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        let without_tls12 = self.suites.as_ref().is_some_and(Vec::is_empty);
        if self.only_tls13 || without_tls12 { &NEW } else { &BOTH }
    }

    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = aws_lc_rs::default_provider();
        if let Some(suites) = &self.suites {
            provider.cipher_suites.retain(|suite| suite.tls13().is_some() || suites.contains(suite));
        }
        if !self.curves.is_empty() {
            // The order of the flag does not count; which is tried first is the library's choice.
            provider.kx_groups = groups().filter(|group| self.curves.contains(&group.name())).collect();
        }
        provider
    }
}

/// All curves there are, the usual ones first.
fn groups() -> impl Iterator<Item = &'static dyn SupportedKxGroup> {
    let usual = aws_lc_rs::DEFAULT_KX_GROUPS.iter().copied();
    let rest = aws_lc_rs::ALL_KX_GROUPS.iter().copied();
    usual.clone().chain(rest.filter(move |group| !usual.clone().any(|other| other.name() == group.name())))
}

fn bad(flag: &'static str, fault: String) -> ServingError {
    ServingError::Option { flag, fault }
}

#[cfg(test)]
mod tests {
    use rustls::CipherSuite;

    use super::*;

    fn parse(version: &str, suites: &[&str], curves: &[i32]) -> Result<TlsOptions, String> {
        let suites: Vec<_> = suites.iter().map(|name| (*name).to_owned()).collect();
        TlsOptions::parse(version, &suites, curves).map_err(|error| error.to_string())
    }

    fn suites(options: &TlsOptions) -> Vec<CipherSuite> {
        let suites = options.provider().cipher_suites;
        suites.iter().filter(|suite| suite.tls13().is_none()).map(SupportedCipherSuite::suite).collect()
    }

    fn curves(options: &TlsOptions) -> Vec<u16> {
        options.provider().kx_groups.iter().map(|group| group.name().into()).collect()
    }

    /// Proves SRV-11.
    #[test]
    fn flags_narrow_what_is_spoken() {
        let all = parse("", &[], &[]).unwrap();
        assert_eq!((all.versions().len(), suites(&all).len()), (2, 6));
        assert_eq!(parse("VersionTLS12", &[], &[]).unwrap().versions().len(), 2);
        assert_eq!(parse("VersionTLS13", &[], &[]).unwrap().versions().len(), 1);
        let one = parse("", &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], &[23, 29]).unwrap();
        assert_eq!(suites(&one), [CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]);
        assert_eq!(one.versions().len(), 2);
        assert_eq!(curves(&one), [29, 23], "the order of the flag does not count");
        let modern = parse("", &["TLS_AES_128_GCM_SHA256"], &[4588]).unwrap();
        assert_eq!((modern.versions().len(), suites(&modern).len()), (1, 0));
        assert_eq!(modern.provider().cipher_suites.len(), 3, "suites of TLS 1.3 cannot be chosen");
        assert_eq!(curves(&modern), [4588]);
    }

    #[test]
    fn what_cannot_be_spoken_is_told() {
        let old = parse("VersionTLS10", &["TLS_RSA_WITH_RC4_128_SHA", "TLS_AES_128_GCM_SHA256"], &[25, 23]);
        assert_eq!(
            old.unwrap().left_out(),
            [
                "--tls-min-version=VersionTLS10: clients need TLS 1.2 or 1.3",
                "--tls-cipher-suites: TLS_RSA_WITH_RC4_128_SHA is not spoken here",
                "--tls-curve-preferences: curve 25 is not spoken here",
            ]
        );
        parse("VersionTLS13", &["TLS_RSA_WITH_RC4_128_SHA"], &[]).unwrap();
    }

    #[test]
    fn what_is_unknown_or_leaves_nothing_is_refused() {
        let rows: [(&str, &[&str], &[i32], &str); 8] = [
            ("VersionTLS14", &[], &[], "--tls-min-version: unknown tls version \"VersionTLS14\""),
            ("1.2", &[], &[], "--tls-min-version: unknown tls version \"1.2\""),
            ("", &["TLS_X"], &[], "--tls-cipher-suites: Cipher suite TLS_X not supported or doesn't exist"),
            (
                "",
                &["TLS_RSA_WITH_RC4_128_SHA"],
                &[],
                "--tls-cipher-suites: none of these suites is spoken here (no forward secrecy, CBC, RC4 or 3DES)",
            ),
            ("", &[], &[0], "--tls-curve-preferences: curve preference 0 is out of range (must be 1-65535)"),
            ("", &[], &[23, 23], "--tls-curve-preferences: duplicate curve preference 23"),
            ("", &[], &[9999], "--tls-curve-preferences: curve preference 9999 is not supported"),
            ("", &[], &[25], "--tls-curve-preferences: none of these curves is spoken here"),
        ];
        for (version, suites, curves, fault) in rows {
            assert_eq!(parse(version, suites, curves).unwrap_err(), fault);
        }
    }
}
