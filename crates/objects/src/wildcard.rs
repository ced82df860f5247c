//! Patterns with wildcards.

/// Whether a text matches a pattern in which `*` matches any text, also none.
#[must_use]
pub fn matches_wildcard(pattern: &str, text: &str) -> bool {
    matches(pattern, text, None)
}

/// Whether a text matches a pattern in which `*` matches any text, also none, and `?` any single character.
#[must_use]
pub fn matches_glob(pattern: &str, text: &str) -> bool {
    matches(pattern, text, Some('?'))
}

/// Matches from left to right. After a mismatch, the last `*` takes one character more: an earlier one never has to,
/// so the time is bounded by the product of the two lengths.
fn matches(pattern: &str, text: &str, any_character: Option<char>) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    let mut last_star = None;
    loop {
        let (mut rest_of_pattern, mut rest_of_text) = (pattern.clone(), text.clone());
        match (rest_of_pattern.next(), rest_of_text.next()) {
            (Some('*'), _) => {
                last_star = Some((rest_of_pattern.clone(), text.clone()));
                pattern = rest_of_pattern;
            }
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == found || Some(wanted) == any_character => {
                (pattern, text) = (rest_of_pattern, rest_of_text);
            }
            _ => {
                let Some((after_star, taken_until)) = &mut last_star else { return false };
                if taken_until.next().is_none() {
                    return false;
                }
                (pattern, text) = (after_star.clone(), taken_until.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_text() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "any"),
            ("**", "any"),
            ("a*", "a"),
            ("a*c", "abcbc"),
            ("*ab*ab", "abab"),
            ("*.a.*", "x.a.b"),
            ("* 422 *", "create pods 422 details.causes"),
            ("ü*ß", "übergroß"),
            ("a?", "a?"),
        ] {
            assert!(matches_wildcard(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "x"),
            ("a*c", "ab"),
            ("a", "ab"),
            ("*a", "ab"),
            ("*ab*ab", "ab"),
            ("a{*}", "b{c}"),
            ("a?", "ab"),
        ] {
            assert!(!matches_wildcard(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn question_mark_matches_one_character_of_a_glob() {
        for (pattern, text) in
            [("loops", "loops"), ("lo?ps", "loops"), ("l*s", "loops"), ("?*", "ü"), ("*?", "ü")]
        {
            assert!(matches_glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("loop", "loops"), ("?", ""), ("?", "ab"), ("l*x", "loops"), ("??*", "ü")] {
            assert!(!matches_glob(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let (pattern, text) = ("*a".repeat(60) + "b", "a".repeat(2000));
        assert!(!matches_wildcard(&pattern, &text));
    }
}
