//! Compares signed certificates with those of the original's authority: byte for byte, but for serial number and signature.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, anyhow, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fastrand::Rng;
use keleustes_objects::SecretBytes;
use keleustes_runtime::certificates::{CertificateAuthority, sign};
use keleustes_x509::builder::{RequestBuilder, alt_name};
use keleustes_x509::der::{self, OBJECT_ID, Reader, SEQUENCE};
use keleustes_x509::{CertificateRequest, SigningJob, pem};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::original::Original;

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// How many certificates are equal.
    pub equal: usize,
    /// How many requests both refuse with the same error.
    pub refused: usize,
    /// How many requests only the original signs, as docs/behaviour says of their algorithms.
    pub unsupported: usize,
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
    /// Whether the request is signed in a way that is not supported here.
    #[serde(skip)]
    is_unsupported: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    step: String,
    error: String,
    certificate: String,
    /// SubjectPublicKeyInfos as base64, in the order of [`KEYS`].
    keys: Vec<String>,
    signature: String,
}

/// Compares this many requests.
///
/// # Errors
/// If keys cannot be generated or the Go program ends early.
pub fn run(program: &Path, seed: u64, requests: usize) -> Result<Report> {
    let mut original = Original::start(&mut Command::new(program))?;
    let mut generator = Generator::new(seed, &mut original)?;
    let mut report = Report::default();
    for number in 0..requests {
        let mut question = generator.question(&mut original)?;
        let ours = generator.sign(&question);
        if let Ok(certificate) = &ours {
            certificate.clone_into(&mut question.verified);
        }
        let answer: Answer = original.ask(&question)?;
        compare(number, &question, ours, &answer, &mut report);
    }
    original.end()?;
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
        // Where the original signs, or finds something else that is wrong later.
        (Err(_), _) if question.is_unsupported => {
            report.unsupported += 1;
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
    // Go's `time` quotes the layout that a time in a subject does not have.
    let is_time = ours == "parse: asn1: structure error: time in a subject"
        && theirs.starts_with("parse: parsing time ");
    ours == theirs
        || is_time
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

/// The keys of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    /// With this many bits.
    Rsa(u16),
    /// On the curve with this many bits.
    Ecdsa(u16),
    Ed25519,
}

/// In the order of the Go program.
const KEYS: [Key; 9] = [
    Key::Rsa(1024),
    Key::Rsa(2048),
    Key::Rsa(3072),
    Key::Rsa(4096),
    Key::Ecdsa(224),
    Key::Ecdsa(256),
    Key::Ecdsa(384),
    Key::Ecdsa(521),
    Key::Ed25519,
];

/// How a request is signed: the bits of the hash, and whether it is RSA-PSS.
#[derive(Clone, Copy, Debug)]
struct Algorithm {
    hash: u16,
    is_pss: bool,
}

impl Algorithm {
    fn of(key: Key, rng: &mut Rng) -> Self {
        let hash = match rng.u8(..8) {
            0 => 160,
            1 | 2 => 384,
            3 | 4 => 512,
            _ => 256,
        };
        match key {
            Key::Ed25519 => Self { hash: 0, is_pss: false },
            Key::Ecdsa(_) => Self { hash, is_pss: false },
            Key::Rsa(bits) => {
                // The salt and the hash of SHA-512 do not fit into 1024 bits.
                let can_pss = hash != 160 && (bits > 1024 || hash < 512);
                Self { hash, is_pss: can_pss && rng.u8(..3) == 0 }
            }
        }
    }

    /// Whether the library for cryptography cannot verify it, see CSRS-106.
    fn is_unsupported(self, key: Key) -> bool {
        match key {
            Key::Rsa(bits) => bits < 2048 && (self.is_pss || self.hash == 384),
            Key::Ecdsa(bits) => bits == 384 && self.hash == 160,
            Key::Ed25519 => false,
        }
    }

    /// The AlgorithmIdentifier.
    fn identifier(self, key: Key, rng: &mut Rng) -> Vec<u8> {
        let id =
            |id: &[u8], more: &[Vec<u8>]| der::sequence(&[&[der::element(OBJECT_ID, id)], more].concat());
        let rsa = |last: u8| [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last];
        match (key, self.hash) {
            (Key::Rsa(_), _) if self.is_pss => id(&rsa(10), &[self.pss_parameters(rng)]),
            (Key::Rsa(_), hash) => {
                let last = [(160, 5), (256, 11), (384, 12), (512, 13)].into_iter().find(|one| one.0 == hash);
                id(&rsa(last.map_or(0, |one| one.1)), &[vec![5, 0]])
            }
            (Key::Ecdsa(_), 160) => id(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], &[]),
            (Key::Ecdsa(_), hash) => {
                let last = [(256, 2), (384, 3), (512, 4)].into_iter().find(|one| one.0 == hash);
                id(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, last.map_or(0, |one| one.1)], &[])
            }
            (Key::Ed25519, _) => id(&[0x2b, 0x65, 0x70], &[]),
        }
    }

    /// The parameters of RSA-PSS; seldom with a salt of another length, which Go refuses.
    fn pss_parameters(self, rng: &mut Rng) -> Vec<u8> {
        let (last, length) = match self.hash {
            256 => (1, 32),
            384 => (2, 48),
            _ => (3, 64),
        };
        let hash = der::sequence(&[
            der::element(OBJECT_ID, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, last]),
            vec![5, 0],
        ]);
        let mgf1 = der::sequence(&[
            der::element(OBJECT_ID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8]),
            hash.clone(),
        ]);
        let salt = if rng.u8(..8) == 0 { 20 } else { length };
        der::sequence(&[
            der::element(0xa0, &hash),
            der::element(0xa1, &mgf1),
            der::element(0xa2, &der::element(der::INTEGER, &[salt])),
        ])
    }
}

