//! Sends a block again that its node does not have.

use super::RunActor;
use super::cache::Payload;
use super::turns::Judged;
use crate::actors::node::{NodeHandle, SendBlock};
use crate::domain::ids::Seq;
use crate::domain::sites::{Granted, Pace};
use crate::protocol::node::{self, Block};
use crate::store::RobotsOf;
use actix::Context;
use std::sync::Arc;

impl RunActor {
    /// Sends a block again that its node does not have.
    pub(super) fn send_again(&mut self, seq: Seq, to: NodeHandle, ctx: &mut Context<Self>) {
        self.with_payload(seq, ctx, move |this, payload, ctx| this.send_payload_again(seq, payload, to, ctx));
    }

    fn send_payload_again(&mut self, seq: Seq, payload: Payload, to: NodeHandle, ctx: &mut Context<Self>) {
        // The lease may have ended since the read began.
        let Some(lease) = self.kind.frontier.lease_of(seq).copied() else { return };
        self.kind.cache.put_leased(seq, payload.clone());
        let site = self.kind.frontier.site_of(seq);
        let judged = site.map(|_| self.judge(&payload, false));
        if let Some(Ok((Judged::Unknown(url), _))) = &judged {
            // The block was dispatched before this broker started, so its robots.txt is stored unless it has expired.
            let key = self.robots_key(url);
            let read = self.context.store.read(RobotsOf { origin: Arc::clone(&key.0), agent: Arc::clone(&key.1) });
            return Self::then(ctx, read, move |this, stored, ctx| match Self::stored_robots(stored) {
                Some(known) => {
                    this.context.sites.keep_robots(key, known);
                    this.send_payload_again(seq, payload, to, ctx);
                }
                None => this.send_at_pace(seq, &payload, &to),
            });
        }
        if let (Some(site), Some(Ok((_, delay_ms)))) = (site, judged) {
            self.slow_down(site, delay_ms);
        }
        log::debug!("block is sent again block_id={} attempt={}", self.block_id(seq), lease.attempt);
        self.send_at_pace(seq, &payload, &to);
    }

    fn send_at_pace(&mut self, seq: Seq, payload: &Payload, to: &NodeHandle) {
        let Some(lease) = self.kind.frontier.lease_of(seq).copied() else { return };
        let block = Block { pace: self.pace_again(seq), ..self.block(seq, &lease) };
        to.send_block(SendBlock { block, requests: payload.requests.clone(), raw_length: payload.raw_length, permit: None });
    }

    /// The pace of a block that is sent again.
    fn pace_again(&mut self, seq: Seq) -> Option<node::Pace> {
        let site = self.kind.frontier.site_of(seq)?;
        if self.pace(site) == Pace::FREE {
            return None;
        }
        let granted = Granted { connections: 1, ..self.granted(site) };
        // Some of its requests may have been sent already.
        Some(node::Pace { not_before: granted.delay_ms.into(), ..self.pace_of(site, granted) })
    }
}
