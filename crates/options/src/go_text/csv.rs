//! List flags are one record of comma-separated values, with quotes as Go's `encoding/csv` reads them.

/// Reads the first record of the text.
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

/// Writes a record, quoting what could not be read back otherwise.
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
    /// Counted in bytes from one.
    column: usize,
}

impl Reader<'_> {
    fn record(&mut self) -> Result<Vec<String>, String> {
        let mut fields = Vec::new();
        loop {
            let (field, more) = if self.rest.starts_with('"') { self.quoted()? } else { self.bare()? };
            fields.push(field);
            if !more {
                return Ok(fields);
            }
        }
    }

    /// A field without quotes, and whether another one follows.
    fn bare(&mut self) -> Result<(String, bool), String> {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let field = &self.rest[..end];
        if let Some(quote) = field.find('"') {
            return Err(self.complaint(self.column + quote, "bare \" in non-quoted-field"));
        }
        let field = field.to_owned();
        let more = self.rest[end..].starts_with(',');
        self.advance(end + usize::from(more));
        Ok((field, more))
    }

    /// A field in quotes, and whether another one follows.
    fn quoted(&mut self) -> Result<(String, bool), String> {
        let broken = "extraneous or missing \" in quoted-field";
        self.advance(1);
        let mut field = String::new();
        loop {
            let Some(quote) = self.rest.find('"') else {
                self.advance(self.rest.len());
                return Err(self.complaint(self.column, broken));
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
                Some(_) => return Err(self.complaint(self.column - 1, broken)),
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

    fn complaint(&self, column: usize, what: &str) -> String {
        let at = format!("parse error on line {}, column {column}: {what}", self.line);
        if self.line == self.start { at } else { format!("record on line {}; {at}", self.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_with_quotes_and_written_back() {
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
        for (text, complaint) in [
            ("\"a", "parse error on line 1, column 3: extraneous or missing \" in quoted-field"),
            ("\"a\"b", "parse error on line 1, column 3: extraneous or missing \" in quoted-field"),
            ("a\"b", "parse error on line 1, column 2: bare \" in non-quoted-field"),
            ("x,a\"b", "parse error on line 1, column 4: bare \" in non-quoted-field"),
            ("\n", "EOF"),
        ] {
            assert_eq!(read_record(text), Err(complaint.to_owned()), "{text:?}");
        }
        assert_eq!(write_record(["a", "b,c", "d\"e", "", " f"]), "a,\"b,c\",\"d\"\"e\",,\" f\"");
    }
}
