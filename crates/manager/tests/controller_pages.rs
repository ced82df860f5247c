//! The pages in docs/controllers, and the counts of controllers in README and docs, are up to date.
//!
//! A page is generated from the controller's descriptor, the header of its module, the list of flags and the rows of
//! docs/differences/controllers.md that name it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keleustes_controllers::bootstrap_signer::BootstrapSignerOptions;
use keleustes_controllers::certificates::KUBELET_SERVING;
use keleustes_controllers::certificatesigningrequest_signing::{
    BuiltInSigner, CertificateSigningRequestSigningOptions,
};
use keleustes_controllers::kube_apiserver_serving_clustertrustbundle_publisher::ClusterTrustBundlePublisherOptions;
use keleustes_controllers::names::{DefaultState, UPSTREAM_CONTROLLERS};
use keleustes_controllers::node_ipam::NodeIpamOptions;
use keleustes_controllers::podgroup_protection::PodGroupProtectionOptions;
use keleustes_controllers::resourcepoolstatusrequest::ResourcePoolStatusOptions;
use keleustes_controllers::serviceaccount_token::ServiceAccountTokenOptions;
use keleustes_controllers::{ControllersOptions, all_controllers};
use keleustes_objects::Resource;
use keleustes_options::flag::FlagScope;
use keleustes_plan::{Controller, Loop, MetricType};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a page with its file, or writes the file if `UPDATE_PAGES` is set.
fn check(path: &str, page: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::create_dir_all(file.parent().expect("a page is in a folder")).expect("docs can be written");
        std::fs::write(&file, page).expect("docs can be written");
    }
    let current = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        current == page,
        "{path} is out of date; run: UPDATE_PAGES=1 cargo test -p keleustes-manager --test controller_pages"
    );
}

/// Every implemented controller, those included that only run with certain options.
fn implemented() -> Vec<Controller> {
    all_controllers(&ControllersOptions {
        serviceaccount_token: Some(ServiceAccountTokenOptions {
            sign: Arc::new(|_| Err("pages need no signature".to_owned())),
            ca: Arc::new([]),
            workers: 5,
        }),
        bootstrap_signer: Some(BootstrapSignerOptions { hmac_sha256: |_, _| [0; 32] }),
        certificatesigningrequest_signing: Some(CertificateSigningRequestSigningOptions {
            signers: vec![BuiltInSigner {
                name: KUBELET_SERVING,
                sign: Arc::new(|_| Box::pin(async { Err("nothing is signed".to_owned()) })),
            }],
            duration_nanoseconds: 1,
        }),
        kube_apiserver_serving_clustertrustbundle_publisher: ClusterTrustBundlePublisherOptions {
            ca: "x".into(),
            ..ClusterTrustBundlePublisherOptions::default()
        },
        podgroup_protection: PodGroupProtectionOptions { enable_generic_workload: true },
        resourcepoolstatusrequest: ResourcePoolStatusOptions {
            enabled: true,
            ..ResourcePoolStatusOptions::default()
        },
        node_ipam: NodeIpamOptions {
            allocate_node_cidrs: true,
            cluster_cidr: "10.0.0.0/8".to_owned(),
            ..NodeIpamOptions::default()
        },
        storageversion_garbage_collector: true,
        ..ControllersOptions::default()
    })
}

/// The name of a controller's page and behaviour sheet.
fn short(name: &str) -> &str {
    name.strip_suffix("-controller").unwrap_or(name)
}

/// The header of the controller's module: its paragraphs, and the package of the original.
fn module_header(name: &str) -> (Vec<String>, String) {
    let module = short(name).replace('-', "_");
    let sources = root().join("crates/controllers/src");
    let source = [format!("{module}.rs"), format!("{module}/mod.rs")]
        .iter()
        .find_map(|path| std::fs::read_to_string(sources.join(path)).ok())
        .unwrap_or_else(|| panic!("{name} has no module named {module}"));
    let header: Vec<_> = source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let mut parity = String::new();
    let mut paragraphs = Vec::new();
    for paragraph in header.split(|line| line.is_empty()) {
        let text = paragraph.join("\n");
        match text.strip_prefix("Parity: ") {
            Some(package) => package.trim_end_matches('.').clone_into(&mut parity),
            None if text.is_empty() => {}
            None => paragraphs.push(without_code_links(&text)),
        }
    }
    (paragraphs, parity)
}

