//! Splits responses into objects while they arrive, so that the text of only one object is buffered.

use bytes::Bytes;

use crate::call::OBJECT_BYTES_MAX;

/// The envelope of a list is usually a few hundred bytes.
const ENVELOPE_BYTES_MAX: usize = 1024 * 1024;

/// A malformed response; the message does not quote it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MalformedResponse {
    #[error("an object in the response is longer than 32 MiB")]
    TooLong,
    #[error("the response is not a list of objects")]
    NotAList,
}

/// One encoded watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchFrame<'a> {
    /// One line of JSON.
    Line(&'a [u8]),
    /// One protobuf message.
    Frame(&'a [u8]),
}

/// Splits a watch into events, in the encoding that the server chose.
#[derive(Debug)]
pub(super) enum WatchFramer {
    JsonLines(JsonLines),
    ProtobufFrames(ProtobufFrames),
}

impl WatchFramer {
    /// The framer for a response of this media type.
    pub(super) fn of(media_type: &[u8]) -> Self {
        if media_type.starts_with(b"application/vnd.kubernetes.protobuf") {
            Self::ProtobufFrames(ProtobufFrames::default())
        } else {
            Self::JsonLines(JsonLines::default())
        }
    }

    /// Adds a chunk. All complete events must have been taken out before.
    pub(super) fn push(&mut self, received: Bytes) {
        match self {
            Self::JsonLines(lines) => lines.push(received),
            Self::ProtobufFrames(frames) => frames.push(received),
        }
    }

    /// The next complete event.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, MalformedResponse> {
        match self {
            Self::JsonLines(lines) => lines.next(),
            Self::ProtobufFrames(frames) => frames.next(),
        }
    }

    /// Tags an event with its encoding.
    pub(super) fn tag<'a>(&self, bytes: &'a [u8]) -> WatchFrame<'a> {
        match self {
            Self::JsonLines(_) => WatchFrame::Line(bytes),
            Self::ProtobufFrames(_) => WatchFrame::Frame(bytes),
        }
    }
}

/// Length-delimited protobuf: a four-byte big-endian length before each message.
#[derive(Debug, Default)]
pub(super) struct ProtobufFrames {
    /// Received and not yet split.
    unread: Bytes,
    /// The beginning of an incomplete frame, including its length.
    pending: Vec<u8>,
}

const LENGTH_BYTES: usize = 4;

impl ProtobufFrames {
    fn push(&mut self, received: Bytes) {
        debug_assert!(self.unread.is_empty());
        self.unread = received;
    }

