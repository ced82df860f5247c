//! The options that accepted command lines produce.

mod common;

use std::time::Duration;

use common::{CONTROLLERS, context, print, run};
use keleustes_options::{
    CommandHelp, CommandLineContext, GoDuration, LogFormat, ParseOutcome, RefusalOutput, Shell, Throttle,
    TlsVersion, completion, flags, man_page, parse,
};

/// Proves OPT-1.
#[test]
fn values_follow_an_equals_sign_or_a_space_and_booleans_need_none() {
    let options = run(&[
        "--cluster-name=a",
        "--cluster-cidr",
        "10.0.0.0/8",
        "-v",
        "4",
        "--profiling=false",
        "--allocate-node-cidrs",
        "--kubeconfig",
        "--master",
    ]);
    assert_eq!(options.cloud.cluster_name, "a");
    assert_eq!(options.cloud.cluster_cidr, "10.0.0.0/8");
    assert_eq!(options.logs.verbosity, 4);
    assert!(!options.debugging.profiling);
    assert!(options.cloud.allocate_node_cidrs);
    // A flag that needs a value takes the next argument, whatever it is.
    assert_eq!(options.client.kubeconfig, "--master");
    for spelling in [&["-v7"][..], &["-v=7"], &["--v=7"], &["--v", "7"]] {
        assert_eq!(run(spelling).logs.verbosity, 7, "{spelling:?}");
    }
}

/// Proves OPT-2.
#[test]
fn underscores_in_names_are_hyphens() {
    assert_eq!(run(&["--concurrent_rc_syncs=9"]).workers.replication_controller, 9);
    assert!(run(&["--allocate_node-cidrs"]).cloud.allocate_node_cidrs);
    // Values are not changed.
    assert_eq!(run(&["--cluster_name=a_b"]).cloud.cluster_name, "a_b");
}

/// Proves OPT-4.
#[test]
fn the_first_use_of_a_list_replaces_its_default_and_later_ones_append() {
    let paths = |args: &[&str]| run(args).authorization.always_allow_paths;
    assert_eq!(paths(&[]), ["/healthz", "/readyz", "/livez"]);
    assert_eq!(
        paths(&["--authorization-always-allow-paths=/a,/b", "--authorization-always-allow-paths", "/c"]),
        ["/a", "/b", "/c"]
    );
    assert_eq!(paths(&["--authorization-always-allow-paths=\"/a,b\""]), ["/a,b"]);
    assert!(paths(&["--authorization-always-allow-paths="]).is_empty());
    let pairs = run(&["--tls-sni-cert-key=a,b", "--tls-sni-cert-key=c,d:x.example,*.y.example"]).serving.sni;
    assert_eq!(pairs.len(), 2);
    assert_eq!((pairs[1].cert_file.as_str(), pairs[1].key_file.as_str()), ("c", "d"));
    assert_eq!(pairs[1].names, ["x.example", "*.y.example"]);
}

/// Proves OPT-5.
#[test]
fn empty_arguments_are_ignored() {
    run(&["", "--cluster-name=a", ""]);
    run(&["--", ""]);
}

/// Proves OPT-6, OPT-8, OPT-9, OPT-92, OPT-114.
#[test]
fn requests_are_throttled_only_if_a_flag_sets_a_limit() {
    let client = |args: &[&str]| run(args).client;
    let plain = client(&["--kubeconfig=k", "--master=https://m"]);
    assert_eq!((plain.kubeconfig.as_str(), plain.master.as_str()), ("k", "https://m"));
    assert_eq!((plain.qps, plain.burst, plain.throttle), (20.0, 30, None));
    assert_eq!(plain.content_type, "application/vnd.kubernetes.protobuf");
    assert_eq!(client(&["--kube-api-qps=50"]).throttle, Some(Throttle { qps: 50.0, burst: 30 }));
    assert_eq!(client(&["--kube-api-burst=7"]).throttle, Some(Throttle { qps: 20.0, burst: 7 }));
    assert_eq!(client(&["--kube-api-qps=-1", "--kube-api-burst=0"]).throttle, None);
    assert_eq!(client(&["--kube-api-qps=0"]).throttle, Some(Throttle { qps: 5.0, burst: 30 }));
    assert_eq!(client(&["--kube-api-content-type=application/json"]).content_type, "application/json");
    let options = run(&["--kube-api-qps=20"]);
    assert!(options.is_set("kube-api-qps") && !options.is_set("kube-api-burst"));
}