/// Links to items of the code lead nowhere on a page: ``[`Graph`]`` becomes `` `Graph` ``.
fn without_code_links(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

fn page(controller: &Controller) -> String {
    let (paragraphs, parity) = module_header(controller.name);
    let upstream = UPSTREAM_CONTROLLERS
        .iter()
        .find(|upstream| upstream.name == controller.name)
        .unwrap_or_else(|| panic!("{} is no controller of the original", controller.name));
    let mut page = format!("# {}\n\n{}\n\n", controller.name, paragraphs.join("\n\n"));
    page.push_str("| | |\n| --- | --- |\n");
    let mut row = |title: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(page, "| {title} | {value} |");
        }
    };
    row("alias", code(upstream.alias));
    row(
        "runs",
        match upstream.default {
            DefaultState::Enabled => "by default".to_owned(),
            DefaultState::Disabled => "if `--controllers` names it".to_owned(),
        },
    );
    row("feature gates", list(upstream.gates.iter().copied()));
    row(
        "service account",
        controller.service_account.map_or_else(|| "none: the manager's own credentials".to_owned(), code),
    );
    row("events from", controller.event_component.map(code).unwrap_or_default());
    row("in the original", code(&parity));
    row("facts", format!("[behaviour sheet](../behaviour/{}.md)", short(controller.name)));
    queues(controller, &mut page);
    grants(controller, &mut page);
    flags(controller.name, &mut page);
    metrics(controller, &mut page);
    differences(controller.name, &mut page);
    page
}

fn code(text: impl AsRef<str>) -> String {
    if text.as_ref().is_empty() { String::new() } else { format!("`{}`", text.as_ref()) }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(code).collect::<Vec<_>>().join(", ")
}

fn resource_name(resource: &Resource) -> String {
    if resource.group.is_empty() {
        resource.plural.to_string()
    } else {
        format!("{}.{}", resource.plural, resource.group)
    }
}

fn queues(controller: &Controller, page: &mut String) {
    page.push_str("\n## Queues\n\n| queue | workers | retries | enqueued by changes of | also reads |\n");
    page.push_str("| --- | ---: | ---: | --- | --- |\n");
    for a_loop in &controller.loops {
        let (watched, read) = kinds(a_loop);
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} |",
            a_loop.queue,
            a_loop.workers,
            a_loop.max_retries.map_or_else(|| "no limit".to_owned(), |retries| retries.to_string()),
            list(watched.iter().map(String::as_str)),
            list(read.difference(&watched).map(String::as_str)),
        );
    }
    if controller.observer.is_some() {
        page.push_str("\nIt also observes the metadata of every resource that can be watched.\n");
    }
}

/// The resources that a loop watches, and those that it reads.
fn kinds(a_loop: &Loop) -> (BTreeSet<String>, BTreeSet<String>) {
    let watched = a_loop.watches.iter().map(|watch| resource_name(watch.kind.resource())).collect();
    let read = a_loop.reads.iter().map(|kind| resource_name(kind.resource())).collect();
    (watched, read)
}

fn grants(controller: &Controller, page: &mut String) {
    page.push_str("\n## Permissions that it uses\n\n| API group | resource | verbs |\n| --- | --- | --- |\n");
    for grant in controller.grants {
        let group = if grant.group.is_empty() { "core" } else { grant.group };
        let _ = writeln!(page, "| {group} | `{}` | {} |", grant.resource, grant.verbs.join(", "));
    }
}

fn flags(name: &str, page: &mut String) {
    let of_controller =
        |scope: FlagScope| matches!(scope, FlagScope::Controllers(names) if names.contains(&name));
    let flags: Vec<_> = keleustes_options::flags::all().filter(|flag| of_controller(flag.scope)).collect();
    if flags.is_empty() {
        return;
    }
    page.push_str("\n## Flags\n\n");
    for flag in flags {
        let _ = writeln!(page, "- [`--{}`](../flags.md): {}", flag.name, flag.help);
    }
}

fn metrics(controller: &Controller, page: &mut String) {
    if controller.metrics.is_empty() {
        return;
    }
    page.push_str("\n## Metrics\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for metric in &controller.metrics {
        let metric_type = match metric.metric_type {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram(_) => "histogram",
        };
        let _ = writeln!(
            page,
            "| `{}` | {metric_type} | {} | {} |",
            metric.name,
            list(metric.labels.iter().copied()),
            metric.help
        );
    }
}

/// The rows of the list of differences whose first column names the controller.
fn differences(name: &str, page: &mut String) {
    let listed = std::fs::read_to_string(root().join("docs/differences/controllers.md")).unwrap_or_default();
    let rows: Vec<_> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .filter(|(controllers, _)| controllers.split(", ").any(|one| one == short(name)))
        .map(|(_, rest)| format!("| {rest}"))
        .collect();
    page.push_str("\n## Differences from the original\n\n");
    if rows.is_empty() {
        page.push_str("None but [those of all controllers](../differences/controllers.md).\n");
        return;
    }
    page.push_str("Beside [those of all controllers](../differences/controllers.md):\n\n");
    let columns = rows[0].matches(" |").count();
    page.push_str(if columns == 4 {
        "| what happens | the original | here | why |\n| --- | --- | --- | --- |\n"
    } else {
        panic!("a row about {name} in docs/differences/controllers.md has {} columns", columns + 1)
    });
    for row in rows {
        let _ = writeln!(page, "{row}");
    }
}

