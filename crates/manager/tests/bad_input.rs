//! Bad flags, files, kubeconfigs and certificates: each ends the program at once, with code 1 and one clear line.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long the program may take to fail; a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a program is observed that should keep running.
const A_WHILE: Duration = Duration::from_secs(2);

/// Arguments, and the expected last line on stderr. `{port}` is a free port, `{taken}` one in use. Files are those
/// of [`write_files`].
type Row = (&'static str, &'static str);

const FLAGS: &[Row] = &[
    ("--nosuchflag", "unknown flag: --nosuchflag"),
    ("--no-such-flag=1", "unknown flag: --no-such-flag"),
    ("-x", "unknown shorthand flag: 'x' in -x"),
    ("---v=1", "bad flag syntax: ---v=1"),
    ("--=1", "bad flag syntax: --=1"),
    ("extra words", "does not take any arguments, got [\"extra\" \"words\"]"),
    ("--leader-elect false", "does not take any arguments, got [\"false\"]"),
    ("--kubeconfig", "flag needs an argument: --kubeconfig"),
    ("--v", "flag needs an argument: --v"),
    ("--v=x", "invalid argument \"x\" for \"-v, --v\" flag"),
    ("--v=-1", "invalid argument \"-1\" for \"-v, --v\" flag"),
    ("--vmodule=x", "\"x\" does not have the pattern=N format"),
    ("--logging-format=xml", "Unsupported log format"),
    ("--version=x", "invalid argument \"x\" for \"--version\" flag"),
    ("--secure-port=x", "invalid argument \"x\" for \"--secure-port\" flag"),
    ("--secure-port=65536", "--secure-port 65536 must be between"),
    ("--secure-port=-1", "--secure-port -1 must be between"),
    ("--bind-address=nowhere", "failed to parse IP: \"nowhere\""),
    ("--bind-address=1.2.3", "failed to parse IP: \"1.2.3\""),
    ("--leader-elect=maybe", "invalid argument \"maybe\" for \"--leader-elect\" flag"),
    ("--leader-elect-lease-duration=15", "time: missing unit in duration \"15\""),
    ("--leader-elect-renew-deadline=x", "time: invalid duration \"x\""),
    ("--leader-elect-resource-lock=endpoints", "resourceLock value must be \"leases\""),
    ("--feature-gates=Nope=true", "unrecognized feature gate: Nope"),
    ("--feature-gates=AllAlpha", "missing bool value for AllAlpha"),
    ("--feature-gates=AllAlpha=x", "invalid value of AllAlpha=x"),
    ("--feature-gates=VolumeAttributesClass=false", "VolumeAttributesClass"),
    (
        "--feature-gates=APIServerIdentity=false,StorageVersionAPI=true",
        "depends on features that are disabled",
    ),
    ("--emulated-version=9.9", "emulation version 9.9 is not between"),
    ("--emulated-version=x", "could not parse \"x\" as version"),
    ("--controllers=nosuch", "\"nosuch\" is not in the list of known controllers"),
    ("--controllers=*,nosuch,-absent", "\"absent\" is not in the list of known controllers"),
    ("--kube-api-qps=x", "invalid argument \"x\" for \"--kube-api-qps\" flag"),
    ("--kube-api-burst=99999999999", "value out of range"),
    ("--concurrent-deployment-syncs=x", "invalid argument \"x\" for \"--concurrent-deployment-syncs\" flag"),
    ("--concurrent-job-syncs=0", "concurrent-job-syncs"),
    ("--min-resync-period=forever", "time: invalid duration \"forever\""),
    ("--node-monitor-period=x", "time: invalid duration \"x\""),
    ("--horizontal-pod-autoscaler-tolerance=x", "strconv.ParseFloat: parsing \"x\": invalid syntax"),
    ("--profiling=maybe", "strconv.ParseBool: parsing \"maybe\": invalid syntax"),
    ("--http2-max-streams-per-connection=x", "--http2-max-streams-per-connection"),
    ("--tls-min-version=VersionTLS99", "unknown tls version \"VersionTLS99\""),
    ("--tls-cipher-suites=nosuch", "Cipher suite nosuch not supported or doesn't exist"),
    ("--tls-curve-preferences=x", "invalid argument \"x\" for \"--tls-curve-preferences\" flag"),
    ("--tls-sni-cert-key=a", "expected comma separated certificate and key file paths"),
    ("--show-hidden-metrics-for-version=9.9", "metrics.showHiddenMetricsForVersion"),
    ("--allow-metric-labels=x", "x must be formatted as key=value"),
    ("--secure-port=70000 --controllers=nosuch --logging-format=xml", "Unsupported log format"),
    (
        "--cluster-signing-cert-file=a --cluster-signing-kubelet-client-cert-file=b",
        "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file flags",
    ),
];