/// Proves OPT-12, OPT-13.
#[test]
fn deprecated_flags_work_and_print_a_notice() {
    let options = run(&["--node-sync-period=1s", "--node_sync_period=2s", "--allow-untagged-cloud"]);
    let no_op =
        "Flag --node-sync-period has been deprecated, This flag is currently no-op and will be deleted.";
    let untagged = "Flag --allow-untagged-cloud has been deprecated, This flag is deprecated and will be removed in a \
                    future release. A cluster-id will be required on cloud instances.";
    assert_eq!(options.notices, [no_op, no_op, untagged]);
    assert!(options.cloud.allow_untagged_cloud);
    let help = print(&["--help"]);
    assert!(!help.contains("node-sync-period") && !help.contains("allow-untagged-cloud"));
}

/// Proves OPT-20, OPT-25.
#[test]
fn help_precedes_validation_of_versions_and_gates_which_precedes_printing_the_version() {
    assert!(print(&["--help", "--feature-gates=Foo=true", "extra"]).contains("Usage:"));
    assert!(matches!(
        parse(["--version", "--feature-gates=Foo=true"], &context()),
        ParseOutcome::Refuse { .. }
    ));
    // Logging flags are validated before all others, and after the version is printed.
    assert!(print(&["--version", "--logging-format=foo"]).starts_with("Kubernetes "));
    let both = ["--logging-format=foo", "--secure-port=-1"];
    assert_eq!(common::refused(&both), "format: Invalid value: \"foo\": Unsupported log format");
}

/// Proves OPT-14, OPT-23.
#[test]
fn help_is_grouped_and_marks_flags_without_effect() {
    let help = print(&["-h"]);
    assert_eq!(help, print(&["--help"]));
    let titles: Vec<_> = help.lines().filter_map(|line| line.strip_suffix(" flags:")).collect();
    assert_eq!(titles, flags::groups().map(|group| group.title).collect::<Vec<_>>());
    let line_of = |help: &str, flag: &str| {
        help.lines()
            .find(|line| line.contains(&format!("--{flag} ")))
            .unwrap_or_else(|| panic!("{flag}"))
            .to_owned()
    };
    let at = |words: &str| help.find(words).unwrap_or_else(|| panic!("{words}"));
    assert!(
        at("Commands:") < at("  playground [flags]") && at("playground [flags]") < at("Debugging flags:")
    );
    let waiting = "(its controller is not there yet)";
    assert!(line_of(&help, "concurrent-deployment-syncs").ends_with(waiting));
    assert!(!line_of(&help, "concurrent-serviceaccount-token-syncs").contains(waiting));
    assert!(!line_of(&help, "secure-port").contains(waiting));
    assert!(line_of(&help, "cloud-config").ends_with("(accepted and without effect)"));
    let all_landed = CommandLineContext { implemented: &["deployment-controller"], ..context() };
    let ParseOutcome::Print(help) = parse(["--help"], &all_landed) else { panic!("no help") };
    assert!(!line_of(&help, "concurrent-deployment-syncs").contains(waiting));
}

/// Proves OPT-23.
#[test]
fn help_is_wrapped_to_the_width_of_the_terminal() {
    let narrow = CommandLineContext { width: Some(120), controllers: &[], ..context() };
    let ParseOutcome::Print(help) = parse(["--help"], &narrow) else { panic!("no help") };
    for line in help.lines() {
        assert!(line.len() <= 120, "{line}");
    }
}

/// Proves OPT-37.
#[test]
fn help_lists_all_controllers_and_those_off_by_default() {
    let help = print(&["--help"]);
    let first =
        "bootstrap-signer-controller, certificatesigningrequest-signing-controller, daemonset-controller";
    assert!(help.contains(&format!("All controllers: {first}, ")));
    assert!(help.contains(
        "Off by default: bootstrap-signer-controller, selinux-warning-controller, token-cleaner-controller\n"
    ));
}