#[test]
fn every_controller_has_a_page_that_is_up_to_date() {
    for controller in implemented() {
        check(&format!("docs/controllers/{}.md", short(controller.name)), &page(&controller));
    }
}

#[test]
fn no_page_is_about_a_controller_that_does_not_exist() {
    let pages: BTreeSet<_> = implemented()
        .iter()
        .map(|controller| format!("{}.md", short(controller.name)))
        .chain(["README.md".to_owned()])
        .collect();
    for entry in std::fs::read_dir(root().join("docs/controllers")).expect("the folder exists") {
        let name = entry.expect("the folder can be read").file_name().to_string_lossy().into_owned();
        assert!(pages.contains(&name), "docs/controllers/{name} is about no controller");
    }
}

#[test]
fn the_index_of_controllers_is_up_to_date() {
    let controllers = implemented();
    let mut index = String::from("# Controllers\n\n");
    let _ = writeln!(
        index,
        "{} of {} controllers of kube-controller-manager v1.37 are implemented.\n",
        controllers.len(),
        UPSTREAM_CONTROLLERS.len()
    );
    index.push_str("| controller | what it does |\n| --- | --- |\n");
    for upstream in &UPSTREAM_CONTROLLERS {
        if controllers.iter().any(|controller| controller.name == upstream.name) {
            let (paragraphs, _) = module_header(upstream.name);
            let _ = writeln!(
                index,
                "| [{0}]({0}.md) | {1} |",
                short(upstream.name),
                paragraphs.first().map(|first| first.replace('\n', " ")).unwrap_or_default()
            );
        } else {
            let _ = writeln!(index, "| {} | not implemented yet |", short(upstream.name));
        }
    }
    check("docs/controllers/README.md", &index);
}

/// Replaces a passage between two marks, or checks that it is up to date.
fn check_passage(path: &str, name: &str, passage: &str) {
    let file = root().join(path);
    let text = std::fs::read_to_string(&file).expect("the page exists");
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{path} has no passage {name}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("passage {name} of {path} has no end"));
    check(path, &format!("{before}{begin}{passage}{end}{after}"));
}

/// README and operating.md say how many controllers there are; a number that is written by hand becomes wrong. One test
/// for all passages: each rewrites its page.
#[test]
fn stated_counts_of_controllers_are_true() {
    let (implemented, all) = (implemented().len(), UPSTREAM_CONTROLLERS.len());
    let missing = all - implemented;
    let (count, warning, consequence) = if missing == 0 {
        let none = String::new();
        (format!("All {all} controllers are implemented.\n"), none.clone(), none)
    } else {
        let warning = format!(
            "**Do not do this to a cluster you need.** {missing} of {all} controllers are still missing, and without\n\
             `--allow-missing-controllers` a manager that misses one does not lead.\n"
        );
        let consequence = "The others do not run: a log line, `/readyz`, `/statusz` and `keleustes_missing_controllers{name}` name\n\
                           them. A cluster without them does not work. Until all are implemented, try this only on clusters you\n\
                           can lose.\n";
        (format!("{implemented} of {all} controllers are implemented.\n"), warning, consequence.to_owned())
    };
    check_passage("README.md", "missing-controllers", &warning);
    check_passage("README.md", "controllers", &count);
    check_passage("docs/operating.md", "controllers", &format!("{count}{consequence}"));
}

/// The columns of the row of a Markdown table that starts with these words.
fn row(path: &str, first_column: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(path)).expect("the page exists");
    let starts = format!("| {first_column} |");
    let line = text.lines().find(|line| line.starts_with(&starts));
    let line = line.unwrap_or_else(|| panic!("{path} has no row about {first_column}"));
    line.trim_matches('|').split(" | ").map(|column| column.trim().to_owned()).collect()
}

/// The measured times of a handover, in docs/measurements.md and docs/side-by-side.md, are the ones that other pages state.
#[test]
fn stated_failover_times_are_the_measured_ones() {
    let measured = row("docs/measurements.md", "SIGTERM");
    // The columns: phase, quantity, ours, the original.
    let with_many_pods = row("docs/side-by-side.md", "SIGTERM");
    let original = measured[2].split(" (").next().unwrap_or_default();
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("the file exists");
    for page in ["README.md", "docs/operating.md"] {
        let text = read(page);
        assert!(text.contains(&measured[1]) && text.contains(original), "{page} states other times");
        for time in &with_many_pods[2..4] {
            assert!(text.contains(&format!(" {time}")), "{page} does not state {time} with 20,000 pods");
        }
    }
    assert!(read("crates/manager/src/playground/demo.rs").contains(original), "the demo states another time");
}
