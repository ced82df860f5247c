//! Compares signed certificates with those of the original's authority: byte for byte, but for serial number and signature.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RsaKeyPair,
};
use fastrand::Rng;
use keleustes_objects::SecretBytes;
use keleustes_runtime::certificates::{CertificateAuthority, sign};
use keleustes_x509::builder::{RequestBuilder, alt_name};
use keleustes_x509::der::{self, OBJECT_ID, Reader, SEQUENCE};
use keleustes_x509::{CertificateRequest, SigningJob, pem};
use serde::{Deserialize, Serialize};

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// How many certificates are equal.
    pub equal: usize,
    /// How many requests both refuse with the same error.
    pub refused: usize,
    /// One line per difference.
    pub differences: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    signer: &'static str,
    request: String,
    usages: Vec<String>,
    life: i64,
    now: i64,
    ca_cert: String,
    ca_key: String,
    /// Our certificate, whose signature the original verifies.
    verified: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    step: String,
    error: String,
    certificate: String,
}

/// Compares this many requests.
///
/// # Errors
/// If keys cannot be generated or the Go program ends early.
pub fn run(program: &Path, seed: u64, requests: usize) -> Result<Report> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut input, output) = child.stdin.take().zip(child.stdout.take()).context("no pipes")?;
    let mut lines = BufReader::new(output).lines();
    let mut generator = Generator::new(seed)?;
    let mut report = Report::default();
    for number in 0..requests {
        let mut question = generator.question();
        let ours = generator.sign(&question);
        if let Ok(certificate) = &ours {
            certificate.clone_into(&mut question.verified);
        }
        writeln!(input, "{}", serde_json::to_string(&question)?)?;
        let answer: Answer = serde_json::from_str(&lines.next().context("the Go program ended early")??)?;
        compare(number, &question, ours, &answer, &mut report);
    }
    drop(input);
    ensure!(child.wait()?.success(), "the Go program failed");
    Ok(report)
}

fn compare(
    number: usize,
    question: &Question,
    ours: Result<String, String>,
    theirs: &Answer,
    report: &mut Report,
) {
    let problem = match (&ours, theirs.error.is_empty()) {
        (Ok(ours), true) => match (without_serial(ours), without_serial(&theirs.certificate)) {
            (Some(ours), Some(theirs)) if ours == theirs => None,
            _ => Some("other certificates".to_owned()),
        },
        (Err(ours), false) if same_error(ours, &format!("{}: {}", theirs.step, theirs.error)) => {
            report.refused += 1;
            return;
        }
        _ => Some(format!("ours: {:?}\noriginal: {}: {}", ours.as_ref().err(), theirs.step, theirs.error)),
    };
    match problem {
        None => report.equal += 1,
        Some(problem) => {
            let theirs = &theirs.certificate;
            let ours = ours.unwrap_or_default();
            let usages = &question.usages;
            report
                .differences
                .push(format!("request {number} {usages:?}: {problem}\n{}{ours}{theirs}", question.request));
        }
    }
}

/// Go's `encoding/asn1` describes its own types in some errors; these are compared up to the kind of error.
fn same_error(ours: &str, theirs: &str) -> bool {
    let kind = |text: &str| {
        ["asn1: structure error", "asn1: syntax error"]
            .iter()
            .find_map(|kind| text.find(kind).map(|at| text[..at].to_owned()))
    };
    let host = |text: &str| text.find("invalid host: ").map(|at| text[..at].to_owned());
    ours == theirs
        || kind(ours).is_some_and(|kind_of_ours| Some(kind_of_ours) == kind(theirs))
        || host(ours).is_some_and(|host_of_ours| Some(host_of_ours) == host(theirs))
}

/// The fields of the signed part but for the serial number, and the algorithm of the signature.
fn without_serial(text: &str) -> Option<Vec<Vec<u8>>> {
    let certificate = pem::blocks(text.as_bytes()).next()?.bytes;
    let mut outer = Reader::new(Reader::new(&certificate).expect(SEQUENCE).ok()?);
    let mut signed = Reader::new(outer.expect(SEQUENCE).ok()?);
    let mut fields = Vec::new();
    while !signed.is_empty() {
        fields.push(signed.element().ok()?.full.to_vec());
    }
    fields.remove(1);
    fields.push(outer.element().ok()?.full.to_vec());
    Some(fields)
}

