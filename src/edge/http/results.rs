//! The results of a run as lines of JSON, read while they are sent: of a block run those that no worker has acknowledged, of others what
//! the run or its instances left.

use super::MOST;
use super::queue::opened_results;
use crate::domain::ids::{BlockId, Identity};
use crate::domain::job::JobKind;
use crate::domain::run::RunState;
use crate::edge::Edge;
use crate::edge::error::Failure;
use crate::protocol::delivery::Outcome;
use crate::protocol::problem::Problem;
use actix_web::http::header::{ACCEPT, CONTENT_DISPOSITION};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde::Serialize;
use serde_json::Value;
use std::io::Error;

/// The media type.
pub const LINES: &str = "application/jsonl";
/// Blocks that are read at once: a block is as large as its pages.
const BLOCKS: usize = 4;

/// Whether a caller wants lines.
pub(super) fn asks_for_lines(request: &HttpRequest) -> bool {
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains(LINES) || accept.contains("application/x-ndjson")
}

/// One request of a block with its response.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfBlock<'a> {
    block_id: BlockId,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// The result of a run, or of one of its instances.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Own {
    identity: Identity,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<u32>,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    state: RunState,
    result: Value,
}

/// What is sent next.
enum Step {
    /// These lines, and what follows from this cursor on.
    Send(Vec<u8>, Option<String>),
    Read(String),
    End,
}

/// Sends the lines, from this cursor on.
///
/// # Errors
/// The run does not exist, or the cursor is invalid.
pub(super) async fn lines(edge: web::Data<Edge>, identity: Identity, cursor: Option<&str>) -> Result<HttpResponse, Failure> {
    // The kind of the run decides; an error here is still an answer.
    let is_block = edge.service.run(identity).await?.kind == JobKind::Block.name();
    let (lines, next) = if is_block { of_blocks(&edge, identity, cursor).await? } else { of_others(&edge, identity, cursor).await? };
    let body = unfold((Step::Send(lines, next), edge), move |(step, edge)| async move {
        let (lines, next) = match step {
            Step::End => return None,
            Step::Send(lines, next) => (lines, next),
            Step::Read(cursor) => {
                let read = if is_block {
                    of_blocks(&edge, identity, Some(&cursor)).await
                } else {
                    of_others(&edge, identity, Some(&cursor)).await
                };
                match read {
                    Ok(read) => read,
                    Err(problem) => {
                        // The caller sees that the body is cut off.
                        log::warn!("reading the results of a run failed run_id={identity} reason={}", problem.detail);
                        return Some((Err(Error::other(problem.detail)), (Step::End, edge)));
                    }
                }
            }
        };
        Some((Ok(Bytes::from(lines)), (next.map_or(Step::End, Step::Read), edge)))
    });
    let name = format!("attachment; filename=\"results-{identity}.jsonl\"");
    Ok(HttpResponse::Ok().content_type(LINES).insert_header((CONTENT_DISPOSITION, name)).streaming(body))
}

async fn of_blocks(edge: &Edge, identity: Identity, cursor: Option<&str>) -> Result<(Vec<u8>, Option<String>), Problem> {
    let (blocks, next) = opened_results(edge, identity, cursor, BLOCKS).await?;
    let mut out = Vec::new();
    for block in blocks {
        for outcome in &block.results {
            write_line(&mut out, &OfBlock { block_id: block.block_id, outcome })?;
        }
    }
    Ok((out, next))
}

async fn of_others(edge: &Edge, identity: Identity, cursor: Option<&str>) -> Result<(Vec<u8>, Option<String>), Problem> {
    let page = edge.service.instances(identity, cursor, MOST).await?;
    let mut out = Vec::new();
    if page.items.is_empty() && cursor.is_none() {
        let run = edge.service.run(identity).await?;
        if let Some(result) = run.result {
            write_line(&mut out, &Own { identity, instance: None, attempt: run.attempt, peer: None, state: run.state, result })?;
        }
    }
    for one in page.items {
        if let Some(result) = one.result {
            let (instance, peer) = (Some(one.instance), one.peer.map(|peer| peer.to_string()));
            write_line(&mut out, &Own { identity, instance, attempt: one.attempt, peer, state: one.state, result })?;
        }
    }
    Ok((out, page.next_cursor))
}

fn write_line(out: &mut Vec<u8>, line: &impl Serialize) -> Result<(), Problem> {
    // Compact JSON has no line breaks.
    serde_json::to_writer(&mut *out, line).map_err(|_| Problem::internal())?;
    out.push(b'\n');
    Ok(())
}
