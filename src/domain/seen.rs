//! The set of requests that a run has seen: an exact set of fingerprints in about fourteen bytes each.
//!
//! A fingerprint is a uniform hash, so a sorted array with gaps is a hash table: the position of a fingerprint is its value scaled to the
//! length of the array, and collisions are kept in order next to it (linear probing with ordered clusters; Amble and Knuth, *Ordered hash
//! tables*, 1974). The order ends an unsuccessful search early, and a table can grow in one pass without hashing. The set is split into
//! parts that grow one at a time, by an eighth, so that growing never needs a second copy of the whole set.

use super::fingerprint::Fingerprint;

const PARTS: usize = 256;
/// A load factor that saves memory while a search still reads few entries: at 0.9, (1 + 1/(1-0.9))/2 = 5.5.
const FULL_PER_1000: usize = 900;
const NONE: [u8; Fingerprint::LEN] = [0xff; Fingerprint::LEN];

/// An exact set of fingerprints.
#[derive(Debug, Default)]
pub struct SeenSet {
    parts: Vec<Part>,
    len: usize,
}

#[derive(Debug, Default, Clone)]
struct Part {
    /// Ordered, with gaps of `NONE`; the last entries are an overflow area that ends the scan.
    slots: Vec<[u8; Fingerprint::LEN]>,
    len: usize,
}

impl SeenSet {
    /// An empty set. It allocates nothing until the first insert.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of fingerprints.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let slots: usize = self.parts.iter().map(|part| part.slots.capacity()).sum();
        slots * Fingerprint::LEN + self.parts.capacity() * size_of::<Part>()
    }

    /// Whether it contains a fingerprint.
    #[must_use]
    pub fn contains(&self, print: Fingerprint) -> bool {
        self.parts.get(usize::from(print.0[0])).is_some_and(|part| !part.slots.is_empty() && part.find(&storable(print)).is_ok())
    }

    /// Reads the places of fingerprints that are inserted next. A large set is rarely in the processor's caches; these reads do
    /// not depend on each other, so the processor waits for many of them at once, and not for each insert.
    pub fn read_ahead(&self, prints: impl Iterator<Item = Fingerprint>) {
        let place = |print: Fingerprint| {
            let part = self.parts.get(usize::from(print.0[0])).filter(|part| !part.slots.is_empty())?;
            part.slots.get(Part::home(&print.0, part.places())).map(|slot| slot[0])
        };
        std::hint::black_box(prints.filter_map(place).fold(0, |sum: u8, byte| sum ^ byte));
    }

    /// Inserts a fingerprint; returns false if it was present.
    pub fn insert(&mut self, print: Fingerprint) -> bool {
        if self.parts.is_empty() {
            self.parts = vec![Part::default(); PARTS];
        }
        let fresh = self.parts[usize::from(print.0[0])].insert(storable(print));
        self.len += usize::from(fresh);
        fresh
    }
}

/// The value that marks a gap is mapped to its neighbour. The chance that a real fingerprint has this value is 2^-96.
fn storable(print: Fingerprint) -> [u8; Fingerprint::LEN] {
    let mut bytes = print.0;
    if bytes == NONE {
        bytes[Fingerprint::LEN - 1] = 0xfe;
    }
    bytes
}

impl Part {
    /// Number of regular slots; the overflow area begins there.
    fn places(&self) -> usize {
        self.slots.len() - overflow(self.slots.len())
    }

    fn home(print: &[u8; Fingerprint::LEN], places: usize) -> usize {
        // The first byte selects the part; the next eight select the slot.
        let mut eight = [0; 8];
        eight.copy_from_slice(&print[1..9]);
        let scaled = u128::from(u64::from_be_bytes(eight)) * places as u128;
        (scaled >> 64) as usize
    }

    /// `Ok(index)` if it is present, else `Err(index)` where to insert it.
    fn find(&self, print: &[u8; Fingerprint::LEN]) -> Result<usize, usize> {
        let mut at = Self::home(print, self.places());
        loop {
            match self.slots.get(at) {
                Some(slot) if slot < print => at += 1,
                Some(slot) if slot == print => return Ok(at),
                _ => return Err(at),
            }
        }
    }

