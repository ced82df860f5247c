//! Whether a text is a regular expression for Go, whose syntax is RE2's.

/// The names of Unicode classes.
const UNICODE_CLASSES: &str = include_str!("unicode_classes.txt");
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];
/// How often the parts of an expression may be repeated, all repetitions multiplied.
const REPETITIONS_MAX: u32 = 1000;
/// How deep groups may be nested.
const NESTING_MAX: usize = 1000;

/// Whether Go compiles the expression.
pub(crate) fn is_valid(pattern: &str) -> bool {
    let chars: Vec<char> = pattern.chars().collect();
    let mut reader =
        Reader { rest: &chars, groups: vec![Group::default()], names: Vec::new(), after_repeat: false };
    reader.read().is_some() && reader.groups.len() == 1
}

/// What is open: a group, or the expression itself.
#[derive(Default)]
struct Group {
    /// How often the last part is repeated; `None` if there is none that could be repeated.
    last: Option<u32>,
    /// The most repetitions of all parts.
    most: u32,
}

struct Reader<'a> {
    rest: &'a [char],
    groups: Vec<Group>,
    names: Vec<String>,
    after_repeat: bool,
}

impl<'a> Reader<'a> {
    /// Reads everything; `None` if it is no expression.
    fn read(&mut self) -> Option<()> {
        while let Some(first) = self.rest.first() {
            let mut repeats = false;
            match first {
                '(' => self.open()?,
                ')' => {
                    self.skip(1);
                    let closed = self.groups.pop()?;
                    self.part(closed.most);
                    // The outermost one is no group.
                    (!self.groups.is_empty()).then_some(())?;
                }
                '|' => {
                    self.skip(1);
                    self.group().last = None;
                }
                '[' => {
                    self.class()?;
                    self.part(0);
                }
                '\\' => {
                    self.escape_or_class()?;
                }
                '*' | '+' | '?' => {
                    self.skip(1);
                    repeats = true;
                    self.repeat(0)?;
                }
                '{' => match counted(self.rest) {
                    None => {
                        self.skip(1);
                        self.part(0);
                    }
                    Some((least, most, length)) => {
                        let fits = least <= REPETITIONS_MAX
                            && most.is_none_or(|most| most <= REPETITIONS_MAX && least <= most);
                        fits.then_some(())?;
                        self.skip(length);
                        repeats = true;
                        self.repeat(most.unwrap_or(least))?;
                    }
                },
                _ => {
                    self.skip(1);
                    self.part(0);
                }
            }
            self.after_repeat = repeats;
        }
        Some(())
    }

    fn skip(&mut self, count: usize) {
        self.rest = &self.rest[count.min(self.rest.len())..];
    }

    /// There is always the outermost one, except while a superfluous parenthesis is refused.
    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn part(&mut self, repetitions: u32) {
        if self.groups.is_empty() {
            return;
        }
        let group = self.group();
        group.last = Some(repetitions);
        group.most = group.most.max(repetitions);
    }

    fn repeat(&mut self, times: u32) -> Option<()> {
        if self.rest.first() == Some(&'?') {
            self.skip(1);
        }
        if self.after_repeat {
            return None;
        }
        let group = self.group();
        let inner = group.last?;
        let repetitions = if times == 0 { inner } else { times * inner.max(1) };
        if times >= 2 && repetitions > REPETITIONS_MAX {
            return None;
        }
        group.last = Some(repetitions);
        group.most = group.most.max(repetitions);
        Some(())
    }

    fn open(&mut self) -> Option<()> {
        self.skip(1);
        if self.rest.first() == Some(&'?') && !self.flags_or_name()? {
            return Some(());
        }
        self.groups.push(Group::default());
        (self.groups.len() <= NESTING_MAX).then_some(())
    }

