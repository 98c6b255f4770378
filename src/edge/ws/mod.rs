//! WebSockets: the only modules that use `actix-web-actors`. A session is pure transport: frames in, frames out, and the close reason;
//! the actor behind it interprets the frames.

mod frames;
mod live;
mod node;
mod owner;
pub(super) mod relay;
mod session;
mod worker;

use super::Edge;
use super::access::refused;
use super::auth::{self, Admitted, Caller, Need, allow_peer};
use super::error::Failure;
use super::forward::must_reach;
use super::http::node::{address_of, check_facts, node_id};
use super::http::portal;
use super::live::{Inside, Viewer};
use super::owners::own;
use super::route::{Resource, resource};
use crate::config::tokens::Signed;
use crate::domain::ids::{PeerId, WorkerId};
use crate::domain::node::{Instance, NodeFacts};
use crate::domain::time::Timestamp;
use crate::protocol::live::TOKEN;
use crate::protocol::ownership::{PATH, SECRET_HEADER};
use crate::protocol::problem::Problem;
use actix_web::http::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use std::collections::HashMap;
use std::rc::Rc;

/// Blocks that a node processes at once by default.
const MAX_PROCESS_COUNT: u32 = 5;
/// Largest number of sites that a node may work on at once.
const MOST_SITES: u32 = 10_000;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/").get(root, |op| {
            op.named("openNodeSocket")
                .description(
                    "The WebSocket of a node, and the portal. With `Upgrade: websocket` and the parameters of docs/protocol.md \
                    (`nodeid` and others) it opens the socket; then a token of the role agent or admin is asked for, which may also \
                    stand in the address (`token`, or `sign`). Without an upgrade it is the page that people manage jobs on, for everybody.",
                )
                .admits(admit_node, refused)
                .answers_as(200, "text/html", "The portal.")
                .with_header("ETag", "Changes with the page.")
                .answers_nothing(304, "It is the one that `If-None-Match` names.")
                .answers_nothing(101, "The socket is open.")
                .may_fail(&[400, 401, 403, 422, 429, 503])
        }),
        resource("/worker").get(worker_socket, |op| {
            op.named("openWorkerSocket")
                .only_leader()
                .description(
                    "The WebSocket of a worker. It asks for `Upgrade: websocket`; its id may stand in the address (`workerid`), and so \
                    may its token (`token`).",
                )
                .needs(Need::Worker)
                .admits(admit_worker, refused)
                .answers_nothing(101, "The socket is open.")
                .may_fail(&[400])
        }),
        resource(PATH).get(owner_socket, |op| {
            op.named("openLink")
                .only_leader()
                .description(
                    "The WebSocket of another broker of the same database, which executes runs. Only a program that can read the database \
                    has the secret that this call needs. The leader must reach the broker at the address in `webloom-url`. It is not for clients.",
                )
                .admits(admit_owner, refused)
                .answers_nothing(101, "The socket is open.")
                .may_fail(&[400, 401, 422, 503])
        }),
        resource("/live").get(live_socket, |op| {
            op.named("openLiveSocket")
                .description(
                    "The WebSocket of a window that watches answers of the API. It asks for `Upgrade: websocket`. The broker sends the \
                    answers to the paths that the window watches, and then their differences. A token may also stand in a subprotocol, \
                    because a browser cannot set headers (docs/protocol.md).",
                )
                .needs(Need::Read)
                .admits(admit_window, refused)
                .limits_itself()
                .answers_nothing(101, "The socket is open.")
                .may_fail(&[400])
        }),
    ]
}

/// Whether the caller asks for a WebSocket. Clients of HTTP/2 ask for `Upgrade: h2c`, which is ignored.
pub(super) fn wants_socket(request: &HttpRequest) -> bool {
    let upgrade = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case("websocket")))
}

/// Everybody may load the page; only nodes open a socket.
fn admit_node(edge: &Edge, request: &HttpRequest) -> Result<Option<Caller>, Failure> {
    if !wants_socket(request) {
        return Ok(None);
    }
    if relay::leader_for(edge, request).is_none() {
        edge.service.must_lead()?;
    }
    let query = parameters(request)?;
    let (facts, _) = facts(&query, request)?;
    let signed_at = query.get("signtime").map(|text| text.parse().map(Timestamp));
    let at = signed_at.transpose().map_err(|_| Problem::malformed("milliseconds since 1970 are expected").at("signtime"))?;
    let sign = query.get("sign").map(|sign| Signed { node: facts.node_id, sign, at });
    allow_peer(edge, request, Need::Agent, query.get("token").map(String::as_str), sign).map(Some)
}

