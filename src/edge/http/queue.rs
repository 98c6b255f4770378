//! `/requestqueue/{identity}`: requests in, finished blocks out.

use super::results::{LINES, asks_for_lines, lines};
use crate::actors::run::DeliveredBlock;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Identity, InvalidId, PeerId, WorkerId};
use crate::domain::request::RequestBatch;
use crate::edge::Edge;
use crate::edge::answer::Traced;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{aside, id, parse, read};
use crate::edge::error::Failure;
use crate::edge::owners::own;
use crate::edge::route::{Resource, resource};
use crate::fault;
use crate::protocol::api::Page;
use crate::protocol::delivery::{self, Block, Outcome};
use crate::protocol::problem::Problem;
use crate::protocol::push::{AckCall, Pushed, Request, read_ack, read_push};
use crate::protocol::zstd_frame;
use crate::protocol::{BULK, HOLDS_HEADER, MAX_PUSH, MAX_REPORT, RUN_STATE_HEADER, pack};
use crate::service::{PollOptions, Receipt, StoredResult};
use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT, ContentType};
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::time::Duration;

/// The longest time a call may wait, in seconds.
pub(super) const MOST_WAIT: f64 = 60.0;
/// Largest number of blocks in one response.
const MOST_BLOCKS: usize = 64;
/// Bytes of a plain JSON response; a larger block is sent alone.
const MOST_PLAIN: usize = 1 << 20;

/// Routes of this module: the addresses of the seeds, with the prefix of 002's code and without.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/requestqueue/{identity}")
            .also_at("/api/requestqueue/{identity}")
            .get(poll, |op| {
                op.named("pollBlocks").of_run()
                    .only_leader()
                    .description("Delivers finished blocks of a run. The bulk form is described in docs/protocol.md.")
                    .needs(Need::Worker)
                    .query::<Query>()
                    .answers_or_bulk::<Polled>(200, "A block, or several if `max` is given.")
                    .with_header(RUN_STATE_HEADER, "The state of the run.")
                    .answers_nothing(204, "No block was finished within the wait time.")
                    .with_header(RUN_STATE_HEADER, "The state of the run. If the run has ended, no more blocks come.")
                    .may_fail(&[409, 422])
            })
            .post(push, |op| {
                op.named("pushRequests").of_run()
                    .description("Pushes requests into the queue of a run. A request that the run has already seen is not added again.")
                    .needs(Need::Worker)
                    .body::<PushInput>()
                    .answers::<Pushed>(200, "The requests are on disk.")
                    .may_fail(&[409, 422])
            }),
        resource("/api/v1/runs/{id}/results").get(results, |op| {
            op.named("listResults")
                .only_leader()
                .description("Reads the results of a block run that no worker has acknowledged, in the order of their blocks, and leaves them as they are. Acknowledged results, and those of a run that is over, are deleted. A page ends early where it becomes large. If `Accept` asks for `application/jsonl`, all results are sent from the cursor on, a line of JSON for each; of other runs, then, what the run or its instances left.")
                .needs(Need::Worker)
                .query::<ResultQuery>()
                .answers::<Page<Block>>(200, "A page of finished blocks.")
                .or_as(LINES)
                .may_fail(&[422])
        }),
        resource("/requestqueue/{identity}/ack").also_at("/api/requestqueue/{identity}/ack").post(ack, |op| {
            op.named("acknowledgeBlocks").of_run()
                .description("Acknowledges blocks and pushes their follow-up requests, in one transaction.")
                .needs(Need::Worker)
                .body::<AckCall<Request>>()
                .answers::<Pushed>(200, "The changes are on disk.")
                .may_fail(&[409, 422])
        }),
    ]
}

/// Requests: a plain array, or a member of an object.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema counts: a push is checked where it stands")]
enum PushInput {
    Requests(Vec<Request>),
    Object { requests: Vec<Request> },
}

/// One block, or a list of blocks if `max` was given.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema counts")]
enum Polled {
    Block(Box<Block>),
    Blocks { blocks: Vec<Block> },
}

/// `POST /requestqueue/{identity}`
pub async fn push(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let identity: Identity = id(&edge, &request, "identity").await?;
    let body = read(&request, payload, MAX_PUSH).await?;
    let batch = parse(&request, body, 1, read_push).await?;
    Ok(HttpResponse::Ok().json(edge.service.push(identity, Vec::new(), batch).await?))
}

