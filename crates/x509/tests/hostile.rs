//! Mutated requests: reading ends, without a panic, and either succeeds or gives a reason.

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

/// Texts whose reading would take time in the square of their length if it were done without care.
#[test]
fn long_requests_are_read_in_linear_time() {
    let block = |body: &str| format!("-----BEGIN A-----\n{body}\n-----END A-----\n");
    let many = 20_000;
    let texts = [
        "-----BEGIN A-----\n".repeat(many),
        "\n-----END A-----".repeat(many),
        "-----BEGIN A-----\nx:y\n-----END :-----\n".repeat(many / 2),
        block("!").repeat(many),
        format!("-----BEGIN A-----\n{}", "a: b\n".repeat(many)),
        "x".repeat(2 << 20),
    ];
    for text in texts {
        assert!(CertificateRequest::from_pem(text.as_bytes()).is_err());
    }
    let names = (0..10_000).fold(valid(), |request, _| request.alt_name(alt_name::DNS, b"a"));
    assert_eq!(
        CertificateRequest::from_pem(names.to_pem_unsigned().as_bytes()).unwrap().alt_names.dns.len(),
        10_001
    );
    let nested = [[0x30, 0x84, 0, 0, 0, 0]; 50_000].concat();
    assert!(CertificateRequest::from_der(&nested).is_err());
}