/// Used after `--kubeconfig=good` and flags that avoid other requests.
const FILES: &[Row] = &[
    (
        "--secure-port={taken}",
        "cannot serve on 127.0.0.1:{taken}: the port is in use; give another with --secure-port",
    ),
    (
        "--secure-port={port} --bind-address=192.0.2.1",
        "cannot serve on 192.0.2.1:{port} (--bind-address, --secure-port)",
    ),
    ("--secure-port={port} --tls-cert-file=ca.crt", "missing filename for serving cert"),
    ("--secure-port={port} --tls-private-key-file=ca.key", "missing filename for serving cert"),
    (
        "--secure-port={port} --tls-cert-file=absent --tls-private-key-file=ca.key",
        "cannot read absent (--tls-cert-file)",
    ),
    (
        "--secure-port={port} --tls-cert-file=ca.crt --tls-private-key-file=absent",
        "cannot read absent (--tls-private-key-file)",
    ),
    (
        "--secure-port={port} --tls-cert-file=ca.crt --tls-private-key-file=other.key",
        "ca.crt and other.key cannot be used together",
    ),
    (
        "--secure-port={port} --tls-cert-file=ca.key --tls-private-key-file=ca.crt",
        "ca.key (--tls-cert-file) holds no certificate",
    ),
    (
        "--secure-port={port} --tls-cert-file=garbage --tls-private-key-file=ca.key",
        "garbage (--tls-cert-file) holds no certificate",
    ),
    (
        "--secure-port={port} --tls-cert-file=ca.crt --tls-private-key-file=garbage",
        "garbage (--tls-private-key-file) holds no private key",
    ),
    (
        "--secure-port={port} --tls-cert-file=empty --tls-private-key-file=ca.key",
        "empty (--tls-cert-file) holds no certificate",
    ),
    (
        "--secure-port={port} --tls-cert-file=directory --tls-private-key-file=ca.key",
        "cannot read directory (--tls-cert-file): Is a directory",
    ),
    ("--secure-port={port} --tls-cert-file=cut.crt --tls-private-key-file=ca.key", "cut.crt"),
    ("--secure-port={port} --tls-sni-cert-key=absent,ca.key", "cannot read absent (--tls-sni-cert-key)"),
    (
        "--secure-port={port} --tls-sni-cert-key=ca.crt,other.key",
        "ca.crt and other.key cannot be used together",
    ),
    ("--secure-port={port} --client-ca-file=absent", "cannot read absent (--client-ca-file)"),
    ("--secure-port={port} --client-ca-file=garbage", "garbage (--client-ca-file) holds no certificate"),
    (
        "--secure-port={port} --requestheader-client-ca-file=absent",
        "cannot read absent (--requestheader-client-ca-file)",
    ),
    (
        "--secure-port={port} --requestheader-client-ca-file=empty",
        "empty (--requestheader-client-ca-file) holds no certificate",
    ),
    ("--secure-port={port} --authorization-always-allow-paths=/a*b", "a*b"),
    (
        "--secure-port={port} --authentication-kubeconfig=absent",
        "--authentication-kubeconfig=absent: kubeconfig absent does not exist",
    ),
    (
        "--secure-port={port} --authentication-kubeconfig=garbage",
        "--authentication-kubeconfig=garbage: kubeconfig garbage cannot be read",
    ),
    (
        "--secure-port={port} --authorization-kubeconfig=absent",
        "--authorization-kubeconfig=absent: kubeconfig absent does not exist",
    ),
    (
        "--secure-port={port} --authentication-kubeconfig=good --authentication-skip-lookup=false",
        "cannot look up configmap/extension-apiserver-authentication",
    ),
    (
        "--secure-port=0 --service-account-private-key-file=absent",
        "error reading key for service account token controller: absent: No such file",
    ),
    (
        "--secure-port=0 --service-account-private-key-file=garbage",
        "garbage: data does not contain a valid RSA or ECDSA private key",
    ),
    (
        "--secure-port=0 --service-account-private-key-file=ca.crt",
        "ca.crt: data does not contain a valid RSA or ECDSA private key",
    ),
    (
        "--secure-port=0 --service-account-private-key-file=ed25519.key",
        "ed25519.key: unsupported key type: only RSA and ECDSA",
    ),
    (
        "--secure-port=0 --service-account-private-key-file=ca.key --root-ca-file=absent",
        "error parsing root-ca-file at absent: No such file",
    ),
    (
        "--secure-port=0 --service-account-private-key-file=ca.key --root-ca-file=garbage",
        "error parsing root-ca-file at garbage",
    ),
    (
        "--secure-port=0 --service-account-private-key-file=ca.key --root-ca-file=cut.crt",
        "error parsing root-ca-file at cut.crt",
    ),
    ("--secure-port=0 --leader-elect-lease-duration=5s", "leaseDuration must be greater than renewDeadline"),
    ("--secure-port=0 --leader-elect-retry-period=0s", "retryPeriod must be greater than zero"),
    (
        "--enable-leader-migration --leader-migration-config=absent",
        "unable to read leader migration configuration from \"absent\"",
    ),
    ("--enable-leader-migration --leader-migration-config=garbage", "Object 'Kind' is missing"),
    ("--enable-leader-migration --leader-migration-config=empty", "Object 'Kind' is missing"),
    ("--enable-leader-migration --leader-migration-config=good", "no kind \"Config\""),
    ("--enable-leader-migration --leader-migration-config=endpoints.yaml", "resourceLock"),
    ("--allow-metric-labels-manifest=absent", "metrics.allowListMappingManifest"),
];