    /// What follows `(?`; whether a group begins.
    fn flags_or_name(&mut self) -> Option<bool> {
        self.skip(1);
        let named = if self.rest.starts_with(&['P', '<']) {
            Some(2)
        } else {
            self.rest.starts_with(&['<']).then_some(1)
        };
        if let Some(prefix) = named {
            let end = self.rest.iter().position(|one| *one == '>')?;
            let name: String = self.rest[prefix..end].iter().collect();
            let is_word = |one: char| one.is_ascii_alphanumeric() || one == '_';
            if name.is_empty() || !name.chars().all(is_word) || self.names.contains(&name) {
                return None;
            }
            self.names.push(name);
            self.skip(end + 1);
            return Some(true);
        }
        let (mut negated, mut seen) = (false, false);
        loop {
            let one = *self.rest.first()?;
            self.skip(1);
            match one {
                'i' | 'm' | 's' | 'U' => seen = true,
                '-' if !negated => (negated, seen) = (true, false),
                ':' | ')' if !negated || seen => return Some(one == ':'),
                _ => return None,
            }
        }
    }

    /// A backslash outside of a class.
    fn escape_or_class(&mut self) -> Option<()> {
        match self.rest.get(1) {
            Some('A' | 'b' | 'B' | 'z') => self.skip(2),
            Some('Q') => {
                let body = &self.rest[2..];
                let end = body.windows(2).position(|two| two == ['\\', 'E']);
                let quoted = end.unwrap_or(body.len());
                self.skip(2 + quoted + if end.is_some() { 2 } else { 0 });
                if quoted > 0 {
                    self.part(0);
                }
                return Some(());
            }
            Some('p' | 'P') => self.unicode_class()?,
            Some('d' | 'D' | 's' | 'S' | 'w' | 'W') => self.skip(2),
            _ => {
                self.escape()?;
            }
        }
        self.part(0);
        Some(())
    }

    /// `\pL` or `\p{Greek}`.
    fn unicode_class(&mut self) -> Option<()> {
        let name: String = match self.rest.get(2)? {
            '{' => {
                let end = self.rest.iter().position(|one| *one == '}')?;
                let name = self.rest[3..end].iter().collect();
                self.skip(end + 1);
                name
            }
            one => {
                let name = one.to_string();
                self.skip(3);
                name
            }
        };
        let name = name.strip_prefix('^').unwrap_or(&name);
        let plain: String = name.chars().filter(|one| !matches!(one, '_' | '-' | ' ')).collect();
        let mut letters = plain.chars();
        let first = letters.next()?.to_ascii_uppercase();
        let known = format!("{first}{}", letters.as_str().to_ascii_lowercase());
        let mut lines = UNICODE_CLASSES.lines().filter(|line| !line.starts_with('#'));
        lines.any(|line| line.split(' ').any(|one| one == known)).then_some(())
    }

    /// An escaped character.
    fn escape(&mut self) -> Option<char> {
        let letter = *self.rest.get(1)?;
        let is_octal = |one: Option<&char>| one.is_some_and(|one| matches!(one, '0'..='7'));
        match letter {
            '1'..='7' if !is_octal(self.rest.get(2)) => None,
            '0'..='7' => {
                let digits = 1 + self.rest[2..].iter().take(2).take_while(|one| is_octal(Some(one))).count();
                let code = self.rest[1..=digits].iter().filter_map(|one| one.to_digit(8));
                let code = code.fold(0, |code, digit| code * 8 + digit);
                self.skip(1 + digits);
                char::from_u32(code)
            }
            'x' => self.hexadecimal(),
            'a' | 'f' | 'n' | 'r' | 't' | 'v' => {
                self.skip(2);
                Some(match letter {
                    'a' => '\u{7}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    _ => '\u{b}',
                })
            }
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => {
                self.skip(2);
                Some(other)
            }
            _ => None,
        }
    }

