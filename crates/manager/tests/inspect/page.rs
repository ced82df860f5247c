//! The live page of a playground in a headless Chromium, which `.ci/run page` installs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use keleustes_client::{Call, PatchType};
use keleustes_objects::{Key, Resource};
use serde_json::{Value, json};

use crate::devtools::Browser;
use crate::playground::{DEPLOYMENTS, Manager, Playground, deployment, wait_until_connected};

const PODS: Resource = Resource::namespaced("", "v1", "pods", "Pod");
pub(crate) const CLUSTER_ROLES: Resource =
    Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole");
/// A name that RBAC allows. As markup it would run a script.
pub(crate) const HOSTILE_NAME: &str = "<img src=x onerror=window.hacked=1>";
const HOSTILE_TEXT: &str = "<script>window.hacked=2</script><iframe srcdoc='<b>x'></iframe><b onclick=x>bold";
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium; .ci/run page runs it"]
async fn live_page_works_in_chromium() {
    let playground = Playground::start();
    let mut browser = Browser::start();
    log_in(&playground, &mut browser);
    page_is_complete_and_protected(&mut browser);
    assert_eq!(browser.evaluate("document.querySelector('#shadow').hidden"), true, "it is no shadow");
    rollout_appears_by_itself(&playground, &mut browser).await;
    search_leads_to_explanations(&mut browser);
    hostile_texts_are_shown_as_text(&playground, &mut browser).await;
    page_fits_a_phone_and_both_color_schemes(&mut browser);
    what_waits_is_shown_with_its_reason(&playground, &mut browser).await;
    assert_eq!(browser.take_problems(), Vec::<String>::new(), "no console errors");
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        take_pictures(&mut browser);
    }
    inline_scripts_are_refused(&mut browser);
    login_link_is_valid_once(&playground, &mut browser);
}

#[test]
#[ignore = "needs Chromium; .ci/run page runs it"]
fn page_of_a_second_manager_says_that_it_stands_by() {
    let playground = Playground::start_with(&["--manager=off"]);
    let mut browser = Browser::start();
    let mut managers = Vec::new();
    for role in ["leader", "standby"] {
        let manager = Manager::start(&playground, &["--leader-elect=true"]);
        browser.navigate(&format!("{}/debug/keleustes/", manager.url));
        browser.wait_for(&format!("document.querySelector('#role-name').innerText === '{role}'"));
        managers.push(manager);
    }
    browser.wait_for_text("#role-detail", "ready to take over");
    assert_eq!(browser.take_problems(), Vec::<String>::new(), "no console errors");
}

/// Without a login the page is forbidden; the printed link logs in.
fn log_in(playground: &Playground, browser: &mut Browser) {
    let link = playground.login_links.recv_timeout(PATIENCE).unwrap();
    let page = format!("{}/debug/keleustes/", playground.manager());
    assert!(link.starts_with(&page), "{link}");
    // The port is open a moment after the link was printed.
    wait_until_connected(&playground.manager());
    browser.navigate(&page);
    browser.wait_for_text("body", "forbidden");
    browser.take_problems();
    browser.navigate(&link);
    browser.wait_for("location.pathname === '/debug/keleustes/' && location.search === ''");
    assert_eq!(browser.evaluate("document.cookie"), "", "scripts cannot read the cookie");
    // It is for the page and nothing else.
    let status = browser.evaluate("fetch('/debug/controllers/x').then((answer) => answer.status)");
    assert_eq!(status, 403);
    browser.take_problems();
}

fn page_is_complete_and_protected(browser: &mut Browser) {
    browser.wait_for("document.querySelector('#role-name').innerText === 'leader'");
    browser.wait_for("document.querySelectorAll('#controllers tr').length > 35");
    browser.wait_for("document.querySelector('#tile-rate').innerText !== '–'");
    browser.wait_for(
        "[...document.querySelectorAll('#controllers .state')].some((cell) => cell.innerText === 'running')",
    );
    let policy = browser.document_header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("data:") && !policy.contains('*'), "{policy}");
    let inline = "document.querySelectorAll('script:not([src]), style, [style], [onclick], [onload]').length";
    assert_eq!(browser.evaluate(inline), 0);
    let elsewhere = "performance.getEntriesByType('resource').filter((one) => !one.name.startsWith(location.origin)).length";
    assert_eq!(browser.evaluate(elsewhere), 0, "everything comes from the manager");
}