/// Used like [`FILES`], after `--allocate-node-cidrs`: the messages are those of the original.
const NODE_RANGES: &[Row] = &[
    ("--cluster-cidr=10.0.0.0", "err=\"invalid CIDR[0]: <nil> (invalid CIDR address: 10.0.0.0)\""),
    ("--cluster-cidr=", "err=\"invalid CIDR[0]: <nil> (invalid CIDR address: )\""),
    ("--cluster-cidr=10.0.0.0/33", "err=\"invalid CIDR[0]: <nil> (invalid CIDR address: 10.0.0.0/33)\""),
    ("--cluster-cidr=10.0.0.0/16,", "err=\"invalid CIDR[1]: <nil> (invalid CIDR address: )\""),
    (
        "--cluster-cidr=10.0.0.0/16,10.0.128.0/17",
        "err=\"len of ClusterCIDRs==2 and they are not configured as dual stack (at least one from each IPFamily\"",
    ),
    (
        "--cluster-cidr=10.0.0.0/16,10.1.0.0/16,fd00::/48",
        "err=\"length of clusterCIDRs is:3 more than max allowed of 2\"",
    ),
    (
        "--cluster-cidr=10.0.0.0/25",
        "err=\"Controller: Invalid --cluster-cidr, mask size of cluster CIDR must be less than or equal to \
         --node-cidr-mask-size configured for CIDR family\"",
    ),
    (
        "--cluster-cidr=10.0.0.0/16,fd00::/48 --node-cidr-mask-size=24",
        "err=\"usage of --node-cidr-mask-size is not allowed with dual-stack clusters\"",
    ),
    (
        "--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=24 --node-cidr-mask-size-ipv4=24",
        "err=\"usage of --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6 is not allowed if \
         --node-cidr-mask-size is set. For dual-stack clusters please unset it and use IPFamily specific flags\"",
    ),
    (
        "--cluster-cidr=10.0.0.0/16 --node-cidr-mask-size-ipv6=64",
        "err=\"usage of --node-cidr-mask-size-ipv6 is not allowed for a single-stack IPv4 cluster\"",
    ),
    (
        "--cluster-cidr=fd00::/48 --node-cidr-mask-size-ipv4=24",
        "err=\"usage of --node-cidr-mask-size-ipv4 is not allowed for a single-stack IPv6 cluster\"",
    ),
    ("--cluster-cidr=fd00::/40", "err=\"New CIDR set failed; the node CIDR size is too big\""),
    (
        "--cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=10.96.0.0/16,10.97.0.0/16",
        "err=\"serviceCIDR and secondaryServiceCIDR are not dualstack (from different IPfamiles)\"",
    ),
    (
        "--cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=10.96.0.0/16,fd00::/112,10.97.0.0/16",
        "--service-cluster-ip-range can not contain more than two entries",
    ),
    (
        "--cluster-cidr=10.0.0.0/16 --cidr-allocator-type=CloudAllocator",
        "built-in cloud providers are disabled. The ipam CloudAllocator is not available",
    ),
];

