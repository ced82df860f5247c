//! Memory and time per object in the garbage collector's graph.

use std::time::Instant;

use keleustes_controllers::garbage_collector::{Graph, GraphEffects};
use keleustes_objects::{ObjectMeta, PartialObjectMeta, TypeMeta};
use serde_json::json;

use crate::meters::Meter;

/// The ownership structure of the objects.
#[derive(Clone, Copy)]
struct Shape {
    what: &'static str,
    /// How many dependents each owner has.
    dependents: usize,
    /// Whether a shared cache holds the objects as well, and so shares their names.
    cached: bool,
}

const SHAPES: [Shape; 4] = [
    Shape { what: "nine dependents to an owner", dependents: 9, cached: false },
    Shape { what: "one dependent to an owner", dependents: 1, cached: false },
    Shape { what: "no owners at all", dependents: 0, cached: false },
    Shape { what: "nine dependents to an owner, all in shared caches", dependents: 9, cached: true },
];

/// Fills one graph after the other and prints the cost per object.
pub(crate) fn measure(objects: usize) -> anyhow::Result<()> {
    println!("| what | bytes an object | µs an object |");
    println!("| --- | ---: | ---: |");
    // All graphs are kept until the end, so that none reuses freed memory.
    let mut kept = vec![fill(0, Shape { what: "warm-up, ignore", ..SHAPES[0] }, 1000)?];
    for (shape, n) in SHAPES.into_iter().zip(1..) {
        kept.push(fill(n, shape, objects)?);
    }
    Ok(())
}

fn fill(run: usize, shape: Shape, objects: usize) -> anyhow::Result<(Graph, Vec<ObjectMeta>)> {
    let line = TypeMeta::new("apps/v1", "ReplicaSet");
    let read = |n: usize| -> anyhow::Result<ObjectMeta> {
        Ok(serde_json::from_str::<PartialObjectMeta>(&text(run, shape, n))?.meta)
    };
    let (mut graph, mut cache, mut nanoseconds) = (Graph::new(7), Vec::new(), 0);
    if shape.cached {
        cache = (0..objects).map(read).collect::<anyhow::Result<_>>()?;
    }
    let before = Meter::own().anonymous()?;
    for n in 0..objects {
        let own;
        let meta = match cache.get(n) {
            Some(meta) => meta,
            None => {
                own = read(n)?;
                &own
            }
        };
        let began = Instant::now();
        graph.apply_update(&line, meta, &mut GraphEffects::default());
        nanoseconds += began.elapsed().as_nanos();
    }
    let bytes = Meter::own().anonymous()?.saturating_sub(before) / objects as u64;
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    let microseconds = nanoseconds as f64 / 1000.0 / objects as f64;
    println!("| {} | {bytes} | {microseconds:.1} |", shape.what);
    anyhow::ensure!(graph.len() >= objects, "objects were lost");
    Ok((graph, cache))
}

/// The metadata of an object with a name as long as a pod's; the first of each group owns the others.
fn text(run: usize, shape: Shape, n: usize) -> String {
    let group = n / (shape.dependents + 1) * (shape.dependents + 1);
    let name = |n: usize| format!("settings-of-the-application-{n:06}-x7k2p");
    let uid = |n: usize| format!("{run:08x}-7a52-4d6c-9a6b-{n:012x}");
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name(group), "uid": uid(group),
        "controller": true, "blockOwnerDeletion": true});
    let owners = if n == group { json!([]) } else { json!([owner]) };
    json!({"metadata": {"namespace": format!("team-{}", n / 1000), "name": name(n), "uid": uid(n),
        "resourceVersion": "1", "ownerReferences": owners}})
    .to_string()
}
