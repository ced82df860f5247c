//! Every flag and every feature gate does what the lists in `keleustes_options` say: obeyed ones change something that
//! the manager passes on, and the others are refused or warned about.

use std::fmt::Write as _;
use std::path::Path;

use keleustes_client::Connection;
use keleustes_options::flag::{Flag, FlagDefault, FlagScope};
use keleustes_options::{GateEffect, Options, flags, gate_dependencies, gate_effects};
use keleustes_runtime::clock::Random;

use crate::controller_selection::{ControllerSelection, implemented_controllers};
use crate::{command, logging, options_from_files, process_context, run, serving};

/// Everything that the manager derives from its options, except the pages that only repeat them.
fn effective(options: &Options) -> String {
    let mut text = String::new();
    let connection =
        Connection::from_service(tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        }));
    let mut settings = options_from_files::settings(options, &connection).unwrap();
    let selected = match ControllerSelection::choose(options, &settings) {
        Ok(selected) => selected,
        Err(error) => return error.to_string(),
    };
    let names: Vec<_> = selected.members.iter().map(|controller| controller.name).collect();
    let _ = writeln!(text, "{names:?} {:?}", selected.missing);
    let _ = writeln!(text, "{}", options.generic.allow_missing_controllers);
    if let Some(token) = settings.serviceaccount_token.take() {
        let header = (token.sign)(&serde_json::json!({})).unwrap().split('.').next().unwrap().to_owned();
        let _ = writeln!(text, "{header} {:?} {}", token.ca, token.workers);
    }
    settings.garbage_collector.hash_key = 0;
    let _ = writeln!(text, "{:?} {:?}", settings.statefulset, settings.daemonset);
    let _ = writeln!(text, "{:?} {:?}", settings.deployment, settings.endpointslice);
    let _ = writeln!(text, "{:?} {:?}", settings.job, settings.replicaset);
    let _ = writeln!(text, "{:?} {:?}", settings.replicationcontroller, settings.pod_garbage_collector);
    let _ = writeln!(text, "{:?} {:?}", settings.node_lifecycle, settings.taint_eviction);
    let _ = writeln!(text, "{:?} {:?}", settings.root_ca_certificate_publisher, settings.garbage_collector);
    let _ = writeln!(text, "{:?} {:?}", settings.namespace, settings.endpoints);
    let _ = writeln!(text, "{:?}", settings.resourcequota);
    let _ = writeln!(text, "{:?} {}", settings.endpointslice_mirroring, settings.cronjob.workers);
    let _ = writeln!(text, "{:?}", settings.node_ipam);
    let binder = &settings.persistentvolume_binder;
    let provisioning = (binder.enable_dynamic_provisioning, binder.enable_hostpath_provisioner);
    let _ = writeln!(text, "{:?} {provisioning:?} {:?}", binder.sync_period, binder.recycler);
    let _ = writeln!(text, "{:?} {:?}", settings.persistentvolume_attach_detach, settings.selinux_warning);
    let _ = writeln!(text, "{:?} {:?}", settings.resourceclaim, settings.device_taint_eviction);
    let _ = writeln!(text, "{:?} {:?}", settings.podgroup_protection, settings.resourcepoolstatusrequest);
    let _ = writeln!(text, "{:?}", settings.horizontal_pod_autoscaler);
    let legacy_tokens = settings.legacy_serviceaccount_token_cleaner;
    let _ = writeln!(text, "{:?} {legacy_tokens:?}", settings.ttl_after_finished);
    let _ = writeln!(text, "{:?} {:?}", settings.persistentvolumeclaim_protection, settings.ephemeral_volume);
    let publisher = settings.kube_apiserver_serving_clustertrustbundle_publisher;
    let signing = settings.certificatesigningrequest_signing.map(|signing| {
        let names: Vec<_> = signing.signers.iter().map(|signer| signer.name).collect();
        (names, signing.duration_nanoseconds)
    });
    let _ = writeln!(text, "{publisher:?} {signing:?}");
    let _ = writeln!(text, "{:?} {:?}", settings.disruption, settings.validatingadmissionpolicy_status);
    let client = process_context::client_options(options);
    let throttle = client.throttle.map(|rate| (rate.qps, rate.burst));
    let _ = writeln!(text, "{throttle:?} {} {}", client.use_service_account_credentials, client.json_only);
    let _ = writeln!(text, "{:?} {:?}", process_context::cache_options(options), run::api_server(options));
    let _ = writeln!(text, "{:?} {:?}", run::election_config(options, "me"), run::migration(options));
    let _ = writeln!(text, "{:?} {:?}", run::start_and_stop(options), logging::from_options(&options.logs));
    if options.serving.is_enabled() {
        let _ = writeln!(text, "{:?}", serving::serving(options).unwrap());
        let _ = writeln!(text, "{:?} {:?}", serving::kubeconfigs(options), serving::access_options(options));
    }
    let _ = writeln!(text, "{}", options.debugging.decision_journal_bytes);
    let _ = writeln!(text, "{:?} {}", run::shadow_window(options), options.debugging.shadow_window);
    let (_, verbosity) = logging::from_options(&options.logs);
    let pages = serving::page_options(options, &[], &verbosity, &Random::seeded(0));
    let _ = writeln!(text, "{:?} {}", pages.version_info, pages.profiling);
    let _ = writeln!(text, "{} {} {:?}", pages.flags.is_some(), pages.statusz, pages.disabled_metrics);
    text
}

