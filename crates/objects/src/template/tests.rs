//! What the original does with templates, in a sample that `cargo xtask templates --write` recorded.

use serde::Deserialize;

use super::*;

const TEXT: &str = r#"{"spec":{ "restartPolicy":"Never","newField":1e2,"hostNetwork":true},"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    template: Value,
    other: Value,
    collision_count: Option<i32>,
    hash: String,
    equal: bool,
}

fn recorded() -> Vec<Recorded> {
    include_str!("sample.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Proves REV-40, REV-41, REV-42, REV-43, REV-44.
#[test]
fn hashes_equal_those_of_the_original() {
    let sample = recorded();
    assert!(sample.len() >= 60);
    for recorded in sample {
        let template = PodTemplate::parse(&recorded.template.to_string()).unwrap();
        let hash = template.pod_template_hash(recorded.collision_count);
        assert_eq!(hash, recorded.hash, "{}", recorded.template);
    }
}

#[test]
fn templates_are_encoded_as_the_original_encodes_them() {
    for recorded in recorded() {
        for served in [object(&recorded.template), object(&recorded.other)] {
            assert_eq!(typed(served.clone()), served);
            let mut newer = served.clone();
            newer.insert("invented".to_owned(), true.into());
            newer["spec"]["invented"] = serde_json::json!({"a": []});
            assert_eq!(typed(newer.clone()), served);
            drop_unknown_fields(&mut newer);
            assert_eq!(newer, served);
        }
    }
}

/// Proves DEP-17.
#[test]
fn templates_are_equal_if_they_are_to_the_original() {
    let sample = recorded();
    assert!(sample.iter().any(|recorded| recorded.equal) && sample.iter().any(|recorded| !recorded.equal));
    for Recorded { template, other, equal, .. } in sample {
        let [mut one, mut two] = [&template, &other].map(object);
        for tree in [&mut one, &mut two] {
            if let Some(Value::Object(labels)) = tree["metadata"].get_mut("labels") {
                labels.remove("pod-template-hash");
            }
        }
        assert_eq!(semantically_equal(&one, &two), equal, "{template}\n{other}");
        assert_eq!(semantically_equal(&two, &one), equal, "{template}\n{other}");
    }
}

/// Proves REV-45, REV-48.
#[test]
fn hashes_of_known_templates() {
    let hashes = |text: &str| {
        let template = PodTemplate::parse(text).unwrap();
        let hashes = [None, Some(0), Some(1)].map(|count| template.pod_template_hash(count));
        (template.go_text().len(), hashes.join(" "))
    };
    let (length, empty) = hashes("{}");
    assert_eq!((length, &empty[..10]), (2026, "54f4c57dcb"));
    let small =
        r#"{"metadata":{"labels":{"app":"foo"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}"#;
    assert_eq!(hashes(small), (2917, "b94d89f8f 56bb4ccc7 6d98f56b7b".to_owned()));
    let defaulted = r#"{"metadata":{"annotations":{"test":"value"},"labels":{"app":"foo"}},"spec":{
        "containers":[{"image":"test","imagePullPolicy":"Always","name":"test","resources":{},
        "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst",
        "restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}"#;
    assert_eq!(hashes(defaulted), (3495, "78f7d58b5d 84bbcbc958 577d8b6b95".to_owned()));
}

/// Proves REV-43.
#[test]
fn quantities_are_printed_as_go_holds_them() {
    let text = |quantity: &str| {
        let template = format!(r#"{{"spec":{{"overhead":{{"cpu":{quantity:?}}}}}}}"#);
        let text = PodTemplate::parse(&template).unwrap().go_text();
        let (_, rest) = text.split_once("map[cpu:").unwrap();
        rest.split_once("] TopologySpreadConstraints").unwrap().0.to_owned()
    };
    let int64 = |value: &str, scale: &str, cached: &str, format: &str| {
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){cached} Format:(resource.Format){format}}}"
        )
    };
    assert_eq!(text("500m"), int64("500", "-3", "500m", "DecimalSI"));
    assert_eq!(text("0"), int64("0", "0", "0", "DecimalSI"));
    assert_eq!(text("1Gi"), int64("1073741824", "0", "1Gi", "BinarySI"));
    assert_eq!(text("8Gi"), int64("8589934592", "0", "", "BinarySI"));
    assert_eq!(text("1e30"), int64("1", "30", "1e30", "DecimalExponent"));
    let long = text("123456789012345678901234567890");
    assert!(
        long.contains("abs:(big.nat)[12312739301247792128 6692605942763486917]} scale:(inf.Scale)9}"),
        "{long}"
    );
}

#[test]
fn every_byte_is_kept_and_equal_templates_share_one_allocation() {
    let one: PodTemplate = serde_json::from_str(TEXT).unwrap();
    let two: PodTemplate = serde_json::from_str(TEXT).unwrap();
    assert!(std::ptr::eq(one.raw(), two.raw()));
    assert_eq!(serde_json::to_string(&one).unwrap(), TEXT);
    assert_eq!(one.labels().value("a").map(InternedStr::as_str), Some("b"));
    assert_eq!(one.annotations().value("c").map(|text| text.as_str()), Some("d"));
    assert_eq!(one.restart_policy(), "Never");
    assert!(one.placement().unwrap().host_network);
    assert_eq!(one.json()["spec"]["restartPolicy"], "Never");
}

#[test]
fn null_templates_are_empty_and_malformed_ones_are_errors() {
    for text in ["null", "{}", r#"{"metadata":null,"spec":null}"#] {
        let template: PodTemplate = serde_json::from_str(text).unwrap();
        assert!(template.labels().is_empty() && template.json().get("x").is_none());
        assert_eq!(template.placement().unwrap(), Placement::default());
    }
    assert!(serde_json::from_str::<PodTemplate>("[1]").is_err());
    assert!(serde_json::from_str::<PodTemplate>(r#"{"metadata":{"labels":7}}"#).is_err());
    assert!(serde_json::from_value::<PodTemplate>(serde_json::json!({"spec": {}})).is_ok());
}
