//! Aggregated ClusterRoles have the rules of the roles they select.

use anyhow::ensure;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::TestCluster;

fn selected_role(run: &str, name: &str, resource: &str) -> Value {
    let labels = json!({format!("{run}.example.com/part"): "true"});
    let rules = json!([{"apiGroups": ["example.com"], "resources": [resource], "verbs": ["get"]}]);
    json!({"metadata": {"name": format!("{run}-{name}"), "labels": labels}, "rules": rules})
}

/// The resources in a role's rules, in order.
async fn resources(roles: &Api<ClusterRole>, name: &str) -> anyhow::Result<Vec<String>> {
    let rules = roles.get(name).await?.rules.unwrap_or_default();
    Ok(rules.into_iter().flat_map(|rule| rule.resources.unwrap_or_default()).collect())
}

/// Proves CRA-11, CRA-17, CRA-20, CRA-30, CRA-42, CRA-45.
pub(crate) async fn aggregated_cluster_role_follows_the_selected_roles(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    // Cluster-scoped objects need unique names; the generated name of a namespace is one.
    let run = cluster.namespace("roles").await?;
    let roles: Api<ClusterRole> = Api::all(cluster.admin.clone());
    let aggregated = format!("{run}-whole");
    let selector = json!({"matchLabels": {format!("{run}.example.com/part"): "true"}});
    cluster
        .create(
            &roles,
            json!({"metadata": {"name": aggregated}, "aggregationRule": {"clusterRoleSelectors": [selector]},
                   "rules": [{"apiGroups": [""], "resources": ["by-hand"], "verbs": ["get"]}]}),
        )
        .await?;
    let resources_become = async |wanted: &[&str]| {
        let what = format!("rules for {wanted:?}");
        cluster
            .eventually(&what, async || Ok((resources(&roles, &aggregated).await? == wanted).then_some(())))
            .await
    };
    cluster.settle().await;
    // No role is selected, and server-side apply of nothing does not remove rules with another field
    // manager.
    resources_become(&["by-hand"]).await?;
    cluster.create(&roles, selected_role(&run, "b", "bees")).await?;
    resources_become(&["bees"]).await?;
    cluster.create(&roles, selected_role(&run, "a", "ants")).await?;
    resources_become(&["ants", "bees"]).await?;
    let renamed =
        json!({"rules": [{"apiGroups": ["example.com"], "resources": ["wasps"], "verbs": ["get"]}]});
    roles.patch(&format!("{run}-b"), &PatchParams::default(), &Patch::Merge(renamed)).await?;
    resources_become(&["ants", "wasps"]).await?;
    roles.delete(&format!("{run}-a"), &DeleteParams::default()).await?;
    resources_become(&["wasps"]).await?;
    cluster.checkpoint("one selected role is left").await;

    let managers = roles.get(&aggregated).await?.metadata.managed_fields.unwrap_or_default();
    let ours =
        managers.iter().find(|entry| entry.manager.as_deref() == Some("clusterrole-aggregation-controller"));
    ensure!(
        ours.is_some_and(|entry| entry.operation.as_deref() == Some("Apply")),
        "the rules are managed by server-side apply"
    );
    for name in ["whole", "b"] {
        roles.delete(&format!("{run}-{name}"), &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Proves CRA-19, CRA-43.
pub(crate) async fn built_in_cluster_roles_aggregate_new_roles(cluster: &TestCluster) -> anyhow::Result<()> {
    let run = cluster.namespace("roles").await?;
    let roles: Api<ClusterRole> = Api::all(cluster.admin.clone());
    let mut viewing = selected_role(&run, "viewing", &run);
    viewing["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    cluster.create(&roles, viewing).await?;
    // `edit` and `admin` do not select the new role itself; they aggregate it through `view`.
    for built_in in ["view", "edit", "admin"] {
        let what = format!("{run} in {built_in}");
        cluster
            .eventually(&what, async || Ok(resources(&roles, built_in).await?.contains(&run).then_some(())))
            .await?;
    }
    cluster.checkpoint("the built-in roles have a new rule").await;
    roles.delete(&format!("{run}-viewing"), &DeleteParams::default()).await?;
    for built_in in ["view", "edit", "admin"] {
        let what = format!("{built_in} without {run}");
        cluster
            .eventually(
                &what,
                async || Ok((!resources(&roles, built_in).await?.contains(&run)).then_some(())),
            )
            .await?;
    }
    Ok(())
}
