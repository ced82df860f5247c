//! Checks the API server, the Lease and the ports.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use http::header::DATE;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use keleustes_client::{Call, ClientFactory, Connection, api_error};
use keleustes_objects::{ErrorReason, Key, Resource};
use keleustes_options::Options;
use keleustes_runtime::leader::{self, LEADER_ANNOTATION};
use kube::client::Body;
use serde_json::Value;

use super::report::{Category, Check, Report};
use crate::{identity, run, serving};

static LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases", "Lease");

const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// A manager on this machine answers at once; another program may never do so.
const NEIGHBOUR_ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// No list of health checks is longer.
const HEALTH_BYTES_MAX: usize = 64 * 1024;
/// A clock that is off by more makes tokens and certificates invalid that have just been issued.
const SKEW_SECONDS_WARN: i64 = 5;
const SKEW_SECONDS_MAX: i64 = 300;

/// Whether the API server answers, its version and its clock.
pub(super) async fn check_server(factory: &ClientFactory, report: &mut Report) -> bool {
    let check = Check::new(Category::ApiServer, "connection");
    let client = factory.root("check");
    let request =
        Request::get("/version").body(Body::empty()).unwrap_or_else(|_| unreachable!("a fixed path"));
    let answer = tokio::time::timeout(ANSWERS_WITHIN, client.send(request)).await;
    let answer = match answer {
        Err(_) => Err("no answer within 10 s".to_owned()),
        Ok(Err(error)) => Err(api_error::from_kube(&error).to_string()),
        Ok(Ok(answer)) => Ok(answer),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let advice =
                "is the address in the kubeconfig right, does the API server run, does its CA match?";
            report.add(check.failed(error).advise(advice));
            return false;
        }
    };
    let (status, date) = (answer.status(), answer.headers().get(DATE).cloned());
    if !status.is_success() {
        let advice =
            if status.as_u16() == 401 { "renew the credentials" } else { "see the API server's log" };
        report.add(check.failed(format!("GET /version: {status}")).advise(advice));
        return false;
    }
    report.add(check.ok("it answers"));
    let body = answer.into_body().collect_bytes().await.unwrap_or_default();
    let version: Value = serde_json::from_slice(&body).unwrap_or_default();
    report.add(version_skew(version["gitVersion"].as_str().unwrap_or_default()));
    if let Some(date) = date.and_then(|date| rfc2822::parse(date.to_str().ok()?).ok()) {
        report.add(clock_skew(date.timestamp(), Timestamp::now()));
    }
    true
}

/// Parity: the version skew policy. The manager may be up to one minor version older than the API server, and not newer.
fn version_skew(server: &str) -> Check {
    let check = Check::new(Category::ApiServer, "version");
    let minor = |version: &str| -> Option<i64> {
        let mut numbers = version.trim_start_matches('v').split('.');
        if numbers.next()? != "1" {
            return None;
        }
        numbers.next()?.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()
    };
    let own = identity::KUBERNETES_VERSION;
    let text = format!("API server {server}, this manager {own}");
    match (minor(server), minor(own)) {
        (Some(theirs), Some(ours)) => match theirs - ours {
            0 | 1 => check.ok(text),
            -1 => check.warning(text).advise(
                "the version skew policy does not allow a manager that is newer than its API server; \
                 upgrade the API server first",
            ),
            _ => check.failed(text).advise("the versions are too far apart; see the version skew policy"),
        },
        _ => check.warning(text).advise("the version of the API server cannot be read"),
    }
}

fn clock_skew(server: Timestamp, here: Timestamp) -> Check {
    let check = Check::new(Category::ApiServer, "clock");
    // The header has whole seconds.
    let seconds = (here.as_second() - server.as_second()).abs();
    let text = format!("{seconds} s between this machine and the API server");
    let advice = "synchronise the clocks (NTP): tokens and certificates are valid at times of the API server";
    match seconds {
        0..=SKEW_SECONDS_WARN => check.ok(text),
        _ if seconds <= SKEW_SECONDS_MAX => check.warning(text).advise(advice),
        _ => check.failed(text).advise(advice),
    }
}

