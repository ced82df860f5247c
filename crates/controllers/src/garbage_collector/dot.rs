//! The graph as a picture, in the language of graphviz, for people who ask why something is still there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};

use keleustes_objects::Uid;

use super::graph::{Graph, GraphDump, Vertex};

/// The graph, or those parts of it that are connected with these uids if there are any.
pub(crate) fn picture(graph: &Graph, uids: &[Uid]) -> GraphDump {
    if uids.is_empty() {
        return graph.picture(|_| true);
    }
    let around = graph.uids_connected_to(uids);
    graph.picture(|uid| around.contains(uid))
}

/// The text of a picture.
pub(crate) fn draw(picture: &GraphDump) -> String {
    // Writing to a String cannot fail.
    let mut text = String::new();
    let _ = write(&mut text, picture);
    text
}

fn write(text: &mut String, picture: &GraphDump) -> fmt::Result {
    let vertices: BTreeMap<String, &Vertex> =
        picture.vertices.iter().map(|vertex| (vertex.identity.uid.to_string(), vertex)).collect();
    let edges: BTreeSet<(String, String)> =
        picture.edges.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect();
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
    let (line, key) = (&identity.line, &identity.key);
    let (group, version, kind) = (line.group(), line.version(), line.kind());
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

/// A string in quotes, with what would end it or break the line escaped.
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
    use super::super::graph::story::{Story, object};
    use super::*;

    /// Proves GC-107, GC-108, GC-109, GC-110.
    #[test]
    fn nodes_and_edges_are_drawn_in_order_with_their_states() {
        let mut story = Story::default();
        story.saw(&object("apps/v1 Deployment", "shop/web", "u2").deleted(&["foregroundDeletion"]));
        story.saw(&object("apps/v1 ReplicaSet", "shop/web-1", "u1").owned("apps/v1 Deployment", "web", "u2"));
        story.saw(&object("v1 Pod", "shop/odd\"\\\nname", "u0").owned("v1 Pod", "gone", "u3"));
        story.saw(&object("v1 Pod", "shop/alone", "u9"));
        let drawn = draw(&picture(&story.graph, &[]));
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
        assert_eq!(drawn, expected);
        assert_eq!(draw(&picture(&Story::default().graph, &[])), "strict digraph full {\n}\n");
    }

    /// Proves GC-109.
    #[test]
    fn an_owner_that_is_gone_is_drawn_as_missing() {
        let mut story = Story::default();
        let owner = object("v1 ConfigMap", "shop/owner", "u1");
        story.saw(&owner);
        story.saw(&object("v1 Pod", "shop/pod", "u2").owned("v1 ConfigMap", "owner", "u1"));
        story.lost(&owner);
        let drawn = draw(&picture(&story.graph, &[]));
        assert!(
            drawn.contains(
                "  \"u1\" [\n    label=\"uid=u1\\nnamespace=\\nConfigMap.v1/owner\\nmissingFromGraph\\n\"\n"
            ),
            "{drawn}"
        );
        assert!(drawn.contains("    missing=\"true\"\n"), "{drawn}");
        assert!(drawn.contains("  \"u2\" -> \"u1\";\n"), "{drawn}");
    }

    /// Proves GC-111.
    #[test]
    fn uids_restrict_the_picture_to_what_is_connected_with_them() {
        let mut story = Story::default();
        story.saw(&object("v1 ConfigMap", "shop/a", "a"));
        story.saw(&object("v1 Pod", "shop/b", "b").owned("v1 ConfigMap", "a", "a"));
        story.saw(&object("v1 Pod", "shop/c", "c").owned("v1 ConfigMap", "a", "a"));
        story.saw(&object("v1 ConfigMap", "shop/x", "x"));
        story.saw(&object("v1 Pod", "shop/y", "y").owned("v1 ConfigMap", "x", "x"));
        story.saw(&object("v1 Pod", "shop/alone", "alone"));
        let named = |uids: &[&str]| {
            let uids: Vec<Uid> = uids.iter().map(|uid| Uid::from(*uid)).collect();
            let drawn = draw(&picture(&story.graph, &uids));
            drawn
                .lines()
                .filter_map(|line| Some(line.trim().strip_prefix("uid=\"")?.strip_suffix('"')?.to_owned()))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(named(&["b"]), "a b c", "owners, and the other dependents of owners");
        assert_eq!(named(&["c", "y"]), "a b c x y");
        assert_eq!(named(&["nobody"]), "");
        assert_eq!(named(&["alone"]), "", "without owners and dependents there is nothing to draw");
        assert_eq!(draw(&picture(&story.graph, &[Uid::from("nobody")])), "strict digraph full {\n}\n");
    }
}
