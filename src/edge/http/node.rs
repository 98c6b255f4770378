//! `/node/heartbeat` and `/node/block`: the HTTP transport of the seeds for nodes without a socket.

use crate::domain::ids::{NodeId, PeerId};
use crate::domain::node::{MOST_NAME, NodeFacts, is_name};
use crate::domain::redirect::is_redirect;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{json, parse, read_as};
use crate::edge::error::Failure;
use crate::edge::intake::Arrival;
use crate::edge::of_run::pass_report_on;
use crate::edge::owners::own;
use crate::edge::route::{Resource, resource};
use crate::protocol::node::{Block, BlockReport, HeartbeatCall, Reported};
use crate::protocol::pack::{self, Builder, Entry, Head, Index};
use crate::protocol::problem::Problem;
use crate::protocol::push::read_object;
use crate::protocol::{BULK, MAX_JSON_REPORT, MAX_REPORT};
use crate::service::NodeMeeting;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine;
use bytes::Bytes;
use url::Url;

/// The longest text in a node's facts, in characters.
const MOST: usize = 50;
/// Blocks that a node without a socket holds at once; it does not report a capacity.
const HTTP_NODE_BLOCKS: u32 = 5;

/// Memory for packing a JSON report, as a multiple of its size.
const PACKING: usize = 2;

/// Routes of this module: the addresses of the seeds, with the prefix of 002's code and without.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/node/heartbeat").also_at("/api/node/heartbeat").post(heartbeat, |op| {
            op.named("beat")
                .description("Heartbeat of a node without a socket: it sends its facts and gets a block or nothing.")
                .needs(Need::Agent)
                .body::<HeartbeatCall>()
                .answers::<Block>(200, "A block to download.")
                .answers_nothing(204, "There is no work for it.")
                .may_fail(&[422])
        }),
        resource("/node/block").also_at("/api/node/block").post(block, |op| {
            op.named("reportBlock")
                .of_run()
                .description("A node reports the result of a block. The response comes when the report is on disk.")
                .needs(Need::Agent)
                .body_or_bulk::<BlockReport>()
                .answers::<Reported>(200, "The report is stored.")
                .may_fail(&[404, 409, 422])
        }),
    ]
}

/// Checks the facts that a node reports about itself.
///
/// # Errors
/// A fact is too long; the problem names it.
pub fn check_facts(facts: &NodeFacts) -> Result<(), Problem> {
    let texts =
        [("nodeType", &facts.node_type), ("ip", &facts.ip_address), ("group", &facts.group), ("operatingSystem", &facts.operating_system)];
    if facts.name.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(Problem::invalid("name", format!("must be 1 to {MOST_NAME} characters without control characters")));
    }
    match texts.iter().find(|(_, text)| text.chars().count() > MOST || text.chars().any(char::is_control)) {
        Some((name, _)) => Err(Problem::invalid(*name, format!("must be at most {MOST} characters without control characters"))),
        None => Ok(()),
    }
}

/// The address of the caller.
#[must_use]
pub fn address_of(request: &HttpRequest) -> String {
    request.peer_addr().map_or_else(String::new, |addr| addr.ip().to_string())
}

/// `POST /node/heartbeat`
pub async fn heartbeat(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let call: HeartbeatCall = json(&request, payload).await?;
    let facts = NodeFacts {
        node_id: call.node_id,
        name: call.name.filter(|name| !name.is_empty()),
        node_type: call.node_type.unwrap_or_else(|| "Console".to_owned()),
        ip_address: call.ip.unwrap_or_else(|| address_of(&request)),
        processor_count: call.processor_count.unwrap_or(1),
        group: call.group.unwrap_or_else(|| "default".to_owned()),
        operating_system: call.operating_system.unwrap_or_default(),
        memory: call.memory.unwrap_or(0),
        max_process_count: HTTP_NODE_BLOCKS,
        max_sites: None,
        // Programs are sent over a socket, which this node does not have.
        max_programs: Some(0),
    };
    check_facts(&facts)?;
    own(&edge, &caller, PeerId::Node(facts.node_id)).await?;
    let meeting = NodeMeeting { facts, heartbeat: call.heartbeat, without: call.runnings, by: caller.name };
    Ok(match edge.service.node_calls(meeting).await? {
        Some(block) => HttpResponse::Ok().json(block),
        None => HttpResponse::NoContent().finish(),
    })
}

/// `POST /node/block`
pub async fn block(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    // Held until the call is answered: its bytes are in memory until then.
    let mut arrival = Arrival::of(caller.share());
    let bulk = request.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(|kind| kind.starts_with(BULK));
    let limit = if bulk { MAX_REPORT } else { MAX_JSON_REPORT };
    let body = read_as(&request, payload, limit, Some(&mut arrival)).await?;
    let (index, pack) = if bulk {
        parse(&request, body, 0, |body| Ok((pack::read_index(&body)?, body))).await?
    } else {
        parse(&request, body, PACKING, |body| packed(&body)).await?
    };
    own(&edge, &caller, PeerId::Node(index.node_id)).await?;
    if let Some(answer) = pass_report_on(&edge, &request, index.identity, pack.clone()).await? {
        return Ok(answer);
    }
    Ok(HttpResponse::Ok().json(edge.service.report(index, pack).await?))
}

/// Packs a JSON report.
fn packed(body: &[u8]) -> Result<(Index, Bytes), Problem> {
    let report: BlockReport = read_object(body)?;
    let index = Index {
        epoch: report.epoch,
        attempt: report.attempt,
        exception: report.exception,
        part: report.part,
        back: report.back,
        site: report.site,
        ..Index::new(report.block_id, report.identity, report.node_id)
    };
    let mut builder = Builder::new(index);
    for (i, result) in report.results.into_iter().enumerate() {
        let content = match (result.content, result.text) {
            (Some(base64), None) => base64::engine::general_purpose::STANDARD
                .decode(base64)
                .map_err(|e| Problem::invalid(format!("results[{i}].content"), format!("not base64: {e}")))?,
            (None, Some(text)) => text.into_bytes(),
            (None, None) => Vec::new(),
            (Some(_), Some(_)) => return Err(Problem::invalid(format!("results[{i}]"), "must have either `content` or `text`, not both")),
        };
        let named = || result.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location")).map(|(_, value)| value.as_str());
        let location = is_redirect(result.status).then(|| location(result.target_url.as_deref(), named().unwrap_or_default()));
        let entry = Entry {
            request_id: result.request_id,
            status: result.status,
            tries: result.tries,
            time: result.time,
            error: result.error,
            location,
            head: 0,
            body: 0,
        };
        builder.push(
            entry,
            &Head { target_url: result.target_url, headers: result.headers, fetched_at: result.fetched_at, ..Head::default() },
            &content,
        );
    }
    let index = builder.index().clone();
    Ok((index, Bytes::from(builder.finish())))
}

/// The target of a redirect, if the final URL is known that it is relative to.
fn location(answered: Option<&str>, text: &str) -> String {
    let url = answered.filter(|_| !text.is_empty()).and_then(|url| Url::parse(url).ok()?.join(text).ok());
    url.map_or_else(|| text.to_owned(), String::from)
}

/// Parses the id of a node.
///
/// # Errors
/// The text is not a node id.
pub fn node_id(text: &str) -> Result<NodeId, Problem> {
    text.parse().map_err(|e: crate::domain::ids::InvalidId| Problem::malformed(e.to_string()).at("nodeid"))
}
