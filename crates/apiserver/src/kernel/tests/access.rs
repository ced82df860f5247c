//! Authentication and authorization: users, tokens, roles and reviews.

use super::*;

fn world() -> World {
    World::with(KernelOptions {
        rbac: true,
        bootstrap: true,
        tokens: vec![("secret".to_owned(), User::admin())],
        ..KernelOptions::default()
    })
}

fn controller(name: &str) -> User {
    User::service_account("kube-system", name)
}

#[test]
fn controllers_may_do_what_their_roles_say_and_no_more() {
    let mut world = world();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let replica_sets = controller("replicaset-controller");
    assert_eq!(world.send_as(&replica_sets, Method::POST, pods, &pod).0, 201);
    assert_eq!(world.send_as(&replica_sets, Method::GET, "/api/v1/pods", &Value::Null).0, 200);
    let refused = world.send_as(&replica_sets, Method::GET, "/api/v1/secrets", &Value::Null);
    assert_eq!(reason(&refused), (403, "Forbidden"));
    assert_eq!(
        refused.1["message"],
        "secrets is forbidden: User \"system:serviceaccount:kube-system:replicaset-controller\" cannot list resource \
         \"secrets\" in API group \"\" at the cluster scope"
    );
    // Many roles grant update and not patch.
    let deployments = controller("deployment-controller");
    let path = "/apis/apps/v1/namespaces/default/deployments/d/status";
    assert_eq!(world.send_as(&deployments, Method::PUT, path, &json!({"metadata": {"name": "d"}})).0, 404);
    assert_eq!(world.send_as(&deployments, Method::PATCH, path, &json!({})).0, 403);
}

#[test]
fn the_manager_and_everybody_have_their_roles() {
    let mut world = world();
    let manager = User::new("system:kube-controller-manager", &[]);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = json!({"metadata": {"name": "kube-controller-manager"}});
    assert_eq!(world.send_as(&manager, Method::POST, leases, &lease).0, 201);
    assert_eq!(world.send_as(&manager, Method::GET, "/api/v1/pods", &Value::Null).0, 200);
    let somebody = User::new("somebody", &[]);
    assert_eq!(world.send_as(&somebody, Method::GET, "/apis", &Value::Null).0, 200);
    assert_eq!(world.send_as(&somebody, Method::GET, "/api/v1/pods", &Value::Null).0, 403);
    // The anonymous user may read health and version, and nothing else.
    assert_eq!(world.get("/healthz").0, 200);
    assert_eq!(world.get("/apis").0, 403);
}

#[test]
fn roles_bind_in_their_namespace_and_aggregate() {
    let mut world = world();
    let admin = User::admin();
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "somebody"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(world.send_as(&admin, Method::POST, bindings, &binding).0, 201);
    let somebody = User::new("somebody", &[]);
    assert_eq!(world.send_as(&somebody, Method::POST, CONFIG_MAPS, &config_map("a")).0, 201);
    assert_eq!(world.send_as(&somebody, Method::GET, &format!("{CONFIG_MAPS}/a"), &Value::Null).0, 200);
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    assert_eq!(world.send_as(&somebody, Method::GET, elsewhere, &Value::Null).0, 403);
}

#[test]
fn tokens_stand_for_their_owners() {
    let mut world = world();
    let with = |token: &str, target: &str| Request {
        authorization: format!("Bearer {token}"),
        ..Request::new(Method::GET, target, "")
    };
    assert_eq!(world.reply(&with("secret", "/api/v1/secrets")).0, 200);
    assert_eq!(reason(&world.reply(&with("guess", "/api/v1/secrets"))), (401, "Unauthorized"));
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    let admin = User::admin();
    world.send_as(&admin, Method::POST, accounts, &json!({"metadata": {"name": "job-controller"}}));
    let (_, answer) = world.send_as(
        &admin,
        Method::POST,
        &format!("{accounts}/job-controller/token"),
        &json!({"spec": {}}),
    );
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(world.reply(&with(&token, "/apis/batch/v1/jobs")).0, 200);
    assert_eq!(world.reply(&with(&token, "/api/v1/secrets")).0, 403);
    let review = json!({"spec": {"token": token}});
    let (_, reviewed) =
        world.send_as(&admin, Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", &review);
    assert_eq!(reviewed["status"]["user"]["username"], "system:serviceaccount:kube-system:job-controller");
    world.now += jiff::SignedDuration::from_secs(3601);
    assert_eq!(world.reply(&with(&token, "/apis/batch/v1/jobs")).0, 401);
}

#[test]
fn a_token_in_a_secret_is_good_while_its_account_lives() {
    let mut world = world();
    let now = world.now;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "job-controller", "namespace": "kube-system"}});
    let uid = world.kernel.seed(account, now).unwrap()["metadata"]["uid"].clone();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "namespace": "kube-system", "annotations": {
            "kubernetes.io/service-account.name": "job-controller", "kubernetes.io/service-account.uid": uid}},
        "data": {"token": "bGVnYWN5"}});
    world.kernel.seed(secret, now).unwrap();
    let request = Request {
        authorization: "Bearer legacy".to_owned(),
        ..Request::new(Method::GET, "/apis/batch/v1/jobs", "")
    };
    assert_eq!(world.reply(&request).0, 200);
    let accounts = world.kernel.resource("serviceaccounts").unwrap();
    world.kernel.remove_object(accounts, "kube-system", "job-controller");
    assert_eq!(world.reply(&request).0, 401);
}

#[test]
fn reviews_tell_what_may_be_done() {
    let mut world = world();
    let admin = User::admin();
    let review = |user: &str, verb: &str| json!({"spec": {"user": user, "resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let account = "system:serviceaccount:kube-system:replicaset-controller";
    let (code, allowed) = world.send_as(&admin, Method::POST, path, &review(account, "create"));
    assert_eq!((code, &allowed["status"]["allowed"]), (201, &json!(true)));
    assert!(allowed["status"]["reason"].as_str().unwrap().starts_with("RBAC: allowed by ClusterRoleBinding"));
    let (_, refused) = world.send_as(&admin, Method::POST, path, &review("nobody", "create"));
    assert_eq!(refused["status"], json!({"allowed": false}));
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let somebody = User::new("somebody", &[]);
    let (code, own) = world.send_as(&somebody, Method::POST, own, &review("", "create"));
    assert_eq!((code, &own["status"]["allowed"]), (201, &json!(false)));
    let (_, who) = world.send_as(
        &somebody,
        Method::POST,
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &json!({}),
    );
    assert_eq!(who["status"]["userInfo"]["username"], "somebody");
}

#[test]
fn only_the_mighty_take_other_names() {
    let mut world = world();
    let other = User { name: "other".to_owned(), ..User::default() };
    let request = |user: User| Request {
        user: Some(user),
        impersonate: Some(other.clone()),
        ..Request::new(Method::GET, "/apis", "")
    };
    let answer = world.kernel.answer(&request(User::admin()), world.now);
    assert_eq!(answer.user.unwrap().name, "other");
    assert_eq!(reason(&world.reply(&request(User::new("somebody", &[])))), (403, "Forbidden"));
}
