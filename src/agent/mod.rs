//! The agent: a program that downloads blocks for a broker.
//!
//! It owns the HTTP clients and the blocks in its hands. It promises to report every request of a block that it took, and
//! to hold on to the report until the broker has accepted it, over any number of lost connections. It runs nothing that
//! the broker names, unless the machine's owner has allowed it in the agent's own settings: see `program`.
//!
//! One thread does it all, in an actix system. The way of a block: `session` takes it in, `holdings` remembers it,
//! `block` downloads it request by request (`download`, `attempt`) with the `clients` of its sites, `report`
//! delivers the pack.

mod asked;
mod attempt;
mod backoff;
mod block;
mod change_ip;
mod clients;
mod download;
mod facts;
mod failure;
mod holdings;
mod node_id;
mod program;
mod report;
mod session;
mod socket;
#[cfg(test)]
mod tests;

use crate::config::agent::AgentConfig;
use crate::domain::ids::NodeId;
use crate::protocol::node::{Block, Holding};
use backoff::Backoff;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use session::End;
use socket::{OpenError, Socket};
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Blocks that wait for a free place, for each place. One may well come before the answer to the report that freed it;
/// more than this means that the broker does not count.
const MOST_WAITING: u32 = 3;

/// Why an agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The broker answered 401 or 403.
    #[error("the broker at {broker} refused this agent with status {status}: {}", if *.has_token { "its token is not the broker's" } else { "it has no token, and the broker asks for one" })]
    Refused {
        /// The broker.
        broker: String,
        /// What it answered.
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The node's id is not to be had.
    #[error("the node's id cannot be kept in {}: {why}", path.display())]
    NodeId {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Runs a step of the launcher of a program: what `webloom launch` does, which only an agent calls.
#[must_use]
pub fn launch(folder: &std::path::Path, step: Option<&std::ffi::OsStr>) -> u8 {
    program::launch::run(folder, step)
}

/// Runs an agent in the current actix system until `stop` is ready. Then no more blocks are taken, those at work get a
/// few seconds to be reported, and the socket is closed.
///
/// A broker that is not reached is tried again for ever.
///
/// # Errors
/// The broker refuses the token, or the node's id cannot be kept.
pub async fn run(config: AgentConfig, stop: impl Future<Output = ()>) -> Result<(), AgentError> {
    let node_id = node_id::resolve(&config)?;
    let client = socket::client();
    let agent = Rc::new(Agent::new(config, node_id, client.clone()));
    agent.programs.find();
    let ended = agent.stay_connected(&client, pin!(stop.fuse())).await;
    agent.holdings.drop_all();
    ended
}

/// What the rooms of the agent share.
struct Agent {
    config: AgentConfig,
    node_id: NodeId,
    downloader: download::Downloader,
    reporter: report::Reporter,
    holdings: holdings::Holdings,
    programs: Rc<program::Programs>,
    /// Places for blocks at work.
    places: Semaphore,
}

impl Agent {
    fn new(config: AgentConfig, node_id: NodeId, client: awc::Client) -> Self {
        Self {
            downloader: download::Downloader::new(&config),
            reporter: report::Reporter::new(&config, client),
            holdings: holdings::Holdings::default(),
            programs: program::Programs::new(&config),
            places: Semaphore::new(config.max_process_count as usize),
            node_id,
            config,
        }
    }

    async fn stay_connected(
        self: &Rc<Self>,
        client: &awc::Client,
        mut stop: Pin<&mut impl FusedFuture<Output = ()>>,
    ) -> Result<(), AgentError> {
        let mut machine = facts::Machine::new();
        let brokers = &self.config.broker;
        let patience = if brokers.are_several() { socket::BRIEF_CONNECT_TIMEOUT } else { socket::CONNECT_TIMEOUT };
        let mut backoff = Backoff::new(self.config.waits.reconnect, self.config.waits.reconnect_most);
        // Said once for each change, not for each try.
        let mut is_told_unreachable = false;
        loop {
            let (number, broker) = brokers.current();
            let address = socket::address(&self.config, broker, self.node_id, &machine);
            let opened = tokio::select! {
                opened = Socket::open(client, &address, patience) => opened,
                () = stop.as_mut() => break,
            };
            match opened {
                Ok(socket) => match session::run(self, &mut machine, socket, stop.as_mut()).await {
                    End::Stopped => return Ok(()),
                    End::Left(why) => {
                        log::warn!("this agent ends and does not come back broker={broker} node={} reason={why}", self.node_id);
                        return Ok(());
                    }
                    End::Lost(why, was_welcome) => {
                        if was_welcome {
                            backoff.reset();
                            is_told_unreachable = false;
                        }
                        if !is_told_unreachable {
                            log::warn!("connection lost, trying on broker={broker} reason={why}");
                            is_told_unreachable = true;
                        }
                    }
                },
                Err(OpenError::Refused(status)) => {
                    return Err(AgentError::Refused { broker: broker.to_string(), status, has_token: self.config.token.is_some() });
                }
                Err(OpenError::Unreachable(why)) => {
                    if !is_told_unreachable {
                        log::warn!("broker not reached, trying on broker={broker} reason={why}");
                        is_told_unreachable = true;
                    }
                }
            }
            // Another may lead; only when all were tried is there anything to wait for.
            let wait = if brokers.leave(number) { backoff.next_wait() } else { Duration::ZERO };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.as_mut() => break,
            }
        }
        self.drained(&self.ending(false)).await;
        Ok(())
    }

    /// Begins to end: takes nothing new, and tells programs to end unless they are to stay.
    fn ending(&self, ends_kept: bool) -> Ending {
        self.programs.close("this agent is about to end");
        let ends_programs = ends_kept || !self.programs.are_kept();
        let longest = if ends_programs { self.programs.longest_grace() } else { Duration::ZERO };
        if ends_programs {
            self.programs.end_all();
        }
        Ending { since: Instant::now(), longest, ends_programs }
    }

    /// Waits until nothing is held and all is taken by the broker, or has had its time.
    async fn drained(&self, ending: &Ending) {
        let quiet = ending.since + self.config.waits.drain;
        if ending.ends_programs {
            self.programs_over(ending).await;
            let quiet = quiet.max(self.programs.last_end() + self.config.waits.drain);
            let _ = tokio::time::timeout_at(quiet, async { tokio::join!(self.programs.all_settled(), self.holdings.emptied()) }).await;
        } else {
            let _ = tokio::time::timeout_at(quiet, self.holdings.emptied()).await;
        }
    }

    /// Waits until no program is at work, unless they are to stay.
    async fn programs_over(&self, ending: &Ending) {
        if ending.ends_programs {
            let _ = tokio::time::timeout_at(ending.since + ending.longest, self.programs.all_over()).await;
        }
    }

    /// Waits until there is nothing left to do, however long it takes.
    async fn emptied(&self) {
        loop {
            self.holdings.emptied().await;
            self.programs.all_settled().await;
            if self.holdings.len() == 0 {
                return;
            }
        }
    }

    /// Takes a block, unless it is held already.
    fn take(self: &Rc<Self>, block: Block, bulk: Option<Bytes>) {
        let holding = socket::holding(&block);
        if !self.holdings.is_news(&holding) {
            log::debug!("a block comes again block={} attempt={}", block.block_id, block.attempt);
            return;
        }
        if self.holdings.len() >= (self.config.max_process_count * (1 + MOST_WAITING)) as usize {
            log::warn!("a block too many is not taken block={}", block.block_id);
            return;
        }
        let task = actix_rt::spawn(Rc::clone(self).carry_out(holding.clone(), block, bulk));
        self.holdings.hold(holding, task.abort_handle());
    }

    /// From the block to its accepted report.
    async fn carry_out(self: Rc<Self>, holding: Holding, block: Block, bulk: Option<Bytes>) {
        // However it ends: a block that is neither reported nor listed is sent again.
        let _release = Release(&self.holdings, &holding);
        if let Ok(_place) = self.places.acquire().await {
            let pack = block::work(&self.downloader, self.node_id, &block, bulk.as_deref()).await;
            drop((bulk, block));
            self.reporter.send(holding.block_id, pack.into()).await;
        }
    }
}

/// The end of the agent.
struct Ending {
    since: Instant,
    /// What programs get.
    longest: Duration,
    ends_programs: bool,
}

/// Lets go of a block when it is dropped.
struct Release<'a>(&'a holdings::Holdings, &'a Holding);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}
