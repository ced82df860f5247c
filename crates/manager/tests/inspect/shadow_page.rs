//! The differences of a shadow on its live page, in a headless Chromium.

use std::time::Duration;

use keleustes_client::{Call, DeleteOptions};
use keleustes_objects::{Key, Resource};
use serde_json::{Value, json};

use crate::devtools::Browser;
use crate::page::{CLUSTER_ROLES, HOSTILE_NAME, picture};
use crate::playground::{DEPLOYMENTS, Manager, Playground, deployment};

const SERVICES: Resource = Resource::namespaced("", "v1", "services", "Service");
const SLICES: Resource = Resource::namespaced("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice");

/// The leader does less than its shadow: no endpoints, and no aggregated roles.
const LEADER: &str = "--controllers=deployment-controller,replicaset-controller,serviceaccount-controller";
const SHADOW: &str = "--controllers=deployment-controller,replicaset-controller,serviceaccount-controller,\
                      clusterrole-aggregation-controller,endpointslice-controller";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium; .ci/run page runs it"]
async fn differences_of_a_shadow_are_on_its_page() {
    let playground = Playground::start_with(&["--manager=off"]);
    let slice = slice_of_an_earlier_leader(&playground).await;
    let _leader = Manager::start(&playground, &[LEADER]);
    let shadow = Manager::start(&playground, &["--shadow", "--shadow-window=3s", SHADOW]);
    let mut browser = Browser::start();
    browser.navigate(&format!("{}/debug/keleustes/", shadow.url));
    browser.wait_for("document.querySelector('#role-name').innerText === 'shadow'");
    browser.wait_for("!document.querySelector('#shadow').hidden");
    create_objects(&playground).await;

    browser.wait_for_text("#shadow-detail", " agreements in ");
    browser.wait_for_text("#shadow-differences", HOSTILE_NAME);
    browser.wait_for_text("#shadow-differences", "expected update clusterroles.rbac.authorization.k8s.io");
    browser.wait_for_text("#shadow-differences", "only ours");
    browser.wait_for_text("#shadow-differences", "wanted because");
    assert_eq!(browser.evaluate("document.querySelector('#shadow-result').className"), "badge bad");
    known_differences_are_separate(&playground, &slice, &mut browser).await;
    controllers_are_counted(&mut browser);
    let made = "[window.hacked, document.querySelectorAll('img, iframe, script:not([src])').length]";
    assert_eq!(browser.evaluate(made), json!([null, 0]), "a hostile name is text");
    page_fits(&mut browser);
    difference_leads_to_an_explanation(&mut browser);
    assert_eq!(browser.take_problems(), Vec::<String>::new(), "no console errors");
}

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}})
}

/// A slice of the Service `lost`, from a manager that has stopped.
async fn slice_of_an_earlier_leader(playground: &Playground) -> Key {
    let admin = playground.admin();
    Call::create(&SERVICES, "default", &service("lost")).send(&admin).await.unwrap();
    let _earlier = Manager::start(playground, &["--controllers=endpointslice-controller"]);
    loop {
        let listed = Call::list(&SLICES, "default").send(&admin).await.unwrap();
        let names = listed["items"].as_array().into_iter().flatten();
        let mut names = names.filter_map(|slice| slice["metadata"]["name"].as_str());
        if let Some(name) = names.find(|name| name.starts_with("lost-")) {
            return Key::namespaced("default", name);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn create_objects(playground: &Playground) {
    let admin = playground.admin();
    Call::create(&DEPLOYMENTS, "default", &deployment("oars", "any:1")).send(&admin).await.unwrap();
    Call::create(&SERVICES, "default", &service("oars")).send(&admin).await.unwrap();
    let part = json!({"metadata": {"name": "part", "labels": {"hostile": "yes"}},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let whole = json!({"metadata": {"name": HOSTILE_NAME}, "rules": [],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"hostile": "yes"}}]}});
    Call::create(&CLUSTER_ROLES, "", &part).send(&admin).await.unwrap();
    Call::create(&CLUSTER_ROLES, "", &whole).send(&admin).await.unwrap();
}

/// They are folded away; the keyboard unfolds them. A slice that the leader never created is none of them, one that a user
/// deleted is.
async fn known_differences_are_separate(playground: &Playground, slice: &Key, browser: &mut Browser) {
    let missing = "expected create endpointslices.discovery.k8s.io default/oars-*";
    browser.wait_for_text("#shadow-differences", missing);
    assert_eq!(browser.evaluate("document.querySelector('#shadow-known-count').innerText"), "0");
    Call::delete(&SLICES, slice, &DeleteOptions::default()).send(&playground.admin()).await.unwrap();
    browser.wait_for("Number(document.querySelector('#shadow-known-count').innerText) > 0");
    browser.evaluate("document.querySelector('#shadow details summary').focus()");
    browser.press("Enter");
    browser.evaluate("document.activeElement.blur()");
    browser.wait_for_text("#shadow-known", "expected create endpointslices.discovery.k8s.io default/lost-*");
    browser.wait_for_text("#shadow-known", "known: the original does not recreate");
    let listed = |list: &str, name: &str| {
        format!("document.querySelector('#shadow-{list}').innerText.includes('{name}-*')")
    };
    assert_eq!(browser.evaluate(&listed("differences", "lost")), false);
    assert_eq!(browser.evaluate(&listed("known", "oars")), false, "the leader never creates a slice");
}

fn controllers_are_counted(browser: &mut Browser) {
    let row = |name: &str| {
        format!(
            "[...document.querySelectorAll('#shadow-controllers tr')].find((row) => row.cells[0].innerText === '{name}')"
        )
    };
    let (agreeing, differing) = (row("replicaset-controller"), row("clusterrole-aggregation-controller"));
    browser.wait_for(&format!("Number({agreeing}.cells[2].innerText) > 0"));
    browser.wait_for(&format!("Number({differing}.cells[5].innerText) > 0"));
    assert_eq!(browser.evaluate(&format!("{differing}.cells[5].className")), "number bad");
}

fn page_fits(browser: &mut Browser) {
    let is_taking_pictures = std::env::var_os("UPDATE_PICTURES").is_some();
    for (scheme, width, height) in
        [("light", 1280, 860), ("dark", 768, 1024), ("dark", 390, 844), ("light", 360, 740)]
    {
        browser.set_color_scheme(scheme);
        browser.set_size(width, height, width < 500);
        let shown = browser.evaluate("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(shown <= width.into(), "nothing is wider than the screen: {shown} of {width}");
        if is_taking_pictures && width > 1000 {
            browser.screenshot(&picture("live-page-shadow"));
        }
    }
    browser.set_size(1280, 860, false);
}

fn difference_leads_to_an_explanation(browser: &mut Browser) {
    browser.evaluate("[...document.querySelectorAll('#shadow-differences button')].find((one) => one.innerText.endsWith(' view')).focus()");
    browser.press("Enter");
    browser.wait_for_text("#explanation-name", "clusterrole/view");
    browser.wait_for_text("#explanation-body", "clusterrole-aggregation-controller");
    browser.press("Escape");
}
