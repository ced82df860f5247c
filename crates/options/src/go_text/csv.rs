//! List flags: one CSV record, parsed as Go's `encoding/csv` does.

/// Parses the first record.
pub(crate) fn read_record(text: &str) -> Result<Vec<String>, String> {
    let normal = text.replace("\r\n", "\n");
    let normal = normal.strip_suffix('\r').unwrap_or(&normal);
    let skipped = normal.len() - normal.trim_start_matches('\n').len();
    let mut reader = Reader { rest: &normal[skipped..], start: skipped + 1, line: skipped + 1, column: 1 };
    if reader.rest.is_empty() {
        return Err("EOF".to_owned());
    }
    reader.record()
}

/// Formats a record, with quotes where parsing requires them.
pub(crate) fn write_record<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|field| {
            let quoted = field == "\\."
                || field.contains([',', '"', '\r', '\n'])
                || field.starts_with(char::is_whitespace);
            if quoted { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
        })
        .collect();
    fields.join(",")
}

struct Reader<'a> {
    rest: &'a str,
    /// The line the record starts on.
    start: usize,
    line: usize,
    /// In bytes, from one.
    column: usize,
}

impl Reader<'_> {
    fn record(&mut self) -> Result<Vec<String>, String> {
        let mut fields = Vec::new();
        loop {
            let (field, more) = if self.rest.starts_with('"') { self.quoted()? } else { self.unquoted()? };
            fields.push(field);
            if !more {
                return Ok(fields);
            }
        }
    }

    /// An unquoted field, and whether another one follows.
    fn unquoted(&mut self) -> Result<(String, bool), String> {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let field = &self.rest[..end];
        if let Some(quote) = field.find('"') {
            return Err(self.parse_error(self.column + quote, "bare \" in non-quoted-field"));
        }
        let field = field.to_owned();
        let more = self.rest[end..].starts_with(',');
        self.advance(end + usize::from(more));
        Ok((field, more))
    }

    /// A quoted field, and whether another one follows.
    fn quoted(&mut self) -> Result<(String, bool), String> {
        let broken = "extraneous or missing \" in quoted-field";
        self.advance(1);
        let mut field = String::new();
        loop {
            let Some(quote) = self.rest.find('"') else {
                self.advance(self.rest.len());
                return Err(self.parse_error(self.column, broken));
            };
            field.push_str(&self.rest[..quote]);
            self.advance(quote + 1);
            match self.rest.bytes().next() {
                Some(b'"') => {
                    field.push('"');
                    self.advance(1);
                }
                Some(b',') => {
                    self.advance(1);
                    return Ok((field, true));
                }
                None | Some(b'\n') => return Ok((field, false)),
                Some(_) => return Err(self.parse_error(self.column - 1, broken)),
            }
        }
    }

    fn advance(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        if let Some(last) = passed.rfind('\n') {
            self.line += passed.matches('\n').count();
            self.column = passed.len() - last;
        } else {
            self.column += bytes;
        }
        self.rest = rest;
    }

    fn parse_error(&self, column: usize, what: &str) -> String {
        let at = format!("parse error on line {}, column {column}: {what}", self.line);
        if self.line == self.start { at } else { format!("record on line {}; {at}", self.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed_with_quotes_and_formatted() {
        for (text, fields) in [
            ("a", &["a"][..]),
            ("a,b", &["a", "b"]),
            ("a,", &["a", ""]),
            (",", &["", ""]),
            ("\"a,b\",c", &["a,b", "c"]),
            ("\"a\"\"b\"", &["a\"b"]),
            ("a\nb", &["a"]),
            ("\"a\nb\"", &["a\nb"]),
            ("\na", &["a"]),
            (" a", &[" a"]),
        ] {
            assert_eq!(read_record(text).unwrap(), fields, "{text:?}");
        }
        for (text, message) in [
            ("\"a", "parse error on line 1, column 3: extraneous or missing \" in quoted-field"),
            ("\"a\"b", "parse error on line 1, column 3: extraneous or missing \" in quoted-field"),
            ("a\"b", "parse error on line 1, column 2: bare \" in non-quoted-field"),
            ("x,a\"b", "parse error on line 1, column 4: bare \" in non-quoted-field"),
            ("\n", "EOF"),
        ] {
            assert_eq!(read_record(text), Err(message.to_owned()), "{text:?}");
        }
        assert_eq!(write_record(["a", "b,c", "d\"e", "", " f"]), "a,\"b,c\",\"d\"\"e\",,\" f\"");
    }
}
