//! Until requests can be authenticated, only health is told to strangers.
//!
//! This room is where delegated authentication and authorization will stand. It already answers in
//! their form, so that a client sees no other shape of refusal later.

use std::net::IpAddr;

/// Paths that need no authorization, whoever asks (the default of
/// `--authorization-always-allow-paths`).
pub const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// Why a stranger is refused; part of the answer.
pub(crate) const REFUSAL: &str =
    "this server cannot authenticate clients yet and answers this path to loopback peers only";

/// Whether a peer may see a page.
#[must_use]
pub fn is_allowed(path: &str, peer: IpAddr) -> bool {
    // A socket for both families shows IPv4 peers in their mapped form.
    ALWAYS_ALLOWED.contains(&path) || peer.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_see_health_and_nothing_else() {
        let stranger = IpAddr::from([10, 0, 0, 7]);
        let rows = [
            ("/healthz", stranger, true),
            ("/livez", stranger, true),
            ("/readyz", stranger, true),
            ("/healthz/", stranger, false),
            ("/metrics", stranger, false),
            ("/", stranger, false),
            ("/metrics", "fd00::7".parse().unwrap(), false),
            ("/metrics", "::ffff:10.0.0.7".parse().unwrap(), false),
            ("/metrics", "127.0.0.1".parse().unwrap(), true),
            ("/metrics", "127.8.0.1".parse().unwrap(), true),
            ("/metrics", "::1".parse().unwrap(), true),
            ("/metrics", "::ffff:127.0.0.1".parse().unwrap(), true),
        ];
        for (path, peer, allowed) in rows {
            assert_eq!(is_allowed(path, peer), allowed, "{path} from {peer}");
        }
    }
}