/// `POST /requestqueue/{identity}/ack`
pub async fn ack(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let identity: Identity = id(&edge, &request, "identity").await?;
    let body = read(&request, payload, MAX_PUSH).await?;
    let (blocks, batch) = parse(&request, body, 1, read_ack).await?;
    Ok(HttpResponse::Ok().json(edge.service.push(identity, blocks, batch).await?))
}

/// The query of a poll.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Seconds to wait for a block, 0 by default.
    #[schemars(range(min = 0.0, max = MOST_WAIT))]
    wait: Option<f64>,
    /// Maximum number of blocks; if it is given the response is a list.
    #[schemars(range(min = 1, max = MOST_BLOCKS))]
    max: Option<usize>,
    /// The worker that polls: if it is lost, its blocks go to other workers at once.
    worker: Option<WorkerId>,
    /// Ids of blocks to acknowledge, separated by commas; or `auto`: delivered blocks are acknowledged at once.
    #[schemars(regex(pattern = "^(auto|([0-9a-fA-F]{32}(,[0-9a-fA-F]{32})*)?)$"))]
    ack: Option<String>,
}

/// Parses the seconds that a caller wants to wait.
///
/// # Errors
/// The value is negative or above the limit.
pub fn wait_of(seconds: Option<f64>) -> Result<Duration, Failure> {
    match seconds {
        None => Ok(Duration::ZERO),
        Some(s) if (0.0..=MOST_WAIT).contains(&s) => Ok(Duration::from_secs_f64(s)),
        Some(_) => Err(Problem::invalid("wait", format!("must be 0 to {MOST_WAIT} seconds")).into()),
    }
}

/// The blocks that the polling worker lists as received, if it lists them.
fn holds_of(request: &HttpRequest, worker: Option<WorkerId>) -> Result<Option<Vec<BlockId>>, Problem> {
    let Some(value) = request.headers().get(HOLDS_HEADER) else { return Ok(None) };
    let wrong = |detail: String| Problem::malformed(detail).at(HOLDS_HEADER);
    if worker.is_none() {
        return Err(wrong("the header lists what a worker has: name the worker with the parameter `worker`".to_owned()));
    }
    let text = value.to_str().map_err(|_| wrong("ids of blocks are expected, separated by commas".to_owned()))?;
    let ids = text.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::parse);
    ids.collect::<Result<_, _>>().map(Some).map_err(|e: InvalidId| wrong(e.to_string()))
}

/// `GET /requestqueue/{identity}`
pub async fn poll(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let identity: Identity = id(&edge, &request, "identity").await?;
    if let Some(worker) = query.worker {
        own(&edge, &caller, PeerId::Worker(worker)).await?;
    }
    let wait = wait_of(query.wait)?;
    let max = query.max.unwrap_or(1);
    if !(1..=MOST_BLOCKS).contains(&max) {
        return Err(Problem::invalid("max", format!("must be 1 to {MOST_BLOCKS}")).into());
    }
    let auto_ack = query.ack.as_deref() == Some("auto");
    if let Some(list) = query.ack.as_deref().filter(|list| !auto_ack && !list.is_empty()) {
        let acks: Result<Vec<BlockId>, _> = list.split(',').map(str::parse).collect();
        let acks = acks.map_err(|e| Problem::malformed(e.to_string()).at("ack"))?;
        match edge.service.push(identity, acks, RequestBatch::default()).await {
            // This call repeats an acknowledgement of the last open block.
            Err(problem) if problem.kind == "/problems/run-over" => {}
            other => drop(other?),
        }
    }
    let bulk = request.headers().get(ACCEPT).and_then(|v| v.to_str().ok()).is_some_and(|accept| accept.contains(BULK));
    // Which blocks fit into a list of plain JSON is known after they are read: the others must not be acknowledged.
    let is_acked_later = auto_ack && !bulk && max > 1;
    let options =
        PollOptions { worker: query.worker, max, wait, auto_ack: auto_ack && !is_acked_later, holds: holds_of(&request, query.worker)? };
    let polled = edge.service.poll(identity, options);
    let (delivered, mut receipt) = caller.while_admitted(&edge.tokens, polled).await?;
    if !delivered.blocks.is_empty() && fault::fails("edge.poll.lost") {
        // The broker takes the answer for sent, and the client does not get it.
        receipt.into_iter().for_each(Receipt::arrived);
        return Err(Problem::internal().into());
    }
    let mut answer = HttpResponse::Ok();
    answer.insert_header((RUN_STATE_HEADER, delivered.state.name()));
    if delivered.blocks.is_empty() {
        return Ok(answer.status(StatusCode::NO_CONTENT).finish());
    }
    if bulk {
        return Ok(answer.content_type(BULK).body(Traced::new(bulk_body(&delivered.blocks), receipt)));
    }
    let mut blocks = delivered.blocks;
    if let Some(receipt) = receipt.as_mut().filter(|_| blocks.len() > 1) {
        let fit = how_many_fit(&blocks);
        blocks.truncate(fit);
        receipt.leave_out(fit);
    }
    let is_list = query.max.is_some();
    let given = blocks.iter().map(|block| block.block_id).collect();
    let text = plain_text(identity, blocks, is_list).await?;
    if is_acked_later {
        match edge.service.push(identity, given, RequestBatch::default()).await {
            // The run was stopped meanwhile, and waits for no acknowledgement.
            Err(problem) if problem.kind == "/problems/run-over" => {}
            other => drop(other?),
        }
        // With automatic acknowledgement, what is lost on the way stays lost.
        receipt.take().into_iter().for_each(Receipt::arrived);
    }
    Ok(answer.content_type(ContentType::json()).body(Traced::new(text, receipt)))
}

