//! One zstd frame for a text in memory, at a level that keeps up with a fast network.
//!
//! Each thread keeps its tables: they are larger than most texts, and to make them costs more than the compression.

use std::cell::RefCell;
use std::io;
use zstd::bulk::{Compressor, Decompressor};

/// The compression level.
pub const LEVEL: i32 = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses a text.
///
/// # Errors
/// There is not enough memory.
pub fn compress(text: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|slot| match slot {
        Some(compressor) => compressor.compress(text),
        None => slot.insert(Compressor::new(LEVEL)?).compress(text),
    })
}

/// Decompresses a frame that contains at most `length` bytes.
///
/// # Errors
/// The frame is damaged, or contains more.
pub fn decompress(frame: &[u8], length: usize) -> io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|slot| match slot {
        Some(decompressor) => decompressor.decompress(frame, length),
        None => slot.insert(Decompressor::new()?).decompress(frame, length),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_frame_does_not_affect_the_next_one() {
        let frame = compress(&[7; 5_000]).expect("compressed");
        assert!(frame.len() < 100);
        assert!(decompress(&frame, 4_999).is_err(), "it contains more");
        assert!(decompress(&frame[..frame.len() - 1], 5_000).is_err(), "it is cut off");
        assert_eq!(decompress(&frame, 6_000).expect("whole"), [7; 5_000]);
    }
}
