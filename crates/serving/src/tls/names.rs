//! TLS versions, cipher suites and curves by the names of the original's flags.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::version::{TLS12, TLS13};
use rustls::{NamedGroup, SupportedCipherSuite, SupportedProtocolVersion};

use crate::ServingError;

const VERSION_FLAG: &str = "--tls-min-version";
const SUITES_FLAG: &str = "--tls-cipher-suites";
const CURVES_FLAG: &str = "--tls-curve-preferences";

/// Supported cipher suites of TLS 1.2 by the original's names; two have an old name as well.
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

/// Cipher suites of TLS 1.3; the original accepts their names and always offers all of them.
const TLS13_SUITES: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// Cipher suites that the original supports and rustls does not: no forward secrecy, CBC, RC4 or 3DES.
const UNSUPPORTED_SUITES: [&str; 15] = [
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

/// Curves that the original supports and this build does not: P-521 and the larger hybrid.
const UNSUPPORTED_CURVES: [u16; 2] = [25, 4589];

/// TLS options. The default is TLS 1.2 and 1.3 with all supported cipher suites and curves.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    only_tls13: bool,
    /// All if `None`.
    suites: Option<Vec<SupportedCipherSuite>>,
    /// All if empty.
    curves: Vec<NamedGroup>,
    /// Warnings about unsupported values, logged when serving begins.
    unsupported: Vec<String>,
}

impl TlsOptions {
    /// Parses `--tls-min-version`, `--tls-cipher-suites` and `--tls-curve-preferences`; an empty value is the
    /// default.
    ///
    /// Values that only the original supports (TLS 1.0 and 1.1, suites without forward secrecy, P-521) are
    /// left out with a warning as long as a supported one remains: the flags list what is allowed, not what
    /// is required.
    ///
    /// # Errors
    /// If a value is unknown or no supported one remains; the error names the flag.
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
                self.unsupported.push(format!("{VERSION_FLAG}={name}: clients need TLS 1.2 or 1.3"));
            }
            _ => return Err(invalid_option(VERSION_FLAG, format!("unknown tls version {name:?}"))),
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
            } else if UNSUPPORTED_SUITES.contains(&name.as_str()) {
                self.unsupported.push(format!("{SUITES_FLAG}: {name} is not supported"));
                known += 1;
            } else if !TLS13_SUITES.contains(&name.as_str()) {
                let problem = format!("Cipher suite {name} not supported or doesn't exist");
                return Err(invalid_option(SUITES_FLAG, problem));
            }
        }
        if known == names.len() && !self.only_tls13 {
            let problem = "none of these cipher suites is supported (no forward secrecy, CBC, RC4 or 3DES)";
            return Err(invalid_option(SUITES_FLAG, problem.to_owned()));
        }
        self.suites = Some(suites);
        Ok(())
    }

    fn read_curves(&mut self, ids: &[i32]) -> Result<(), ServingError> {
        let mut seen = Vec::new();
        for id in ids {
            let Some(curve) = u16::try_from(*id).ok().filter(|id| *id > 0) else {
                let problem = format!("curve preference {id} is out of range (must be 1-65535)");
                return Err(invalid_option(CURVES_FLAG, problem));
            };
            if seen.contains(&curve) {
                return Err(invalid_option(CURVES_FLAG, format!("duplicate curve preference {id}")));
            }
            seen.push(curve);
            if groups().any(|group| u16::from(group.name()) == curve) {
                self.curves.push(curve.into());
            } else if UNSUPPORTED_CURVES.contains(&curve) {
                self.unsupported.push(format!("{CURVES_FLAG}: curve {curve} is not supported"));
            } else {
                return Err(invalid_option(CURVES_FLAG, format!("curve preference {id} is not supported")));
            }
        }
        if !seen.is_empty() && self.curves.is_empty() {
            return Err(invalid_option(CURVES_FLAG, "none of these curves is supported".to_owned()));
        }
        Ok(())
    }

    /// Warnings about unsupported values.
    pub(crate) fn unsupported(&self) -> &[String] {
        &self.unsupported
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
            // The order of the flag is ignored; rustls chooses the order.
            provider.kx_groups = groups().filter(|group| self.curves.contains(&group.name())).collect();
        }
        provider
    }
}

