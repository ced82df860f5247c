//! The encoding of issued certificates: what of a request appears in a certificate, where, and in which form.

use keleustes_x509::builder::{RequestBuilder, alt_name};
use keleustes_x509::certificate::SigningAlgorithm;
use keleustes_x509::der::{self, INTEGER, OBJECT_ID, OCTET_STRING, Reader, SEQUENCE, SET};
use keleustes_x509::{Certificate, CertificateRequest, IssuedCertificate, KeyUsages, PublicKey};

const PRINTABLE_STRING: u8 = 0x13;
const UTF8_STRING: u8 = 0x0c;
const T61_STRING: u8 = 0x14;

/// `CN=ca` as UTF8String, which this encoder would write as PrintableString.
fn ca_subject() -> Vec<u8> {
    let attribute =
        der::sequence(&[der::element(OBJECT_ID, &[0x55, 4, 3]), der::element(UTF8_STRING, b"ca")]);
    der::sequence(&[der::element(SET, &attribute)])
}

fn ca() -> Certificate {
    Certificate {
        subject: ca_subject(),
        not_before: 0,
        not_after: 4_000_000_000,
        subject_key_id: vec![1, 2, 3],
        public_key: PublicKey::Ed25519(vec![9; 32]),
    }
}

fn request() -> RequestBuilder {
    RequestBuilder::for_ed25519(&[7; 32])
}

/// The top-level elements of the signed part.
fn issue_from(authority: &Certificate, request: &RequestBuilder, usages: &[&str]) -> Vec<(u8, Vec<u8>)> {
    let request =
        CertificateRequest::from_pem(request.to_pem_unsigned().as_bytes()).expect("a valid request");
    let issued = IssuedCertificate {
        authority,
        serial: [5; 16],
        validity: (1_800_000_000, 1_800_003_600),
        subject: &request.subject,
        alt_names: &request.alt_names,
        public_key: &request.public_key,
        usages: KeyUsages::from_names(usages.iter().copied()).expect("known usages"),
    };
    let der = issued.to_be_signed(SigningAlgorithm::Ed25519).expect("it can be encoded");
    elements(Reader::new(&der).expect(SEQUENCE).expect("a certificate"))
}

fn issue(request: &RequestBuilder) -> Vec<(u8, Vec<u8>)> {
    issue_from(&ca(), request, &["client auth", "digital signature"])
}

/// The elements one after the other: tag and content.
fn elements(der: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut reader = Reader::new(der);
    let mut found = Vec::new();
    while !reader.is_empty() {
        let element = reader.element().expect("an element");
        found.push((element.tag, element.content.to_vec()));
    }
    found
}

/// The attributes of each RDN of the subject: number, tag and value.
fn subject(request: &RequestBuilder) -> Vec<Vec<(u8, u8, String)>> {
    let attribute = |(_, content): &(u8, Vec<u8>)| {
        let parts = elements(content);
        let [0x55, 4, number] = parts[0].1[..] else { panic!("not of X.520: {parts:?}") };
        (number, parts[1].0, String::from_utf8(parts[1].1.clone()).expect("UTF-8"))
    };
    let rdns = elements(&issue(request)[5].1);
    rdns.iter().map(|(_, set)| elements(set).iter().map(attribute).collect()).collect()
}

/// The extensions: the last part of the identifier, whether it is critical, and the value.
fn extensions(parts: &[(u8, Vec<u8>)]) -> Vec<(u8, bool, Vec<u8>)> {
    let list = &elements(&parts[7].1)[0].1;
    let extension = |(_, content): &(u8, Vec<u8>)| {
        let parts = elements(content);
        let [0x55, 0x1d, number] = parts[0].1[..] else { panic!("another identifier: {parts:?}") };
        let (tag, value) = parts.last().expect("a part").clone();
        assert_eq!(tag, OCTET_STRING);
        (number, parts.len() == 3 && parts[1].1 == [0xff], value)
    };
    elements(list).iter().map(extension).collect()
}

