//! Cuts answers into objects while they arrive, so that no more than one object's text is ever held.

use bytes::Bytes;

/// No API server stores objects anywhere near this size; more is a broken or hostile peer.
const PIECE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What surrounds the items of a list is a few hundred bytes.
const ENVELOPE_BYTES_MAX: usize = 1024 * 1024;

/// An answer that is not what it should be; the words do not quote it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("an object of the answer is longer than 32 MiB")]
    TooLong,
    #[error("the answer is no list of objects")]
    NotAList,
}

/// One event of a watch, as it was cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A line of JSON.
    Line(&'a [u8]),
    /// A message.
    Frame(&'a [u8]),
}

/// The events of a watch, in the form that the server has chosen.
#[derive(Debug)]
pub(super) enum Pieces {
    Lines(Lines),
    Frames(Frames),
}

impl Pieces {
    /// How an answer of this media type is cut.
    pub(super) fn of(media_type: &[u8]) -> Self {
        if media_type.starts_with(b"application/vnd.kubernetes.protobuf") {
            Self::Frames(Frames::default())
        } else {
            Self::Lines(Lines::default())
        }
    }

    /// Takes in what was received; everything complete that was received before must have been taken out.
    pub(super) fn push(&mut self, received: Bytes) {
        match self {
            Self::Lines(lines) => lines.push(received),
            Self::Frames(frames) => frames.push(received),
        }
    }

    /// The next one that is complete.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Malformed> {
        match self {
            Self::Lines(lines) => lines.next(),
            Self::Frames(frames) => frames.next(),
        }
    }

    /// What one of them is.
    pub(super) fn piece<'a>(&self, bytes: &'a [u8]) -> Piece<'a> {
        match self {
            Self::Lines(_) => Piece::Line(bytes),
            Self::Frames(_) => Piece::Frame(bytes),
        }
    }
}

/// The frames of a watch: each is its length in four bytes, and then a message.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Received and not yet looked at.
    unread: Bytes,
    /// The start of a frame, with its length, whose end has not been received.
    pending: Vec<u8>,
}

const LENGTH_BYTES: usize = 4;

impl Frames {
    fn push(&mut self, received: Bytes) {
        debug_assert!(self.unread.is_empty());
        self.unread = received;
    }

    fn next(&mut self) -> Result<Option<Bytes>, Malformed> {
        if self.pending.is_empty() {
            return match frame_length(&self.unread)? {
                Some(length) if self.unread.len() >= LENGTH_BYTES + length => {
                    let mut frame = self.unread.split_to(LENGTH_BYTES + length);
                    Ok(Some(frame.split_off(LENGTH_BYTES)))
                }
                _ => self.keep(),
            };
        }
        let missing = LENGTH_BYTES.saturating_sub(self.pending.len()).min(self.unread.len());
        self.pending.extend_from_slice(&self.unread.split_to(missing));
        let Some(length) = frame_length(&self.pending)? else { return Ok(None) };
        let missing = (LENGTH_BYTES + length - self.pending.len()).min(self.unread.len());
        self.pending.extend_from_slice(&self.unread.split_to(missing));
        if self.pending.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        Ok(Some(Bytes::from(std::mem::take(&mut self.pending)).split_off(LENGTH_BYTES)))
    }

    /// Puts the rest aside until more has come.
    fn keep(&mut self) -> Result<Option<Bytes>, Malformed> {
        self.pending.extend_from_slice(&std::mem::take(&mut self.unread));
        Ok(None)
    }
}

/// How long the frame is that begins here, if so much is known.
fn frame_length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > PIECE_BYTES_MAX { Err(Malformed::TooLong) } else { Ok(Some(length)) }
}

/// The lines of a watch.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Received and not yet looked at.
    unread: Bytes,
    /// The start of a line whose end has not been received.
    pending: Vec<u8>,
}

impl Lines {
    /// Takes in what was received; all lines received before must have been taken out.
    pub(super) fn push(&mut self, received: Bytes) {
        debug_assert!(self.unread.is_empty());
        self.unread = received;
    }

    /// The next complete line, without its end.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Malformed> {
        let end = self.unread.iter().position(|&byte| byte == b'\n');
        if self.pending.len() + end.unwrap_or(self.unread.len()) > PIECE_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        let Some(end) = end else {
            self.pending.extend_from_slice(&self.unread);
            self.unread = Bytes::new();
            return Ok(None);
        };
        let mut line = self.unread.split_to(end + 1);
        line.truncate(end);
        if self.pending.is_empty() {
            return Ok(Some(line));
        }
        let mut whole = std::mem::take(&mut self.pending);
        whole.extend_from_slice(&line);
        Ok(Some(Bytes::from(whole)))
    }
}

/// The items of a list, and apart from them the list without its items.
#[derive(Debug, Default)]
pub(super) struct Items {
    envelope: Vec<u8>,
    /// The start of an item whose end has not been received.
    pending: Vec<u8>,
    /// How many braces and brackets are open.
    depth: u32,
    in_string: bool,
    /// The last byte was a backslash in a string.
    escaped: bool,
    in_items: bool,
}

impl Items {
    /// Looks through what was received and hands over each item that is complete with it.
    pub(super) fn push(&mut self, received: &[u8], mut item: impl FnMut(&[u8])) -> Result<(), Malformed> {
        // Where the item that is being read starts in what was received; earlier parts are pending.
        let mut start = 0;
        for (at, &byte) in received.iter().enumerate() {
            let inside_item = self.in_items && self.depth > 2;
            let ends_item = self.step(byte)?;
            match (inside_item, ends_item) {
                (false, _) if self.in_items && self.depth > 2 => start = at,
                (true, true) if self.pending.is_empty() => item(&received[start..=at]),
                (true, true) => {
                    self.pending.extend_from_slice(&received[start..=at]);
                    item(&std::mem::take(&mut self.pending));
                }
                _ => {}
            }
        }
        if self.in_items && self.depth > 2 {
            self.pending.extend_from_slice(&received[start..]);
        }
        if self.pending.len() > PIECE_BYTES_MAX || self.envelope.len() > ENVELOPE_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        Ok(())
    }