/// All supported curves, the default ones first.
fn groups() -> impl Iterator<Item = &'static dyn SupportedKxGroup> {
    let default_groups = aws_lc_rs::DEFAULT_KX_GROUPS.iter().copied();
    let rest = aws_lc_rs::ALL_KX_GROUPS.iter().copied();
    default_groups
        .clone()
        .chain(rest.filter(move |group| !default_groups.clone().any(|other| other.name() == group.name())))
}

fn invalid_option(flag: &'static str, problem: String) -> ServingError {
    ServingError::Option { flag, fault: problem }
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
    fn flags_restrict_versions_suites_and_curves() {
        let all = parse("", &[], &[]).unwrap();
        assert_eq!((all.versions().len(), suites(&all).len()), (2, 6));
        assert_eq!(parse("VersionTLS12", &[], &[]).unwrap().versions().len(), 2);
        assert_eq!(parse("VersionTLS13", &[], &[]).unwrap().versions().len(), 1);
        let one = parse("", &["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], &[23, 29]).unwrap();
        assert_eq!(suites(&one), [CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256]);
        assert_eq!(one.versions().len(), 2);
        assert_eq!(curves(&one), [29, 23], "the order of the flag is ignored");
        let modern = parse("", &["TLS_AES_128_GCM_SHA256"], &[4588]).unwrap();
        assert_eq!((modern.versions().len(), suites(&modern).len()), (1, 0));
        assert_eq!(modern.provider().cipher_suites.len(), 3, "cipher suites of TLS 1.3 cannot be chosen");
        assert_eq!(curves(&modern), [4588]);
    }

    #[test]
    fn unsupported_values_are_warned_about() {
        let old = parse("VersionTLS10", &["TLS_RSA_WITH_RC4_128_SHA", "TLS_AES_128_GCM_SHA256"], &[25, 23]);
        assert_eq!(
            old.unwrap().unsupported(),
            [
                "--tls-min-version=VersionTLS10: clients need TLS 1.2 or 1.3",
                "--tls-cipher-suites: TLS_RSA_WITH_RC4_128_SHA is not supported",
                "--tls-curve-preferences: curve 25 is not supported",
            ]
        );
        parse("VersionTLS13", &["TLS_RSA_WITH_RC4_128_SHA"], &[]).unwrap();
    }

    #[test]
    fn unknown_values_and_empty_selections_are_refused() {
        let rows: [(&str, &[&str], &[i32], &str); 8] = [
            ("VersionTLS14", &[], &[], "--tls-min-version: unknown tls version \"VersionTLS14\""),
            ("1.2", &[], &[], "--tls-min-version: unknown tls version \"1.2\""),
            ("", &["TLS_X"], &[], "--tls-cipher-suites: Cipher suite TLS_X not supported or doesn't exist"),
            (
                "",
                &["TLS_RSA_WITH_RC4_128_SHA"],
                &[],
                "--tls-cipher-suites: none of these cipher suites is supported (no forward secrecy, CBC, RC4 or 3DES)",
            ),
            ("", &[], &[0], "--tls-curve-preferences: curve preference 0 is out of range (must be 1-65535)"),
            ("", &[], &[23, 23], "--tls-curve-preferences: duplicate curve preference 23"),
            ("", &[], &[9999], "--tls-curve-preferences: curve preference 9999 is not supported"),
            ("", &[], &[25], "--tls-curve-preferences: none of these curves is supported"),
        ];
        for (version, suites, curves, problem) in rows {
            assert_eq!(parse(version, suites, curves).unwrap_err(), problem);
        }
    }
}