/// The query of a list of results.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultQuery {
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9]{1,9}$"))]
    cursor: Option<String>,
    /// Maximum number of blocks in a page, 16 by default.
    #[schemars(range(min = 1, max = MOST_BLOCKS))]
    limit: Option<usize>,
}

/// `GET /api/v1/runs/{id}/results`
pub async fn results(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<ResultQuery>) -> Result<HttpResponse, Failure> {
    let identity: Identity = id(&edge, &request, "id").await?;
    if asks_for_lines(&request) {
        return lines(edge, identity, query.cursor.as_deref()).await;
    }
    let limit = query.limit.unwrap_or(MOST_BLOCKS / 4);
    if !(1..=MOST_BLOCKS).contains(&limit) {
        return Err(Problem::invalid("limit", format!("must be 1 to {MOST_BLOCKS}")).into());
    }
    let (items, next_cursor) = opened_results(&edge, identity, query.cursor.as_deref(), limit).await?;
    Ok(HttpResponse::Ok().json(Page { items, next_cursor }))
}

/// Stored blocks with their results, as many as fit into one response, and the cursor of the next ones.
pub(super) async fn opened_results(
    edge: &Edge,
    identity: Identity,
    cursor: Option<&str>,
    limit: usize,
) -> Result<(Vec<Block>, Option<String>), Problem> {
    let (found, next) = edge.service.results(identity, cursor, limit).await?;
    let (blocks, next) = cut(identity, found, next);
    Ok((opened(identity, blocks).await?, next))
}

/// As many blocks as fit into one response, and the cursor of the next ones. Stored blocks are small: what a site packed tightly may be
/// a thousand times as large.
fn cut(identity: Identity, found: Vec<(BlockId, StoredResult)>, next: Option<String>) -> (Vec<DeliveredBlock>, Option<String>) {
    let blocks = found.into_iter().map(|(block_id, result)| DeliveredBlock {
        block_id,
        requests: result.payload,
        raw_length: result.raw_length,
        pack: result.pack,
        delivery_no: None,
    });
    let mut blocks: Vec<_> = blocks.collect();
    let fit = how_many_fit(&blocks);
    let left = blocks.get(fit).and_then(|block| block.block_id.seq_in(identity));
    blocks.truncate(fit);
    (blocks, left.map(|seq| seq.to_string()).or(next))
}

/// Approximate bytes of a block as plain JSON.
fn plain_size(block: &DeliveredBlock) -> usize {
    let bodies: usize =
        pack::read_index(&block.pack).map_or(0, |index| index.results.iter().map(|e| e.head as usize + e.body as usize * 4 / 3).sum());
    block.raw_length as usize + bodies
}

/// Number of blocks that fit into one response; at least one.
fn how_many_fit(blocks: &[DeliveredBlock]) -> usize {
    let mut bytes = 0;
    let fit = blocks.iter().take_while(|block| {
        bytes += plain_size(block);
        bytes <= MOST_PLAIN
    });
    fit.count().max(1)
}

#[derive(Serialize)]
struct List<'a> {
    blocks: &'a [Block],
}

