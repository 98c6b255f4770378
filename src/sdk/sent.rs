//! The recently sent requests of a run, so that they are not sent again: on a site most links are known.
//!
//! Holds two generations of 64-bit hashes. It promises nothing: a forgotten request is sent again, and the broker drops it. It never
//! holds requests that the broker has not accepted, or a page that failed halfway would lose its links.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

/// Hashes of one generation: about 9 MB when it is full.
const GENERATION: usize = 500_000;

/// The keys are already hashes.
#[derive(Debug, Default, Clone)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A set of 64-bit hashes.
pub(crate) type Hashes = HashSet<u64, BuildHasherDefault<AsIs>>;

/// The recently sent requests of a run.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    young: Hashes,
    old: Hashes,
    texts: RandomState,
}

impl Sent {
    /// Whether it was sent and accepted.
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.young.contains(&hash) || self.old.contains(&hash)
    }

    /// Adds accepted requests.
    pub(crate) fn took(&mut self, hashes: &[u64]) {
        for hash in hashes {
            if self.young.len() >= GENERATION {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(*hash);
        }
    }

    /// The hash of a text; it differs from run to run, so that no site can guess a collision.
    pub(crate) fn hash(&self, text: &[u8]) -> u64 {
        self.texts.hash_one(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_what_was_taken_of_late_and_stays_small() {
        let mut sent = Sent::default();
        sent.took(&[1]);
        assert!(sent.has(1) && !sent.has(2));
        let many: Vec<u64> = (10..10 + 2 * GENERATION as u64).collect();
        sent.took(&many);
        assert!(!sent.has(1), "the oldest are forgotten");
        assert!(sent.has(*many.last().expect("some")));
        assert!(sent.young.len() + sent.old.len() <= 2 * GENERATION);
    }
}
