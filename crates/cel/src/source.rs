//! The text of an expression, addressed by code points as cel-go does.

/// The text of an expression and where its lines begin.
#[derive(Clone, Debug)]
pub struct Source {
    chars: Vec<char>,
    /// The offset behind each line feed, and one behind the last character.
    line_ends: Vec<usize>,
}

/// A place in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Counted from 1; 0 if the error belongs to no place.
    pub line: usize,
    /// Code points before it in its line.
    pub column: usize,
}

impl Source {
    /// Splits a text into lines.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let feeds = chars.iter().enumerate().filter(|(_, one)| **one == '\n').map(|(offset, _)| offset + 1);
        let line_ends = feeds.chain([chars.len() + 1]).collect();
        Self { chars, line_ends }
    }

    /// The code points.
    #[must_use]
    pub fn chars(&self) -> &[char] {
        &self.chars
    }

    /// The place of an offset. The last line has all offsets behind the end.
    #[must_use]
    pub fn location(&self, offset: usize) -> Location {
        let before = self.line_ends.iter().take_while(|end| **end <= offset).count();
        let before = before.min(self.line_ends.len());
        let start = if before == 0 { 0 } else { self.line_ends[before - 1] };
        Location { line: before + 1, column: offset - start }
    }

    /// A line without its line feed.
    #[must_use]
    pub fn line(&self, line: usize) -> Option<String> {
        if line == 0 || self.chars.is_empty() {
            return None;
        }
        let end = *self.line_ends.get(line - 1)?;
        let start = if line == 1 { 0 } else { self.line_ends[line - 2] };
        Some(self.chars.get(start..end - 1)?.iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_belong_to_lines() {
        let source = Source::new("a ==\n  é\n");
        assert_eq!(source.location(3), Location { line: 1, column: 3 });
        assert_eq!(source.location(7), Location { line: 2, column: 2 });
        assert_eq!(source.line(1).as_deref(), Some("a =="));
        assert_eq!(source.line(2).as_deref(), Some("  é"));
        assert_eq!(source.line(3).as_deref(), Some(""));
        assert_eq!(source.line(4), None);
        assert_eq!(source.line(0), None);
        assert_eq!(Source::new("").line(1), None);
    }
}