/// Who holds the Lease, and which program that is. Returns the holder.
pub(super) async fn check_lease(
    factory: &ClientFactory,
    options: &Options,
    report: &mut Report,
) -> Option<String> {
    let flags = &options.leader_election;
    let key = Key::namespaced(flags.resource_namespace.as_str(), flags.resource_name.as_str());
    let check = Check::new(Category::Lease, key.to_string());
    if !flags.leader_elect {
        report.add(check.warning("--leader-elect=false").advise("never run two managers like this"));
        return None;
    }
    let client = factory.root(leader::CLIENT_NAME);
    match Call::get(&LEASES, &key).send(&client).await {
        Ok(lease) => {
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
            report.add(check.ok(holder_text(&lease, &holder, Timestamp::now())));
            Some(holder)
        }
        Err(error) if error.reason == ErrorReason::NotFound => {
            report.add(check.ok("does not exist yet, no manager has led so far"));
            None
        }
        Err(error) => {
            let advice = "bind the role system::leader-locking-kube-controller-manager to this user";
            report.add(check.failed(error.to_string()).advise(advice));
            None
        }
    }
}

fn holder_text(lease: &Value, holder: &str, now: Timestamp) -> String {
    if holder.is_empty() {
        return "released, no manager leads".to_owned();
    }
    let annotation = lease["metadata"]["annotations"][LEADER_ANNOTATION].as_str().unwrap_or_default();
    let program = annotation.strip_prefix(holder).map(str::trim_start).filter(|program| !program.is_empty());
    let program = program.unwrap_or("not Keleustes, or a version that does not say so");
    let renewed = lease["spec"]["renewTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let age = renewed.map(|renewed| now.as_second() - renewed.as_second()).unwrap_or_default();
    let duration = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let state = if age > duration { "expired, last renewed" } else { "renewed" };
    format!("held by {holder} ({program}), {state} {age} s ago")
}

/// Whether the durations of the leader election exclude two leaders. The manager refuses to start with others.
pub(super) fn check_election(options: &Options, report: &mut Report) {
    if let Some(Err(error)) = run::election_config(options, "check").map(|config| config.validate()) {
        let flags =
            "--leader-elect-lease-duration, --leader-elect-renew-deadline, --leader-elect-retry-period";
        report.add(
            Check::new(Category::Lease, "durations")
                .failed(error.to_string())
                .advise(format!("correct {flags}; the defaults are 15s, 10s and 2s")),
        );
    }
}

/// Whether the kubeconfigs for delegated authentication and authorization can be used.
pub(super) async fn check_delegates(options: &Options, report: &mut Report) {
    if !options.serving.is_enabled() {
        return;
    }
    // That of the manager itself is checked with the connection.
    let is_other = |file: &str| !file.is_empty() && file != options.client.kubeconfig;
    for (flag, file) in serving::kubeconfigs(options).into_iter().filter(|(_, file)| is_other(file)) {
        let opened = async {
            let connection = Connection::open(Some(file.as_ref()), None, None)?;
            anyhow::Ok(connection.prefetch_credentials().await?)
        };
        let check = Check::new(Category::Files, flag);
        report.add(match opened.await {
            Ok(()) => check.ok(format!("{file}: can be used")),
            Err(error) => {
                let advice = "give a kubeconfig that the user of the manager can read, or leave the flag out";
                check.failed(format!("{error:#}")).advise(advice)
            }
        });
    }
}

/// Whether the secure port is free. It need not be where another manager leads or stands by: this one may be to replace it.
pub(super) async fn check_port(options: &Options, holder: Option<&str>, report: &mut Report) {
    let serving = &options.serving;
    let check = Check::new(Category::Ports, "--secure-port");
    if !serving.is_enabled() {
        report.add(check.ok("0: nothing is served"));
        return;
    }
    let port = u16::try_from(serving.secure_port).unwrap_or_default();
    let here = leader::host_name().unwrap_or_default();
    let leads_here = holder.is_some_and(|holder| holder.starts_with(&format!("{here}_")));
    report.add(match TcpListener::bind((serving.bind_address, port)) {
        Ok(_) => check.ok(format!("{}:{port} is free", serving.bind_address)),
        Err(error) => {
            let text = format!("{}:{port}: {error}", serving.bind_address);
            match error.kind() {
                ErrorKind::AddrInUse if leads_here => {
                    check.warning(text).advise("a manager on this machine leads, which is probably why")
                }
                ErrorKind::AddrInUse if manager_answers(serving.bind_address, port).await => {
                    check.warning(text).advise(
                        "a controller manager answers there, probably the standby that this one replaces",
                    )
                }
                ErrorKind::AddrInUse => check
                    .failed(text)
                    .advise("another process listens there; stop it or choose another --secure-port"),
                ErrorKind::AddrNotAvailable => {
                    check.failed(text).advise("--bind-address must be an address of this machine")
                }
                _ => check.failed(text).advise("choose another --bind-address or --secure-port"),
            }
        }
    });
}

/// Whether a healthy controller manager with leader election answers on a port of this machine. It is asked without credentials,
/// since its certificate cannot be verified.
async fn manager_answers(address: IpAddr, port: u16) -> bool {
    let address = match address {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        one => one,
    };
    let answer = health_checks(SocketAddr::new(address, port));
    let answer = tokio::time::timeout(NEIGHBOUR_ANSWERS_WITHIN, answer).await;
    answer.ok().flatten().is_some_and(|checks| checks.lines().any(|check| check == "[+]leaderElection ok"))
}

/// The list of health checks that a program serves; `None` if it serves none or one of them fails.
async fn health_checks(address: SocketAddr) -> Option<String> {
    let mut config = kube::Config::new(format!("https://{address}").parse().ok()?);
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).ok()?;
    let answer = client.send(Request::get("/healthz?verbose").body(Body::empty()).ok()?).await.ok()?;
    if answer.status() != StatusCode::OK {
        return None;
    }
    let body = Limited::new(answer.into_body(), HEALTH_BYTES_MAX).collect().await.ok()?;
    String::from_utf8(body.to_bytes().to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use keleustes_serving::{Access, HealthChecks, PageOptions, Pages, Server, ServingOptions};
    use serde_json::json;

    use super::super::report::OutputFormat;
    use super::*;

    fn shown(check: Check) -> String {
        let mut report = Report::default();
        report.add(check);
        report.text(OutputFormat::Text)
    }

    #[test]
    fn manager_may_be_one_minor_version_older_than_the_api_server_and_not_newer() {
        for (server, mark) in [
            ("v1.37.1", "  ok "),
            ("v1.38.0-alpha.1", "  ok "),
            ("v1.37.4+k3s1", "  ok "),
            ("v1.36.4", "WARNING"),
            ("v1.39.0", "FAILED"),
            ("v1.35.0", "FAILED"),
            ("", "WARNING"),
        ] {
            let text = shown(version_skew(server));
            assert!(text.contains(mark), "{server}: {text}");
        }
    }

    fn options(flags: &[&str]) -> Box<Options> {
        crate::command::read(flags.iter().map(Into::into)).unwrap()
    }

    #[tokio::test]
    async fn missing_kubeconfigs_of_delegated_access_fail() {
        let flags =
            ["--kubeconfig=/own", "--authentication-kubeconfig=/no/such", "--authorization-kubeconfig=/own"];
        let mut report = Report::default();
        check_delegates(&options(&flags), &mut report).await;
        let text = report.text(OutputFormat::Text);
        assert!(
            text.contains("FAILED   --authentication-kubeconfig: kubeconfig /no/such does not exist"),
            "{text}"
        );
        assert!(text.contains("1 checks, 1 failed"), "the manager's own is checked once: {text}");
        let mut report = Report::default();
        check_delegates(&options(&["--secure-port=0", flags[1]]), &mut report).await;
        assert!(!report.has_failed(), "nothing is served");
    }

    #[test]
    fn durations_that_the_manager_refuses_fail() {
        let failed = |flags: &[&str]| {
            let mut report = Report::default();
            check_election(&options(flags), &mut report);
            report.has_failed()
        };
        assert!(failed(&["--leader-elect-lease-duration=5s"]) && failed(&["--leader-elect-retry-period=9s"]));
        assert!(!failed(&[]) && !failed(&["--leader-elect-lease-duration=5s", "--leader-elect=false"]));
    }

    /// The leader on this machine explains a port in use, and nothing else.
    #[tokio::test]
    async fn address_of_another_machine_fails_beside_a_leader_too() {
        let leader = format!("{}_1", leader::host_name().unwrap());
        let judged = async |flags: &[&str]| {
            let mut report = Report::default();
            check_port(&options(flags), Some(&leader), &mut report).await;
            report.text(OutputFormat::Text)
        };
        let other = judged(&["--bind-address=192.0.2.1", "--secure-port=28673"]).await;
        assert!(other.contains("FAILED") && other.contains("-> --bind-address"), "{other}");
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = format!("--secure-port={}", taken.local_addr().unwrap().port());
        let taken = judged(&["--bind-address=127.0.0.1", &port]).await;
        assert!(taken.contains("WARNING") && taken.contains("a manager on this machine leads"), "{taken}");
    }

    /// A standby serves its port although this host does not hold the Lease; any other program is in the way.
    #[tokio::test]
    async fn port_of_a_standby_is_a_warning_and_that_of_another_program_fails() {
        let judged = async |listener: TcpListener, address: &str, check: &str| {
            let port = listener.local_addr().unwrap().port();
            let health = HealthChecks::new();
            health.add_ping(check);
            let pages = Pages::new(
                health,
                keleustes_runtime::metrics::Metrics::new().registry().clone(),
                std::time::SystemTime::now(),
                PageOptions::default(),
            );
            let server =
                Server::from_listener(listener, &ServingOptions::default(), pages, Access::deny_all())
                    .unwrap();
            let serving = tokio::spawn(server.run(std::future::pending()));
            let flags = [format!("--bind-address={address}"), format!("--secure-port={port}")];
            let mut report = Report::default();
            check_port(&options(&flags.each_ref().map(String::as_str)), Some("other_1"), &mut report).await;
            serving.abort();
            report.text(OutputFormat::Text)
        };
        let bound = || TcpListener::bind("127.0.0.1:0").unwrap();
        for address in ["127.0.0.1", "0.0.0.0"] {
            let standby = judged(bound(), address, "leaderElection").await;
            assert!(
                standby.contains("WARNING") && standby.contains("-> a controller manager answers"),
                "{standby}"
            );
        }
        let other = judged(bound(), "127.0.0.1", "ping").await;
        assert!(other.contains("FAILED") && other.contains("-> another process listens there"), "{other}");
    }

    #[test]
    fn clocks_may_differ_by_seconds() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let server = at("2026-01-01T00:00:00Z");
        for (here, mark) in [
            ("2026-01-01T00:00:05Z", "  ok "),
            ("2025-12-31T23:59:50Z", "WARNING"),
            ("2026-01-01T00:06:00Z", "FAILED"),
        ] {
            let text = shown(clock_skew(server, at(here)));
            assert!(text.contains(mark), "{here}: {text}");
        }
    }

    #[test]
    fn lease_shows_which_program_leads() {
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        let lease = |annotation: &str| {
            json!({
                "metadata": {"annotations": {LEADER_ANNOTATION: annotation}},
                "spec": {"holderIdentity": "a_1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:08.5Z"},
            })
        };
        let ours = holder_text(&lease("a_1 Keleustes 0.1.0 (commit b)"), "a_1", now);
        assert_eq!(ours, "held by a_1 (Keleustes 0.1.0 (commit b)), renewed 2 s ago");
        let theirs = holder_text(&lease("b_2 Keleustes 0.1.0"), "a_1", now);
        assert!(theirs.contains("(not Keleustes, or"), "{theirs}");
        assert!(holder_text(&lease(""), "", now).contains("released"));
        let late = "2026-01-01T00:01:00Z".parse().unwrap();
        assert!(holder_text(&lease(""), "a_1", late).contains("expired, last renewed 52 s ago"));
    }
}
