//! The version that the program reports, and which other version `--version` may set.

use crate::go_text::quote;

/// How the program was built.
#[derive(Clone, Copy, Debug)]
pub struct Build<'a> {
    /// The Kubernetes release it replaces, such as `v1.37.1`.
    pub git_version: &'a str,
    /// This program's own name, version and commit.
    pub program: &'a str,
    /// The commit it was built from.
    pub git_commit: &'a str,
    /// `clean` or `dirty`.
    pub git_tree_state: &'a str,
    /// When it was built.
    pub build_date: &'a str,
    /// The Rust version, in the field where the original reports its Go version.
    pub language_version: &'a str,
    /// The compiler.
    pub compiler: &'a str,
    /// Operating system and architecture.
    pub platform: &'a str,
}

impl Build<'_> {
    /// What `--version` prints: the original's line, and which program this is.
    pub(crate) fn lines(&self) -> String {
        format!("Kubernetes {}\n{}\n", self.git_version, self.program)
    }

    /// What `--version=raw` prints, in the original's format.
    pub(crate) fn raw(&self) -> String {
        let (major, minor) = self.major_minor();
        let fields = [
            ("Major", major.to_string()),
            ("Minor", minor.to_string()),
            ("EmulationMajor", String::new()),
            ("EmulationMinor", String::new()),
            ("MinCompatibilityMajor", String::new()),
            ("MinCompatibilityMinor", String::new()),
            ("GitVersion", self.git_version.to_owned()),
            ("GitCommit", self.git_commit.to_owned()),
            ("GitTreeState", self.git_tree_state.to_owned()),
            ("BuildDate", self.build_date.to_owned()),
            ("GoVersion", self.language_version.to_owned()),
            ("Compiler", self.compiler.to_owned()),
            ("Platform", self.platform.to_owned()),
        ];
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}:{}", quote(value))).collect();
        format!("version.Info{{{}}}\n", fields.join(", "))
    }

    /// Major and minor version; 0.0 if it cannot be parsed.
    pub(crate) fn major_minor(&self) -> (u64, u64) {
        let numbers =
            parse_version(self.git_version, false).map(|version| version.numbers).unwrap_or_default();
        (numbers.first().copied().unwrap_or(0), numbers.get(1).copied().unwrap_or(0))
    }
}

/// A parsed Kubernetes version.
#[derive(Debug)]
pub(crate) struct ParsedVersion {
    /// At least two numbers.
    pub(crate) numbers: Vec<u64>,
}

/// Parses a version: dot-separated numbers with an optional `v` prefix and any suffix; with `semantic` exactly three
/// numbers and a valid pre-release or build suffix.
pub(crate) fn parse_version(text: &str, semantic: bool) -> Result<ParsedVersion, String> {
    let unparsable = || format!("could not parse {} as version", quote(text));
    let trimmed = text.trim_start();
    let trimmed = trimmed.strip_prefix('v').unwrap_or(trimmed);
    let mut components: Vec<&str> = Vec::new();
    let mut rest = trimmed;
    loop {
        let (digits, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        if digits.is_empty() {
            break;
        }
        components.push(digits);
        rest = after;
        match after.strip_prefix('.') {
            Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => rest = next,
            _ => break,
        }
    }
    if components.is_empty() || rest.contains('\n') {
        return Err(unparsable());
    }
    if (semantic && components.len() != 3) || components.len() < 2 {
        return Err(format!("illegal version string {}", quote(text)));
    }
    let mut numbers = Vec::new();
    for (place, component) in components.iter().enumerate() {
        if (place == 0 || semantic) && component.starts_with('0') && *component != "0" {
            return Err(format!(
                "illegal zero-prefixed version component {} in {}",
                quote(component),
                quote(text)
            ));
        }
        let refuse = |_| {
            let reason = format!("strconv.ParseUint: parsing {}: value out of range", quote(component));
            format!("illegal non-numeric version component {} in {}: {reason}", quote(component), quote(text))
        };
        numbers.push(component.parse::<u64>().map_err(refuse)?);
    }
    if semantic && !rest.is_empty() && !well_formed_extra(rest.trim_end()) {
        return Err(format!("could not parse pre-release/metadata ({rest}) in version {}", quote(text)));
    }
    Ok(ParsedVersion { numbers })
}

/// Whether the text is a pre-release, build metadata, or both.
fn well_formed_extra(text: &str) -> bool {
    let identifiers = |part: &str| {
        part.split('.')
            .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
    };
    let (pre_release, metadata) = text.split_once('+').map_or((text, None), |(pre, meta)| (pre, Some(meta)));
    let pre_release_fits = pre_release.is_empty() || pre_release.strip_prefix('-').is_some_and(identifiers);
    pre_release_fits && metadata.is_none_or(identifiers)
}

/// Checks that the program may report this version: only the suffix may differ from its own.
pub(crate) fn may_report(text: &str, own: &str) -> Result<(), String> {
    if text == own {
        return Ok(());
    }
    let wanted = parse_version(text, true)?;
    let actual = parse_version(own, true)?;
    if wanted.numbers != actual.numbers {
        let (text, own) = (quote(text), quote(own));
        return Err(format!("version {text} must match major/minor/patch of default version {own}"));
    }
    Ok(())
}