/// Files that flags can name.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        for number in [1, 2] {
            let key = rcgen::KeyPair::generate().unwrap();
            let names = [format!("host-{number}")];
            let ca = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
            write(&format!("{number}.key"), &key.serialize_pem());
            write(&format!("{number}.crt"), &ca.pem());
        }
        write(
            "migration.yaml",
            "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n\
             leaderName: other\ncontrollerLeaders: []\n",
        );
        write("labels.yaml", "a_metric,label: a,b\n");
        write("pod.yaml", "kind: Pod\napiVersion: v1\nspec:\n  volumes:\n  - name: vol\n");
        Self(directory)
    }

    fn path(&self, name: &str) -> String {
        Path::new(self.0.path()).join(name).display().to_string()
    }

    /// Flags of every start here: without a signing key the flags of tokens have no effect.
    fn base(&self) -> Vec<String> {
        let key = self.path("1.key");
        vec![
            format!("--service-account-private-key-file={key}"),
            format!("--root-ca-file={}", self.path("1.crt")),
        ]
    }

    fn start(&self, args: &[String]) -> Box<Options> {
        let args = self.base().into_iter().chain(args.iter().cloned());
        command::read(args.map(Into::into)).unwrap_or_else(|_| panic!("refused"))
    }

    /// Both files of a signer, and the duration beside files.
    fn changed_signing(&self, flag: &str) -> Vec<String> {
        let signer = flag.trim_end_matches("-file").trim_end_matches("-cert").trim_end_matches("-key");
        let (signer, more) = if flag == "-duration" {
            ("", vec!["--cluster-signing-duration=1234s".into()])
        } else {
            (signer, vec![])
        };
        let files = [("cert", "1.crt"), ("key", "1.key")];
        let files =
            files.map(|(kind, file)| format!("--cluster-signing{signer}-{kind}-file={}", self.path(file)));
        files.into_iter().chain(more).collect()
    }

    /// A value other than the default, with the flags that it needs.
    fn changed(&self, flag: &Flag) -> Vec<String> {
        if let Some(signer) = flag.name.strip_prefix("cluster-signing") {
            return self.changed_signing(signer);
        }
        let value = match (flag.name, flag.default) {
            ("tls-cert-file" | "tls-private-key-file", _) => {
                return vec![
                    format!("--tls-cert-file={}", self.path("1.crt")),
                    format!("--tls-private-key-file={}", self.path("1.key")),
                ];
            }
            ("leader-migration-config", _) => {
                let file = self.path("migration.yaml");
                return vec!["--enable-leader-migration".into(), format!("--{}={file}", flag.name)];
            }
            ("log-text-split-stream" | "log-json-split-stream", _) => {
                return vec![format!("--{}", flag.name), "--feature-gates=LoggingAlphaOptions=true".into()];
            }
            ("log-text-info-buffer-size" | "log-json-info-buffer-size", _) => {
                return vec![
                    format!("--{}=1Ki", flag.name),
                    "--feature-gates=LoggingAlphaOptions=true".into(),
                ];
            }
            ("allocate-node-cidrs", _) => {
                return vec![format!("--{}", flag.name), "--cluster-cidr=10.0.0.0/8".into()];
            }
            // The only other value that is accepted.
            ("cidr-allocator-type", _) => String::new(),
            ("mirroring-max-endpoints-per-subset", _) => "999".to_owned(),
            ("pv-recycler-pod-template-filepath-nfs" | "pv-recycler-pod-template-filepath-hostpath", _) => {
                self.path("pod.yaml")
            }
            ("min-compatibility-version", _) => "1.37".to_owned(),
            ("emulated-version", _) => "1.36".to_owned(),
            ("service-account-private-key-file", _) => self.path("2.key"),
            ("root-ca-file", _) => self.path("2.crt"),
            ("allow-metric-labels-manifest", _) => self.path("labels.yaml"),
            ("allow-metric-labels", _) => "a_metric,label=a".to_owned(),
            ("show-hidden-metrics-for-version", _) => "1.36".to_owned(),
            ("kube-api-content-type", _) => "application/json".to_owned(),
            ("controllers", _) => "job-controller".to_owned(),
            ("logging-format", _) => "json".to_owned(),
            ("tls-min-version", _) => "VersionTLS13".to_owned(),
            ("tls-cipher-suites", _) => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384".to_owned(),
            ("requestheader-uid-headers", _) => "X-Remote-Uid".to_owned(),
            ("version", _) => "v1.37.1-reported".to_owned(),
            (_, FlagDefault::Bool(on)) => (!on).to_string(),
            (_, FlagDefault::Int32(number)) => (number + 1).to_string(),
            (_, FlagDefault::Int(number)) => (number + 1).to_string(),
            (_, FlagDefault::Float32(number)) => (number + 0.5).to_string(),
            (_, FlagDefault::Float64(number)) => (number + 0.5).to_string(),
            (_, FlagDefault::Duration(_)) => "1234s".to_owned(),
            (_, FlagDefault::Text(_) | FlagDefault::List(_)) => "changed".to_owned(),
            (_, FlagDefault::Numbers) => "29".to_owned(),
            (_, FlagDefault::Ip(_)) => "127.0.0.1".to_owned(),
            (_, FlagDefault::CertKeys) => "a.crt,a.key".to_owned(),
            (_, FlagDefault::Level) => "3".to_owned(),
            (_, FlagDefault::Modules) => "loops=5".to_owned(),
            (_, kind) => panic!("no sample for --{}: {kind:?}", flag.name),
        };
        vec![format!("--{}={value}", flag.name)]
    }
}

