//! ValidatingAdmissionPolicies: the warnings of their type-checked expressions.

use anyhow::{Context as _, ensure};
use http::Request;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::TestCluster;

/// The policies of a cluster, named after a namespace of the scenario.
struct PolicyFixture<'w> {
    cluster: &'w TestCluster,
    policies: Api<ValidatingAdmissionPolicy>,
    namespace: String,
}

impl<'w> PolicyFixture<'w> {
    async fn create(cluster: &'w TestCluster) -> anyhow::Result<Self> {
        let namespace = cluster.namespace("policies").await?;
        Ok(Self { cluster, policies: Api::all(cluster.admin.clone()), namespace })
    }

    fn name(&self, policy: &str) -> String {
        format!("{}-{policy}", self.namespace)
    }

    /// Creates a policy without a binding, so that it is never enforced.
    async fn policy(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let policy = json!({"metadata": {"name": self.name(name)}, "spec": spec});
        self.cluster.create(&self.policies, policy).await?;
        Ok(())
    }

    /// The warnings of a policy, as soon as its generation has been checked: field and text.
    async fn warnings(&self, name: &str, generation: i64) -> anyhow::Result<Vec<(String, String)>> {
        let ask = async || {
            let policy = self.policies.get(&self.name(name)).await?;
            let status = policy.status.unwrap_or_default();
            let checked = status.observed_generation == Some(generation);
            // A server-side apply that empties typeChecking removes it.
            Ok(checked.then(|| status.type_checking.unwrap_or_default()))
        };
        let checked = self.cluster.eventually(&format!("{name} is checked"), ask).await?;
        let warnings = checked.expression_warnings.unwrap_or_default();
        Ok(warnings.into_iter().map(|one| (one.field_ref, one.warning)).collect())
    }

    async fn patch(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        let name = self.name(name);
        self.policies.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.policies.delete(&self.name(name), &DeleteParams::default()).await?;
        Ok(())
    }
}

fn rule(group: &str, version: &str, resources: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": resources})
}

fn expect(found: &[(String, String)], expected: &[(&str, &str)]) -> anyhow::Result<()> {
    let found: Vec<(&str, &str)> =
        found.iter().map(|(field, text)| (field.as_str(), text.as_str())).collect();
    ensure!(found == expected, "found {found:#?}, expected {expected:#?}");
    Ok(())
}