/// Kubeconfigs: the lines of a cluster, those of a user, and the expected error. `;` starts a new line.
const KUBECONFIGS: &[(&str, &str, &str)] = &[
    ("server: ''", "token: t", "bad server address"),
    ("server: '::'", "token: t", "bad server address"),
    ("server: 'ftp://x'", "token: t", "bad server address: it is neither http:// nor https://"),
    ("server: 'https://x';proxy-url: 'ftp://x'", "token: t", "bad proxy: proxy-url must begin with one of"),
    ("server: 'https://x';proxy-url: '::'", "token: t", "bad proxy: it is no address"),
    (
        "server: 'https://x';certificate-authority-data: '%%%'",
        "token: t",
        "bad certificate-authority: failed to decode base64",
    ),
    (
        "server: 'https://x';certificate-authority-data: Z2FyYmFnZQ==",
        "token: t",
        "bad certificate-authority: it holds no certificate",
    ),
    (
        "server: 'https://x';certificate-authority: absent",
        "token: t",
        "bad certificate-authority: failed to read file",
    ),
    (
        "server: 'https://x';certificate-authority: garbage",
        "token: t",
        "bad certificate-authority: it holds no certificate",
    ),
    (
        "server: 'https://x';insecure-skip-tls-verify: true;certificate-authority: ca.crt",
        "token: t",
        "given together with insecure-skip-tls-verify",
    ),
    ("server: 'https://x'", "client-certificate: ca.crt", "bad client certificate"),
    ("server: 'https://x'", "client-key: ca.key", "bad client certificate"),
    (
        "server: 'https://x'",
        "client-certificate: absent;client-key: absent",
        "bad client certificate: failed to load client certificate",
    ),
    ("server: 'https://x'", "client-certificate: garbage;client-key: garbage", "bad client certificate"),
    (
        "server: 'https://x'",
        "client-certificate-data: '%%%';client-key-data: '%%%'",
        "bad client certificate: failed to load client certificate: failed to decode base64",
    ),
    (
        "server: 'https://x'",
        "client-certificate: ca.crt;client-key: other.key",
        "bad client certificate: invalid private key",
    ),
    ("server: 'https://x'", "tokenFile: absent", "bad credentials: auth error: failed to read token file"),
    ("server: 'https://x'", "tokenFile: empty", "is empty"),
    ("server: 'https://x'", "token: t;username: u;password: p", "there is a token and a password"),
    ("server: 'https://x'", "token: t;as-uid: '7'", "say nothing without as"),
    ("server: 'https://x'", "exec: {interactiveMode: Never}", "the exec plugin has no command"),
    (
        "server: 'https://x'",
        "exec: {apiVersion: client.authentication.k8s.io/v9, command: x}",
        "unknown apiVersion",
    ),
    (
        "server: 'https://x'",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: x}",
        "has no interactiveMode",
    ),
    (
        "server: 'https://x'",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./absent, interactiveMode: Never}",
        "absent cannot be run: No such file or directory",
    ),
    (
        "server: 'https://x'",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: 'true', interactiveMode: Never}",
        "it must answer with an ExecCredential of version",
    ),
    (
        "server: 'https://x'",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: 'false', interactiveMode: Never}",
        "executable false failed with exit status: 1",
    ),
    (
        "server: 'https://x'",
        "auth-provider: {name: nosuch, config: {}}",
        "there is no auth-provider \"nosuch\"",
    ),
    (
        "server: 'https://x'",
        "auth-provider: {name: oidc, config: {idp-issuer-url: x}}",
        "missing field id-token",
    ),
];