fn admit_worker(edge: &Edge, request: &HttpRequest) -> Result<Option<Caller>, Failure> {
    let query = if wants_socket(request) { parameters(request)? } else { HashMap::new() };
    allow_peer(edge, request, Need::Worker, query.get("token").map(String::as_str), None).map(Some)
}

/// The token in the subprotocols that a browser offers.
fn offered_token(request: &HttpRequest) -> Option<String> {
    let offers = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).filter_map(|value| value.to_str().ok());
    let coded = offers.flat_map(|offers| offers.split(',')).find_map(|offer| offer.trim().strip_prefix(TOKEN))?;
    String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(coded).ok()?).ok()
}

fn admit_window(edge: &Edge, request: &HttpRequest) -> Result<Option<Caller>, Failure> {
    allow_peer(edge, request, Need::Read, offered_token(request).as_deref(), None).map(Some)
}

/// Another broker proves that it can read the database.
fn admit_owner(edge: &Edge, request: &HttpRequest) -> Result<Option<Caller>, Failure> {
    let secret = request.headers().get(SECRET_HEADER).map_or(&[][..], HeaderValue::as_bytes);
    edge.service.admit_owner(secret)?;
    Ok(Some(Caller::default()))
}

/// `GET /api/v1/link`
pub async fn owner_socket(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    stream: web::Payload,
) -> Result<HttpResponse, Failure> {
    check_upgrade(&request)?;
    must_reach(&request).await?;
    owner::open(&edge, &caller, &request, stream)
}

fn check_upgrade(request: &HttpRequest) -> Result<(), Problem> {
    let is_upgrade = wants_socket(request);
    is_upgrade.then_some(()).ok_or_else(|| Problem::malformed("this address is a WebSocket: send `Upgrade: websocket`"))
}

/// `GET /live`
pub async fn live_socket(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    stream: web::Payload,
) -> Result<HttpResponse, Failure> {
    check_upgrade(&request)?;
    let inside = request.app_data::<Rc<Inside>>().ok_or_else(Problem::internal)?;
    let token = auth::token(&request).map(str::to_owned).or_else(|| offered_token(&request));
    let token = token.and_then(|token| HeaderValue::from_str(&token).ok());
    let viewer = Viewer { inside: Rc::clone(inside), token, key: caller.share(), peer: request.peer_addr() };
    live::open(&edge, viewer, &caller, &request, stream)
}

/// `GET /`: the address of a node's socket in the seeds, and the portal for everybody else.
pub async fn root(
    edge: web::Data<Edge>,
    caller: Option<Caller>,
    request: HttpRequest,
    stream: web::Payload,
) -> Result<HttpResponse, Failure> {
    let Some(caller) = caller else { return Ok(portal::page(&request)) };
    if let Some(leader) = relay::leader_for(&edge, &request) {
        return Ok(relay::open(&edge, leader, &request, stream).await?);
    }
    // The role may have changed since the caller was admitted.
    edge.service.must_lead()?;
    edge.service.check_lease()?;
    let query = parameters(&request)?;
    let (facts, binary) = facts(&query, &request)?;
    check_facts(&facts)?;
    own(&edge, &caller, PeerId::Node(facts.node_id)).await?;
    let instance = instance(&query)?;
    node::open(&edge, (facts, instance), binary, caller, &request, stream)
}

/// A client that keeps its socket when another broker leads.
#[derive(Debug, Clone, Copy)]
enum Client {
    Node,
    Worker,
}

impl Client {
    /// The client of a socket at this address.
    fn at(path: &str) -> Option<Self> {
        match path {
            "/" => Some(Self::Node),
            "/worker" => Some(Self::Worker),
            _ => None,
        }
    }
}

/// Begins a session of a client that this broker admitted before it led: its request is that of then.
async fn session_of(
    client: Client,
    leader: &Edge,
    admitted: Admitted,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    request.extensions_mut().insert(admitted);
    let edge = web::Data::new(leader.clone());
    match client {
        Client::Node => {
            let caller = admit_node(&edge, request)?;
            root(edge, caller, request.clone(), payload).await
        }
        Client::Worker => {
            let caller = admit_worker(&edge, request)?.ok_or_else(Problem::internal)?;
            edge.service.check_lease()?;
            worker_socket(edge, caller, request.clone(), payload).await
        }
    }
}