struct Authority {
    certificate: String,
    key: String,
    loaded: CertificateAuthority,
}

struct Generator {
    rng: Rng,
    /// The SubjectPublicKeyInfos of [`KEYS`].
    infos: Vec<Vec<u8>>,
    authorities: Vec<Authority>,
}

/// 2027-01-15T08:00:00.5Z.
const NOW: i64 = 1_800_000_000_500_000_000;
const SECOND: i64 = 1_000_000_000;

const SIGNERS: [&str; 4] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/legacy-unknown",
];

/// A CA on P-224, which `rcgen` does not generate.
const P224_CA: (&str, &str) = (
    include_str!("../../runtime/src/certificates/p224.crt"),
    include_str!("../../runtime/src/certificates/p224.key"),
);

impl Generator {
    fn new(seed: u64, original: &mut Original) -> Result<Self> {
        let infos = original.ask::<Answer>(&json!({"keys": true}))?.keys;
        ensure!(infos.len() == KEYS.len(), "the Go program has {} keys", infos.len());
        let infos = infos.iter().map(|info| BASE64_STANDARD.decode(info)).collect::<Result<_, _>>()?;
        let algorithms = [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ECDSA_P521_SHA512,
            &rcgen::PKCS_ED25519,
        ];
        let rsa = |size| rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        let mut authorities = vec![Authority::load(P224_CA.0.to_owned(), P224_CA.1.to_owned())?];
        for size in [rcgen::RsaKeySize::_2048, rcgen::RsaKeySize::_3072, rcgen::RsaKeySize::_4096] {
            authorities.push(authority(&rsa(size)?, 2045)?);
        }
        for algorithm in algorithms {
            authorities.push(authority(&rcgen::KeyPair::generate_for(algorithm)?, 2045)?);
        }
        // The last one ends soon, so that it limits certificates.
        authorities.push(authority(&rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?, 2027)?);
        Ok(Self { rng: Rng::with_seed(seed), infos, authorities })
    }