fn warnings_about<'a>(options: &'a Options, subject: &str) -> Vec<&'a String> {
    let about = |text: &&String| text.contains(subject) && text.contains("has no effect in this manager: ");
    options.warnings.iter().filter(about).collect()
}

/// Flags that print something, are tested as gates, or have a single valid value.
const OTHERWISE: [&str; 3] = ["help", "feature-gates", "leader-elect-resource-lock"];

/// Proves OPT-8, OPT-114.
#[test]
fn every_flag_is_obeyed_or_warned_about_as_its_list_says() {
    let files = Files::new();
    let usual = effective(&files.start(&[]));
    assert_eq!(usual, effective(&files.start(&[])), "two starts with the same flags are equal");
    let landed = implemented_controllers();
    for flag in flags::all().filter(|flag| !OTHERWISE.contains(&flag.name)) {
        let args = files.changed(flag);
        let name = flag.name;
        match flag.scope {
            FlagScope::Nothing | FlagScope::NoCounterpart(_) => {
                let value =
                    if name == "cloud-provider" { vec!["--cloud-provider=external".into()] } else { args };
                assert_eq!(effective(&files.start(&value)), usual, "--{name} is said to have no effect");
            }
            FlagScope::Unsupported(reason) => {
                let options = files.start(&args);
                assert_eq!(effective(&options), usual, "--{name} is said to have no effect");
                let warned = warnings_about(&options, name);
                assert!(warned.len() == 1 && warned[0].ends_with(reason), "--{name}: {:?}", options.warnings);
                assert_eq!(warnings_about(&files.start(&[]), name), Vec::<&String>::new());
            }
            FlagScope::Manager => {
                assert_ne!(effective(&files.start(&args)), usual, "--{name} is said to be obeyed");
            }
            FlagScope::Controllers(names) if names.iter().any(|name| landed.contains(name)) => {
                assert_ne!(effective(&files.start(&args)), usual, "--{name} belongs to {names:?}");
            }
            // Nothing of a controller that does not run can be configured; its absence is warned about.
            FlagScope::Controllers(_) => {}
        }
    }
}

