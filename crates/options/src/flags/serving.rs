//! Flags of secure serving, authentication and authorization.

use std::net::Ipv4Addr;

use crate::flag::FlagDefault::{Bool, CertKeys, Int, Ip, List, Numbers, Text};
use crate::flag::{Flag, FlagDefault, flag};
use crate::go_text;

const TEN_SECONDS: FlagDefault = FlagDefault::Duration(go_text::GoDuration::seconds(10));

pub(super) const SECURE_SERVING: &[Flag] = &[
    flag(
        "bind-address",
        Ip(Ipv4Addr::UNSPECIFIED),
        "Address to listen on. 0.0.0.0 and :: stand for all addresses of both families.",
    ),
    flag(
        "cert-dir",
        Text(""),
        "Directory for the serving certificate when no files are named. Without one, a self-signed certificate lives in memory only.",
    ),
    flag("disable-http2-serving", Bool(false), "Serve HTTP/1.1 only."),
    flag(
        "http2-max-streams-per-connection",
        Int(0),
        "How many requests one HTTP/2 connection may have open. 0 leaves it to the server.",
    ),
    flag(
        "permit-address-sharing",
        Bool(false),
        "Set SO_REUSEADDR, so that a port can be bound again at once.",
    ),
    flag(
        "permit-port-sharing",
        Bool(false),
        "Set SO_REUSEPORT, so that several processes can listen on one port.",
    ),
    flag(
        "secure-port",
        Int(10257),
        "Port for HTTPS with authentication and authorization. 0 switches serving off.",
    ),
    flag(
        "tls-cert-file",
        Text(""),
        "Serving certificate in PEM, followed by its intermediates. Read again when it changes.",
    ),
    flag(
        "tls-cipher-suites",
        List(&[]),
        "Cipher suites to offer, by their IANA names. Those of TLS 1.3 cannot be chosen.",
    ),
    flag(
        "tls-curve-preferences",
        Numbers,
        "Key exchanges to offer, by their IANA numbers: 23, 24, 25, 29, 4587, 4588, 4589.",
    ),
    flag(
        "tls-min-version",
        Text(""),
        "Oldest TLS version to accept: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. This manager speaks 1.2 and 1.3.",
    ),
    flag("tls-private-key-file", Text(""), "Private key in PEM for --tls-cert-file."),
    flag(
        "tls-sni-cert-key",
        CertKeys,
        "Certificate and key for some host names: cert,key or cert,key:name,name. Names may begin with '*.'; without names those in the certificate are taken. May be given repeatedly.",
    ),
];

pub(super) const AUTHENTICATION: &[Flag] = &[
    flag(
        "authentication-kubeconfig",
        Text(""),
        "Kubeconfig for asking the API server who a token belongs to and which client authorities it trusts. Without it tokens are not looked at.",
    ),
    flag("authentication-skip-lookup", Bool(false), "Do not read the client authorities from the cluster."),
    flag("authentication-token-webhook-cache-ttl", TEN_SECONDS, "How long an answer about a token is kept."),
    flag(
        "authentication-tolerate-lookup-failure",
        Bool(false),
        "Start even if the client authorities cannot be read from the cluster; requests may then all be anonymous.",
    ),
    flag(
        "client-ca-file",
        Text(""),
        "Authorities whose client certificates are accepted; the common name becomes the user.",
    ),
    flag(
        "requestheader-allowed-names",
        List(&[]),
        "Common names of front proxies that may say who a user is. Empty allows every certificate of --requestheader-client-ca-file.",
    ),
    flag(
        "requestheader-client-ca-file",
        Text(""),
        "Authorities for the client certificates of front proxies.",
    ),
    flag(
        "requestheader-extra-headers-prefix",
        List(&["x-remote-extra-"]),
        "Header prefixes that carry extra facts about a user.",
    ),
    flag("requestheader-group-headers", List(&["x-remote-group"]), "Headers that carry a user's groups."),
    flag(
        "requestheader-uid-headers",
        List(&[]),
        "Headers that carry a user's uid; X-Remote-Uid must be among them.",
    ),
    flag("requestheader-username-headers", List(&["x-remote-user"]), "Headers that carry the user's name."),
];

pub(super) const AUTHORIZATION: &[Flag] = &[
    flag(
        "authorization-always-allow-paths",
        List(&["/healthz", "/readyz", "/livez"]),
        "Paths that need no authorization. A '*' at the end stands for all below.",
    ),
    flag(
        "authorization-kubeconfig",
        Text(""),
        "Kubeconfig for asking the API server what a user may do. Without it only the paths above are open.",
    ),
    flag("authorization-webhook-cache-authorized-ttl", TEN_SECONDS, "How long a permission is kept."),
    flag("authorization-webhook-cache-unauthorized-ttl", TEN_SECONDS, "How long a refusal is kept."),
];