    fn question(&mut self, original: &mut Original) -> Result<Question> {
        let at = self.rng.usize(..KEYS.len());
        let builder = self.builder(self.infos[at].clone());
        let algorithm = Algorithm::of(KEYS[at], &mut self.rng);
        let message = BASE64_STANDARD.encode(builder.to_be_signed());
        let wanted: Value = json!({"sign": {
            "key": at, "hash": algorithm.hash, "pss": algorithm.is_pss, "message": message,
        }});
        let mut signature = BASE64_STANDARD.decode(original.ask::<Answer>(&wanted)?.signature)?;
        if self.rng.u8(..20) == 0 {
            let at = self.rng.usize(..signature.len());
            signature[at] ^= 1 << self.rng.u8(..8);
        }
        let identifier = algorithm.identifier(KEYS[at], &mut self.rng);
        let mut request = builder.to_pem(&identifier, &signature);
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
        Ok(Question {
            signer,
            request,
            usages,
            life,
            now,
            ca_cert: authority.certificate.clone(),
            ca_key: authority.key.clone(),
            verified: String::new(),
            is_unsupported: algorithm.is_unsupported(KEYS[at]),
        })
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
            let nodes = ["node-1", "", "node:2", "ip-10-0-0-1.eu.example.com", "Knoten ä", "a,b+c=d"];
            let node = nodes[if self.rng.bool() { 0 } else { self.rng.usize(..nodes.len()) }];
            builder = builder.kubelet(node);
        } else if self.rng.u8(..4) == 0 {
            // A user with several groups, in one set or in one each.
            builder =
                builder.attribute(10, "developers").attribute(10, "system:masters").attribute(3, "jane");
        }
        for _ in 0..if self.rng.bool() { 0 } else { self.rng.u8(..4) } {
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
        let long = [b'x'; 300];
        let values: [(u8, &[u8]); 18] = [
            (0x0c, &long),
            (0x0c, b"system:node:node-1"),
            (0x0c, "a\u{0}b\u{202e}".as_bytes()),
            (0x1c, &[0, 0, 0, b'a']),
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
        let uris: [&[u8]; 22] = [
            b"spiffe://cluster.local/ns/default/sa/default?x#y",
            b"https://user@example.com:65536/",
            b"//host/path",
            b"https://xn--bcher-kva.example/%C3%BC",
            b"file:///etc/passwd",
            b"",
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
        let ips: [&[u8]; 6] = [
            &[],
            &[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[10, 0, 0, 1],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2],
            &[0xfe; 16],
            &[1, 2, 3],
        ];
        let dns: [&[u8]; 7] =
            [b"*.example.com", b"", b"node-1.example.com.", b"-a_b.", b"a b", b"10.0.0.1", &[b'a'; 300]];
        match self.rng.u8(..13) {
            12 => (0x88, vec![42, 3]),
            0..=2 => (alt_name::DNS, b"node-1.example.com".to_vec()),
            3 | 4 => (alt_name::DNS, dns[self.rng.usize(..dns.len())].to_vec()),
            5 | 6 => (alt_name::IP, ips[self.rng.usize(..ips.len())].to_vec()),
            7 => {
                let emails: [&[u8]; 3] = [b"a@example.com", b"", b"no at"];
                (alt_name::EMAIL, emails[self.rng.usize(..3)].to_vec())
            }
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
        if signer != SIGNERS[3] && self.rng.u8(..4) > 0 {
            let auth = if signer == SIGNERS[0] { "server auth" } else { "client auth" };
            let sets: [&[&str]; 6] = [
                &["digital signature", auth],
                &[auth, "key encipherment", "digital signature"],
                &[auth],
                &[auth, auth, "digital signature"],
                &["key encipherment", auth],
                &["digital signature", "key encipherment"],
            ];
            // The last one lacks what it is for.
            let set = if self.rng.u8(..12) == 0 { sets[5] } else { sets[self.rng.usize(..5)] };
            return set.iter().map(|usage| (*usage).to_owned()).collect();
        }
        let mut usages: Vec<_> =
            (0..self.rng.u8(..6)).map(|_| all[self.rng.usize(..all.len())].to_owned()).collect();
        if self.rng.u8(..20) == 0 {
            let odd = ["unheard \"of\"", "", "Client Auth", "client auth ", "größer\n"];
            usages.push(odd[self.rng.usize(..odd.len())].to_owned());
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

impl Authority {
    fn load(certificate: String, key: String) -> Result<Self> {
        let secret = |text: &str| SecretBytes::from(text.as_bytes().to_vec());
        let loaded = CertificateAuthority::from_pem(&secret(&certificate), &secret(&key), "judge");
        Ok(Self { certificate, key, loaded: loaded.map_err(|error| anyhow!(error))? })
    }
}

fn authority(key: &rcgen::KeyPair, year: i32) -> Result<Authority> {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "judge-ca");
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(year, 12, 31);
    Authority::load(parameters.self_signed(key)?.pem(), key.serialize_pem())
}
