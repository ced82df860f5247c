//! Runs a target with the input of files, to reproduce a finding: `cargo run -p keleustes-fuzz -- TARGET FILE...`

use std::fs;

use anyhow::{Context as _, bail};
use keleustes_fuzz::{TARGETS, find};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let Some(target) = args.next().as_deref().and_then(find) else {
        let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        bail!("usage: fuzz-replay TARGET FILE..., where TARGET is one of: {}", known.join(", "));
    };
    for file in args {
        let input = fs::read(&file).with_context(|| format!("reading {file}"))?;
        println!("{} with {file}: {:?}", target.name, String::from_utf8_lossy(&input));
        (target.run)(&input);
    }
    Ok(())
}
