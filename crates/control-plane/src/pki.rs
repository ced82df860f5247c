//! The PKI of one control plane: CAs, certificates, service-account keys and kubeconfig files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use keleustes_pki::{Authority, Issued, Subject, Usage};
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::error::{During, Result};

/// The names and addresses under which clients may reach the API server. `10.96.0.1` is the first service address and
/// `192.0.2.1` the advertised one.
const API_SERVER_NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
    "192.0.2.1",
];

/// The name the aggregation layer presents itself with.
pub(crate) const FRONT_PROXY_NAME: &str = "front-proxy-client";

/// The user of a kubeconfig file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum User {
    /// `kubernetes-admin` in the group `system:masters`: everything is allowed, past every authoriser.
    Admin,
    /// `system:kube-controller-manager`, with the role the API server bootstraps for it and no more.
    ControllerManager,
    /// `system:kube-scheduler`, with the role the API server bootstraps for it and no more.
    Scheduler,
    /// `kwok` in the group `system:masters`, because it simulates many nodes at once.
    Kwok,
}

impl User {
    const ALL: [Self; 4] = [Self::Admin, Self::ControllerManager, Self::Scheduler, Self::Kwok];

    /// The user name as it appears in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "kubernetes-admin",
            Self::ControllerManager => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
            Self::Kwok => "kwok",
        }
    }

    fn group(self) -> Option<&'static str> {
        match self {
            Self::Admin | Self::Kwok => Some("system:masters"),
            Self::ControllerManager | Self::Scheduler => None,
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Admin => "admin.kubeconfig",
            Self::ControllerManager => "controller-manager.kubeconfig",
            Self::Scheduler => "scheduler.kubeconfig",
            Self::Kwok => "kwok.kubeconfig",
        }
    }
}

/// The kind of key that service-account tokens are signed with.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KeyKind {
    /// RSA with 2048 bits, kubeadm's default.
    #[default]
    Rsa,
    /// ECDSA on the curve P-256.
    Ecdsa,
}

impl KeyKind {
    fn generate(self) -> Result<KeyPair> {
        match self {
            Self::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            Self::Ecdsa => KeyPair::generate(),
        }
        .during(|| format!("an {self:?} key"))
    }
}

/// All keys and certificates of one control plane, as files of one directory.
pub struct Pki {
    dir: PathBuf,
    cluster: Authority,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The private keys stay out of every message.
        f.debug_struct("Pki").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Pki {
    /// Generates everything and writes it to `dir`.
    pub fn create(dir: &Path, service_account_keys: KeyKind) -> Result<Self> {
        fs::create_dir_all(dir).during(|| format!("creating {}", dir.display()))?;
        let pki = Self { dir: dir.to_owned(), cluster: authority("kubernetes")? };
        pki.write("ca", pki.cluster.pem(), &pki.cluster.key_pem())?;

        let alt_names = API_SERVER_NAMES.map(String::from);
        let serving =
            Subject { name: "kube-apiserver", group: None, alt_names: &alt_names, usage: Usage::Server };
        pki.write_issued("apiserver", &issue(&pki.cluster, &serving)?)?;

        let front_proxy = authority("front-proxy-ca")?;
        pki.write("front-proxy-ca", front_proxy.pem(), &front_proxy.key_pem())?;
        pki.write_issued("front-proxy-client", &issue(&front_proxy, &client(FRONT_PROXY_NAME, None))?)?;

        let service_accounts = service_account_keys.generate()?;
        pki.write_file("sa.pub", &service_accounts.public_key_pem())?;
        pki.write_file("sa.key", &service_accounts.serialize_pem())?;
        Ok(pki)
    }

    /// The file `name` of the directory: `ca.crt`, `ca.key`, `apiserver.crt`, `apiserver.key`, `front-proxy-ca.crt`,
    /// `front-proxy-client.crt`, `front-proxy-client.key`, `sa.pub`, `sa.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The kubeconfig file of a user, once [`Self::write_kubeconfigs`] has been called.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.dir.join(user.file())
    }

    /// Writes a kubeconfig file for every [`User`].
    pub fn write_kubeconfigs(&self, server: &str) -> Result<()> {
        for user in User::ALL {
            self.write_kubeconfig(user.file(), server, user.name(), user.group())?;
        }
        Ok(())
    }

    /// Writes a kubeconfig file `file` for any user name, optionally in a group.
    pub fn write_kubeconfig(
        &self,
        file: &str,
        server: &str,
        user: &str,
        group: Option<&str>,
    ) -> Result<PathBuf> {
        let issued = issue(&self.cluster, &client(user, group))?;
        let context = format!("{user}@keleustes");
        self.write_file(file, &self.cluster.kubeconfig(&context, server, user, &issued))
    }