/// Whole files instead of a kubeconfig.
const OTHER_FILES: &[(&str, &str)] = &[
    ("", "has no current-context"),
    ("}{ : -", "it is no kubeconfig, see line 1"),
    ("[1, 2]", "it is no kubeconfig, see line 1"),
    ("just words", "it is no kubeconfig, see line 1"),
    ("kind: Pod", "it is of kind \"Pod\", not Config"),
    ("kind: Config", "has no current-context"),
    ("current-context: nowhere", "there is no context \"nowhere\""),
    (
        "current-context: c\ncontexts: [{name: c, context: {cluster: x, user: u}}]",
        "there is no cluster \"x\"",
    ),
];

/// Input that looks wrong and is valid: the program keeps running.
const NO_ERRORS: &[(&str, &str)] = &[
    ("--leader-migration-config=garbage --secure-port=0", "leader migration is off"),
    ("--cluster-cidr=10.0.0.0 --secure-port=0", "node ranges are not assigned"),
    (
        "--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --service-cluster-ip-range=10.0.0.0/8 --secure-port=0",
        "nodes wait for a range outside of that of the Services",
    ),
    (
        "--secure-port={port} --tls-cert-file=expired.crt --tls-private-key-file=expired.key",
        "clients judge certificates",
    ),
    ("--secure-port={port} --cert-dir=/proc/nowhere", "a certificate can be kept in memory"),
];

/// The common part of the kubeconfigs.
fn kubeconfig(cluster: &str, user: &str) -> String {
    let lines = |text: &str| text.split(';').map(|line| format!("\n    {line}")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters:\n- name: c\n  cluster:{}\nusers:\n- name: u\n  user:{}\n",
        lines(cluster),
        lines(user)
    )
}

fn write_files(directory: &Path) {
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let pair = |name: &str, until_year: i32| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(until_year, 1, 1);
        let certificate = params.self_signed(&key).unwrap().pem();
        write(&format!("{name}.crt"), &certificate);
        write(&format!("{name}.key"), &key.serialize_pem());
        certificate
    };
    let certificate = pair("ca", 2099);
    pair("other", 2099);
    pair("expired", 2001);
    write("cut.crt", &certificate[..certificate.len() / 2]);
    let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    write("ed25519.key", &ed25519.serialize_pem());
    write("garbage", "garbage");
    write("empty", "");
    write("good", &kubeconfig("server: 'https://127.0.0.1:1'", "token: t"));
    write(
        "endpoints.yaml",
        "kind: LeaderMigrationConfiguration\napiVersion: controllermanager.config.k8s.io/v1\n\
         leaderName: x\nresourceLock: pods\n",
    );
    std::fs::create_dir(directory.join("directory")).unwrap();
    for (at, (cluster, user, _)) in KUBECONFIGS.iter().enumerate() {
        write(&format!("kubeconfig-{at}"), &kubeconfig(cluster, user));
    }
    for (at, (text, _)) in OTHER_FILES.iter().enumerate() {
        write(&format!("other-{at}"), text);
    }
}

