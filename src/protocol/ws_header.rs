//! The header of a WebSocket frame (RFC 6455, 5.2), checked before the frame is complete.
//!
//! The parser of actix-http compares the length of a frame with the limit only when the whole frame is in memory. So its callers check
//! the header here first.

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
    /// Two bytes, the longest length, and a mask.
    const HEADER: usize = 14;
    declared(bytes).and_then(|length| usize::try_from(length).ok()).map_or(0, |length| length.saturating_add(HEADER))
}

#[cfg(test)]
mod tests {
    use super::{is_too_long, whole};

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
}
