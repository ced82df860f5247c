//! Aggregated ClusterRoles gather the rules of the roles they select.

use anyhow::ensure;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::World;

fn part(run: &str, name: &str, resource: &str) -> Value {
    let labels = json!({format!("{run}.example.com/part"): "true"});
    let rules = json!([{"apiGroups": ["example.com"], "resources": [resource], "verbs": ["get"]}]);
    json!({"metadata": {"name": format!("{run}-{name}"), "labels": labels}, "rules": rules})
}

/// The resources that a role's rules name, in order.
async fn resources(roles: &Api<ClusterRole>, name: &str) -> anyhow::Result<Vec<String>> {
    let rules = roles.get(name).await?.rules.unwrap_or_default();
    Ok(rules.into_iter().flat_map(|rule| rule.resources.unwrap_or_default()).collect())
}

/// Proves CRA-11, CRA-17, CRA-20, CRA-30, CRA-42, CRA-45.
pub(crate) async fn aggregated_roles_fill_and_follow(world: &World) -> anyhow::Result<()> {
    // Cluster-scoped objects need names of their own; a namespace's made-up name is one.
    let run = world.namespace("roles").await?;
    let roles: Api<ClusterRole> = Api::all(world.admin.clone());
    let whole = format!("{run}-whole");
    let selector = json!({"matchLabels": {format!("{run}.example.com/part"): "true"}});
    world
        .create(
            &roles,
            json!({"metadata": {"name": whole}, "aggregationRule": {"clusterRoleSelectors": [selector]},
                   "rules": [{"apiGroups": [""], "resources": ["by-hand"], "verbs": ["get"]}]}),
        )
        .await?;
    let grants_become = async |wanted: &[&str]| {
        let what = format!("rules for {wanted:?}");
        world.eventually(&what, async || Ok((resources(&roles, &whole).await? == wanted).then_some(()))).await
    };
    world.settle().await;
    // Nothing is selected, and what somebody else wrote is not this manager's to remove by saying nothing.
    grants_become(&["by-hand"]).await?;
    world.create(&roles, part(&run, "b", "bees")).await?;
    grants_become(&["bees"]).await?;
    world.create(&roles, part(&run, "a", "ants")).await?;
    grants_become(&["ants", "bees"]).await?;
    let renamed =
        json!({"rules": [{"apiGroups": ["example.com"], "resources": ["wasps"], "verbs": ["get"]}]});
    roles.patch(&format!("{run}-b"), &PatchParams::default(), &Patch::Merge(renamed)).await?;
    grants_become(&["ants", "wasps"]).await?;
    roles.delete(&format!("{run}-a"), &DeleteParams::default()).await?;
    grants_become(&["wasps"]).await?;

    let managers = roles.get(&whole).await?.metadata.managed_fields.unwrap_or_default();
    let ours =
        managers.iter().find(|entry| entry.manager.as_deref() == Some("clusterrole-aggregation-controller"));
    ensure!(
        ours.is_some_and(|entry| entry.operation.as_deref() == Some("Apply")),
        "the rules are owned by server-side apply"
    );
    for name in ["whole", "b"] {
        roles.delete(&format!("{run}-{name}"), &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Proves CRA-19, CRA-43.
pub(crate) async fn built_in_roles_take_up_new_parts(world: &World) -> anyhow::Result<()> {
    let run = world.namespace("roles").await?;
    let roles: Api<ClusterRole> = Api::all(world.admin.clone());
    let mut viewing = part(&run, "viewing", &run);
    viewing["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    world.create(&roles, viewing).await?;
    // `edit` and `admin` do not select the part itself; it reaches them through `view`.
    for built_in in ["view", "edit", "admin"] {
        let what = format!("{run} in {built_in}");
        world
            .eventually(&what, async || Ok(resources(&roles, built_in).await?.contains(&run).then_some(())))
            .await?;
    }
    roles.delete(&format!("{run}-viewing"), &DeleteParams::default()).await?;
    for built_in in ["view", "edit", "admin"] {
        let what = format!("{built_in} without {run}");
        world
            .eventually(
                &what,
                async || Ok((!resources(&roles, built_in).await?.contains(&run)).then_some(())),
            )
            .await?;
    }
    Ok(())
}
