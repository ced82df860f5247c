//! Expressions from the tests of the original.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Folders of the module cache whose tests have expressions.
const FOLDERS: &[&str] = &[
    "github.com/google/cel-go@v0.29.2/checker",
    "github.com/google/cel-go@v0.29.2/parser",
    "github.com/google/cel-go@v0.29.2/cel",
    "github.com/google/cel-go@v0.29.2/ext",
    "k8s.io/apiserver@v0.37.1/pkg/cel",
    "k8s.io/apiserver@v0.37.1/pkg/cel/library",
    "k8s.io/apiserver@v0.37.1/pkg/cel/openapi",
    "k8s.io/apiserver@v0.37.1/pkg/cel/environment",
    "k8s.io/apiserver@v0.37.1/pkg/admission/plugin/cel",
    "k8s.io/apiserver@v0.37.1/pkg/admission/plugin/policy/validating",
    "k8s.io/apiextensions-apiserver@v0.37.1/pkg/apiserver/schema/cel",
];

const LENGTH_MAX: usize = 400;

/// How many expressions the tests have at least. Fewer mean that they are not found any more.
const EXPRESSIONS_MIN: usize = 2_000;

/// The string literals of the tests that look like expressions, sorted.
pub(super) fn expressions() -> Result<Vec<String>> {
    let output = Command::new("go").args(["env", "GOMODCACHE"]).output().context("running go")?;
    expressions_in(&PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

fn expressions_in(cache: &Path) -> Result<Vec<String>> {
    let mut found = BTreeSet::new();
    for folder in FOLDERS {
        // Another version of a module is another folder.
        let entries = fs::read_dir(cache.join(folder))
            .with_context(|| format!("the module cache has no {folder}; is this the version in go.mod?"))?;
        for entry in entries {
            let path = entry?.path();
            if path.to_string_lossy().ends_with("_test.go") {
                add_literals(&path, &mut found)?;
            }
        }
    }
    let expressions: Vec<_> = found.into_iter().filter(|text| looks_like_expression(text)).collect();
    let count = expressions.len();
    ensure!(count >= EXPRESSIONS_MIN, "only {count} expressions in the tests of the original");
    Ok(expressions)
}

fn looks_like_expression(text: &str) -> bool {
    let has_operator = ["(", "[", ".", "==", "&&", "{", "+", "<"].iter().any(|part| text.contains(part));
    let is_message = ["ERROR", "%v", "%q", " | ", "expected", "github.com", "k8s.io/"].iter();
    text.len() > 3
        && text.len() <= LENGTH_MAX
        && has_operator
        && !is_message.into_iter().any(|one| text.contains(one))
}

/// The string literals of a Go file.
fn add_literals(path: &Path, found: &mut BTreeSet<String>) -> Result<()> {
    let text = fs::read_to_string(path)?;
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['"', '`', '\'', '/']) {
        let (start, body) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = match start {
            b'/' if body.starts_with('/') => body.split_once('\n').map_or("", |(_, rest)| rest),
            b'/' => body,
            b'`' => {
                let Some((literal, after)) = body.split_once('`') else { break };
                found.insert(literal.trim().to_owned());
                after
            }
            quote => {
                let Some(end) = end_of(body, char::from(quote)) else { break };
                if quote == b'"'
                    && let Ok(literal) = serde_json::from_str::<String>(&format!("\"{}\"", &body[..end]))
                {
                    found.insert(literal);
                }
                &body[end + 1..]
            }
        };
    }
    Ok(())
}

/// Where a quoted literal ends.
fn end_of(body: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, one) in body.char_indices() {
        match one {
            '\n' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            one if one == quote => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_modules_and_missing_expressions_are_errors() {
        let cache = std::env::temp_dir().join(format!("keleustes-collect-{}", std::process::id()));
        fs::create_dir_all(&cache).unwrap();
        let error = expressions_in(&cache).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the module cache has no {}", FOLDERS[0])), "{error}");
        for folder in FOLDERS {
            fs::create_dir_all(cache.join(folder)).unwrap();
        }
        fs::write(cache.join(FOLDERS[0]).join("one_test.go"), "x := `a + b`").unwrap();
        let error = expressions_in(&cache).unwrap_err().to_string();
        assert_eq!(error, "only 1 expressions in the tests of the original");
        fs::remove_dir_all(&cache).unwrap();
    }
}
