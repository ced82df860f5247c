//! Which claim an entry of `spec.resourceClaims` means, and how a generated claim is named.
//!
//! Parity: resourceclaim.Name and NameFromPodGroup of k8s.io/dynamic-resource-allocation.

use keleustes_objects::{ClaimEntry, ClaimSource, ClaimStatus};

/// The claim of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Whether it must have been generated for the pod or PodGroup; a user's claim need not.
    pub(crate) must_be_owned: bool,
}

/// Why an entry means no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// The claim has not been generated yet.
    NotCreated,
    /// The entry has a source that this program does not know.
    Unsupported,
}

impl Unresolved {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NotCreated => "ResourceClaim not created yet",
            Self::Unsupported => "none of the supported fields are set",
        }
    }
}

/// The claim of an entry; `None` if the entry needs none.
pub(crate) fn claim_name<'a>(
    entry: &'a ClaimEntry,
    statuses: &'a [ClaimStatus],
) -> Result<Option<Named<'a>>, Unresolved> {
    match &entry.source {
        ClaimSource::Claim(name) => Ok(Some(Named { name, must_be_owned: false })),
        ClaimSource::Template(_) => {
            let status = statuses.iter().find(|status| status.name == entry.name);
            let name = &status.ok_or(Unresolved::NotCreated)?.resource_claim_name;
            Ok(name.as_ref().map(|name| Named { name, must_be_owned: true }))
        }
        ClaimSource::Unknown => Err(Unresolved::Unsupported),
    }
}

/// The longest `generateName`: five random characters and a hyphen make it 63.
const GENERATE_NAME_LEN_MAX: usize = 57;

/// `generateName` of a claim: owner and entry, both shortened in proportion if they are too long together.
pub(super) fn generate_name(owner: &str, entry: &str) -> String {
    let name = format!("{owner}-{entry}-");
    if name.len() <= GENERATE_NAME_LEN_MAX {
        return name;
    }
    let cut = |part: &str| {
        let mut end = part.len() * GENERATE_NAME_LEN_MAX / name.len();
        // Names are ASCII; this keeps an invalid one from being a panic.
        while !part.is_char_boundary(end) {
            end -= 1;
        }
        part[..end].to_owned()
    };
    format!("{}-{}", cut(owner), cut(entry))
}

#[cfg(test)]
mod tests {
    use keleustes_objects::InternedStr;

    use super::*;

    fn entry(source: ClaimSource) -> ClaimEntry {
        ClaimEntry { name: "gpu".into(), source }
    }

    /// Proves RCL-30.
    #[test]
    fn claims_are_named_directly_or_by_the_status() {
        let status = |name: &str, claim: Option<&str>| ClaimStatus {
            name: name.into(),
            resource_claim_name: claim.map(Into::into),
        };
        let direct = entry(ClaimSource::Claim("mine".into()));
        let named = |name, must_be_owned| Ok(Some(Named { name, must_be_owned }));
        // A status entry of the same name does not matter.
        assert_eq!(claim_name(&direct, &[status("gpu", Some("other"))]), named("mine", false));
        let generated = entry(ClaimSource::Template("t".into()));
        let statuses = [status("nic", Some("no")), status("gpu", Some("web-gpu-1"))];
        assert_eq!(claim_name(&generated, &statuses), named("web-gpu-1", true));
        assert_eq!(claim_name(&generated, &statuses[..1]), Err(Unresolved::NotCreated));
        assert_eq!(claim_name(&generated, &[status("gpu", None)]), Ok(None));
        assert_eq!(claim_name(&entry(ClaimSource::Unknown), &statuses), Err(Unresolved::Unsupported));
        assert_eq!(Unresolved::NotCreated.as_str(), "ResourceClaim not created yet");
        assert_eq!(Unresolved::Unsupported.as_str(), "none of the supported fields are set");
    }

    /// Proves RCL-50, RCL-115.
    #[test]
    fn long_names_are_shortened_in_proportion() {
        assert_eq!(generate_name("web", "gpu"), "web-gpu-");
        let pod = "p".repeat(51);
        assert_eq!(generate_name(&pod, "gpus").len(), 57);
        assert_eq!(generate_name(&pod, "gpus"), format!("{pod}-gpus-"));
        // One byte more: 52 and 4 of 58, without a hyphen at the end.
        assert_eq!(generate_name(&"p".repeat(52), "gpus"), format!("{}-{}", "p".repeat(51), "gpu"));
        assert_eq!(
            generate_name(&"p".repeat(253), &"c".repeat(63)),
            format!("{}-{}", "p".repeat(253 * 57 / 318), "c".repeat(63 * 57 / 318))
        );
        // A cut may end in a dot; the API server judges that.
        let dotted = format!("{}.{}", "p".repeat(50), "q".repeat(10));
        assert_eq!(generate_name(&dotted, "c"), format!("{}.{}-", "p".repeat(50), "q".repeat(3)));
        let _: InternedStr = InternedStr::from(&*generate_name(&"\u{fc}".repeat(60), "c"));
    }
}