async fn rollout_appears_by_itself(playground: &Playground, browser: &mut Browser) {
    browser.evaluate(
        "window.unloaded = false; addEventListener('beforeunload', () => { window.unloaded = true; })",
    );
    let admin = playground.admin();
    Call::create(&DEPLOYMENTS, "default", &deployment("oars", "any:1")).send(&admin).await.unwrap();
    browser.wait_for_text("#decisions", "create replicasets.apps default/oars-");
    let row = "[...document.querySelectorAll('#controllers tr')].find((row) => row.cells[0].innerText === 'deployment-controller')";
    let reconciles = format!("Number({row}.cells[8].innerText)");
    browser.wait_for(&format!("{reconciles} > 0"));
    let before = browser.evaluate(&reconciles).as_i64().unwrap();
    let key = Key::namespaced("default", "oars");
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "any:2"}]}}}});
    Call::patch(&DEPLOYMENTS, &key, PatchType::Strategic, &image).send(&admin).await.unwrap();
    browser.wait_for(&format!("{reconciles} > {before}"));
    browser.wait_for_text("#decisions", "delete pods default/oars-");
    assert_eq!(browser.evaluate("window.unloaded"), false, "the page was not loaded again");
}

fn search_leads_to_explanations(browser: &mut Browser) {
    browser.press("/");
    assert_eq!(browser.evaluate("document.activeElement.id"), "query");
    browser.enter("deploy/oars");
    browser.wait_for_text("#explanation-state", "as wanted");
    browser.wait_for_text("#explanation-body", "replicaset/oars-");
    assert_eq!(browser.evaluate("document.activeElement.id"), "explanation", "for readers of the screen");
    // The keyboard alone reaches a dependent and explains it.
    browser.evaluate("[...document.querySelectorAll('#explanation-body .tree button')].find((one) => one.innerText.startsWith('pod/')).focus()");
    browser.press("Enter");
    browser.wait_for_text("#explanation-name", "pod/oars-");
    browser.wait_for_text("#explanation-body", "node/hollow-0");
    browser.evaluate("history.back()");
    browser.wait_for_text("#explanation-name", "deployment/oars");
    browser.press("Escape");
    assert_eq!(
        browser.evaluate("[document.querySelector('#explanation').hidden, location.hash]"),
        json!([true, ""])
    );

    browser.evaluate("document.querySelector('#query').select()");
    browser.enter("oars");
    browser.wait_for_text("#explanation-body", "deployments.apps/oars -n default");
    browser.press("Escape");
    browser.evaluate("document.querySelector('#query').select()");
    browser.enter("deploy/nothing -n nowhere");
    browser.wait_for_text("#explanation-state", "not found");
    browser.press("Escape");
}

async fn hostile_texts_are_shown_as_text(playground: &Playground, browser: &mut Browser) {
    let admin = playground.admin();
    // The aggregation controller writes to a role with a hostile name.
    let part = json!({"metadata": {"name": "part", "labels": {"hostile": "yes"}, "annotations": {"note": HOSTILE_TEXT}},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let whole = json!({"metadata": {"name": HOSTILE_NAME, "annotations": {"note": HOSTILE_TEXT}},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"hostile": "yes"}}]}, "rules": []});
    Call::create(&CLUSTER_ROLES, "", &part).send(&admin).await.unwrap();
    Call::create(&CLUSTER_ROLES, "", &whole).send(&admin).await.unwrap();
    browser.wait_for_text("#decisions", HOSTILE_NAME);
    browser.evaluate("document.querySelector('#query').focus(); document.querySelector('#query').select()");
    browser.enter("onerror");
    browser.wait_for_text("#explanation-name", HOSTILE_NAME);

    // A pod whose condition has a hostile message.
    let pod = json!({"metadata": {"name": "hostile", "annotations": {"note": HOSTILE_TEXT}},
        "spec": {"schedulerName": "none", "containers": [{"name": "c", "image": "any:1"}]}});
    Call::create(&PODS, "default", &pod).send(&admin).await.unwrap();
    let status = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": HOSTILE_NAME,
        "message": HOSTILE_TEXT}]}});
    let key = Key::namespaced("default", "hostile");
    Call::patch(&PODS, &key, PatchType::Merge, &status).subresource("status").send(&admin).await.unwrap();
    browser.evaluate("document.querySelector('#query').focus(); document.querySelector('#query').select()");
    browser.enter("pod/hostile");
    browser.wait_for_text("#explanation-body", HOSTILE_TEXT);
    browser.wait_for_text("#explanation-body", HOSTILE_NAME);
    // An address that another person sends.
    let fragment = format!(
        "location.hash = '#' + [{}, 'x', {}].map(encodeURIComponent).join('/')",
        json!(HOSTILE_NAME),
        json!(HOSTILE_TEXT)
    );
    browser.evaluate(&fragment);
    browser.wait_for_text("#explanation-body", "doesn't have a resource type");
    let made =
        "[window.hacked, document.querySelectorAll('img, iframe, b[onclick], script:not([src])').length]";
    assert_eq!(browser.evaluate(made), json!([null, 0]));
    // The browser logs that the server refuses such a name, and does not know the resource.
    let problems = browser.take_problems();
    let is_expected = |problem: &String| problem.contains("/explain?") && problem.contains("status of 40");
    assert!(problems.iter().all(is_expected), "{problems:?}");
    browser.press("Escape");
}

