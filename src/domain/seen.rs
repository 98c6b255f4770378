//! What a run has seen: an exact set of fingerprints in about fourteen bytes each.
//!
//! A fingerprint is a uniform hash, so a sorted array with gaps is a hash table: the place of a fingerprint is its value
//! scaled to the length of the array, and collisions are put in order beside it (linear probing with ordered clusters;
//! Amble and Knuth, *Ordered hash tables*, 1974). The order ends an unsuccessful search early, and lets a table grow in
//! one pass without hashing anything. The set is cut into parts that grow one at a time, by an eighth, so that growing
//! never needs a second copy of the whole.

use super::fingerprint::Fingerprint;

const PARTS: usize = 256;
/// Full enough to save memory, loose enough that a search looks at a handful of entries: at 0.9, (1 + 1/(1-0.9))/2 = 5.5.
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
    /// Ordered, with gaps of `NONE`; the last entries are an overflow that keeps the scan from running out.
    slots: Vec<[u8; Fingerprint::LEN]>,
    len: usize,
}

impl FromIterator<Fingerprint> for SeenSet {
    fn from_iter<I: IntoIterator<Item = Fingerprint>>(prints: I) -> Self {
        let mut seen = Self::new();
        for print in prints {
            seen.insert(print);
        }
        seen
    }
}

impl SeenSet {
    /// An empty set. It takes no memory until something is put in.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let slots: usize = self.parts.iter().map(|part| part.slots.capacity()).sum();
        slots * Fingerprint::LEN + self.parts.capacity() * size_of::<Part>()
    }

    /// Whether it holds this one.
    #[must_use]
    pub fn contains(&self, print: Fingerprint) -> bool {
        self.parts.get(usize::from(print.0[0])).is_some_and(|part| !part.slots.is_empty() && part.find(&storable(print)).is_ok())
    }

    /// Puts one in; false if it was there.
    pub fn insert(&mut self, print: Fingerprint) -> bool {
        if self.parts.is_empty() {
            self.parts = vec![Part::default(); PARTS];
        }
        let fresh = self.parts[usize::from(print.0[0])].insert(storable(print));
        self.len += usize::from(fresh);
        fresh
    }
}

/// The one value that marks a gap is folded onto its neighbour: a chance of 2^-96 that anyone ever meets it.
fn storable(print: Fingerprint) -> [u8; Fingerprint::LEN] {
    let mut bytes = print.0;
    if bytes == NONE {
        bytes[Fingerprint::LEN - 1] = 0xfe;
    }
    bytes
}

impl Part {
    /// Where the array's proper places end and its overflow begins.
    fn places(&self) -> usize {
        self.slots.len() - overflow(self.slots.len())
    }

    fn home(print: &[u8; Fingerprint::LEN], places: usize) -> usize {
        // The first byte chose the part; the next eight choose the place.
        let mut eight = [0; 8];
        eight.copy_from_slice(&print[1..9]);
        let scaled = u128::from(u64::from_be_bytes(eight)) * places as u128;
        (scaled >> 64) as usize
    }

    /// `Ok(place)` if it is there, else `Err(place)` where it belongs.
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
            // Make room: everything up to the next gap moves one place to the right.
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

    /// Moves everything into an array of `places`; false if its overflow would run over.
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
    // The inverse of `places + overflow_for(places)`, near enough; only that it depends on nothing but the length counts.
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
        // Many that share the last place must spill into the overflow, and past it.
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
                // Few leading bits, so that clusters are long.
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
