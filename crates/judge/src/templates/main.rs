//! `cargo xtask templates`: compares what becomes of pod templates here and in the original.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use keleustes_control_plane::build::BinaryCache;
use keleustes_judge::templates::{fields, run, start, table_is_current};

/// Hashes and compares generated pod templates here and in the original.
#[derive(Parser)]
#[command(name = "cargo xtask templates", bin_name = "cargo xtask templates")]
struct Args {
    /// How many templates to compare
    #[arg(long, default_value_t = 4000)]
    templates: usize,
    /// The seed of the templates
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the table of fields and the sample that `cargo test` uses
    #[arg(long)]
    write: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let program = BinaryCache::from_env().provide_templates()?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../objects/src/template");
    let fields = fields(&program)?;
    if args.write {
        write(&folder.join("fields.txt"), &fields)?;
    } else if !table_is_current(&fields) {
        println!("templates: the table of fields is outdated; run: cargo xtask templates --write");
        return Ok(ExitCode::FAILURE);
    }
    let report = run(&mut start(&program)?, args.seed, args.templates)?;
    if args.write {
        write(&folder.join("sample.jsonl"), &(report.sample.join("\n") + "\n"))?;
    }
    println!(
        "templates: {} templates have the original's hash and revision data; {} of as many pairs are equal to both programs",
        report.templates, report.equal_pairs,
    );
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
