//! The requests of a block as bytes: packs them, and splits them into several blocks.

use super::RunActor;
use super::cache::Payload;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::Seq;
use crate::domain::request::{repack, unpack};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::protocol::zstd_frame;
use crate::store::{NewBlock, SplitBlock, StoreResult};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

impl Payload {
    /// Packs the text of a block, as created by [`crate::domain::request::RequestBatch::pack`].
    ///
    /// # Errors
    /// There is not enough memory for the compression.
    pub fn pack(text: &[u8], prints: Arc<[Fingerprint]>) -> Result<Self, Problem> {
        let requests = zstd_frame::compress(text).map_err(|error| {
            log::error!("failed to compress requests: {error}");
            Problem::internal()
        })?;
        Ok(Self { requests: Bytes::from(requests), raw_length: text.len() as u32, prints })
    }

    /// The text of the requests, a JSON array in the order of their ids.
    ///
    /// # Errors
    /// The stored data is damaged.
    pub fn text(&self) -> Result<Vec<u8>, Problem> {
        text_of(&self.requests, self.raw_length)
    }

    /// Splits the payload: one payload for each list of indexes, in that order. `tries` sets the number of tries of a request.
    ///
    /// # Errors
    /// The stored data is damaged.
    pub fn cut<const N: usize>(&self, lists: [&[usize]; N], tries: &HashMap<Fingerprint, u32>) -> Result<[Self; N], Problem> {
        let text = self.text()?;
        let requests = unpack(&text).map_err(|why| damaged(&why))?;
        if requests.len() != self.prints.len() {
            return Err(damaged("their number differs from the number of ids"));
        }
        let mut out = Vec::with_capacity(N);
        for places in lists {
            let chosen = places.iter().map(|i| (requests[*i], tries.get(&self.prints[*i]).copied()));
            out.push(Self::pack(&repack(chosen), places.iter().map(|i| self.prints[*i]).collect())?);
        }
        out.try_into().map_err(|_| Problem::internal())
    }
}

impl RunActor {
    /// A block as it is stored.
    pub(super) fn new_block(&self, seq: Seq, payload: &Payload) -> NewBlock {
        NewBlock {
            seq,
            site: self.site_name_of(seq),
            priority: self.kind.frontier.priority_of(seq),
            attempts: self.kind.frontier.attempts_of(seq),
            requests: payload.prints.len() as u32,
            raw_length: payload.raw_length,
            payload: payload.requests.clone(),
            prints: Arc::clone(&payload.prints),
        }
    }

    /// A block keeps some of its requests, the others make blocks of their own.
    pub(super) fn split(&self, (seq, stays): (Seq, &Payload), made: Option<(Seq, &Payload)>, result: Option<StoreResult>) -> SplitBlock {
        SplitBlock {
            no: self.run.no,
            epoch: self.epoch,
            stays: self.new_block(seq, stays),
            made: made.map(|(seq, payload)| self.new_block(seq, payload)).into_iter().collect(),
            result,
            now: Timestamp::now(),
        }
    }
}

/// The text of the requests of a block.
///
/// # Errors
/// The stored data is damaged.
pub fn text_of(requests: &[u8], raw_length: u32) -> Result<Vec<u8>, Problem> {
    zstd_frame::decompress(requests, raw_length as usize).map_err(|error| damaged(&error.to_string()))
}

impl From<NewBlock> for Payload {
    fn from(block: NewBlock) -> Self {
        Self { requests: block.payload, raw_length: block.raw_length, prints: block.prints }
    }
}

fn damaged(why: &str) -> Problem {
    log::error!("failed to read the stored requests of a block: {why}");
    Problem::internal()
}