/// Proves OPT-23, OPT-24.
#[test]
fn the_version_is_printed_with_the_program_or_in_full() {
    let lines = "Kubernetes v1.37.1\nKeleustes 0.1.0 (commit abc)\n";
    assert_eq!(print(&["--version"]), lines);
    assert_eq!(print(&["--version=true"]), lines);
    assert_eq!(
        print(&["--version=raw"]),
        "version.Info{Major:\"1\", Minor:\"37\", EmulationMajor:\"\", EmulationMinor:\"\", \
         MinCompatibilityMajor:\"\", MinCompatibilityMinor:\"\", GitVersion:\"v1.37.1\", GitCommit:\"abc\", \
         GitTreeState:\"clean\", BuildDate:\"1970-01-01T00:00:00Z\", GoVersion:\"rust1.95\", Compiler:\"rustc\", \
         Platform:\"linux/amd64\"}\n"
    );
    assert_eq!(run(&["--version=v1.37.1-mine+1"]).reported_version, "v1.37.1-mine+1");
    assert_eq!(run(&["--version=false"]).reported_version, "v1.37.1");
}

fn enabled(controllers: &str) -> Vec<&'static str> {
    let chosen = run(&[&format!("--controllers={controllers}")]).generic.controllers;
    let runs = CONTROLLERS.iter().filter(|known| chosen.enables(known.name, known.on_by_default));
    runs.map(|controller| controller.name).collect()
}

/// Proves OPT-30, OPT-31, OPT-32, OPT-33, OPT-113.
#[test]
fn the_first_entry_that_names_a_controller_decides() {
    let all: Vec<_> =
        CONTROLLERS.iter().filter(|known| known.on_by_default).map(|known| known.name).collect();
    assert_eq!(enabled("*"), all);
    let without_job: Vec<_> = all.iter().copied().filter(|name| *name != "job-controller").collect();
    for entries in ["*,-job", "-job,*", "-job-controller,*", "*,-job,job", "-job-controller,job,*"] {
        assert_eq!(enabled(entries), without_job, "{entries}");
    }
    assert_eq!(enabled("job,-job"), ["job-controller"]);
    assert_eq!(enabled("job,deployment-controller"), ["job-controller", "deployment-controller"]);
    assert_eq!(enabled("tokencleaner"), ["token-cleaner-controller"]);
    assert_eq!(enabled("*,bootstrapsigner").len(), all.len() + 1);
    assert!(enabled("-job").is_empty());
    assert!(enabled("").is_empty());
}

/// Proves OPT-35.
#[test]
fn a_controller_behind_a_feature_gate_can_be_listed() {
    let chosen = run(&["--controllers=podgroup-protection-controller"]).generic.controllers;
    assert!(chosen.enables("podgroup-protection-controller", true));
}

#[test]
fn the_token_controller_can_be_disabled() {
    let chosen = run(&["--controllers=*,-serviceaccount-token"]).generic.controllers;
    assert_eq!(chosen.entries(), ["*", "-serviceaccount-token-controller"]);
}

/// Proves OPT-40.
#[test]
fn without_leader_election_any_resource_lock_is_accepted() {
    let options = run(&["--leader-elect=false", "--leader-elect-resource-lock=endpoints"]);
    assert_eq!(options.leader_election.resource_lock, "endpoints");
}

/// Proves OPT-92.
#[test]
fn leader_election_flags_are_typed() {
    let election = run(&[]).leader_election;
    assert!(election.leader_elect);
    assert_eq!(election.resource_lock, "leases");
    assert_eq!(
        (election.resource_namespace.as_str(), election.resource_name.as_str()),
        ("kube-system", "kube-controller-manager")
    );
    let spans = [election.lease_duration, election.renew_deadline, election.retry_period];
    assert_eq!(spans, [GoDuration::seconds(15), GoDuration::seconds(10), GoDuration::seconds(2)]);
    assert_eq!(run(&[]).generic.controller_shutdown_timeout, GoDuration::seconds(10));
}

/// Proves OPT-53.
#[test]
fn request_headers_without_the_standard_one_cause_a_warning() {
    let warnings =
        run(&["--requestheader-username-headers=x-user", "--requestheader-group-headers=X-REMOTE-GROUP"])
            .warnings;
    assert_eq!(
        warnings,
        ["--requestheader-username-headers is set without specifying the standard X-Remote-User header - \
          API aggregation will not work"]
    );
}

/// Proves OPT-54.
#[test]
fn uid_headers_are_case_insensitive() {
    let header = run(&["--requestheader-uid-headers=y,x-remote-uid"]).authentication.request_header;
    assert_eq!(header.uid_headers, ["y", "x-remote-uid"]);
}

