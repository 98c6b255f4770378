//! What is said on a socket while it lives: blocks come in, heartbeats go out.

use super::Agent;
use super::facts::Machine;
use super::socket::Socket;
use crate::protocol::node::{FromNode, Heartbeat, ToNode};
use bytes::Bytes;
use futures_util::future::FusedFuture;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Until the broker has said what it counts as silence; also the least that the agent takes for silence.
const LEAST_SILENCE: Duration = Duration::from_secs(10);
const LEAST_HEARTBEAT: Duration = Duration::from_millis(10);

/// How a session ended.
#[derive(Debug)]
pub enum End {
    /// The socket is gone: why, and whether the broker had said welcome.
    Lost(String, bool),
    /// The agent was stopped, and its blocks are reported or have had their time.
    Stopped,
}

/// Carries on until the socket is lost or the agent is stopped.
pub async fn run(agent: &Rc<Agent>, machine: &mut Machine, mut socket: Socket, mut stop: Pin<&mut impl FusedFuture<Output = ()>>) -> End {
    let mut silence = LEAST_SILENCE;
    let mut heard = Instant::now();
    let mut is_welcome = false;
    let mut heartbeat = ticks(agent.config.heartbeat);
    let mut drained: Option<Instant> = None;
    loop {
        let step: Result<(), String> = tokio::select! {
            incoming = socket.next() => {
                heard = Instant::now();
                match incoming {
                    Err(why) => Err(why),
                    Ok(None) => Ok(()),
                    Ok(Some((ToNode::Welcome { heartbeat: every, offline, .. }, _))) => {
                        is_welcome = true;
                        silence = LEAST_SILENCE.max(Duration::from_millis(offline));
                        heartbeat = ticks(agent.config.heartbeat.min(Duration::from_millis(every)));
                        agent.reporter.online.notify_waiters();
                        log::info!("connected broker={} node={}", agent.config.broker, agent.node_id);
                        Ok(())
                    }
                    Ok(Some((message, bulk))) => {
                        receive(agent, message, bulk, drained.is_none());
                        Ok(())
                    }
                }
            }
            // The first tick comes at once: the broker learns what is held before it sends anything again.
            _ = heartbeat.tick() => {
                agent.downloader.clients.evict_idle(Instant::now());
                if heard.elapsed() > silence {
                    Err(format!("nothing was heard for {} s", silence.as_secs()))
                } else if is_welcome {
                    beat(agent, machine, &mut socket).await
                } else {
                    Ok(())
                }
            }
            () = stop.as_mut(), if drained.is_none() => {
                drained = Some(Instant::now() + agent.config.waits.drain);
                Ok(())
            }
            () = agent.drained(drained), if drained.is_some() => {
                socket.close().await;
                return End::Stopped;
            }
        };
        if let Err(why) = step {
            return if drained.is_some() { End::Stopped } else { End::Lost(why, is_welcome) };
        }
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(every.max(LEAST_HEARTBEAT));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn beat(agent: &Rc<Agent>, machine: &mut Machine, socket: &mut Socket) -> Result<(), String> {
    let load = machine.refresh();
    let holding = agent.holdings.list();
    let process_count = u32::try_from(holding.len()).unwrap_or(u32::MAX);
    let heartbeat = Heartbeat { process_count, cpu: load.cpu, free_memory: load.free_memory, holding: Some(holding), programs: None };
    socket.send(&FromNode::Heartbeat(heartbeat)).await?;
    // The broker need not answer a heartbeat, but it answers this: so a dead connection is noticed.
    socket.ping().await
}

fn receive(agent: &Rc<Agent>, message: ToNode, bulk: Option<Bytes>, takes_blocks: bool) {
    match message {
        ToNode::Block(block) if takes_blocks => agent.take(*block, bulk),
        ToNode::Block(block) => log::debug!("a block comes while the agent stops block={}", block.block_id),
        ToNode::Drop { block_id, attempt } => agent.holdings.drop_block(block_id, attempt),
        ToNode::Error(problem) => log::warn!("the broker could not take a message reason={problem}"),
        ToNode::Welcome { .. } => {}
        ToNode::Start(_) | ToNode::Exit { .. } | ToNode::ProgramsSettled(_) | ToNode::OutputTaken { .. } => {}
        ToNode::Drain { .. } | ToNode::Leave { .. } => {}
    }
}