    fn hexadecimal(&mut self) -> Option<char> {
        let (digits, length): (&[char], usize) = match self.rest.get(2)? {
            '{' => {
                let end = self.rest.iter().position(|one| *one == '}')?;
                (&self.rest[3..end], end + 1)
            }
            _ => (self.rest.get(2..4)?, 4),
        };
        if digits.is_empty() {
            return None;
        }
        let mut code: u32 = 0;
        for digit in digits {
            code = code * 16 + digit.to_digit(16)?;
            if code > u32::from(char::MAX) {
                return None;
            }
        }
        self.skip(length);
        // Surrogates are characters for Go.
        Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn class(&mut self) -> Option<()> {
        self.skip(1);
        if self.rest.first() == Some(&'^') {
            self.skip(1);
        }
        let mut is_first = true;
        loop {
            match self.rest.first()? {
                ']' if !is_first => {
                    self.skip(1);
                    return Some(());
                }
                _ => is_first = false,
            }
            if self.rest.len() > 2 && self.rest.starts_with(&['[', ':']) {
                let body = &self.rest[2..];
                if let Some(end) = body.windows(2).position(|two| two == [':', ']']) {
                    let name: String = body[..end].iter().collect();
                    let name = name.strip_prefix('^').unwrap_or(&name);
                    POSIX_CLASSES.contains(&name).then_some(())?;
                    self.skip(end + 4);
                    continue;
                }
            }
            match (self.rest.first(), self.rest.get(1)) {
                (Some('\\'), Some('p' | 'P')) => self.unicode_class()?,
                (Some('\\'), Some('d' | 'D' | 's' | 'S' | 'w' | 'W')) => self.skip(2),
                _ => self.range()?,
            }
        }
    }

    fn range(&mut self) -> Option<()> {
        let low = self.class_character()?;
        if self.rest.len() >= 2 && self.rest[0] == '-' && self.rest[1] != ']' {
            self.skip(1);
            let high = self.class_character()?;
            (low <= high).then_some(())?;
        }
        Some(())
    }

    fn class_character(&mut self) -> Option<char> {
        let first = *self.rest.first()?;
        if first == '\\' {
            return self.escape();
        }
        self.skip(1);
        Some(first)
    }
}

/// `{least,most}` and its length; `None` if the brace stands for itself.
fn counted(rest: &[char]) -> Option<(u32, Option<u32>, usize)> {
    let end = rest.iter().position(|one| *one == '}')?;
    let text: String = rest[1..end].iter().collect();
    let number = |text: &str| {
        let plain = !text.is_empty() && text.chars().all(|one| one.is_ascii_digit());
        let leading_zero = text.len() >= 2 && text.starts_with('0');
        (plain && !leading_zero).then(|| text.parse().unwrap_or(u32::MAX))
    };
    let (least, most) = match text.split_once(',') {
        None => {
            let times = number(&text)?;
            (times, Some(times))
        }
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((least, most, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_compiles_is_valid() {
        let valid = [
            "",
            "a",
            "a|b",
            "|",
            "()",
            "^*",
            "a*?",
            "a{2,3}?",
            "a{,2}",
            "a{",
            "a{01}",
            "x{1000}",
            "[]a]",
            "[^]]",
            "[a-z-]",
            "[[:alpha:][:^digit:]]",
            r"[\d\-z]",
            r"\pL\p{Greek}\p{^lu}",
            r"(?i)a(?-s:b)(?P<n>c)(?<m>d)",
            r"\Qa*\E+",
            r"\x{10FFFF}\x41\101\_\.",
            "a(?i)*",
            "[[:x]",
            r"\z\A\b\B",
            "(a{10}){100}",
        ];
        for pattern in valid {
            assert!(is_valid(pattern), "{pattern}");
        }
    }

    #[test]
    fn what_go_refuses_is_not() {
        let invalid = [
            "*",
            "+a",
            "a**",
            "a*+",
            "a{2}{3}",
            "(?i)*",
            "(*)",
            "a|*",
            "(",
            ")",
            "(a",
            "a)",
            "[",
            "[a",
            "[z-a]",
            "[[:nope:]]",
            r"\",
            r"\q",
            r"\8",
            r"\1",
            r"\pX",
            r"\p{Nope}",
            r"\p",
            r"\x",
            r"\x{}",
            r"\x{110000}",
            "(?x)a",
            "(?P<>a)",
            "(?P<a-b>c)",
            "(?P<n>a)(?P<n>b)",
            "(?=a)",
            "(?-)",
            "a{1001}",
            "a{3,2}",
            r"\C",
            "(a{10}){101}",
            r"[\b]",
            "((a{100}){10}){2}",
        ];
        for pattern in invalid {
            assert!(!is_valid(pattern), "{pattern}");
        }
    }
}
