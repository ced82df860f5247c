//! What an object costs in the garbage collector's graph, and how long it takes to be put there.

use std::time::Instant;

use keleustes_controllers::garbage_collector::{Graph, GraphEffects};
use keleustes_objects::{ObjectMeta, PartialObjectMeta, TypeMeta};
use serde_json::json;

use crate::meters::Meter;

/// How objects own each other.
#[derive(Clone, Copy)]
struct Shape {
    what: &'static str,
    /// How many dependents each owner has.
    dependents: usize,
    /// Whether a shared cache holds the objects as well, and so their names.
    cached: bool,
}

const SHAPES: [Shape; 4] = [
    Shape { what: "nine dependents to an owner", dependents: 9, cached: false },
    Shape { what: "one dependent to an owner", dependents: 1, cached: false },
    Shape { what: "no owners at all", dependents: 0, cached: false },
    Shape { what: "nine dependents to an owner, all in shared caches", dependents: 9, cached: true },
];

/// Fills one graph after the other and prints what each object in it costs.
pub(crate) fn measure(objects: usize) -> anyhow::Result<()> {
    println!("| what | bytes an object | µs an object |");
    println!("| --- | ---: | ---: |");
    // All graphs stay until the end, so that none is built from memory that another gave back.
    let mut kept = vec![fill(0, Shape { what: "warming up, of no meaning", ..SHAPES[0] }, 1000)?];
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

/// An object with a name as long as those of pods; every so many own the next ones.
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