fn numbers(parts: &[(u8, Vec<u8>)]) -> Vec<u8> {
    extensions(parts).iter().map(|(number, ..)| *number).collect()
}

const KEY_USAGE: u8 = 15;
const SUBJECT_ALT_NAME: u8 = 17;
const BASIC_CONSTRAINTS: u8 = 19;
const AUTHORITY_KEY_ID: u8 = 35;
const EXTENDED_KEY_USAGE: u8 = 37;

/// The subject alternative names of the issued certificate: tag and content.
fn alt_names(request: &RequestBuilder) -> Vec<(u8, Vec<u8>)> {
    let found = extensions(&issue(request));
    let value = found.iter().find(|(number, ..)| *number == SUBJECT_ALT_NAME).map(|(.., value)| value);
    value.map(|value| elements(&elements(value)[0].1)).unwrap_or_default()
}

/// Proves CSRS-100.
#[test]
fn certificate_has_version_three_and_the_bytes_of_the_cas_subject() {
    let parts = issue(&request().kubelet("n"));
    assert_eq!(parts.len(), 8);
    assert_eq!(parts[0], (0xa0, der::element(INTEGER, &[2])));
    assert_eq!(der::element(SEQUENCE, &parts[3].1), ca_subject(), "it is not re-encoded");
}

/// Proves CSRS-46.
#[test]
fn standard_attributes_have_a_fixed_order_and_others_are_dropped() {
    let email = (vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], UTF8_STRING, b"a@b".to_vec());
    let domain_component =
        (vec![9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], UTF8_STRING, b"dc".to_vec());
    let mut all = request();
    all.subject = vec![vec![email], vec![domain_component]];
    // Serial number, CN, title (not among the standard attributes), OU, O, postal code, street, L, ST, C.
    for number in [5, 3, 12, 11, 10, 17, 9, 7, 8, 6] {
        all = all.attribute(number, "x");
    }
    let found: Vec<_> = subject(&all).concat().into_iter().map(|(number, ..)| number).collect();
    assert_eq!(found, [6, 8, 7, 9, 17, 10, 11, 3, 5]);
}

/// Proves CSRS-101.
#[test]
fn values_of_one_attribute_are_one_sorted_set() {
    let several = request().attribute(10, "bb").attribute(3, "first").attribute(10, "c").attribute(10, "ab");
    let last = several.attribute(3, "last").attribute(5, "1").attribute(5, "");
    let texts: Vec<Vec<_>> =
        subject(&last).into_iter().map(|rdn| rdn.into_iter().map(|(.., text)| text).collect()).collect();
    assert_eq!(texts, [&["c", "ab", "bb"][..], &["last"]], "the empty serial number is left out");
}

/// Proves CSRS-102.
#[test]
fn strings_are_printable_if_all_their_characters_are() {
    let tag = |text: &str, requested: u8| {
        let mut request = request();
        request.subject = vec![vec![(vec![0x55, 4, 10], requested, text.as_bytes().to_vec())]];
        subject(&request)[0][0].1
    };
    for requested in [UTF8_STRING, T61_STRING] {
        assert_eq!(tag("AZaz09 '()+,-./:=?", requested), PRINTABLE_STRING);
        for other in ["a*", "a@b", "a_b", "a&b", "a\"", "a;b", "a<b"] {
            assert_eq!(tag(other, requested), UTF8_STRING, "{other}");
        }
    }
    assert_eq!(tag("é", UTF8_STRING), UTF8_STRING);
    assert_eq!(tag("a*&", PRINTABLE_STRING), UTF8_STRING, "Go reads these in a PrintableString");
}

