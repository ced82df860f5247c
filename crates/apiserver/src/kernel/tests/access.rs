//! Authentication and authorization: users, tokens, roles and reviews.

use super::*;

fn server() -> TestServer {
    TestServer::with(KernelOptions {
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
fn controllers_are_limited_to_their_roles() {
    let mut server = server();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let replica_sets = controller("replicaset-controller");
    assert_eq!(server.send_as(&replica_sets, Method::POST, pods, &pod).0, 201);
    assert_eq!(server.send_as(&replica_sets, Method::GET, "/api/v1/pods", &Value::Null).0, 200);
    let refused = server.send_as(&replica_sets, Method::GET, "/api/v1/secrets", &Value::Null);
    assert_eq!(reason(&refused), (403, "Forbidden"));
    assert_eq!(
        refused.1["message"],
        "secrets is forbidden: User \"system:serviceaccount:kube-system:replicaset-controller\" cannot list resource \
         \"secrets\" in API group \"\" at the cluster scope"
    );
    // Many roles grant update and not patch.
    let deployments = controller("deployment-controller");
    let path = "/apis/apps/v1/namespaces/default/deployments/d/status";
    assert_eq!(server.send_as(&deployments, Method::PUT, path, &json!({"metadata": {"name": "d"}})).0, 404);
    assert_eq!(server.send_as(&deployments, Method::PATCH, path, &json!({})).0, 403);
}

#[test]
fn controller_manager_and_authenticated_users_have_their_roles() {
    let mut server = server();
    let manager = User::new("system:kube-controller-manager", &[]);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let lease = json!({"metadata": {"name": "kube-controller-manager"}});
    assert_eq!(server.send_as(&manager, Method::POST, leases, &lease).0, 201);
    assert_eq!(server.send_as(&manager, Method::GET, "/api/v1/pods", &Value::Null).0, 200);
    let jane = User::new("jane", &[]);
    assert_eq!(server.send_as(&jane, Method::GET, "/apis", &Value::Null).0, 200);
    assert_eq!(server.send_as(&jane, Method::GET, "/api/v1/pods", &Value::Null).0, 403);
    // The anonymous user may read health and version, and nothing else.
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.get("/apis").0, 403);
}

#[test]
fn role_bindings_are_namespaced_and_roles_aggregate() {
    let mut server = server();
    let admin = User::admin();
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": "jane"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(server.send_as(&admin, Method::POST, bindings, &binding).0, 201);
    let jane = User::new("jane", &[]);
    assert_eq!(server.send_as(&jane, Method::POST, CONFIG_MAPS, &config_map("a")).0, 201);
    assert_eq!(server.send_as(&jane, Method::GET, &format!("{CONFIG_MAPS}/a"), &Value::Null).0, 200);
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    assert_eq!(server.send_as(&jane, Method::GET, elsewhere, &Value::Null).0, 403);
}

#[test]
fn roles_that_aggregate_each_other_are_resolved_once() {
    let mut server = server();
    let admin = User::admin();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let aggregating = |name: &str, label: &str, selected: &str| {
        json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": [],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {selected: "true"}}]}})
    };
    let leaf = json!({"metadata": {"name": "leaf", "labels": {"to-b": "true"}},
        "rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]});
    // a aggregates b, b aggregates a and leaf, and c aggregates itself only.
    let all = [aggregating("a", "to-b", "to-a"), aggregating("b", "to-a", "to-b"), leaf];
    for role in all.iter().chain([&aggregating("c", "to-c", "to-c")]) {
        assert_eq!(server.send_as(&admin, Method::POST, roles, role).0, 201, "{role}");
    }
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    for (role, code) in [("a", 200), ("b", 200), ("c", 403)] {
        let binding = json!({"metadata": {"name": role}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": format!("user-{role}")}]});
        assert_eq!(server.send_as(&admin, Method::POST, bindings, &binding).0, 201);
        let user = User::new(&format!("user-{role}"), &[]);
        assert_eq!(server.send_as(&user, Method::GET, CONFIG_MAPS, &Value::Null).0, code, "{role}");
        assert_eq!(server.send_as(&user, Method::GET, "/api/v1/secrets", &Value::Null).0, 403, "{role}");
    }
}

#[test]
fn tokens_authenticate_their_users() {
    let mut server = server();
    let with = |token: &str, target: &str| Request {
        authorization: format!("Bearer {token}"),
        ..Request::new(Method::GET, target, "")
    };
    assert_eq!(server.reply(&with("secret", "/api/v1/secrets")).0, 200);
    assert_eq!(reason(&server.reply(&with("guess", "/api/v1/secrets"))), (401, "Unauthorized"));
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    let admin = User::admin();
    server.send_as(&admin, Method::POST, accounts, &json!({"metadata": {"name": "job-controller"}}));
    let (_, answer) = server.send_as(
        &admin,
        Method::POST,
        &format!("{accounts}/job-controller/token"),
        &json!({"spec": {}}),
    );
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(server.reply(&with(&token, "/apis/batch/v1/jobs")).0, 200);
    assert_eq!(server.reply(&with(&token, "/api/v1/secrets")).0, 403);
    let review = json!({"spec": {"token": token}});
    let (_, reviewed) =
        server.send_as(&admin, Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", &review);
    assert_eq!(reviewed["status"]["user"]["username"], "system:serviceaccount:kube-system:job-controller");
    server.now += jiff::SignedDuration::from_secs(3601);
    assert_eq!(server.reply(&with(&token, "/apis/batch/v1/jobs")).0, 401);
}

#[test]
fn secret_token_is_valid_while_its_service_account_exists() {
    let mut server = server();
    let now = server.now;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "job-controller", "namespace": "kube-system"}});
    let uid = server.kernel.seed(account, now).unwrap()["metadata"]["uid"].clone();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "namespace": "kube-system", "annotations": {
            "kubernetes.io/service-account.name": "job-controller", "kubernetes.io/service-account.uid": uid}},
        "data": {"token": "bGVnYWN5"}});
    server.kernel.seed(secret, now).unwrap();
    let request = Request {
        authorization: "Bearer legacy".to_owned(),
        ..Request::new(Method::GET, "/apis/batch/v1/jobs", "")
    };
    assert_eq!(server.reply(&request).0, 200);
    let accounts = server.kernel.resource("serviceaccounts").unwrap();
    server.kernel.remove_object(accounts, "kube-system", "job-controller");
    assert_eq!(server.reply(&request).0, 401);
}

#[test]
fn access_reviews_report_permissions() {
    let mut server = server();
    let admin = User::admin();
    let review = |user: &str, verb: &str| json!({"spec": {"user": user, "resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let account = "system:serviceaccount:kube-system:replicaset-controller";
    let (code, allowed) = server.send_as(&admin, Method::POST, path, &review(account, "create"));
    assert_eq!((code, &allowed["status"]["allowed"]), (201, &json!(true)));
    assert!(allowed["status"]["reason"].as_str().unwrap().starts_with("RBAC: allowed by ClusterRoleBinding"));
    let (_, refused) = server.send_as(&admin, Method::POST, path, &review("powerless", "create"));
    assert_eq!(refused["status"], json!({"allowed": false}));
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let jane = User::new("jane", &[]);
    let (code, own) = server.send_as(&jane, Method::POST, own, &review("", "create"));
    assert_eq!((code, &own["status"]["allowed"]), (201, &json!(false)));
    let (_, who) =
        server.send_as(&jane, Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({}));
    assert_eq!(who["status"]["userInfo"]["username"], "jane");
}

#[test]
fn impersonation_needs_permission() {
    let mut server = server();
    let other = User { name: "other".to_owned(), ..User::default() };
    let request = |user: User| Request {
        user: Some(user),
        impersonate: Some(other.clone()),
        ..Request::new(Method::GET, "/apis", "")
    };
    let answer = server.kernel.answer(&request(User::admin()), server.now);
    assert_eq!(answer.user.unwrap().name, "other");
    assert_eq!(reason(&server.reply(&request(User::new("jane", &[])))), (403, "Forbidden"));
}

/// kube-apiserver authorizes before it looks for the resource, the method or the representation.
#[test]
fn requests_that_cannot_be_served_are_forbidden_first() {
    let mut server = server();
    let jane = User::new("jane", &[]);
    let certificates = "/apis/certificates.k8s.io/v1";
    for (method, path, object, verb, resource) in [
        (Method::GET, "/apis/apps/v1/odds".to_owned(), "odds.apps", "list", "odds"),
        (Method::GET, "/apis/apps/v9/deployments".to_owned(), "deployments.apps", "list", "deployments"),
        (
            Method::GET,
            "/apis/odd.example.com/v1/odds/x".to_owned(),
            "odds.odd.example.com \"x\"",
            "get",
            "odds",
        ),
        (
            Method::PATCH,
            format!("{certificates}/clustertrustbundles"),
            "clustertrustbundles.certificates.k8s.io",
            "patch",
            "clustertrustbundles",
        ),
        (
            Method::OPTIONS,
            format!("{certificates}/clustertrustbundles/a/odd"),
            "clustertrustbundles.certificates.k8s.io \"a\"",
            "",
            "clustertrustbundles/odd",
        ),
        (
            Method::GET,
            format!("{certificates}/clustertrustbundles?fieldSelector=metadata.name%3Da"),
            "clustertrustbundles.certificates.k8s.io \"a\"",
            "list",
            "clustertrustbundles",
        ),
    ] {
        let refused = server.send_as(&jane, method, &path, &Value::Null);
        assert_eq!(reason(&refused), (403, "Forbidden"), "{path}");
        let message = refused.1["message"].as_str().unwrap();
        let begins =
            format!("{object} is forbidden: User \"jane\" cannot {verb} resource {resource:?} in API group ");
        assert!(message.starts_with(&begins) && message.ends_with(" at the cluster scope"), "{message}");
    }
    let odd_accept = |user: User| Request {
        user: Some(user),
        accept: "text/odd".to_owned(),
        ..Request::new(Method::GET, "/api/v1/secrets", "")
    };
    assert_eq!(server.reply(&odd_accept(jane)).0, 403);
    assert_eq!(server.reply(&odd_accept(User::admin())).0, 406);
    assert_eq!(server.send_as(&User::admin(), Method::GET, "/apis/apps/v1/odds", &Value::Null).0, 404);
}
