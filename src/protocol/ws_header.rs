//! The header of a WebSocket frame (RFC 6455, 5.2), read before the frame is complete.
//!
//! The parser of actix-http compares the length of a frame with the limit only when the whole frame is in memory. So its callers check
//! the header here first. A broker that passes frames on reads only their headers.

/// Largest payload of a control frame, in bytes.
const MOST_CONTROL: u64 = 125;

/// The declared payload size of the frame that begins here, in bytes; `None` while that part of its header has not arrived.
fn declared(bytes: &[u8]) -> Option<u64> {
    let [_, second, rest @ ..] = bytes else { return None };
    match second & 0x7f {
        126 => rest.first_chunk().map(|length| u64::from(u16::from_be_bytes(*length))),
        127 => rest.first_chunk().map(|length| u64::from_be_bytes(*length)),
        short => Some(u64::from(short)),
    }
}

/// Whether the frame that begins here declares more than `most` bytes, or is a control frame over its limit. False while the part of the
/// header with the length has not arrived.
#[must_use]
pub fn is_too_long(bytes: &[u8], most: usize) -> bool {
    let is_control = bytes.first().is_some_and(|first| first & 0x08 != 0);
    declared(bytes).is_some_and(|length| length > most as u64 || is_control && length > MOST_CONTROL)
}

/// The size of the frame that begins here, with its header, in bytes; 0 while it is unknown.
#[must_use]
pub fn whole(bytes: &[u8]) -> usize {
    declared(bytes).and_then(|length| usize::try_from(length).ok()).map_or(0, |length| length.saturating_add(MOST_HEADER))
}

/// The longest header: two bytes, the longest length, and a mask.
const MOST_HEADER: usize = 14;
/// The type of the frame that closes a WebSocket.
pub const CLOSE: u8 = 8;

/// Whether a frame that begins with this byte closes the WebSocket.
#[must_use]
pub fn is_close(first: u8) -> bool {
    first & 0x0f == CLOSE
}

/// The code in a close frame without a mask; `None` while the frame is incomplete. A frame without a code has 1005 (RFC 6455, 7.1.5).
#[must_use]
pub fn close_code(frame: &[u8]) -> Option<u16> {
    let length = usize::try_from(declared(frame)?).ok()?;
    let payload = frame.get(2..2 + length)?;
    Some(payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code)))
}

/// Follows the frames of one direction of a WebSocket without keeping their payload.
#[derive(Debug, Default)]
pub struct FrameTracker {
    /// The header of the present frame, as far as it is known.
    header: [u8; MOST_HEADER],
    known: usize,
    /// Bytes of its payload that are missing.
    missing: u64,
    /// A message of several frames has begun, and its last frame has not.
    is_fragmented: bool,
}