/// Proves CSRS-47, CSRS-103.
#[test]
fn alternative_names_are_ordered_by_kind_and_duplicates_stay() {
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    let v6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let request = request()
        .alt_name(alt_name::OTHER, &[6, 1, 42])
        .alt_name(alt_name::URI, b"HTTPS://Host/a b")
        .alt_name(alt_name::IP, &mapped)
        .alt_name(alt_name::EMAIL, b"b@a")
        .alt_name(alt_name::DNS, b"b")
        .alt_name(alt_name::IP, &v6)
        .alt_name(0xa4, &[0x30, 0])
        .alt_name(alt_name::DNS, b"a")
        .alt_name(alt_name::EMAIL, b"a@a")
        .alt_name(alt_name::DNS, b"b");
    let wanted: [(u8, &[u8]); 8] = [
        (alt_name::DNS, b"b"),
        (alt_name::DNS, b"a"),
        (alt_name::DNS, b"b"),
        (alt_name::EMAIL, b"b@a"),
        (alt_name::EMAIL, b"a@a"),
        (alt_name::IP, &[10, 0, 0, 1]),
        (alt_name::IP, &v6),
        (alt_name::URI, b"https://Host/a%20b"),
    ];
    let found = alt_names(&request);
    assert_eq!(found.iter().map(|(tag, content)| (*tag, &content[..])).collect::<Vec<_>>(), wanted);
}

/// Proves CSRS-104.
#[test]
fn alternative_names_are_critical_only_without_a_subject() {
    let critical = |request: &RequestBuilder| {
        let found = extensions(&issue(request));
        found.iter().find(|(number, ..)| *number == SUBJECT_ALT_NAME).map(|(_, critical, _)| *critical)
    };
    let named = request().alt_name(alt_name::DNS, b"n");
    assert_eq!(critical(&named), Some(true));
    assert_eq!(critical(&named.kubelet("n")), Some(false));
    assert_eq!(critical(&request().kubelet("n")), None);
    assert_eq!(critical(&request().kubelet("n").alt_name(alt_name::OTHER, &[6, 1, 42])), None);
}

/// Proves CSRS-47, CSRS-48, CSRS-105.
#[test]
fn extensions_are_five_at_most_in_a_fixed_order() {
    let asked = request()
        .kubelet("n")
        .alt_name(alt_name::DNS, b"n")
        .extension(&[0x55, 0x1d, 19], true, &[0x30, 3, 1, 1, 0xff])
        .extension(&[0x55, 0x1d, 14], false, &[4, 1, 1])
        .extension(&[0x55, 0x1d, 15], true, &[3, 2, 2, 4])
        .extension(&[0x2a, 3, 4], false, &[5, 0]);
    let parts = issue(&asked);
    let all = [KEY_USAGE, EXTENDED_KEY_USAGE, BASIC_CONSTRAINTS, AUTHORITY_KEY_ID, SUBJECT_ALT_NAME];
    assert_eq!(numbers(&parts), all);
    let found = extensions(&parts);
    assert_eq!(found[0], (KEY_USAGE, true, vec![3, 2, 7, 0x80]), "of spec.usages, not of the request");
    assert_eq!(found[2], (BASIC_CONSTRAINTS, true, vec![0x30, 0]), "CA false");
    assert_eq!(found[3], (AUTHORITY_KEY_ID, false, vec![0x30, 5, 0x80, 3, 1, 2, 3]));
    let without = Certificate { subject_key_id: Vec::new(), ..ca() };
    assert_eq!(numbers(&issue_from(&without, &asked, &[])), [BASIC_CONSTRAINTS, SUBJECT_ALT_NAME]);
    // The encoder writes `CN=ca` as PrintableString, so this CA's subject is equal byte for byte and the other is not.
    let namesake = request().attribute(3, "ca");
    assert!(numbers(&issue(&namesake)).contains(&AUTHORITY_KEY_ID));
    let printable = der::element(SEQUENCE, &issue(&namesake)[5].1);
    let same = Certificate { subject: printable, ..ca() };
    assert_eq!(numbers(&issue_from(&same, &namesake, &[])), [BASIC_CONSTRAINTS]);
}
