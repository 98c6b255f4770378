//! Cuts arbitrary bytes into lines of text that can be stored.

/// Maximum bytes of a line; a longer one is split.
const MOST_LINE: usize = 8_192;

/// The unfinished line of one stream.
#[derive(Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Adds bytes; emits each line that they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&str)) {
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            self.rest.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            if self.rest.last() == Some(&b'\r') {
                self.rest.pop();
            }
            self.cut_long(&mut line, MOST_LINE);
            whole(&self.rest, &mut line);
            self.rest.clear();
        }
        self.rest.extend_from_slice(bytes);
        // Keep one byte more: it may be the `\r` before a `\n`.
        self.cut_long(&mut line, MOST_LINE + 1);
    }

    /// Emits the last line, if it has no line end.
    pub fn finish(&mut self, mut line: impl FnMut(&str)) {
        self.cut_long(&mut line, MOST_LINE);
        if !self.rest.is_empty() {
            whole(&self.rest, &mut line);
            self.rest.clear();
        }
    }

    fn cut_long(&mut self, line: &mut impl FnMut(&str), keep: usize) {
        let mut at = 0;
        while self.rest.len() - at > keep {
            let mut end = at + MOST_LINE;
            // Do not cut within a character: at most three bytes follow the first.
            for back in 0..4 {
                if self.rest[end - back] & 0b1100_0000 != 0b1000_0000 {
                    end -= back;
                    break;
                }
            }
            whole(&self.rest[at..end], line);
            at = end;
        }
        self.rest.drain(..at);
    }
}

/// Emits a line as text. Invalid UTF-8 and NUL, which databases treat as an end, are replaced; that makes the text longer.
fn whole(bytes: &[u8], line: &mut impl FnMut(&str)) {
    let text = String::from_utf8_lossy(bytes);
    let text = if text.contains('\0') { text.replace('\0', "\u{2400}").into() } else { text };
    let mut rest: &str = &text;
    while rest.len() > MOST_LINE {
        let (now, later) = rest.split_at(rest.floor_char_boundary(MOST_LINE));
        line(now);
        rest = later;
    }
    line(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| out.push(line.to_owned()));
        }
        lines.finish(|line| out.push(line.to_owned()));
        out
    }

    #[test]
    fn lines_end_at_their_ends() {
        assert_eq!(lines(&[b"a\nb\r\n\nc", b"d\n"]), ["a", "b", "", "cd"]);
        assert_eq!(lines(&[b"no end"]), ["no end"]);
        assert_eq!(lines(&[b""]), [""; 0]);
        assert_eq!(lines(&[b"\xff\0x\n"]), ["\u{fffd}\u{2400}x"]);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let text = "é".repeat(10_000);
        let cut = lines(&[b"x", text.as_bytes(), b"\n"]);
        assert!(cut.iter().all(|line| line.len() <= MOST_LINE));
        assert_eq!(cut.concat(), format!("x{text}"));
        assert_eq!(lines(&[&[b'a'; MOST_LINE], b"\r", b"\n"]), ["a".repeat(MOST_LINE)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn however_it_comes_the_lines_are_the_same(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(0xc3_u8), Just(0xa9_u8), any::<u8>()], 0..20_000), cut in 1_usize..5_000) {
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let in_pieces = lines(&pieces);
            prop_assert!(in_pieces.iter().all(|line| line.len() <= MOST_LINE));
            prop_assert_eq!(in_pieces, lines(&[&bytes]));
        }
    }
}