/// Proves OPT-55.
#[test]
fn some_worker_counts_may_be_zero() {
    for flag in [
        "concurrent-deployment-syncs",
        "concurrent-replicaset-syncs",
        "concurrent-rc-syncs",
        "concurrent-endpoint-syncs",
        "concurrent-gc-syncs",
        "concurrent-namespace-syncs",
        "concurrent-resource-quota-syncs",
        "concurrent-serviceaccount-token-syncs",
        "concurrent-ttl-after-finished-syncs",
        "concurrent-disruption-syncs",
        "concurrent-validating-admission-policy-status-syncs",
    ] {
        run(&[&format!("--{flag}=0")]);
        run(&[&format!("--{flag}=-1")]);
    }
    assert_eq!(run(&["--concurrent-gc-syncs=-1"]).workers.garbage_collector, -1);
}

/// Proves OPT-56, OPT-110.
#[test]
fn serving_flags_are_checked_last_and_only_if_the_port_is_enabled() {
    let bad = [
        ("--tls-min-version=foo", "unknown tls version \"foo\""),
        ("--tls-cipher-suites=foo", "Cipher suite foo not supported or doesn't exist"),
        ("--tls-cert-file=x", "missing filename for serving cert"),
        ("--authorization-always-allow-paths=a*b", "only trailing * allowed in \"a*b\""),
    ];
    for (flag, message) in bad {
        assert_eq!(common::refused(&[flag]), message);
        assert!(!run(&[flag, "--secure-port=0"]).serving.is_enabled());
        // Other errors are reported first.
        assert_eq!(
            common::refused(&[flag, "--controllers=foo"]),
            "\"foo\" is not in the list of known controllers"
        );
    }
    let serving = run(&["--tls-min-version=VersionTLS13", "--bind-address=::1"]).serving;
    assert_eq!(serving.min_version, Some(TlsVersion::Tls13));
    assert_eq!(serving.bind_address.to_string(), "::1");
}

/// Proves OPT-72.
#[test]
fn deprecated_and_ga_gates_can_be_set_with_a_warning() {
    let options = run(&["--feature-gates=DynamicResourceAllocation=true,AllowDNSOnlyNodeCSR=true"]);
    assert_eq!(
        options.warnings,
        [
            "feature gate AllowDNSOnlyNodeCSR=true is deprecated and will be removed in a future release",
            "feature gate DynamicResourceAllocation=true is GA and will be removed in a future release",
        ]
    );
    assert!(options.gates.enabled("AllowDNSOnlyNodeCSR"));
}

/// Proves OPT-70, OPT-74, OPT-75.
#[test]
fn gates_are_set_by_name_by_component_and_by_stage() {
    let on = |args: &[&str], name: &str| run(args).gates.enabled(name);
    assert!(on(&[], "WatchListClient"));
    assert!(!on(&["--feature-gates=WatchListClient=false"], "WatchListClient"));
    assert!(!on(&["--feature-gates=kube:WatchListClient=false"], "WatchListClient"));
    assert!(on(
        &["--feature-gates=ClientsAllowCBOR=true", "--feature-gates=WatchListClient=false"],
        "ClientsAllowCBOR"
    ));
    // The last entry counts, and a gate's name takes precedence over its stage wherever it stands.
    assert!(on(
        &["--feature-gates=ClientsAllowCBOR=false", "--feature-gates=ClientsAllowCBOR=true"],
        "ClientsAllowCBOR"
    ));
    assert!(on(&["--feature-gates=WatchListClient=true,AllBeta=false"], "WatchListClient"));
    assert!(!on(&["--feature-gates=AllBeta=false"], "WatchListClient"));
}

