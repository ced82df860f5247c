//! The graph in graphviz's DOT format, for debugging why an object still exists. Parity:
//! pkg/controller/garbagecollector/dump.go.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};

use keleustes_objects::Uid;

use super::graph::{Graph, GraphDump, Vertex};

/// The whole graph, or the parts that are connected to `uids` if any are given.
pub(crate) fn select(graph: &Graph, uids: &[Uid]) -> GraphDump {
    if uids.is_empty() {
        return graph.dump(|_| true);
    }
    let connected = graph.uids_connected_to(uids);
    graph.dump(|uid| connected.contains(uid))
}

/// The dump as DOT text.
pub(crate) fn to_dot(dump: &GraphDump) -> String {
    // Writing to a String cannot fail.
    let mut text = String::new();
    let _ = write(&mut text, dump);
    text
}

fn write(text: &mut String, dump: &GraphDump) -> fmt::Result {
    let vertices: BTreeMap<String, &Vertex> =
        dump.vertices.iter().map(|vertex| (vertex.identity.uid.to_string(), vertex)).collect();
    let edges: BTreeSet<(String, String)> =
        dump.edges.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect();
    text.push_str("strict digraph full {\n");
    if !vertices.is_empty() {
        text.push_str("  // Node definitions.\n");
    }
    for (uid, vertex) in vertices {
        writeln!(text, "  {} [", quoted(&uid))?;
        for (key, value) in attributes(&uid, vertex) {
            writeln!(text, "    {key}={}", quoted(&value))?;
        }
        text.push_str("  ];\n");
    }
    if !edges.is_empty() {
        text.push_str("  // Edge definitions.\n");
    }
    for (from, to) in edges {
        writeln!(text, "  {} -> {};", quoted(&from), quoted(&to))?;
    }
    text.push_str("}\n");
    Ok(())
}