impl FrameTracker {
    /// Follows the present frame, or the next one if it is complete. Returns how many of these bytes belong to it.
    pub fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        if self.missing == 0 {
            while self.header_size() != Some(self.known) {
                let Some(byte) = bytes.get(taken) else { return taken };
                self.header[self.known] = *byte;
                self.known += 1;
                taken += 1;
            }
            self.missing = declared(&self.header[..self.known]).unwrap_or(0);
        }
        let rest = bytes.len() - taken;
        let of_payload = usize::try_from(self.missing).map_or(rest, |missing| missing.min(rest));
        self.missing -= of_payload as u64;
        if self.missing == 0 {
            let (is_last, is_control) = (self.header[0] & 0x80 != 0, self.header[0] & 0x08 != 0);
            self.is_fragmented = if is_control { self.is_fragmented } else { !is_last };
            self.known = 0;
        }
        taken + of_payload
    }

    /// The size of the present header; `None` while it is unknown.
    fn header_size(&self) -> Option<usize> {
        let header = &self.header[..self.known];
        let length = match header.get(1)? & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        Some(2 + length + if header[1] & 0x80 != 0 { 4 } else { 0 })
    }

    /// Whether the next byte begins a frame.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.known == 0
    }

    /// Whether the next byte begins a message, or a control frame.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.is_between_frames() && !self.is_fragmented
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_judged_by_its_header_alone() {
        let header = |opcode: u8, length: u64| {
            let mut bytes = vec![0x80 | opcode];
            match length {
                0..126 => bytes.push(0x80 | length as u8),
                126..65_536 => {
                    bytes.push(0x80 | 126);
                    bytes.extend((length as u16).to_be_bytes());
                }
                _ => {
                    bytes.push(0x80 | 127);
                    bytes.extend(length.to_be_bytes());
                }
            }
            bytes
        };
        for opcode in [0, 1, 2] {
            for (length, is_long) in
                [(0, false), (125, false), (126, false), (1_000, false), (1_001, true), (1 << 16, true), (1 << 62, true)]
            {
                assert_eq!(is_too_long(&header(opcode, length), 1_000), is_long, "opcode {opcode}, {length} bytes");
            }
        }
        for opcode in [8, 9, 10, 15] {
            assert!(!is_too_long(&header(opcode, 125), 1_000));
            assert!(is_too_long(&header(opcode, 126), 1_000) && is_too_long(&header(opcode, 1 << 40), 1 << 50));
        }
        let long = header(2, u64::MAX);
        assert!((0..long.len()).all(|end| !is_too_long(&long[..end], 1_000)), "the length is not known before it has come");
        assert!(is_too_long(&long, 1_000));
        assert_eq!((whole(&[2]), whole(&header(2, 5)), whole(&header(2, 1_000)), whole(&long)), (0, 19, 1_014, usize::MAX));
    }
    /// A frame; its payload is zeros.
    fn frame(first: u8, length: usize, is_masked: bool) -> Vec<u8> {
        let mask = if is_masked { 0x80 } else { 0 };
        let mut bytes = vec![first];
        match length {
            0..126 => bytes.push(mask | length as u8),
            126..65_536 => {
                bytes.push(mask | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(std::iter::repeat_n(0, length + if is_masked { 4 } else { 0 }));
        bytes
    }

    #[test]
    fn frames_are_followed_however_they_are_cut() {
        // A text, a ping, a message of three frames with a ping inside, and a close.
        let frames = [
            (frame(0x81, 5, false), true),
            (frame(0x89, 0, true), true),
            (frame(0x02, 200, true), false),
            (frame(0x00, 0, false), false),
            (frame(0x89, 125, true), false),
            (frame(0x80, 70_000, true), true),
            (frame(0x88, 2, false), true),
        ];
        let all: Vec<u8> = frames.iter().flat_map(|(frame, _)| frame.clone()).collect();
        for size in [1, 2, 3, 7, 14, 100, 4_096, all.len()] {
            let (mut tracker, mut found, mut done) = (FrameTracker::default(), Vec::new(), 0);
            for mut piece in all.chunks(size) {
                while !piece.is_empty() {
                    let count = tracker.advance(piece);
                    (done, piece) = (done + count, &piece[count..]);
                    if tracker.is_between_frames() {
                        found.push((done, tracker.is_between_messages()));
                    }
                }
            }
            let mut end = 0;
            let expected = frames.iter().map(|(frame, is_end)| {
                end += frame.len();
                (end, *is_end)
            });
            assert_eq!(found, expected.collect::<Vec<_>>(), "pieces of {size}");
        }
    }

    #[test]
    fn a_close_frame_has_a_code_when_it_is_complete() {
        let close = [0x88, 4, 0x03, 0xf4, b'o', b'k'];
        assert!(is_close(close[0]) && !is_close(0x81));
        assert!((0..close.len()).all(|end| close_code(&close[..end]).is_none()));
        assert_eq!((close_code(&close), close_code(&[0x88, 0])), (Some(1012), Some(1005)));
    }
}