enum Key {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(Box<EcdsaKeyPair>, u8),
    Ed25519(Box<Ed25519KeyPair>),
}

impl Key {
    fn info(&self) -> Result<Vec<u8>> {
        let info: PublicKeyX509Der<'_> = match self {
            Self::Rsa(key) => key.public_key().as_der(),
            Self::Ecdsa(key, _) => key.public_key().as_der(),
            Self::Ed25519(key) => key.public_key().as_der(),
        }
        .map_err(|_| anyhow!("encoding a public key"))?;
        Ok(info.as_ref().to_vec())
    }

    /// The AlgorithmIdentifier and the signature.
    fn sign(&self, rng: &mut Rng, message: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let random = SystemRandom::new();
        let id =
            |id: &[u8], more: &[Vec<u8>]| der::sequence(&[&[der::element(OBJECT_ID, id)], more].concat());
        let rsa = |last: u8| [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last];
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let null = vec![5, 0];
                let (algorithm, encoding) = match rng.u8(..3) {
                    0 => (id(&rsa(11), &[null]), &RSA_PKCS1_SHA256),
                    1 => (id(&rsa(13), &[null]), &RSA_PKCS1_SHA512),
                    _ => (id(&rsa(10), &[pss_parameters(rng)]), &RSA_PSS_SHA256),
                };
                let _ = key.sign(encoding, &random, message, &mut signature);
                (algorithm, signature)
            }
            Self::Ecdsa(key, last) => {
                let signature = key.sign(&random, message).map(|signature| signature.as_ref().to_vec());
                (id(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, *last], &[]), signature.unwrap_or_default())
            }
            Self::Ed25519(key) => (id(&[0x2b, 0x65, 0x70], &[]), key.sign(message).as_ref().to_vec()),
        }
    }
}

/// The parameters of RSA-PSS with SHA-256; seldom with a salt of another length, which Go refuses.
fn pss_parameters(rng: &mut Rng) -> Vec<u8> {
    let sha256 =
        der::sequence(&[der::element(OBJECT_ID, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1]), vec![5, 0]]);
    let mgf1 = der::sequence(&[
        der::element(OBJECT_ID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8]),
        sha256.clone(),
    ]);
    let salt = if rng.u8(..8) == 0 { 20 } else { 32 };
    der::sequence(&[
        der::element(0xa0, &sha256),
        der::element(0xa1, &mgf1),
        der::element(0xa2, &der::element(der::INTEGER, &[salt])),
    ])
}

struct Authority {
    certificate: String,
    key: String,
    loaded: CertificateAuthority,
}

struct Generator {
    rng: Rng,
    keys: Vec<Key>,
    authorities: Vec<Authority>,
}

/// 2027-01-15T08:00:00.5Z.
const NOW: i64 = 1_800_000_000_500_000_000;
const SECOND: i64 = 1_000_000_000;

const SIGNERS: [&str; 3] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/legacy-unknown",
];