/// Proves OPT-63.
#[test]
fn worker_count_below_one_is_warned_about() {
    let files = Files::new();
    let options = files.start(&["--concurrent-replicaset-syncs=0".into(), "--concurrent-rc-syncs=1".into()]);
    let warning = "--concurrent-replicaset-syncs=0 has no effect in this manager: at least one worker runs";
    assert_eq!(options.warnings, [warning]);
}

#[test]
fn content_type_that_is_not_spoken_is_warned_about() {
    let files = Files::new();
    let warned = |value: &str| {
        let options = files.start(&[format!("--kube-api-content-type={value}")]);
        warnings_about(&options, "kube-api-content-type").len()
    };
    assert_eq!(warned("application/json"), 0);
    assert_eq!(warned("application/vnd.kubernetes.protobuf"), 0);
    assert_eq!(warned("application/cbor"), 1);
}

/// Gates whose only effect is which flags are accepted: the gate, and a flag that needs it.
const ALLOWS: [(&str, &str); 3] = [
    ("LoggingAlphaOptions", "--log-json-split-stream=true"),
    ("LoggingBetaOptions", "--logging-format=json"),
    ("RemoteRequestHeaderUID", "--requestheader-uid-headers=X-Remote-Uid"),
];

/// Gates of a controller that `--controllers` must name.
const NAMES: [(&str, &str); 2] = [
    ("SELinuxChangePolicy", "--controllers=*,selinux-warning-controller"),
    ("SELinuxMountReadWriteOncePod", "--controllers=*,selinux-warning-controller"),
];

/// Starts with a gate set in an emulated release; `None` if that is refused.
fn with_gate(files: &Files, minor: u64, gate: &str, enabled: bool, more: &[&str]) -> Option<Box<Options>> {
    let version = [format!("--emulated-version=1.{minor}"), format!("--feature-gates={gate}={enabled}")];
    let args = files.base().into_iter().chain(version).chain(more.iter().map(ToString::to_string));
    command::read(args.map(Into::into)).ok()
}

#[test]
fn every_gate_is_obeyed_or_warned_about_in_every_release_that_can_be_emulated() {
    let files = Files::new();
    let landed = implemented_controllers();
    for (gate, effect, switchable) in gate_effects() {
        // The two that stand for all of a stage are tested with the options.
        if ["AllAlpha", "AllBeta"].contains(&gate) {
            continue;
        }
        match effect {
            GateEffect::Controller(name) => assert!(!landed.contains(&name), "{gate}: {name} has landed"),
            GateEffect::Fixed(_, reason) => assert!(!reason.is_empty()),
            GateEffect::Obeyed => assert!(!switchable.is_empty(), "{gate} cannot be switched"),
            GateEffect::OtherComponent => {}
        }
        // One release suffices for the many gates of other components.
        let skipped =
            if effect == GateEffect::OtherComponent { switchable.len().saturating_sub(1) } else { 0 };
        for minor in switchable.into_iter().skip(skipped) {
            check_gate(&files, gate, effect, minor);
        }
    }
}

/// Gates of which one controller needs both.
static TOGETHER: [[&str; 2]; 1] = [["StorageVersionMigrator", "InformerResourceVersion"]];