fn attributes(uid: &str, vertex: &Vertex) -> [(&'static str, String); 11] {
    let Vertex { identity, is_missing, being_deleted, deleting_dependents, is_virtual } = vertex;
    let (type_meta, key) = (&identity.type_meta, &identity.key);
    let (group, version, kind) = (type_meta.group(), type_meta.version(), type_meta.kind());
    let dot = if group.is_empty() { "" } else { "." };
    let states = [
        ("beingDeleted", being_deleted),
        ("deletingDependents", deleting_dependents),
        ("virtual", is_virtual),
        ("missingFromGraph", is_missing),
    ];
    let states: Vec<&str> = states.into_iter().filter(|(_, is)| **is).map(|(state, _)| state).collect();
    let mut label =
        format!("uid={uid}\nnamespace={}\n{kind}.{version}{dot}{group}/{}\n", key.namespace, key.name);
    if !states.is_empty() {
        label.push_str(&states.join(","));
        label.push('\n');
    }
    [
        ("label", label),
        ("group", group.to_owned()),
        ("version", version.to_owned()),
        ("kind", kind.to_string()),
        ("namespace", key.namespace.to_string()),
        ("name", key.name.to_string()),
        ("uid", uid.to_owned()),
        ("missing", is_missing.to_string()),
        ("beingDeleted", being_deleted.to_string()),
        ("deletingDependents", deleting_dependents.to_string()),
        ("virtual", is_virtual.to_string()),
    ]
}

/// A quoted string; quotes, backslashes and newlines are escaped.
fn quoted(text: &str) -> impl Display {
    let mut escaped = String::with_capacity(text.len() + 2);
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            '\n' => escaped.push_str("\\n"),
            _ => escaped.push(character),
        }
    }
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::super::graph::test_graph::{TestGraph, object};
    use super::*;

    /// Proves GC-107, GC-108, GC-109, GC-110.
    #[test]
    fn dot_lists_nodes_and_edges_in_order_with_their_states() {
        let mut test = TestGraph::default();
        test.update(&object("apps/v1 Deployment", "shop/web", "u2").terminating(&["foregroundDeletion"]));
        let replica_set = object("apps/v1 ReplicaSet", "shop/web-1", "u1");
        test.update(&replica_set.owned("apps/v1 Deployment", "web", "u2"));
        test.update(&object("v1 Pod", "shop/odd\"\\\nname", "u0").owned("v1 Pod", "gone", "u3"));
        test.update(&object("v1 Pod", "shop/alone", "u9"));
        let dot = to_dot(&select(&test.graph, &[]));
        let expected = r#"strict digraph full {
  // Node definitions.
  "u0" [
    label="uid=u0\nnamespace=shop\nPod.v1/odd\"\\\nname\n"
    group=""
    version="v1"
    kind="Pod"
    namespace="shop"
    name="odd\"\\\nname"
    uid="u0"
    missing="false"
    beingDeleted="false"
    deletingDependents="false"
    virtual="false"
  ];
  "u1" [
    label="uid=u1\nnamespace=shop\nReplicaSet.v1.apps/web-1\n"
    group="apps"
    version="v1"
    kind="ReplicaSet"
    namespace="shop"
    name="web-1"
    uid="u1"
    missing="false"
    beingDeleted="false"
    deletingDependents="false"
    virtual="false"
  ];
  "u2" [
    label="uid=u2\nnamespace=shop\nDeployment.v1.apps/web\nbeingDeleted,deletingDependents\n"
    group="apps"
    version="v1"
    kind="Deployment"
    namespace="shop"
    name="web"
    uid="u2"
    missing="false"
    beingDeleted="true"
    deletingDependents="true"
    virtual="false"
  ];
  "u3" [
    label="uid=u3\nnamespace=shop\nPod.v1/gone\nvirtual\n"
    group=""
    version="v1"
    kind="Pod"
    namespace="shop"
    name="gone"
    uid="u3"
    missing="false"
    beingDeleted="false"
    deletingDependents="false"
    virtual="true"
  ];
  // Edge definitions.
  "u0" -> "u3";
  "u1" -> "u2";
}
"#;
        assert_eq!(dot, expected);
        assert_eq!(to_dot(&select(&TestGraph::default().graph, &[])), "strict digraph full {\n}\n");
    }

    /// Proves GC-109.
    #[test]
    fn deleted_owner_appears_as_missing_in_dot() {
        let mut test = TestGraph::default();
        let owner = object("v1 ConfigMap", "shop/owner", "u1");
        test.update(&owner);
        test.update(&object("v1 Pod", "shop/pod", "u2").owned("v1 ConfigMap", "owner", "u1"));
        test.delete(&owner);
        let dot = to_dot(&select(&test.graph, &[]));
        assert!(
            dot.contains(
                "  \"u1\" [\n    label=\"uid=u1\\nnamespace=\\nConfigMap.v1/owner\\nmissingFromGraph\\n\"\n"
            ),
            "{dot}"
        );
        assert!(dot.contains("    missing=\"true\"\n"), "{dot}");
        assert!(dot.contains("  \"u2\" -> \"u1\";\n"), "{dot}");
    }

    /// Proves GC-111.
    #[test]
    fn uids_restrict_dot_to_the_nodes_connected_to_them() {
        let mut test = TestGraph::default();
        test.update(&object("v1 ConfigMap", "shop/a", "a"));
        test.update(&object("v1 Pod", "shop/b", "b").owned("v1 ConfigMap", "a", "a"));
        test.update(&object("v1 Pod", "shop/c", "c").owned("v1 ConfigMap", "a", "a"));
        test.update(&object("v1 ConfigMap", "shop/x", "x"));
        test.update(&object("v1 Pod", "shop/y", "y").owned("v1 ConfigMap", "x", "x"));
        test.update(&object("v1 Pod", "shop/alone", "alone"));
        let named = |uids: &[&str]| {
            let uids: Vec<Uid> = uids.iter().map(|uid| Uid::from(*uid)).collect();
            let dot = to_dot(&select(&test.graph, &uids));
            dot.lines()
                .filter_map(|line| Some(line.trim().strip_prefix("uid=\"")?.strip_suffix('"')?.to_owned()))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(named(&["b"]), "a b c", "its owners, and the other dependents of its owners");
        assert_eq!(named(&["c", "y"]), "a b c x y");
        assert_eq!(named(&["unknown"]), "");
        assert_eq!(named(&["alone"]), "", "a node without owners and dependents is omitted");
        assert_eq!(to_dot(&select(&test.graph, &[Uid::from("unknown")])), "strict digraph full {\n}\n");
    }
}