    fn next(&mut self) -> Result<Option<Bytes>, MalformedResponse> {
        if self.pending.is_empty() {
            return match frame_length(&self.unread)? {
                Some(length) if self.unread.len() >= LENGTH_BYTES + length => {
                    let mut frame = self.unread.split_to(LENGTH_BYTES + length);
                    Ok(Some(frame.split_off(LENGTH_BYTES)))
                }
                _ => self.keep_incomplete(),
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

    /// Keeps the incomplete frame until more data arrives.
    fn keep_incomplete(&mut self) -> Result<Option<Bytes>, MalformedResponse> {
        self.pending.extend_from_slice(&std::mem::take(&mut self.unread));
        Ok(None)
    }
}

/// The length of the frame that begins here; `None` if fewer than four bytes have arrived.
fn frame_length(bytes: &[u8]) -> Result<Option<usize>, MalformedResponse> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > OBJECT_BYTES_MAX { Err(MalformedResponse::TooLong) } else { Ok(Some(length)) }
}

/// JSON events, one per line.
#[derive(Debug, Default)]
pub(super) struct JsonLines {
    /// Received and not yet split.
    unread: Bytes,
    /// The beginning of an incomplete line.
    pending: Vec<u8>,
}

impl JsonLines {
    /// Adds a chunk. All complete lines must have been taken out before.
    pub(super) fn push(&mut self, received: Bytes) {
        debug_assert!(self.unread.is_empty());
        self.unread = received;
    }

    /// The next complete line, without the newline.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, MalformedResponse> {
        let end = self.unread.iter().position(|&byte| byte == b'\n');
        if self.pending.len() + end.unwrap_or(self.unread.len()) > OBJECT_BYTES_MAX {
            return Err(MalformedResponse::TooLong);
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
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(&line);
        Ok(Some(Bytes::from(joined)))
    }
}

/// Splits a JSON list into its items and its envelope, the list without items.
#[derive(Debug, Default)]
pub(super) struct ListItems {
    envelope: Vec<u8>,
    /// The beginning of an incomplete item.
    pending: Vec<u8>,
    /// The nesting depth of braces and brackets.
    depth: u32,
    in_string: bool,
    /// Whether the last byte was an escaping backslash in a string.
    escaped: bool,
    in_items: bool,
}

impl ListItems {
    /// Scans a chunk and calls `item` for each item that it completes.
    pub(super) fn push(
        &mut self,
        received: &[u8],
        mut item: impl FnMut(&[u8]),
    ) -> Result<(), MalformedResponse> {
        // Where the current item starts in this chunk; its earlier part is in `pending`.
        let mut start = 0;
        for (index, &byte) in received.iter().enumerate() {
            let inside_item = self.in_items && self.depth > 2;
            let ends_item = self.step(byte)?;
            match (inside_item, ends_item) {
                (false, _) if self.in_items && self.depth > 2 => start = index,
                (true, true) if self.pending.is_empty() => item(&received[start..=index]),
                (true, true) => {
                    self.pending.extend_from_slice(&received[start..=index]);
                    item(&std::mem::take(&mut self.pending));
                }
                _ => {}
            }
        }
        if self.in_items && self.depth > 2 {
            self.pending.extend_from_slice(&received[start..]);
        }
        if self.pending.len() > OBJECT_BYTES_MAX || self.envelope.len() > ENVELOPE_BYTES_MAX {
            return Err(MalformedResponse::TooLong);
        }
        Ok(())
    }

    /// The envelope, after the last chunk.
    pub(super) fn finish(self) -> Result<Vec<u8>, MalformedResponse> {
        if self.depth == 0 && !self.in_string && !self.envelope.is_empty() {
            Ok(self.envelope)
        } else {
            Err(MalformedResponse::NotAList)
        }
    }

    /// Processes one byte; returns whether it ends an item.
    fn step(&mut self, byte: u8) -> Result<bool, MalformedResponse> {
        let mut ends_item = false;
        let was_in_items = self.in_items;
        if self.in_string {
            let ends_string = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            self.in_string = !ends_string;
        } else {
            match byte {
                b'"' if self.in_items && self.depth == 2 => return Err(MalformedResponse::NotAList),
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.in_items |= byte == b'[' && self.depth == 1 && self.is_after_items_key();
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(MalformedResponse::NotAList)?;
                    ends_item = self.in_items && self.depth == 2;
                    self.in_items &= self.depth > 1;
                }
                _ => {}
            }
        }
        // The envelope includes the brackets around the items and nothing between them.
        if !(was_in_items && self.in_items) {
            self.envelope.push(byte);
        }
        Ok(ends_item)
    }

    fn is_after_items_key(&self) -> bool {
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

    fn split(size: usize) -> (Vec<String>, String) {
        let mut items = ListItems::default();
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
    fn items_are_split_at_any_chunk_size() {
        for size in 1..=LIST.len() {
            let (items, envelope) = split(size);
            let wanted = [r#"{"metadata":{"name":"a"},"data":{"x":"}]\\\""}}"#, r#"{"l":[[1],{}]}"#, "{}"];
            assert_eq!(items, wanted, "chunks of {size}");
            let envelope: serde_json::Value = serde_json::from_str(&envelope).unwrap();
            assert_eq!(envelope["items"], serde_json::json!([]));
            assert_eq!(envelope["extra"], serde_json::json!([{"no": "item"}]));
            assert_eq!(envelope["metadata"]["resourceVersion"], "7");
        }
    }

    #[test]
    fn truncated_list_is_malformed() {
        for text in ["", "{\"items\":[{}", "{\"items\":[{}]", "[}", "]"] {
            let mut items = ListItems::default();
            let outcome = items.push(text.as_bytes(), |_| {}).and_then(|()| items.finish());
            // The splitter does not match brackets by type; the envelope then fails to decode as JSON.
            let readable =
                outcome.is_ok_and(|envelope| serde_json::from_slice::<serde_json::Value>(&envelope).is_ok());
            assert!(!readable, "{text:?}");
        }
    }

    #[test]
    fn lines_are_joined_across_chunks() {
        let text = "one\ntwo\n\nthree\nunfinished";
        for size in 1..=text.len() {
            let mut lines = JsonLines::default();
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
    fn frames_are_joined_across_chunks() {
        let mut stream = Vec::new();
        for frame in ["one", "", "three", &"x".repeat(300)] {
            stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            stream.extend_from_slice(frame.as_bytes());
        }
        stream.extend_from_slice(&[0, 0, 0, 9, b'h']);
        for size in 1..=stream.len() {
            let mut frames = WatchFramer::of(b"application/vnd.kubernetes.protobuf;stream=watch");
            let mut found = Vec::new();
            for chunk in stream.chunks(size) {
                frames.push(Bytes::copy_from_slice(chunk));
                while let Some(frame) = frames.next().unwrap() {
                    assert!(matches!(frames.tag(&frame), WatchFrame::Frame(_)));
                    found.push(String::from_utf8(frame.to_vec()).unwrap());
                }
            }
            assert_eq!(found, ["one", "", "three", &"x".repeat(300)], "chunks of {size}");
        }
    }

    #[test]
    fn frame_with_excessive_length_is_malformed() {
        let mut frames = ProtobufFrames::default();
        frames.push(Bytes::from_static(&[0xff, 0, 0, 0, 1]));
        assert_eq!(frames.next(), Err(MalformedResponse::TooLong));
    }

    #[test]
    fn line_longer_than_the_limit_is_malformed() {
        let mut lines = JsonLines::default();
        let chunk = Bytes::from(vec![b'x'; 8 * 1024 * 1024]);
        let outcome = (0..5).try_for_each(|_| {
            lines.push(chunk.clone());
            lines.next().map(|_| ())
        });
        assert_eq!(outcome, Err(MalformedResponse::TooLong));
    }
}