/// What must be set beside a gate, so that it can be switched: what it needs is on, and what needs it is off.
fn related_gates(gate: &str, minor: u64) -> Vec<String> {
    let can_be_set = |name: &str| {
        gate_effects().any(|(known, _, switchable)| known == name && switchable.contains(&minor))
    };
    let needed = gate_dependencies().iter().filter(|(name, _)| *name == gate).flat_map(|(_, needs)| *needs);
    let together = TOGETHER.iter().filter(|pair| pair.contains(&gate)).flatten();
    let needed = needed.chain(together.filter(|name| **name != gate));
    let dependents = gate_dependencies().iter().filter(|(_, needs)| needs.contains(&gate));
    let on = needed.filter(|name| can_be_set(name)).map(|name| format!("--feature-gates={name}=true"));
    let off = dependents.filter(|(name, _)| can_be_set(name));
    on.chain(off.map(|(name, _)| format!("--feature-gates={name}=false"))).collect()
}

fn check_gate(files: &Files, gate: &str, effect: GateEffect, minor: u64) {
    if let Some((_, flag)) = ALLOWS.iter().find(|(name, _)| *name == gate) {
        assert!(with_gate(files, minor, gate, true, &[flag]).is_some(), "{gate} in 1.{minor}");
        assert!(with_gate(files, minor, gate, false, &[flag]).is_none(), "{gate} in 1.{minor}");
        return;
    }
    let related = if effect == GateEffect::Obeyed { related_gates(gate, minor) } else { Vec::new() };
    let named = NAMES.iter().filter(|(name, _)| *name == gate).map(|(_, flag)| *flag);
    let related: Vec<&str> = related.iter().map(String::as_str).chain(named).collect();
    // A gate of another component may need others to be set, or others may need it; then one of the two is refused.
    let (Some(on), Some(off)) =
        (with_gate(files, minor, gate, true, &related), with_gate(files, minor, gate, false, &related))
    else {
        assert_ne!(effect, GateEffect::Obeyed, "{gate} in 1.{minor} is refused");
        return;
    };
    let differ = effective(&on) != effective(&off);
    let warned = [warnings_about(&on, gate).len(), warnings_about(&off, gate).len()];
    match effect {
        GateEffect::Obeyed => assert!(differ && warned == [0, 0], "{gate} in 1.{minor} is not obeyed"),
        GateEffect::Fixed(true, _) => assert!(!differ && warned == [0, 1], "{gate} in 1.{minor}: {warned:?}"),
        GateEffect::Fixed(false, _) => {
            assert!(!differ && warned == [1, 0], "{gate} in 1.{minor}: {warned:?}");
        }
        GateEffect::OtherComponent => {
            assert!(!differ && warned == [0, 0], "{gate} in 1.{minor} has an effect");
        }
        // It may decide whether the controller is listed among the missing ones.
        GateEffect::Controller(_) => assert_eq!(warned, [0, 0], "{gate} in 1.{minor}"),
    }
}

/// Without the gate the original reconciles Jobs of other controllers too.
#[test]
fn job_managed_by_can_be_switched_off_in_an_emulated_1_34() {
    let files = Files::new();
    let honors = |minor, enabled| {
        with_gate(&files, minor, "JobManagedBy", enabled, &[]).map(|options| {
            let connection =
                Connection::from_service(tower::service_fn(|_: http::Request<kube::client::Body>| async {
                    Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
                }));
            options_from_files::settings(&options, &connection).unwrap().job.honor_managed_by
        })
    };
    assert_eq!((honors(34, true), honors(34, false)), (Some(true), Some(false)));
    assert_eq!((honors(37, true), honors(37, false)), (Some(true), None));
}

/// Proves OPT-92.
#[test]
fn rate_limit_on_the_configuration_page_is_the_one_that_holds() {
    let files = Files::new();
    let qps = |args: &[&str]| {
        let options = files.start(&args.iter().map(ToString::to_string).collect::<Vec<_>>());
        let throttle = process_context::client_options(&options).throttle.map(|rate| rate.qps.to_string());
        let page = options.configz()["kubecontrollermanager.config.k8s.io"].clone();
        (throttle, page["Generic"]["ClientConnection"]["qps"].to_string())
    };
    assert_eq!(qps(&[]), (None, "-1".to_owned()));
    assert_eq!(qps(&["--kube-api-qps=7"]), (Some("7".to_owned()), "7".to_owned()));
    assert_eq!(qps(&["--kube-api-burst=31"]), (Some("20".to_owned()), "20".to_owned()));
    assert_eq!(qps(&["--kube-api-qps=-3"]), (None, "-3".to_owned()));
}