fn page_fits_a_phone_and_both_color_schemes(browser: &mut Browser) {
    let background = "getComputedStyle(document.body).backgroundColor";
    let mut backgrounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.set_color_scheme(scheme);
        backgrounds.push(browser.evaluate(background));
    }
    assert_ne!(backgrounds[0], backgrounds[1]);
    browser.evaluate("location.hash = '#deployments.apps/oars/default'");
    browser.wait_for_text("#explanation-body", "replicaset/oars-");
    for (width, height) in [(360, 740), (390, 844), (768, 1024), (1280, 900)] {
        browser.set_size(width, height, width < 500);
        let shown = browser.evaluate("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(shown <= width.into(), "nothing is wider than the screen: {shown} of {width}");
    }
    browser.press("Escape");
    browser.set_color_scheme("light");
}

/// Shows that the policy works, and that these tests notice what the console says.
fn inline_scripts_are_refused(browser: &mut Browser) {
    browser.take_problems();
    browser.evaluate(
        "(() => { const one = document.createElement('script'); one.textContent = 'window.hacked = 3'; document.body.append(one); })()",
    );
    assert_eq!(browser.evaluate("window.hacked"), Value::Null);
    let problems = browser.take_problems();
    assert!(problems.iter().any(|problem| problem.contains("Content Security Policy")), "{problems:?}");
}

fn login_link_is_valid_once(playground: &Playground, browser: &mut Browser) {
    // Printed when the first link was used.
    let link = playground.login_links.recv_timeout(PATIENCE).unwrap();
    for expected in ["kube-controller-manager", "This login link was used already"] {
        browser.open_private_page();
        browser.navigate(&link);
        browser.wait_for_text("body", expected);
    }
}

/// The file of a picture of the documentation.
pub(crate) fn picture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures").join(format!("{name}.png"))
}

/// A Deployment whose pods a quota refuses, and the slowest keys of the controllers.
async fn what_waits_is_shown_with_its_reason(playground: &Playground, browser: &mut Browser) {
    let admin = playground.admin();
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "8"}}});
    Call::raw(Method::POST, "/api/v1/namespaces/default/resourcequotas")
        .with_body(&quota)
        .send(&admin)
        .await
        .unwrap();
    let mut web = deployment("web", "shop:1");
    web["spec"]["replicas"] = json!(8);
    Call::create(&DEPLOYMENTS, "default", &web).send(&admin).await.unwrap();
    browser.wait_for_text("#waiting", "default/web-");
    browser.wait_for_text("#waiting", "exceeded quota");
    browser.wait_for_text("#waiting", "the next attempt is");
    let slowest = "[...document.querySelectorAll('#controllers .slowest')].some((cell) => cell.innerText.includes('default/web'))";
    browser.wait_for(slowest);
}

/// Writes the pictures of the documentation.
fn take_pictures(browser: &mut Browser) {
    browser.set_size(1280, 860, false);
    for scheme in ["light", "dark"] {
        browser.set_color_scheme(scheme);
        browser.screenshot(&picture(&format!("live-page-{scheme}")));
    }
    browser.set_color_scheme("light");
    browser.evaluate("location.hash = '#deployments.apps/web/default'");
    browser.wait_for_text("#explanation-body", "exceeded quota");
    browser.screenshot(&picture("live-page-explanation"));
    browser.set_size(390, 844, true);
    browser.evaluate("scrollTo(0, 0)");
    browser.screenshot(&picture("live-page-phone"));
    browser.press("Escape");
    browser.take_problems();
}
