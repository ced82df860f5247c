//! The environment of admission policies.

use super::*;

/// Proves VAPS-36, VAPS-37.
#[test]
fn variables_keep_plain_types_and_see_earlier_ones() {
    let mut policy = PolicyEnvironment::new(None);
    policy.add_policy_variable("count", "1");
    policy.add_policy_variable("names", "['a'].map(x, x + string(variables.count))");
    policy.add_policy_variable("user", "request.userInfo");
    policy.add_policy_variable("broken", "1 + 'a'");
    for valid in
        ["variables.count > 0", "'a' in variables.names", "variables.user.nope", "variables.broken.a"]
    {
        assert_eq!(policy.errors_of(valid), None, "{valid}");
    }
    let first = |text: &str| policy.errors_of(text).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(first("variables.nope"), "ERROR: <input>:1:10: undefined field 'nope'");
    let overload =
        "ERROR: <input>:1:3: found no matching overload for '@in' applied to '(int, list(string))'";
    assert_eq!(first("1 in variables.names"), overload);
}

#[test]
fn params_exist_only_with_a_kind() {
    let policy = PolicyEnvironment::new(None);
    let undeclared =
        "ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.a\n | ^";
    assert_eq!(policy.errors_of("params.a").as_deref(), Some(undeclared));
    assert_eq!(policy.with_params(None).errors_of("params.a"), None);
}

/// Proves VAPS-30, VAPS-32, VAPS-33, VAPS-34.
#[test]
fn requests_and_namespaces_have_hand_made_types() {
    let policy = PolicyEnvironment::new(None);
    for valid in [
        "request.userInfo.extra['a'][0] == ''",
        "request.options.anything",
        "namespaceObject.metadata.UID == ''",
        "namespaceObject.status.conditions.all(c, c.lastTransitionTime > timestamp(0))",
        "authorizer.group('').resource('pods').check('get').allowed()",
        "type(1) == int && type(duration('1s')) == duration",
    ] {
        assert_eq!(policy.errors_of(valid), None, "{valid}");
    }
    let first = |text: &str| policy.errors_of(text).unwrap().lines().next().unwrap().to_owned();
    assert_eq!(first("namespaceObject.metadata.uid"), "ERROR: <input>:1:25: undefined field 'uid'");
    assert_eq!(
        first("authorizer.requestResource"),
        "ERROR: <input>:1:11: unexpected failed resolution of 'kubernetes.authorization.Authorizer'"
    );
}

/// Proves VAPS-52, VAPS-85, VAPS-111.
#[test]
fn missing_fields_are_errors_however_they_are_asked_for() {
    let schema = r#"{"components": {"schemas": {"a": {"type": "object", "properties": {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}, "a-b": {"type": "string"}},
        "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Thing"}]}}}}"#;
    let document = OpenApiDocument::from_json(schema.as_bytes()).unwrap();
    let object = document.object_type("g", "v1", "Thing", "Thing7").unwrap();
    let policy = PolicyEnvironment::new(object.as_ref());
    let first = |text: &str| policy.errors_of(text).map(|text| text.lines().next().unwrap().to_owned());
    for (text, column) in
        [("object.nope", 7), ("has(object.nope)", 4), ("object.?nope", 7), ("oldObject.nope", 10)]
    {
        let expected = format!("ERROR: <input>:1:{column}: undefined field 'nope'");
        assert_eq!(first(text), Some(expected), "{text}");
    }
    for valid in
        ["dyn(object).nope", "object == null", "object.labels.`a-b`", "object.a__dash__b", "object.kind"]
    {
        assert_eq!(first(valid), None, "{valid}");
    }
    assert_eq!(first("object.`a-b`").as_deref(), Some("ERROR: <input>:1:7: undefined field 'a-b'"));
    let named = "found no matching overload for '_==_' applied to '(Thing7.metadata, kubernetes.UserInfo)'";
    let expected = format!("ERROR: <input>:1:17: {named}");
    assert_eq!(first("object.metadata == request.userInfo"), Some(expected));
}
