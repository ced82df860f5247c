//! Mutated requests: reading ends, without a panic, and either succeeds or gives a reason.

use std::sync::mpsc;
use std::time::Duration;

use keleustes_x509::builder::{RequestBuilder, alt_name};
use keleustes_x509::{Certificate, CertificateRequest, pem};

fn valid() -> RequestBuilder {
    RequestBuilder::for_ed25519(&[7; 32])
        .kubelet("a")
        .alt_name(alt_name::DNS, b"example.com")
        .alt_name(alt_name::URI, b"spiffe://a/b?c#d")
        .alt_name(alt_name::IP, &[10, 0, 0, 1])
        .extension(&[0x55, 0x1d, 19], true, &[0x30, 3, 1, 1, 0xff])
}

fn mutate(rng: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match rng.u8(..6) {
            _ if bytes.is_empty() => bytes.push(rng.u8(..)),
            0 => bytes[at] ^= 1 << rng.u8(..8),
            1 => bytes[at] = [0, 0x1f, 0x30, 0x7f, 0x80, 0x84, 0xa0, 0xff][rng.usize(..8)],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.u8(..)),
            4 => {
                let part = bytes[at..(at + rng.usize(..40)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                bytes.remove(at);
            }
        }
    }
}

#[test]
fn ten_thousand_mutated_requests_are_read_or_refused() {
    let mut rng = fastrand::Rng::with_seed(1);
    let pem_text = valid().to_pem_unsigned();
    let der = pem::blocks(pem_text.as_bytes()).next().unwrap().bytes;
    assert!(CertificateRequest::from_der(&der).is_ok());
    let mut read = 0;
    for number in 0..10_000 {
        let outcome = if number % 2 == 0 {
            let mut bytes = der.clone();
            mutate(&mut rng, &mut bytes);
            // The CA's certificate is read by the same code.
            let _ = Certificate::from_der(&bytes);
            CertificateRequest::from_der(&bytes)
        } else {
            let mut bytes = pem_text.clone().into_bytes();
            mutate(&mut rng, &mut bytes);
            CertificateRequest::from_pem(&bytes)
        };
        match outcome {
            Ok(_) => read += 1,
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!((100..9_900).contains(&read), "{read} were read");
}

/// The longest time that reading one of the long texts may take: linear reading takes far less, also in a debug build
/// on a busy machine, and quadratic reading minutes.
const READING_MAX: Duration = Duration::from_secs(10);

/// Reads in another thread, so that the test fails in time if reading is slow.
#[expect(clippy::disallowed_methods, reason = "the test bounds how long reading takes")]
fn in_time<T: Send + 'static>(what: &str, read: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(read()));
    receiver.recv_timeout(READING_MAX).unwrap_or_else(|_| panic!("{what}: not read in {READING_MAX:?}"))
}

/// Texts whose reading would take time in the square of their length if it were done without care. A request is at most
/// 1 MiB long; a bundle of CAs, which the same code splits, has no such limit.
#[test]
fn long_texts_are_read_in_linear_time() {
    let block = |body: &str| format!("-----BEGIN A-----\n{body}\n-----END A-----\n");
    let many = 200_000;
    let texts = [
        ("BEGIN lines", "-----BEGIN A-----\n".repeat(many), 0),
        ("END lines", "\n-----END A-----".repeat(many), 0),
        ("END lines like headers", "-----BEGIN A-----\nx:y\n-----END :-----\n".repeat(many), 0),
        ("blocks that are no base64", block("!").repeat(many), 0),
        ("blocks", block("AAAA").repeat(many), many),
        ("headers", format!("-----BEGIN A-----\n{}", "a: b\n".repeat(many)), 0),
        ("headers of every block", block("a: b\n\n!").repeat(many), 0),
        ("one line", "x".repeat(8 << 20), 0),
    ];
    for (what, text, blocks) in texts {
        let request = text[..text.len().min(1 << 20)].to_owned();
        assert!(in_time(what, move || CertificateRequest::from_pem(request.as_bytes())).is_err());
        assert_eq!(in_time(what, move || pem::blocks(text.as_bytes()).count()), blocks, "{what}");
    }
}

#[test]
fn long_requests_are_read_in_linear_time() {
    let names = (0..10_000).fold(valid(), |request, _| request.alt_name(alt_name::DNS, b"a"));
    let text = names.to_pem_unsigned();
    let read = in_time("names", move || CertificateRequest::from_pem(text.as_bytes()));
    assert_eq!(read.unwrap().alt_names.dns.len(), 10_001);
    let too_long = CertificateRequest::from_pem(&[b'x'; (1 << 20) + 1]).unwrap_err();
    assert_eq!(too_long.to_string(), "the certificate request is longer than 1 MiB");
    let nested = [[0x30, 0x84, 0, 0, 0, 0]; 200_000].concat();
    assert!(in_time("nested sequences", move || CertificateRequest::from_der(&nested)).is_err());
}