/// All rows: arguments and expected error.
fn rows() -> Vec<(String, String)> {
    let quiet = "--bind-address=127.0.0.1 --authentication-skip-lookup --kubeconfig=good";
    let mut rows: Vec<_> = FLAGS.iter().map(|(args, said)| (args.to_string(), said.to_string())).collect();
    rows.extend(FILES.iter().map(|(args, said)| (format!("{quiet} {args}"), said.to_string())));
    let ranges = format!("{quiet} --secure-port=0 --allocate-node-cidrs");
    rows.extend(NODE_RANGES.iter().map(|(args, said)| (format!("{ranges} {args}"), said.to_string())));
    let kubeconfigs = KUBECONFIGS.iter().map(|(_, _, said)| ("kubeconfig", *said)).enumerate();
    let others = OTHER_FILES.iter().map(|(_, said)| ("other", *said)).enumerate();
    let named = kubeconfigs.chain(others).map(|(at, (name, said))| (format!("{name}-{at}"), said));
    let more =
        [("absent", "kubeconfig absent does not exist"), ("directory", "cannot be read: Is a directory")];
    for (file, said) in named.chain(more.map(|(file, said)| (file.to_owned(), said))) {
        rows.push((format!("--secure-port=0 --kubeconfig={file}"), said.to_owned()));
    }
    rows.push(("--secure-port=0".to_owned(), "no --kubeconfig and no --master given".to_owned()));
    rows.push(("--secure-port=0 --master=ftp://x".to_owned(), "--master: bad server address".to_owned()));
    rows.push(("--secure-port=0 --master=::".to_owned(), "--master: bad server address".to_owned()));
    rows
}

/// Runs the program in a directory; no exit code if it had to be killed.
fn run(directory: &Path, args: &str, time: Duration) -> (Option<i32>, String, String) {
    let file = |name: &str| {
        let file = tempfile::NamedTempFile::new_in(directory).unwrap();
        let writer = file.reopen().unwrap();
        assert!(file.path().exists(), "{name}");
        (file, writer)
    };
    let (stdout, to_stdout) = file("stdout");
    let (stderr, to_stderr) = file("stderr");
    let mut child = Command::new(env!("CARGO_BIN_EXE_kube-controller-manager"))
        .args(args.split(' '))
        .current_dir(directory)
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .stdout(to_stdout)
        .stderr(to_stderr)
        .spawn()
        .unwrap();
    let began = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if began.elapsed() > time {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = |file: tempfile::NamedTempFile| std::fs::read_to_string(file.path()).unwrap();
    (code, text(stdout), text(stderr))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Compares the result of one row with the expectation.
fn complaint(directory: &Path, taken: u16, args: &str, said: &str) -> Option<String> {
    let port = free_port();
    let fill = |text: &str| text.replace("{port}", &port.to_string()).replace("{taken}", &taken.to_string());
    let (args, said) = (fill(args), fill(said));
    let (code, stdout, stderr) = run(directory, &args, PATIENCE);
    let errors =
        stderr.lines().filter(|line| line.starts_with("Error: ") || line.contains("\"command failed\""));
    let errors: Vec<&str> = errors.collect();
    // What follows a word that is no command names the commands.
    let is_hint =
        |line: &&str| ["Commands: ", "Did you mean ", "Use "].iter().any(|start| line.starts_with(start));
    let last = stderr.trim_end().lines().rfind(|line| !is_hint(line)).unwrap_or_default();
    let clear = code == Some(1)
        && stdout.is_empty()
        // Text in the log is quoted, and quotes in it are escaped.
        && last.replace("\\\"", "\"").contains(&said)
        && errors.len() == 1
        && !stderr.contains("panicked");
    (!clear).then(|| format!("{args}\n  wanted: {said}\n  ended with {code:?}: {last}\n  stdout: {stdout}"))
}

/// Proves RUN-81, RUN-85, RUN-86, RUN-53.
#[test]
fn invalid_input_ends_with_one_clear_line_and_code_one() {
    let directory = tempfile::tempdir().unwrap();
    write_files(directory.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().port();
    let rows = rows();
    assert!(rows.len() >= 135, "{}", rows.len());
    let (left, complaints) = (Mutex::new(rows.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((args, said)) = { left.lock().unwrap().next() } {
                    complaints.lock().unwrap().extend(complaint(directory.path(), taken, args, said));
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(complaints.is_empty(), "{} of {}:\n{}", complaints.len(), rows.len(), complaints.join("\n"));
}

#[test]
fn valid_input_that_looks_wrong_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    write_files(directory.path());
    for (args, reason) in NO_ERRORS {
        let args = args.replace("{port}", &free_port().to_string());
        let args = format!("--bind-address=127.0.0.1 --authentication-skip-lookup --kubeconfig=good {args}");
        let (code, _, stderr) = run(directory.path(), &args, A_WHILE);
        assert_eq!(code, None, "{args} ({reason}): {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}
