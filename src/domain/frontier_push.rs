//! Accepts requests and packs them into blocks.

use super::super::block::Admission;
use super::super::request::RequestBatch;
use super::{Frontier, SiteNo};
use std::collections::HashMap;

/// What the requests of one block have in common: their site, if its pace is kept, and their priority.
type Kind = (Option<SiteNo>, i8);

impl Frontier {
    /// Selects the new requests of a batch and packs them into blocks, grouped by site and priority. `site_of` returns the site of
    /// a request by its index in the batch, or `None` if its site has no pace. The requests count as seen from now on; they are
    /// ready once [`Self::stored`] is called.
    pub fn begin_push(&mut self, batch: &RequestBatch, site_of: impl Fn(usize) -> Option<SiteNo>) -> Admission {
        let mut out = Admission::default();
        self.seen.read_ahead(batch.requests.iter().map(|request| request.id));
        // The open block of each site and priority, in the order in which the blocks were begun.
        let mut begun: Vec<(Kind, Vec<usize>)> = Vec::new();
        let mut places: HashMap<Kind, usize> = HashMap::new();
        for (i, request) in batch.requests.iter().enumerate() {
            if self.settings.depth_limit.is_some_and(|limit| request.depth > limit) {
                out.too_deep += 1;
            } else if self.settings.guards.stops(request.shape) {
                out.trapped += 1;
            } else if self.settings.max_requests.is_some_and(|most| self.admitted >= most) || self.is_full(site_of(i)) {
                *(if self.seen.contains(request.id) { &mut out.duplicates } else { &mut out.over_limit }) += 1;
            } else if !self.seen.insert(request.id) {
                // A deliberate repetition has its own id, so it never gets here.
                out.duplicates += 1;
            } else {
                self.admitted += 1;
                out.accepted += 1;
                let site = site_of(i);
                self.count_at(site, 1);
                // Requests to one site usually follow each other.
                let kind = (site, request.priority);
                let place = match begun.last() {
                    Some((last, _)) if *last == kind => begun.len() - 1,
                    _ => *places.entry(kind).or_insert_with(|| {
                        begun.push((kind, Vec::new()));
                        begun.len() - 1
                    }),
                };
                begun[place].1.push(i);
                if begun[place].1.len() == self.settings.block_size as usize {
                    let full = std::mem::take(&mut begun[place].1);
                    self.open_block(&mut out, kind, full);
                }
            }
        }
        for (kind, block) in begun.into_iter().filter(|(_, block)| !block.is_empty()) {
            self.open_block(&mut out, kind, block);
        }
        self.storing += out.blocks.len();
        out
    }

    fn open_block(&mut self, out: &mut Admission, (site, priority): Kind, requests: Vec<usize>) {
        let seq = self.new_block(site, priority);
        out.blocks.push((seq, requests));
    }
}