    /// The list without its items, once everything was received.
    pub(super) fn finish(self) -> Result<Vec<u8>, Malformed> {
        if self.depth == 0 && !self.in_string && !self.envelope.is_empty() {
            Ok(self.envelope)
        } else {
            Err(Malformed::NotAList)
        }
    }

    /// Moves on by one byte; returns whether it ends an item.
    fn step(&mut self, byte: u8) -> Result<bool, Malformed> {
        let mut ends_item = false;
        let was_in_items = self.in_items;
        if self.in_string {
            let ends_string = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            self.in_string = !ends_string;
        } else {
            match byte {
                b'"' if self.in_items && self.depth == 2 => return Err(Malformed::NotAList),
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.in_items |= byte == b'[' && self.depth == 1 && self.at_items_key();
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(Malformed::NotAList)?;
                    ends_item = self.in_items && self.depth == 2;
                    self.in_items &= self.depth > 1;
                }
                _ => {}
            }
        }
        // Both brackets around the items belong to the envelope, nothing between them does.
        if !(was_in_items && self.in_items) {
            self.envelope.push(byte);
        }
        Ok(ends_item)
    }

    fn at_items_key(&self) -> bool {
        let text = self.envelope.trim_ascii_end();
        text.strip_suffix(b":").is_some_and(|key| key.trim_ascii_end().ends_with(b"\"items\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"kind":"SecretList","metadata":{"resourceVersion":"7","note":"\"items\":[{"},
        "items": [{"metadata":{"name":"a"},"data":{"x":"}]\\\""}}, {"l":[[1],{}]}
        ,{}],"extra":[{"no":"item"}]}"#;

    fn cut(size: usize) -> (Vec<String>, String) {
        let mut items = Items::default();
        let mut found = Vec::new();
        for chunk in LIST.as_bytes().chunks(size) {
            items
                .push(chunk, |item| {
                    found.push(String::from_utf8(item.to_vec()).unwrap());
                })
                .unwrap();
        }
        (found, String::from_utf8(items.finish().unwrap()).unwrap())
    }

    #[test]
    fn items_are_cut_out_wherever_the_network_cuts() {
        for size in 1..=LIST.len() {
            let (items, envelope) = cut(size);
            let wanted = [r#"{"metadata":{"name":"a"},"data":{"x":"}]\\\""}}"#, r#"{"l":[[1],{}]}"#, "{}"];
            assert_eq!(items, wanted, "chunks of {size}");
            let envelope: serde_json::Value = serde_json::from_str(&envelope).unwrap();
            assert_eq!(envelope["items"], serde_json::json!([]));
            assert_eq!(envelope["extra"], serde_json::json!([{"no": "item"}]));
            assert_eq!(envelope["metadata"]["resourceVersion"], "7");
        }
    }

    #[test]
    fn half_a_list_is_no_list() {
        for text in ["", "{\"items\":[{}", "{\"items\":[{}]", "[}", "]"] {
            let mut items = Items::default();
            let outcome = items.push(text.as_bytes(), |_| {}).and_then(|()| items.finish());
            // Brackets are not matched by kind; what is left over then fails to decode as JSON.
            let readable =
                outcome.is_ok_and(|envelope| serde_json::from_slice::<serde_json::Value>(&envelope).is_ok());
            assert!(!readable, "{text:?}");
        }
    }

    #[test]
    fn lines_are_put_together_across_chunks() {
        let text = "one\ntwo\n\nthree\nunfinished";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                lines.push(Bytes::copy_from_slice(chunk));
                while let Some(line) = lines.next().unwrap() {
                    found.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["one", "two", "", "three"], "chunks of {size}");
        }
    }

    #[test]
    fn frames_are_put_together_across_chunks() {
        let mut stream = Vec::new();
        for frame in ["one", "", "three", &"x".repeat(300)] {
            stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            stream.extend_from_slice(frame.as_bytes());
        }
        stream.extend_from_slice(&[0, 0, 0, 9, b'h']);
        for size in 1..=stream.len() {
            let mut frames = Pieces::of(b"application/vnd.kubernetes.protobuf;stream=watch");
            let mut found = Vec::new();
            for chunk in stream.chunks(size) {
                frames.push(Bytes::copy_from_slice(chunk));
                while let Some(frame) = frames.next().unwrap() {
                    assert!(matches!(frames.piece(&frame), Piece::Frame(_)));
                    found.push(String::from_utf8(frame.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["one", "", "three", &"x".repeat(300)], "chunks of {size}");
        }
    }

    #[test]
    fn a_frame_that_says_to_be_huge_is_given_up() {
        let mut frames = Frames::default();
        frames.push(Bytes::from_static(&[0xff, 0, 0, 0, 1]));
        assert_eq!(frames.next(), Err(Malformed::TooLong));
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut lines = Lines::default();
        let chunk = Bytes::from(vec![b'x'; 8 * 1024 * 1024]);
        let outcome = (0..5).try_for_each(|_| {
            lines.push(chunk.clone());
            lines.next().map(|_| ())
        });
        assert_eq!(outcome, Err(Malformed::TooLong));
    }
}
