//! The lines in which the outputs of one command differ.

/// The lines that only one output has, in order: `- ` for the first, `+ ` for the second.
pub(super) fn difference(first: &[String], second: &[String]) -> Vec<String> {
    // The length of the longest common subsequence of the two tails at each pair of positions.
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
    fn only_differing_lines_are_returned() {
        assert_eq!(difference(&lines("a b c"), &lines("a b c")), [""; 0]);
        assert_eq!(difference(&lines("a b c d"), &lines("a x c d e")), ["- b", "+ x", "+ e"]);
        assert_eq!(difference(&lines(""), &lines("a")), ["+ a"]);
        assert_eq!(difference(&lines("a b"), &lines("b a")).len(), 2);
    }
}
