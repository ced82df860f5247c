//! Arguments of `explain`, and how a response is printed.

use super::*;

fn read(args: &[&str]) -> Arguments {
    Arguments::read(args).unwrap()
}

#[test]
fn objects_are_named_as_for_kubectl() {
    let name = |args: &[&str]| {
        let read = read(args);
        (read.resource, read.name, read.namespace.unwrap_or_default())
    };
    let wanted = |namespace: &str| ("deploy".to_owned(), "web".to_owned(), namespace.to_owned());
    assert_eq!(name(&["deploy/web"]), wanted(""));
    assert_eq!(name(&["deploy", "web", "-n", "shop"]), wanted("shop"));
    assert_eq!(name(&["-n=shop", "deploy/web"]), wanted("shop"));
    assert_eq!(name(&["-nshop", "deploy/web"]), wanted("shop"));
    assert_eq!(name(&["deploy/web", "--namespace=shop"]), wanted("shop"));
    for bad in [&[][..], &["deploy"], &["deploy/"], &["/web"], &["a/b/c"], &["a/b", "c"], &["a", "b", "c"]] {
        assert!(Arguments::read(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn flags_are_read_and_unknown_ones_refused() {
    let all = read(&[
        "pod/x",
        "-o",
        "yaml",
        "--watch",
        "--kubeconfig=k",
        "--server=https://h",
        "--insecure-skip-tls-verify",
    ]);
    assert_eq!((all.output.as_str(), all.watch, all.insecure), ("yaml", true, true));
    assert_eq!((all.kubeconfig, all.server), (Some("k".into()), Some("https://h".to_owned())));
    for bad in [&["pod/x", "-o", "xml"][..], &["pod/x", "--what"], &["pod/x", "-n"], &["pod/x", "-o"]] {
        assert!(Arguments::read(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn unknown_flag_is_named_and_takes_no_value() {
    for args in [&["pod/x", "--what"][..], &["--what", "pod/x"], &["-x"]] {
        let error = Arguments::read(args).unwrap_err().to_string();
        assert!(error.starts_with("unknown flag: -"), "{args:?}: {error}");
    }
    let error = Arguments::read(&["pod/x", "--server"]).unwrap_err().to_string();
    assert_eq!(error, "flag needs an argument: --server");
}

/// After the playground has ended, its KUBECONFIG must not make the command ask the cluster of ~/.kube/config.
#[test]
fn missing_file_of_kubeconfig_variable_is_not_replaced_by_that_of_the_home_directory() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().join("there");
    std::fs::write(&there, "").unwrap();
    let home = || Some(OsString::from("/users/a"));
    assert_eq!(default_kubeconfig(OsStr::new(""), home()).unwrap(), Path::new("/users/a/.kube/config"));
    let listed = std::env::join_paths([Path::new("/no/such/file"), &there]).unwrap();
    assert_eq!(default_kubeconfig(&listed, home()).unwrap(), there);
    let error = default_kubeconfig(OsStr::new("/no/such/file"), home()).unwrap_err().to_string();
    assert_eq!(error, "KUBECONFIG=/no/such/file: there is no such file");
    assert!(default_kubeconfig(OsStr::new(""), None).is_err());
}

#[test]
fn unverified_server_gets_no_token() {
    let arguments = Arguments::default();
    for url in ["https://127.0.0.1:10257", "https://localhost:1", "https://[::1]:10257"] {
        assert_eq!(trust(&arguments, url, true), ServerTrust::Anyone, "{url}");
        assert_eq!(trust(&arguments, url, false), ServerTrust::Kubeconfig, "a token would be sent to {url}");
    }
    for url in ["https://10.0.0.1:10257", "https://example.com", "https://127.0.0.1.example.com", "nonsense"]
    {
        assert_eq!(trust(&arguments, url, true), ServerTrust::Kubeconfig, "{url}");
    }
    let insecure = Arguments { insecure: true, ..Arguments::default() };
    assert_eq!(trust(&insecure, "https://example.com", false), ServerTrust::Anyone);
    let file = Arguments { certificate_authority: Some("ca".into()), insecure: true, ..Arguments::default() };
    assert_eq!(trust(&file, "https://h", true), ServerTrust::CertificateAuthority("ca".into()));
}

#[test]
fn kubeconfig_names_manager_namespace_and_kind_of_credentials() {
    let text = |user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts:\n- name: c\n  context: {{cluster: k, user: u, namespace: shop}}\n\
             clusters:\n- name: k\n  cluster:\n    server: https://127.0.0.1:1\n    extensions:\n    \
             - name: {EXTENSION}\n      extension:\n        server: https://127.0.0.1:2\n\
             users:\n- name: u\n  user: {user}\n"
        )
    };
    let context = |user: &str| CallerContext::of(&Kubeconfig::from_yaml(&text(user)).unwrap());
    let read = context("{client-certificate-data: YQ==, client-key-data: YQ==}");
    assert_eq!(read.manager.as_deref(), Some("https://127.0.0.1:2"));
    assert_eq!((read.namespace.as_deref(), read.is_certificate), (Some("shop"), true));
    assert!(!context("{token: x}").is_certificate);
    assert!(!context("{token: x, client-certificate-data: YQ==}").is_certificate);
    assert_eq!(CallerContext::of(&Kubeconfig::default()), CallerContext::default());
}

#[test]
fn plugin_never_becomes_a_manager() {
    assert!(refuse_as_plugin("/usr/bin/kubectl-keleustes", Some("--leader-elect=false")).is_some());
    assert!(refuse_as_plugin("kubectl-keleustes", None).is_some());
    assert!(refuse_as_plugin("kubectl-keleustes", Some("explain")).is_none());
    assert!(refuse_as_plugin("kube-controller-manager", Some("--v=2")).is_none());
}

#[test]
fn errors_say_what_helps() {
    let server = OtherServer { url: "https://h".to_owned(), trust: ServerTrust::Kubeconfig };
    assert!(hint(&server, "invalid peer certificate: UnknownIssuer").contains("--certificate-authority"));
    assert!(hint(&server, "forbidden: User \"x\" cannot get path").contains("keleustes-explain"));
    let refused = hint(&server, "API server https://h: tcp connect error: Connection refused (os error 111)");
    assert!(refused.starts_with("asking https://h: tcp connect error: Connection refused"), "{refused}");
    assert!(refused.contains("does a manager listen there? --server"), "{refused}");
    assert_eq!(hint(&server, "broken pipe"), "asking https://h: broken pipe");
}