    fn insert(&mut self, print: [u8; Fingerprint::LEN]) -> bool {
        if self.slots.is_empty() || (self.len + 1) * 1_000 > self.places() * FULL_PER_1000 {
            if !self.slots.is_empty() && self.find(&print).is_ok() {
                return false;
            }
            self.grow();
        }
        loop {
            let Err(at) = self.find(&print) else { return false };
            // Make space: shift everything up to the next gap one slot to the right.
            if let Some(gap) = self.slots[at..].iter().position(|slot| *slot == NONE) {
                self.slots.copy_within(at..at + gap, at + 1);
                self.slots[at] = print;
                self.len += 1;
                return true;
            }
            self.grow(); // the overflow is full: rare, and a larger array has room
        }
    }

    fn grow(&mut self) {
        let mut places = (self.slots.len() + self.slots.len() / 8).max(8);
        while !self.rebuilt(places) {
            places += places / 8;
        }
    }

    /// Moves everything into an array with `places` regular slots; returns false if its overflow area is too small.
    fn rebuilt(&mut self, places: usize) -> bool {
        let mut slots = Vec::new();
        slots.reserve_exact(places + overflow_for(places));
        slots.resize(places + overflow_for(places), NONE);
        let places = slots.len() - overflow(slots.len());
        let mut next = 0;
        for print in self.slots.iter().filter(|slot| **slot != NONE) {
            let at = Self::home(print, places).max(next);
            let Some(slot) = slots.get_mut(at) else { return false };
            *slot = *print;
            next = at + 1;
        }
        self.slots = slots;
        true
    }
}

fn overflow_for(places: usize) -> usize {
    16 + places / 256
}

fn overflow(slots: usize) -> usize {
    // Approximate inverse of `places + overflow_for(places)`; it only has to be a function of the length.
    16 + (slots.saturating_sub(16)) / 257
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn print(n: u64) -> Fingerprint {
        Fingerprint::of_key(&n.to_string())
    }

    #[test]
    fn a_million_fit_in_sixteen_bytes_each_at_every_size() {
        let mut seen = SeenSet::new();
        for n in 0..1_000_000 {
            assert!(seen.insert(print(n)));
            if n > 100_000 && n % 1_000 == 0 {
                let each = seen.bytes() as f64 / seen.len() as f64;
                assert!(each < 16.0, "{each} bytes each at {n}");
            }
        }
        for n in 0..1_000_000 {
            assert!(!seen.insert(print(n)), "{n} was put in");
        }
        for n in 1_000_000..1_100_000 {
            assert!(!seen.contains(print(n)), "{n} was not");
        }
        assert_eq!(seen.len(), 1_000_000);
    }

    #[test]
    fn the_ends_of_the_range_have_a_place() {
        let mut seen = SeenSet::new();
        let ends = [[0; 12], [0xff; 12], [0xfe; 12]].map(Fingerprint);
        for end in ends {
            assert!(seen.insert(end) && !seen.insert(end) && seen.contains(end));
        }
        // Many fingerprints with the same last slot must spill into the overflow area, and beyond it.
        for n in 0..2_000_u16 {
            let mut bytes = [0xff; 12];
            bytes[10..].copy_from_slice(&n.to_be_bytes());
            assert!(seen.insert(Fingerprint(bytes)), "{n}");
        }
        assert_eq!(seen.len(), 2_003);
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in proptest::collection::vec(0_u64..400, 0..2_000)) {
            let (mut seen, mut model) = (SeenSet::new(), HashSet::new());
            for n in steps {
                // Few leading bits differ, so clusters are long.
                let mut bytes = [0; 12];
                bytes[9] = (n % 3) as u8;
                bytes[10..].copy_from_slice(&(n as u16).to_be_bytes());
                let print = Fingerprint(bytes);
                prop_assert_eq!(seen.contains(print), model.contains(&print));
                prop_assert_eq!(seen.insert(print), model.insert(print));
            }
            prop_assert_eq!(seen.len(), model.len());
        }
    }
}