/// Blocks with their results. Large ones are unpacked outside the server threads.
async fn opened(identity: Identity, blocks: Vec<DeliveredBlock>) -> Result<Vec<Block>, Problem> {
    let is_large = blocks.iter().map(plain_size).sum::<usize>() > MOST_PLAIN;
    let open = move || all_plain(identity, &blocks);
    if is_large { aside(open).await } else { open() }
}

fn all_plain(identity: Identity, blocks: &[DeliveredBlock]) -> Result<Vec<Block>, Problem> {
    let one = |block: &DeliveredBlock| {
        plain(identity, block).map_err(|problem| {
            log::error!("cannot read a stored block block_id={}: {problem}", block.block_id);
            Problem::internal()
        })
    };
    blocks.iter().map(one).collect()
}

/// Blocks as plain JSON. Large ones are unpacked outside the server threads.
async fn plain_text(identity: Identity, blocks: Vec<DeliveredBlock>, is_list: bool) -> Result<Vec<u8>, Problem> {
    let is_large = blocks.iter().map(plain_size).sum::<usize>() > MOST_PLAIN;
    let write = move || {
        let mut out = all_plain(identity, &blocks)?;
        let text = if is_list { serde_json::to_vec(&List { blocks: &out }) } else { serde_json::to_vec(&out.pop()) };
        text.map_err(|_| Problem::internal())
    };
    if is_large { aside(write).await } else { write() }
}

fn bulk_body(blocks: &[DeliveredBlock]) -> Vec<u8> {
    let mut body = Vec::with_capacity(blocks.iter().map(|b| b.requests.len() + b.pack.len() + 256).sum());
    for block in blocks {
        let head = delivery::Head {
            block_id: block.block_id,
            requests: block.requests.len() as u32,
            requests_raw: block.raw_length,
            pack: block.pack.len() as u32,
        };
        delivery::write(&mut body, &head, &block.requests, &block.pack);
    }
    body
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    request_id: Fingerprint,
}

/// Unpacks a block for a client that requested plain JSON.
fn plain(identity: Identity, block: &DeliveredBlock) -> Result<Block, Problem> {
    let broken = |e: String| Problem::malformed(e);
    let text = zstd_frame::decompress(&block.requests, block.raw_length as usize).map_err(|e| broken(e.to_string()))?;
    let requests: Vec<Box<RawValue>> = serde_json::from_slice(&text).map_err(|e| broken(e.to_string()))?;
    let mut by_id = HashMap::with_capacity(requests.len());
    for request in requests {
        let named: Named = serde_json::from_str(request.get()).map_err(|e| broken(e.to_string()))?;
        by_id.insert(named.request_id, request);
    }
    let (index, opened) = pack::open(&block.pack, MAX_REPORT)?;
    let results = opened.into_iter().map(|opened| {
        let entry = opened.entry;
        let request = by_id.remove(&entry.request_id).ok_or_else(|| broken(format!("{} has no request", entry.request_id)))?;
        Ok(Outcome {
            request_id: entry.request_id,
            request,
            status: entry.status,
            tries: entry.tries,
            time: entry.time,
            target_url: opened.head.target_url,
            error: entry.error,
            headers: opened.head.headers,
            fetched_at: opened.head.fetched_at,
            remote_address: opened.head.remote_address,
            sent: opened.head.sent,
            content: base64::engine::general_purpose::STANDARD.encode(&opened.body),
        })
    });
    let results: Result<Vec<Outcome>, Problem> = results.collect();
    let state = if index.exception.is_some() { "failed" } else { "success" };
    Ok(Block { block_id: block.block_id, identity, state: state.to_owned(), exception: index.exception, results: results? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_stored_blocks_ends_when_they_are_large_once_unpacked() {
        let identity = Identity::random();
        let stored = |seq, raw_length| {
            let (payload, pack) = Default::default();
            (BlockId::new(identity, seq), StoredResult { seq, raw_length, payload, pack, is_checked: true })
        };
        let page = |sizes: &[u32]| {
            let found = (7..).zip(sizes).map(|(seq, size)| stored(seq, *size)).collect();
            let (blocks, next) = cut(identity, found, Some("20".to_owned()));
            (blocks.len(), next.expect("a cursor"))
        };
        assert_eq!(page(&[400 << 10, 400 << 10]), (2, "20".to_owned()));
        assert_eq!(page(&[400 << 10, 400 << 10, 400 << 10, 1]), (2, "9".to_owned()));
        // At least one.
        assert_eq!(page(&[9 << 20, 1]), (1, "8".to_owned()));
        assert_eq!(page(&[]), (0, "20".to_owned()));
    }
}