/// Proves OPT-76, OPT-77.
#[test]
fn an_emulated_release_has_its_own_gates() {
    assert!(run(&["--emulated-version=1.36"]).gates.enabled("AtomicFIFO"));
    assert!(!run(&["--emulated-version=1.34"]).gates.enabled("AtomicFIFO"));
    // A beta feature that was off by default until 1.36.
    let replaces_several = |args: &[&str]| run(args).gates.enabled("MaxUnavailableStatefulSet");
    assert!(replaces_several(&[]) && !replaces_several(&["--emulated-version=1.36"]));
    assert!(replaces_several(&["--emulated-version=1.36", "--feature-gates=MaxUnavailableStatefulSet=true"]));
    let versions = |args: &[&str]| {
        let versions = run(args).versions;
        (versions.emulation.to_string(), versions.min_compatibility.to_string())
    };
    let pair = |emulation: &str, oldest: &str| (emulation.to_owned(), oldest.to_owned());
    assert_eq!(versions(&[]), pair("1.37", "1.36"));
    assert_eq!(versions(&["--emulated-version=kube=1.35"]), pair("1.35", "1.34"));
    assert_eq!(versions(&["--emulated-version=1.34"]), pair("1.34", "1.34"));
    assert_eq!(versions(&["--min-compatibility-version=1.37"]), pair("1.37", "1.37"));
    let gate = "DRAFractionalCapacityRange";
    assert!(!run(&[]).gates.enabled(gate) && run(&["--min-compatibility-version=1.37"]).gates.enabled(gate));
    let experiment = run(&["--emulated-version=1.36", "--feature-gates=ClientsAllowCBOR=true"]).warnings;
    assert_eq!(
        experiment,
        [
            "alpha features are on in an emulated version, which is not supported: ClientsAllowCBOR",
            "feature gate ClientsAllowCBOR=true has no effect in this manager: requests and responses are never CBOR",
            "features that are off in the emulated version and always on in this manager: \
             StaleControllerConsistencyHPA",
        ]
    );
    let old = run(&["--emulated-version=1.35"]).warnings;
    assert_eq!(
        old,
        ["features that are off in the emulated version and always on in this manager: AtomicFIFO \
          ClientsAllowCARotation ClientsAllowTLSCacheGC DRAExtendedResource StaleControllerConsistencyDaemonSet \
          StaleControllerConsistencyHPA StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet \
          StaleControllerConsistencyStatefulSet UnlockWhileProcessingFIFO"]
    );
    assert_eq!(run(&[]).warnings, Vec::<String>::new());
}

/// Proves OPT-80, OPT-81, OPT-82.
#[test]
fn logs_are_typed() {
    let logs = run(&["--logging-format=json", "--log-flush-frequency=100ms"]).logs;
    assert_eq!(logs.format, LogFormat::Json);
    assert_eq!(logs.flush_frequency.to_std(), Duration::from_millis(100));
    let logs = run(&["--vmodule=watch*=5,", "--vmodule=lease=2"]).logs;
    assert_eq!(
        logs.vmodule.iter().map(|module| (module.pattern.as_str(), module.verbosity)).collect::<Vec<_>>(),
        [("watch*", 5), ("lease", 2)]
    );
    let alpha = [
        "--feature-gates=LoggingAlphaOptions=true",
        "--log-text-split-stream",
        "--log-text-info-buffer-size=2Ki",
    ];
    let text = run(&alpha).logs.text;
    assert!(text.split);
    assert_eq!(text.info_buffer_size.whole(), 2048);
}

/// Proves OPT-83.
#[test]
fn metrics_are_typed() {
    let metrics = run(&[
        "--allow-metric-labels=m,l=a,b",
        "--disabled-metrics=x,y",
        "--show-hidden-metrics-for-version=1.36",
    ])
    .metrics;
    assert_eq!(metrics.allow_labels.get("m,l").map(String::as_str), Some("a,b"));
    assert_eq!(metrics.disabled, ["x", "y"]);
    assert!(metrics.show_hidden && !run(&[]).metrics.show_hidden);
    let read = |_: &str| Ok("\"m,l\": a\n".to_owned());
    let known = CommandLineContext { read_file: &read, ..context() };
    let ParseOutcome::Run(options) = parse(["--allow-metric-labels-manifest=f"], &known) else {
        panic!("refused")
    };
    assert_eq!(options.metrics.allow_labels.get("m,l").map(String::as_str), Some("a"));
}

/// Proves OPT-95, LE-60, LE-61.
#[test]
fn the_migration_file_is_read_only_when_migration_is_on() {
    assert_eq!(run(&["--leader-migration-config=missing"]).leader_migration, None);
    let migration = run(&["--enable-leader-migration"]).leader_migration.unwrap();
    assert_eq!(migration.leader_name, "cloud-provider-extraction-migration");
    assert_eq!(migration.controller_leaders.len(), 3);
    let read =
        run(&["--enable-leader-migration", "--leader-migration-config=lm-v1"]).leader_migration.unwrap();
    assert_eq!((read.leader_name.as_str(), read.resource_lock.as_str()), ("moving", "leases"));
    assert_eq!(read.controller_leaders[0].name, "a-controller");
    let json =
        run(&["--enable-leader-migration", "--leader-migration-config=lm-json"]).leader_migration.unwrap();
    assert_eq!((json.leader_name.as_str(), json.resource_lock.as_str()), ("x", "endpoints"));
}