/// Proves VAPS-26.
pub(crate) async fn wrong_types_in_a_policy_are_reported_once_per_generation(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = PolicyFixture::create(cluster).await?;
    let validations = json!([
        {"expression": "object.spec.replicas > '1'"},
        {"expression": "object.spec.replicas <= variables.limit && variables.labels.all(k, k != '')",
            "messageExpression": "'%d replicas'.format([object.metadata.name])"},
        {"expression": "object.spec.template.spec.containers.all(c, has(c.resources.limits))"},
        {"expression": "has(object.spec.nope) || object.metadata.namespace == request.namespace"},
    ]);
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule("apps", "v1", &["deployments", "deployments/scale"])]},
        "variables": [
            {"name": "limit", "expression": "5"},
            {"name": "labels", "expression": "object.metadata.labels"}],
        "validations": validations,
    });
    fixture.policy("types", spec).await?;
    let found = fixture.warnings("types", 1).await?;
    let expected = [
        (
            "spec.validations[0].expression",
            "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to \
             '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n",
        ),
        (
            "spec.validations[1].messageExpression",
            "apps/v1, Kind=Deployment: ERROR: <input>:1:38: error during formatting: decimal clause can only be used \
             on integers, was given string\n | '%d replicas'.format([object.metadata.name])\n \
             | .....................................^\n",
        ),
        (
            "spec.validations[2].expression",
            "apps/v1, Kind=Deployment: ERROR: <input>:1:48: undefined field 'limits'\n \
             | object.spec.template.spec.containers.all(c, has(c.resources.limits))\n \
             | ...............................................^\n",
        ),
        (
            "spec.validations[3].expression",
            "apps/v1, Kind=Deployment: ERROR: <input>:1:4: undefined field 'nope'\n \
             | has(object.spec.nope) || object.metadata.namespace == request.namespace\n | ...^\n",
        ),
    ];
    expect(&found, &expected)?;
    // Metadata is no new generation; a corrected expression is one.
    fixture.patch("types", json!({"metadata": {"labels": {"a": "b"}}})).await?;
    cluster.settle().await;
    expect(&fixture.warnings("types", 1).await?, &expected)?;
    cluster.checkpoint("the policy has warnings").await;
    fixture
        .patch("types", json!({"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}}))
        .await?;
    expect(&fixture.warnings("types", 2).await?, &[])?;
    cluster.checkpoint("the policy is corrected").await;
    fixture.delete("types").await
}

pub(crate) async fn each_kind_of_a_policy_has_its_own_warnings(cluster: &TestCluster) -> anyhow::Result<()> {
    let fixture = PolicyFixture::create(cluster).await?;
    let rules = json!([
        {"apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods", "deployments"]},
        rule("", "v1", &["events"]),
        rule("*", "v1", &["services"]),
    ]);
    let spec = json!({
        "matchConstraints": {"resourceRules": rules},
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [
            {"expression": "has(object.spec.replicas)"},
            {"expression": "params.data['limit'] > 1"},
            {"expression": "params.data.all(k, k > 1)"},
        ],
    });
    fixture.policy("kinds", spec).await?;
    let found = fixture.warnings("kinds", 1).await?;
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    let all = [
        "spec.validations[0].expression",
        "spec.validations[1].expression",
        "spec.validations[2].expression",
    ];
    ensure!(fields == all, "{found:#?}");
    let kinds = |text: &str| -> Vec<String> {
        let blocks = text.split("\n\n").filter_map(|block| block.split_once(": ERROR"));
        blocks.map(|(kind, _)| kind.to_owned()).collect()
    };
    let wanting = ["/v1, Kind=Event", "/v1, Kind=Pod", "events.k8s.io/v1, Kind=Event"];
    ensure!(kinds(&found[0].1) == wanting, "{}", found[0].1);
    let (_, pod) = found[0].1.split_once("/v1, Kind=Pod: ").context("a block for pods")?;
    let expected = "ERROR: <input>:1:4: undefined field 'replicas'\n | has(object.spec.replicas)\n | ...^\n\n\
                    events.k8s.io/v1, Kind=Event: ";
    ensure!(pod.starts_with(expected), "{pod}");
    let everywhere =
        ["/v1, Kind=Event", "/v1, Kind=Pod", "apps/v1, Kind=Deployment", "events.k8s.io/v1, Kind=Event"];
    ensure!(kinds(&found[1].1) == everywhere && kinds(&found[2].1) == everywhere, "{found:#?}");
    ensure!(
        found[2].1.contains("1:22: found no matching overload for '_>_' applied to '(string, int)'"),
        "{}",
        found[2].1
    );
    cluster.checkpoint("the policy has warnings for each kind").await;
    fixture.delete("kinds").await
}

/// Defines a kind with a schema and waits until its document is served.
async fn define(fixture: &PolicyFixture<'_>, group: &str) -> anyhow::Result<Api<CustomResourceDefinition>> {
    let string = json!({"type": "string"});
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer"}, "wait": {"type": "string", "format": "duration"},
        "port": {"x-kubernetes-int-or-string": true}, "a-b": string, "namespace": string,
        "labels": {"type": "object", "additionalProperties": string},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"name": string}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let names =
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({"metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}});
    let definitions: Api<CustomResourceDefinition> = Api::all(fixture.cluster.admin.clone());
    fixture.cluster.create(&definitions, definition).await?;
    let published = async || {
        let path = format!("/openapi/v3/apis/{group}/v1");
        let request = Request::get(path).body(Vec::new())?;
        let document = fixture.cluster.admin.request_text(request).await.unwrap_or_default();
        let served = fixture.cluster.admin.list_api_group_resources(&format!("{group}/v1")).await;
        Ok((document.contains("\"Widget\"") && served.is_ok()).then_some(()))
    };
    fixture.cluster.eventually("the new kind is published", published).await?;
    Ok(definitions)
}

pub(crate) async fn policy_over_a_custom_kind_is_checked_with_its_schema(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let fixture = PolicyFixture::create(cluster).await?;
    let group = format!("{}.example.com", fixture.namespace);
    let definitions = define(&fixture, &group).await?;
    let expressions = [
        "object.spec.size > 1 && object.spec.wait < duration('1h') && object.spec.port == 80",
        "object.spec.a__dash__b == object.spec.namespace && object.metadata.labels['a'] == 'b'",
        "object.spec.parts.all(p, p.name > 1)",
        "object.spec.open.anything == 'x'",
        "object.spec.labels == null || params.spec.size == 'a'",
        "object.status.phase == ''",
    ];
    let validations: Vec<Value> = expressions.iter().map(|text| json!({ "expression": text })).collect();
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule(&group, "v1", &["widgets"])]},
        "paramKind": {"apiVersion": format!("{group}/v1"), "kind": "Widget"},
        "validations": validations,
    });
    fixture.policy("custom", spec).await?;
    let found = fixture.warnings("custom", 1).await?;
    let block = |column: usize, message: &str, expression: &str| {
        let dots = ".".repeat(column - 1);
        format!(
            "{group}/v1, Kind=Widget: ERROR: <input>:1:{column}: {message}\n | {expression}\n | {dots}^\n"
        )
    };
    let overload = |signature: &str| format!("found no matching overload for '{signature}'");
    let labels = "_==_' applied to '(map(string, string), null)";
    let mut both = block(20, &overload(labels), expressions[4]);
    both.truncate(both.len() - 1);
    let second = "_==_' applied to '(int, string)";
    let rest = format!(
        "\nERROR: <input>:1:48: {}\n | {}\n | {}^\n",
        overload(second),
        expressions[4],
        ".".repeat(47)
    );
    both.push_str(&rest);
    let expected = [
        (
            "spec.validations[2].expression",
            block(33, &overload("_>_' applied to '(string, int)"), expressions[2]),
        ),
        ("spec.validations[3].expression", block(17, "undefined field 'anything'", expressions[3])),
        ("spec.validations[4].expression", both),
        ("spec.validations[5].expression", block(7, "undefined field 'status'", expressions[5])),
    ];
    let expected: Vec<(&str, &str)> = expected.iter().map(|(field, text)| (*field, text.as_str())).collect();
    expect(&found, &expected)?;
    cluster.checkpoint("the policy has warnings for the custom kind").await;
    fixture.delete("custom").await?;
    definitions.delete(&format!("widgets.{group}"), &DeleteParams::default()).await?;
    Ok(())
}