    /// The certificate of the authority that signs for the API server and all users.
    pub(crate) fn cluster_authority(&self) -> Result<CertificateDer<'static>> {
        let certificate = CertificateDer::from_pem_slice(self.cluster.pem().as_bytes());
        certificate.map_err(io::Error::other).during(|| "reading the certificate of the authority")
    }

    fn write_issued(&self, name: &str, issued: &Issued) -> Result<()> {
        self.write(name, &issued.certificate.pem(), &issued.key.serialize_pem())
    }

    fn write(&self, name: &str, cert: &str, key: &str) -> Result<()> {
        self.write_file(&format!("{name}.crt"), cert)?;
        self.write_file(&format!("{name}.key"), key)?;
        Ok(())
    }

    /// Everything here is readable by its owner alone; most of it is secret.
    fn write_file(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.file(name);
        fs::write(&path, content)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
            .during(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

fn authority(name: &str) -> Result<Authority> {
    Authority::generate(name).during(|| format!("the authority {name}"))
}

/// Kubernetes reads the user from the common name and the group from the organization.
fn client<'a>(name: &'a str, group: Option<&'a str>) -> Subject<'a> {
    Subject { name, group, alt_names: &[], usage: Usage::Client }
}

fn issue(authority: &Authority, subject: &Subject<'_>) -> Result<Issued> {
    authority.issue(subject).during(|| format!("a certificate for {}", subject.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
    use std::collections::BTreeMap;

    fn created(keys: KeyKind) -> (tempfile::TempDir, Pki) {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::create(dir.path(), keys).unwrap();
        (dir, pki)
    }

    /// The values of `key: value` lines, which is all a kubeconfig of ours consists of.
    fn values(kubeconfig: &str) -> BTreeMap<&str, &str> {
        kubeconfig.lines().filter_map(|line| line.trim().trim_start_matches("- ").split_once(": ")).collect()
    }

    fn decoded(value: &str) -> String {
        String::from_utf8(STANDARD.decode(value).unwrap()).unwrap()
    }

    #[test]
    fn a_kubeconfig_embeds_the_authority_and_a_certificate_of_the_user() {
        let (_dir, pki) = created(KeyKind::Ecdsa);
        pki.write_kubeconfigs("https://127.0.0.1:6443").unwrap();
        for user in User::ALL {
            let text = fs::read_to_string(pki.kubeconfig(user)).unwrap();
            let values = values(&text);
            assert_eq!(values["server"], "https://127.0.0.1:6443");
            assert_eq!(values["user"], format!("\"{}\"", user.name()));
            assert_eq!(values["current-context"], format!("\"{}@keleustes\"", user.name()));
            let ca = decoded(values["certificate-authority-data"]);
            assert_eq!(ca, fs::read_to_string(pki.file("ca.crt")).unwrap());
            let cert = decoded(values["client-certificate-data"]);
            let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
            assert!(contains(&der, user.name()), "{user:?}");
            assert_eq!(contains(&der, "system:masters"), user.group().is_some(), "{user:?}");
            PrivateKeyDer::from_pem_slice(decoded(values["client-key-data"]).as_bytes()).unwrap();
        }
    }

    #[test]
    fn serving_certificate_covers_every_address_of_the_api_server() {
        let (_dir, pki) = created(KeyKind::Ecdsa);
        let der = CertificateDer::from_pem_file(pki.file("apiserver.crt")).unwrap();
        for name in ["localhost", "kubernetes.default.svc.cluster.local"] {
            assert!(contains(&der, name), "{name}");
        }
        assert!(der.windows(4).any(|window| window == [127, 0, 0, 1]));
    }

    #[test]
    fn service_account_keys_come_in_both_kinds() {
        for (kind, bytes) in [(KeyKind::Rsa, 250..400), (KeyKind::Ecdsa, 80..120)] {
            let (_dir, pki) = created(kind);
            let public = SubjectPublicKeyInfoDer::from_pem_file(pki.file("sa.pub")).unwrap();
            assert!(bytes.contains(&public.len()), "{kind:?}: {}", public.len());
            PrivateKeyDer::from_pem_file(pki.file("sa.key")).unwrap();
        }
    }

    #[test]
    fn no_file_is_readable_by_others() {
        let (dir, pki) = created(KeyKind::Ecdsa);
        pki.write_kubeconfigs("https://127.0.0.1:6443").unwrap();
        for entry in fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        }
    }

    fn contains(der: &CertificateDer<'_>, text: &str) -> bool {
        der.windows(text.len()).any(|window| window == text.as_bytes())
    }
}