impl Generator {
    fn new(seed: u64) -> Result<Self> {
        let unspecified = |_| anyhow!("generating a key");
        let ecdsa = |algorithm: &'static EcdsaSigningAlgorithm, last| -> Result<Key> {
            Ok(Key::Ecdsa(Box::new(EcdsaKeyPair::generate(algorithm).map_err(unspecified)?), last))
        };
        let keys = vec![
            Key::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).map_err(unspecified)?)),
            ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, 2)?,
            ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, 3)?,
            ecdsa(&ECDSA_P521_SHA512_ASN1_SIGNING, 4)?,
            Key::Ed25519(Box::new(Ed25519KeyPair::generate().map_err(unspecified)?)),
        ];
        let algorithms = [
            &rcgen::PKCS_RSA_SHA256,
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ECDSA_P521_SHA512,
            &rcgen::PKCS_ED25519,
        ];
        // The last one ends soon, so that it limits certificates.
        let kinds =
            algorithms.into_iter().map(|algorithm| (algorithm, 2045)).chain([(&rcgen::PKCS_ED25519, 2027)]);
        let authorities = kinds.map(|(algorithm, year)| authority(algorithm, year)).collect::<Result<_>>()?;
        Ok(Self { rng: Rng::with_seed(seed), keys, authorities })
    }

    fn question(&mut self) -> Question {
        let at = self.rng.usize(..self.keys.len());
        let builder = self.builder(self.keys[at].info().unwrap_or_default());
        let (algorithm, mut signature) = self.keys[at].sign(&mut self.rng, &builder.to_be_signed());
        if self.rng.u8(..20) == 0 {
            signature[0] ^= 1;
        }
        let mut request = builder.to_pem(&algorithm, &signature);
        if self.rng.u8(..12) == 0 {
            request = self.mutated(&request);
        }
        let authority = self.rng.usize(..self.authorities.len());
        let signer = SIGNERS[self.rng.usize(..SIGNERS.len())];
        let life = match self.rng.u8(..4) {
            0 => self.rng.i64(-10..28_900) * SECOND,
            1 => [28_799, 28_800, 31_536_000, 0][self.rng.usize(..4)] * SECOND,
            2 => self.rng.i64(..i64::MAX / 2),
            _ => 31_536_000 * SECOND,
        };
        // 2027-12-31 is the end of the CA that ends soon.
        let now = if self.rng.u8(..20) == 0 { NOW + 31_536_000 * SECOND * 2 } else { NOW };
        let usages = self.usages(signer);
        let authority = &self.authorities[authority];
        Question {
            signer,
            request,
            usages,
            life,
            now,
            ca_cert: authority.certificate.clone(),
            ca_key: authority.key.clone(),
            verified: String::new(),
        }
    }

    /// What this program makes of a question; an error begins with its step.
    fn sign(&self, question: &Question) -> Result<String, String> {
        let request = CertificateRequest::from_pem(question.request.as_bytes());
        let request = request.map_err(|error| format!("parse: {error}"))?;
        keleustes_controllers::certificates::check_rules(question.signer, &request, &question.usages)
            .map_err(|error| format!("rule: {error}"))?;
        let authority = self.authorities.iter().find(|authority| authority.certificate == question.ca_cert);
        let authority = authority.ok_or("the CA is not known")?;
        let job = SigningJob {
            request,
            usages: question.usages.clone(),
            life: question.life.into(),
            now: question.now.into(),
        };
        sign(&authority.loaded, &job, [7; 16]).map_err(|error| format!("sign: {error}"))
    }

    fn builder(&mut self, key_info: Vec<u8>) -> RequestBuilder {
        let mut builder = RequestBuilder { key_info, ..RequestBuilder::default() };
        if self.rng.u8(..3) > 0 {
            builder = builder.kubelet("node-1");
        }
        for _ in 0..self.rng.u8(..4) {
            self.add_attribute(&mut builder);
        }
        if self.rng.bool() {
            for _ in 0..self.rng.u8(..5) {
                let (tag, content) = self.alt_name();
                builder = builder.alt_name(tag, &content);
            }
        }
        if self.rng.u8(..4) == 0 {
            builder = builder.extension(&[0x55, 0x1d, 19], true, &[0x30, 3, 1, 1, 0xff]);
        }
        if self.rng.u8(..8) == 0 {
            builder = builder.extension(&[0x55, 0x1d, 15], self.rng.bool(), &[3, 2, 1, 6]);
        }
        if self.rng.u8(..40) == 0 {
            builder =
                builder.extension(&[0x55, 0x1d, 15], false, &[]).extension(&[0x55, 0x1d, 15], false, &[]);
        }
        builder
    }

    fn add_attribute(&mut self, builder: &mut RequestBuilder) {
        let numbers = [3, 5, 6, 7, 8, 9, 10, 11, 17, 12];
        let values: [(u8, &[u8]); 14] = [
            (0x0c, b"system:nodes"),
            (0x13, b"Berlin 12"),
            (0x13, b"a*b&c"),
            (0x13, b"no_underscore"),
            (0x16, b"user@example.com"),
            (0x16, b"\xff"),
            (0x14, b"caf\xe9"),
            (0x0c, "Müller".as_bytes()),
            (0x0c, b"\xff\xfe"),
            (0x1e, &[0, b'a', 0, b'b', 0, 0]),
            (0x1e, &[0xd8, 0]),
            (0x12, b"123 4"),
            (0x02, &[1]),
            (0x0c, b""),
        ];
        let (tag, value) = values[self.rng.usize(..values.len())];
        let mut id = vec![0x55, 4, numbers[self.rng.usize(..numbers.len())]];
        if self.rng.u8(..8) == 0 {
            // emailAddress, which certificates do not keep.
            id = vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
        }
        let attribute = (id, tag, value.to_vec());
        match builder.subject.last_mut() {
            Some(last) if self.rng.bool() => last.push(attribute),
            _ => builder.subject.push(vec![attribute]),
        }
    }

    fn alt_name(&mut self) -> (u8, Vec<u8>) {
        let uris: [&[u8]; 16] = [
            b"SPIFFE://cluster.local/ns/a/sa/b",
            b"http://u:p@h:80/a%20b?q=1#f",
            b"urn:a:b",
            b"http://a/%zz",
            b"http://a b/",
            b":x",
            b"/path only",
            b"http://a..b/",
            b"http://[::1]:8080/x",
            b"http://[fe80::1%25en0]/",
            b"http://[::x]/",
            b"http://a:b/",
            b"HTTP://A/%7e~!*'()",
            b"*",
            b"mailto:a@b?",
            b"http://h/#a b%41",
        ];
        let ips: [&[u8]; 4] = [
            &[10, 0, 0, 1],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2],
            &[0xfe; 16],
            &[1, 2, 3],
        ];
        match self.rng.u8(..12) {
            0..=3 => (alt_name::DNS, b"node-1.example.com".to_vec()),
            4 => (alt_name::DNS, b"*.example.com".to_vec()),
            5 | 6 => (alt_name::IP, ips[self.rng.usize(..ips.len())].to_vec()),
            7 => (alt_name::EMAIL, b"a@example.com".to_vec()),
            8 => (alt_name::OTHER, vec![6, 1, 42]),
            9 if self.rng.u8(..4) == 0 => (alt_name::DNS, vec![0xff]),
            _ => (alt_name::URI, uris[self.rng.usize(..uris.len())].to_vec()),
        }
    }

    fn usages(&mut self, signer: &str) -> Vec<String> {
        let all = [
            "signing",
            "digital signature",
            "content commitment",
            "key encipherment",
            "key agreement",
            "data encipherment",
            "cert sign",
            "crl sign",
            "encipher only",
            "decipher only",
            "any",
            "server auth",
            "client auth",
            "code signing",
            "email protection",
            "s/mime",
            "ipsec end system",
            "ipsec tunnel",
            "ipsec user",
            "timestamping",
            "ocsp signing",
            "microsoft sgc",
            "netscape sgc",
        ];
        if signer != SIGNERS[2] && self.rng.u8(..4) > 0 {
            let auth = if signer == SIGNERS[0] { "server auth" } else { "client auth" };
            return ["digital signature", auth].map(str::to_owned).to_vec();
        }
        let mut usages: Vec<_> =
            (0..self.rng.u8(..6)).map(|_| all[self.rng.usize(..all.len())].to_owned()).collect();
        if self.rng.u8(..20) == 0 {
            usages.push("unheard \"of\"".to_owned());
        }
        usages
    }

    /// A request with a changed byte, in its DER or in its text.
    fn mutated(&mut self, text: &str) -> String {
        if self.rng.bool() {
            let mut der = pem::blocks(text.as_bytes()).next().map(|block| block.bytes).unwrap_or_default();
            let at = self.rng.usize(..der.len());
            der[at] ^= 1 << self.rng.u8(..8);
            return pem::encode("CERTIFICATE REQUEST", &der);
        }
        match self.rng.u8(..4) {
            0 => text.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
            1 => format!("text\n{text}"),
            2 => text.replace("-----END", "----END"),
            _ => text.replacen('\n', "\nkey: value\n\n", 1),
        }
    }
}

fn authority(algorithm: &'static rcgen::SignatureAlgorithm, year: i32) -> Result<Authority> {
    let key = rcgen::KeyPair::generate_for(algorithm)?;
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "judge-ca");
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(year, 12, 31);
    let certificate = parameters.self_signed(&key)?.pem();
    let key = key.serialize_pem();
    let secret = |text: &str| SecretBytes::from(text.as_bytes().to_vec());
    let loaded = CertificateAuthority::from_pem(&secret(&certificate), &secret(&key), "judge");
    Ok(Authority { certificate, key, loaded: loaded.map_err(|error| anyhow!(error))? })
}
