//! Cached payloads that are needed soon, within limits. Other payloads are read from the store.

use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::Seq;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum bytes of requests of blocks that wait for a node. The first blocks pushed are needed first, so blocks that do not fit
/// are not cached.
const READY_BYTES: usize = 4 << 20;
/// Maximum bytes of results that wait for a worker.
const RESULT_BYTES: usize = 16 << 20;

/// The requests of a block.
#[derive(Debug, Clone)]
pub(super) struct Payload {
    pub requests: Bytes,
    pub raw_length: u32,
    pub prints: Arc<[Fingerprint]>,
}

/// A finished block that waits for a worker.
#[derive(Debug, Clone)]
pub(super) struct Finished {
    pub requests: Bytes,
    pub raw_length: u32,
    pub pack: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    ready: HashMap<Seq, Payload>,
    ready_bytes: usize,
    /// Requests of blocks at nodes; the slots of the nodes limit their number.
    leased: HashMap<Seq, Payload>,
    finished: HashMap<Seq, Finished>,
    finished_bytes: usize,
}

impl Cache {
    pub fn put_ready(&mut self, seq: Seq, payload: Payload) {
        if self.ready.contains_key(&seq) {
            return; // two reads may overlap, and the bytes count once
        }
        let bytes = payload.requests.len() + payload.prints.len() * Fingerprint::LEN;
        if self.ready_bytes + bytes <= READY_BYTES {
            self.ready_bytes += bytes;
            self.ready.insert(seq, payload);
        }
    }

    /// Keeps the requests of a block that comes back from its node, also beyond the limit: until a split of the block is committed, the store
    /// still has the requests that have results.
    pub fn put_back(&mut self, seq: Seq) {
        let Some(payload) = self.leased.remove(&seq) else { return };
        self.take_ready(seq);
        self.ready_bytes += payload.requests.len() + payload.prints.len() * Fingerprint::LEN;
        self.ready.insert(seq, payload);
    }

    pub fn has_ready(&self, seq: Seq) -> bool {
        self.ready.contains_key(&seq)
    }

    pub fn take_ready(&mut self, seq: Seq) -> Option<Payload> {
        let payload = self.ready.remove(&seq)?;
        self.ready_bytes -= payload.requests.len() + payload.prints.len() * Fingerprint::LEN;
        Some(payload)
    }

    pub fn put_leased(&mut self, seq: Seq, payload: Payload) {
        self.leased.insert(seq, payload);
    }

    pub fn leased(&self, seq: Seq) -> Option<&Payload> {
        self.leased.get(&seq)
    }

    /// The requests of a block that waits or is at a node, if they are cached.
    pub fn peek(&self, seq: Seq) -> Option<&Payload> {
        self.leased.get(&seq).or_else(|| self.ready.get(&seq))
    }

    pub fn take_leased(&mut self, seq: Seq) -> Option<Payload> {
        self.leased.remove(&seq)
    }

    pub fn put_finished(&mut self, seq: Seq, finished: Finished) {
        let bytes = finished.requests.len() + finished.pack.len();
        if self.finished_bytes + bytes <= RESULT_BYTES {
            self.finished_bytes += bytes;
            self.finished.insert(seq, finished);
        }
    }

    pub fn take_finished(&mut self, seq: Seq) -> Option<Finished> {
        let finished = self.finished.remove(&seq)?;
        self.finished_bytes -= finished.requests.len() + finished.pack.len();
        Some(finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_is_added_twice_counts_once() {
        let mut cache = Cache::default();
        let payload = Payload { requests: Bytes::from(vec![0; READY_BYTES / 2]), raw_length: 1, prints: Arc::new([]) };
        cache.put_ready(1, payload.clone());
        cache.put_ready(1, payload.clone());
        cache.put_ready(2, payload);
        assert!(cache.take_ready(1).is_some() && cache.take_ready(2).is_some());
        assert_eq!(cache.ready_bytes, 0);
    }

    #[test]
    fn a_block_that_comes_back_is_kept_beyond_the_limit() {
        let mut cache = Cache::default();
        let payload = |raw_length| Payload { requests: Bytes::from(vec![0; READY_BYTES]), raw_length, prints: Arc::new([]) };
        cache.put_ready(1, payload(1));
        cache.put_ready(2, payload(2));
        assert!(!cache.has_ready(2), "it does not fit");
        cache.put_leased(2, payload(3));
        cache.put_back(2);
        // Another read of the store has an older version of its requests.
        cache.put_ready(2, payload(2));
        assert_eq!(cache.take_ready(2).map(|payload| payload.raw_length), Some(3));
        assert!(cache.leased(2).is_none() && cache.take_ready(1).is_some());
        assert_eq!(cache.ready_bytes, 0);
    }
}
