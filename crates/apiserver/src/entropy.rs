//! Entropy for servers that other users of the machine can reach; tests and simulations use a seed.

use crate::kernel::EntropySource;

/// Random bytes from the operating system, by way of the cryptographic library that serves TLS.
pub fn operating_system() -> EntropySource {
    let source = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    EntropySource::new(move |bytes| {
        // A server without random bytes would issue tokens that can be computed. Go's crypto/rand ends the process too.
        assert!(source.fill(bytes).is_ok(), "the operating system provides no random bytes");
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiServer;

    #[test]
    fn no_two_draws_are_equal() {
        let source = operating_system();
        let draw = || {
            let mut bytes = [0; 32];
            source.fill(&mut bytes);
            bytes
        };
        assert_ne!(draw(), draw());
        assert_ne!(draw(), [0; 32]);
    }

    #[test]
    fn servers_with_entropy_differ_and_servers_with_a_seed_do_not() {
        let uids = |builder: crate::Builder| -> Vec<String> {
            let objects = builder.bootstrap(true).build().snapshot();
            objects.iter().map(|object| object["metadata"]["uid"].to_string()).collect()
        };
        assert_eq!(uids(ApiServer::builder()), uids(ApiServer::builder()));
        let (one, two) = (
            uids(ApiServer::builder().entropy(operating_system())),
            uids(ApiServer::builder().entropy(operating_system())),
        );
        assert!(one.iter().all(|uid| !two.contains(uid)));
    }
}