/// `GET /worker`
pub async fn worker_socket(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    stream: web::Payload,
) -> Result<HttpResponse, Failure> {
    check_upgrade(&request)?;
    let query = parameters(&request)?;
    let id = match query.get("workerid") {
        Some(text) => text.parse().map_err(|e: crate::domain::ids::InvalidId| Problem::malformed(e.to_string()).at("workerid"))?,
        None => WorkerId::at(Timestamp::now()),
    };
    own(&edge, &caller, PeerId::Worker(id)).await?;
    edge.service.admit_worker(id).await?;
    worker::open(&edge, id, caller, &request, stream)
}

/// The parameters of a URL; their names are compared ignoring case.
fn parameters(request: &HttpRequest) -> Result<HashMap<String, String>, Failure> {
    let pairs = web::Query::<Vec<(String, String)>>::from_query(request.query_string())
        .map_err(|e| Problem::malformed(format!("cannot read the parameters of the URL: {e}")))?;
    Ok(pairs.into_inner().into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
}

/// The agent's instance, if it sent one.
fn instance(query: &HashMap<String, String>) -> Result<Option<Instance>, Failure> {
    let mark = |name: &str| {
        let text = query.get(name).filter(|text| !text.is_empty());
        let wrong = |_| Problem::malformed("a UUID is expected").at(name.to_owned());
        text.map(|text| uuid::Uuid::parse_str(text).map_err(wrong)).transpose()
    };
    let after = mark("after")?;
    Ok(mark("instance")?.map(|id| Instance { id, after }))
}

/// The facts that a node sends in its URL: the seeds' names, and the same correctly spelled.
fn facts(query: &HashMap<String, String>, request: &HttpRequest) -> Result<(NodeFacts, bool), Failure> {
    let text = |names: &[&str]| names.iter().find_map(|name| query.get(*name)).filter(|text| !text.is_empty());
    let number = |names: &[&str], default: u64| match text(names) {
        None => Ok(default),
        Some(value) => value.parse().map_err(|_| Problem::malformed(format!("`{value}` is not a whole number")).at(names[0])),
    };
    let id = text(&["nodeid"]).ok_or_else(|| Problem::malformed("it is required: the id of the node").at("nodeid"))?;
    let processors = number(&["proccessorcount", "processorcount", "cpucount"], 1)?;
    let most = number(&["maxprocesscount"], u64::from(MAX_PROCESS_COUNT))?;
    if !(1..=1_000).contains(&most) {
        return Err(Problem::invalid("maxprocesscount", "must be 1 to 1000").into());
    }
    let max_sites = text(&["maxsites"]).map(|_| number(&["maxsites"], 0)).transpose()?;
    let max_sites = max_sites.map(|most| u32::try_from(most).unwrap_or(u32::MAX).min(MOST_SITES));
    let takes_programs = text(&["applications"]).is_none_or(|said| !said.eq_ignore_ascii_case("false"));
    let programs = text(&["maxprograms"]).map(|_| number(&["maxprograms"], 0)).transpose()?;
    let max_programs = if takes_programs { programs.map(|most| u32::try_from(most).unwrap_or(u32::MAX)) } else { Some(0) };
    let facts = NodeFacts {
        node_id: node_id(id)?,
        name: text(&["name"]).cloned(),
        node_type: text(&["nodetype"]).cloned().unwrap_or_else(|| "Console".to_owned()),
        ip_address: text(&["ip", "ipaddress"]).cloned().unwrap_or_else(|| address_of(request)),
        processor_count: u32::try_from(processors).unwrap_or(u32::MAX),
        group: text(&["group"]).cloned().unwrap_or_else(|| "default".to_owned()),
        operating_system: text(&["operationsystem", "operatingsystem", "os"]).cloned().unwrap_or_default(),
        memory: number(&["memory", "totalmemory"], 0)?,
        max_process_count: most as u32,
        max_sites,
        max_programs,
    };
    let binary = query.get("encoding").is_some_and(|encoding| encoding.eq_ignore_ascii_case("zstd"));
    Ok((facts, binary))
}
