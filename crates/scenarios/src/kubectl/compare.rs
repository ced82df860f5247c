//! The lines in which two answers to one command differ.

/// The lines only one of them has, in order: `- ` in front of the first one's, `+ ` in front of the second one's.
pub(super) fn difference(first: &[String], second: &[String]) -> Vec<String> {
    // How many lines the rests behind two places have in common.
    let width = second.len() + 1;
    let mut common = vec![0_u32; (first.len() + 1) * width];
    for i in (0..first.len()).rev() {
        for j in (0..second.len()).rev() {
            common[i * width + j] = if first[i] == second[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < first.len() || j < second.len() {
        if i < first.len() && j < second.len() && first[i] == second[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == second.len()
            || i < first.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]
        {
            lines.push(format!("- {}", first[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", second[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_lines_that_differ_are_named() {
        assert_eq!(difference(&lines("a b c"), &lines("a b c")), [""; 0]);
        assert_eq!(difference(&lines("a b c d"), &lines("a x c d e")), ["- b", "+ x", "+ e"]);
        assert_eq!(difference(&lines(""), &lines("a")), ["+ a"]);
        assert_eq!(difference(&lines("a b"), &lines("b a")).len(), 2);
    }
}