#[test]
fn every_flag_can_be_logged() {
    let lines = run(&["--cluster-name=a\"b"]).flag_lines();
    assert_eq!(lines.len(), 150);
    assert!(lines.contains(&r#"FLAG: --cluster-name="a\"b""#.to_owned()));
    assert!(lines.contains(&r#"FLAG: --controllers="[*]""#.to_owned()));
}

/// Proves OPT-116.
#[test]
fn durations_may_be_zero() {
    let generic = run(&["--min-resync-period=0", "--controller-start-interval=250ms"]).generic;
    assert_eq!(generic.min_resync_period, GoDuration::ZERO);
    assert_eq!(generic.controller_start_interval.to_std(), Duration::from_millis(250));
}

#[test]
fn completion_and_man_page_list_every_flag() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let script = completion(shell, &context());
        for flag in flags::all().filter(|flag| flag.deprecated.is_none()) {
            let found =
                if shell == Shell::Fish { format!("-l {}", flag.name) } else { format!("--{}", flag.name) };
            assert!(script.contains(&found), "{shell:?} {}", flag.name);
        }
        assert!(script.contains("bootstrap-signer-controller"), "{shell:?}");
    }
    assert!(!completion(Shell::Bash, &context()).contains("-W \"*"), "bash would offer files for a star");
    let page = man_page(&context());
    assert!(page.contains(".TH") && page.contains("kube\\-controller\\-manager"));
    for flag in flags::all().filter(|flag| flag.deprecated.is_none()) {
        assert!(page.contains(&flag.name.replace('-', "\\-")), "{}", flag.name);
    }
}

#[test]
fn help_of_one_group_shows_its_flags_only() {
    let serving = keleustes_options::group_help("secure-serving", &context()).unwrap();
    assert!(serving.starts_with("Secure serving flags:\n"), "{serving}");
    assert!(serving.contains("--secure-port") && !serving.contains("--kubeconfig"));
    assert_eq!(keleustes_options::group_help("Secure Serving", &context()), Some(serving));
    assert_eq!(keleustes_options::group_help("oars", &context()), None);
    for name in keleustes_options::group_names() {
        assert!(keleustes_options::group_help(&name, &context()).is_some(), "{name}");
    }
}

#[test]
fn completion_and_man_page_list_every_command() {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        assert!(completion(shell, &context()).contains("playground"), "{shell:?}");
    }
    let page = man_page(&context());
    assert!(page.contains(".SH COMMANDS\n.TP\n\\fBplayground\\fR [flags]\nStart a cluster.\n"), "{page}");
}

#[cfg(unix)]
#[test]
fn an_argument_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let argument = std::ffi::OsString::from_vec(b"--cluster-name=\xff".to_vec());
    let outcome = parse([argument], &context());
    assert!(
        matches!(outcome, ParseOutcome::Refuse { exit_code: 1, manner: RefusalOutput::Usage, .. }),
        "{outcome:?}"
    );
}

#[test]
fn bash_completes_the_arguments_of_every_subcommand() {
    let commands = ["check", "completion", "help", "man-page"].map(|name| CommandHelp {
        name,
        arguments: "",
        about: "It does something.",
    });
    let script = completion(Shell::Bash, &CommandLineContext { commands: &commands, ..context() });
    let lines: Vec<_> = script.lines().map(str::trim).collect();
    let detected = lines.iter().filter_map(|line| line.strip_prefix("cmd=\"")?.strip_suffix('"'));
    let detected: Vec<_> = detected.filter(|name| !name.is_empty()).collect();
    assert_eq!(detected.len(), 5, "the program and its subcommands: {detected:?}");
    let words_of = |name: &str| {
        let at = lines.iter().position(|line| *line == format!("{name})"));
        let at = at.unwrap_or_else(|| panic!("nothing is completed after {name}"));
        lines[at + 1].to_owned()
    };
    let of = |name: &str| words_of(detected.iter().find(|detected| detected.ends_with(name)).unwrap());
    assert_eq!(of("__completion"), "opts=\"bash zsh fish\"");
    assert!(of("__help").contains(" job-controller "), "{}", of("__help"));
    assert!(of("__check").contains(" --kubeconfig "), "the flags of the manager: {}", of("__check"));
    assert!(detected.iter().all(|name| words_of(name).starts_with("opts=")));
}
