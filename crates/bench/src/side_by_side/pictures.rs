//! The pictures of the documentation, drawn from the kept measurements.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::plot::pairs;
use super::report::{Measure, Measurement, Report};
use crate::soak::report as soak;

/// Where the measurements are kept, and the prefix of the pictures drawn from them.
const DATA: [(&str, &str); 2] =
    [("docs/data/side-by-side.json", "side-by-side-"), ("docs/data/growth.json", "")];

const PICTURES: &str = "docs/pictures";

/// The picture at the top of README.md: what people ask first. Load, phase, quantity and its words.
const HEADLINE: [(&str, &str, Measure, &str); 6] = [
    ("pods", "create", Measure::Resident, "memory with 20,000 pods"),
    ("idle", "half a minute", Measure::Resident, "memory of an idle manager"),
    ("pods", "create", Measure::ManagerCpu, "CPU time to create 20,000 pods"),
    ("pods", "start cold", Measure::FirstWrite, "first useful write after a cold start"),
    ("pods", "SIGTERM", Measure::FirstWrite, "failover with 20,000 pods after SIGTERM"),
    ("idle", "half a minute", Measure::Program, "size of the program"),
];

/// Redraws all pictures of the documentation.
pub(crate) fn draw(root: &Path) -> anyhow::Result<()> {
    for (name, picture) in drawn(root)? {
        let path = root.join(PICTURES).join(name);
        fs::write(&path, picture).with_context(|| format!("writing {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// All pictures, by file name.
fn drawn(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut pictures = Vec::new();
    for (file, prefix) in DATA {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
        let measurements: Vec<Measurement> =
            serde_json::from_str(&text).with_context(|| format!("reading {file}"))?;
        let report = Report::of(measurements);
        let named = report.pictures().into_iter().map(|(name, picture)| (format!("{prefix}{name}"), picture));
        pictures.extend(named);
        let headline: Vec<_> = HEADLINE
            .iter()
            .filter_map(|(load, phase, measure, name)| report.pair(load, phase, *measure, name))
            .collect();
        if !headline.is_empty() {
            let note = "The same load on the same two cores, equal request limits. Shorter is better.";
            pictures.push(("headline.svg".to_owned(), pairs("Keleustes and the original", note, &headline)));
        }
    }
    // Present once a soak of an hour has been kept.
    if let Ok(text) = fs::read_to_string(root.join("docs/data").join(soak::DATA)) {
        let report: soak::Report = serde_json::from_str(&text).context("reading the soak")?;
        pictures.push((soak::PICTURE.to_owned(), report.picture()));
    }
    Ok(pictures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_the_documentation_are_up_to_date() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let drawn = drawn(&root).unwrap();
        assert!(drawn.iter().any(|(name, _)| name == "headline.svg"));
        for (name, picture) in drawn {
            let kept = fs::read_to_string(root.join(PICTURES).join(&name)).unwrap_or_default();
            assert!(kept == picture, "{name} is outdated: run `cargo run -p keleustes-bench -- pictures`");
        }
    }

    #[test]
    fn every_row_of_the_headline_has_data() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let drawn = drawn(&root).unwrap();
        let (_, headline) = drawn.iter().find(|(name, _)| name == "headline.svg").unwrap();
        for (_, _, _, name) in HEADLINE {
            assert!(headline.contains(name), "{name}");
        }
    }
}
