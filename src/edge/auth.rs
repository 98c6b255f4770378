//! Who may do what.

use super::Edge;
use super::error::Failure;
use crate::config::tokens::Role;
use crate::domain::ids::NodeId;
use crate::protocol::problem::Problem;
use actix_web::HttpRequest;
use actix_web::http::header::{AUTHORIZATION, HOST, ORIGIN};

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To look.
    Read,
    /// To change.
    Admin,
    /// To be a node.
    Agent,
    /// To be a worker, or to do a worker's work.
    Worker,
}

impl Need {
    pub(super) fn met_by(self, role: Role) -> bool {
        match self {
            // A worker looks at the runs it works for; a node has no business here.
            Self::Read => matches!(role, Role::Admin | Role::ReadOnly | Role::Worker),
            Self::Admin => role == Role::Admin,
            Self::Agent => matches!(role, Role::Admin | Role::Agent),
            Self::Worker => matches!(role, Role::Admin | Role::Worker),
        }
    }
}

/// Who called: for the books.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The role of the token, unless none was asked for.
    pub name: Option<String>,
}

fn header(request: &HttpRequest, name: impl actix_web::http::header::AsHeaderName) -> Option<&str> {
    request.headers().get(name)?.to_str().ok()
}

/// The token of a request: `Token: …`, or `Authorization: Bearer …`.
fn token(request: &HttpRequest) -> Option<&str> {
    header(request, "Token").or_else(|| {
        let (scheme, token) = header(request, AUTHORIZATION)?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    })
}

/// Lets a caller pass or not.
///
/// # Errors
/// No token where one is needed, one that is nobody's, or one that may not do this.
pub fn allow(edge: &Edge, request: &HttpRequest, need: Need) -> Result<Caller, Failure> {
    check(edge, request, need, token(request), None)
}

/// Lets a peer pass that opens a socket: its token may also stand in the address, or be shown by `sign`.
///
/// # Errors
/// As [`allow`].
pub fn allow_peer(
    edge: &Edge,
    request: &HttpRequest,
    need: Need,
    in_address: Option<&str>,
    signed: Option<(NodeId, &str)>,
) -> Result<Caller, Failure> {
    check(edge, request, need, token(request).or(in_address), signed)
}

/// Lets everybody pass who comes from no page of another site: for what is public and asks for no token.
///
/// # Errors
/// The request comes from such a page, or to a name that is not ours.
pub fn allow_anyone(edge: &Edge, request: &HttpRequest) -> Result<(), Failure> {
    keep_out_other_sites(request)?;
    if edge.tokens.is_open() { keep_to_loopback(request) } else { Ok(()) }
}

fn check(edge: &Edge, request: &HttpRequest, need: Need, token: Option<&str>, signed: Option<(NodeId, &str)>) -> Result<Caller, Failure> {
    keep_out_other_sites(request)?;
    if edge.tokens.is_open() {
        return keep_to_loopback(request).map(|()| Caller::default());
    }
    if let Some((node, sign)) = signed
        && need == Need::Agent
        && edge.tokens.accepts_sign(node, sign)
    {
        return Ok(Caller { name: Some(Role::Agent.name().to_owned()) });
    }
    let role = token.and_then(|token| edge.tokens.role_of(token)).ok_or_else(Problem::unauthorized)?;
    if need.met_by(role) {
        Ok(Caller { name: Some(role.name().to_owned()) })
    } else {
        Err(Problem::forbidden(format!("a token of role {} may not do that", role.name())).into())
    }
}

fn keep_out_other_sites(request: &HttpRequest) -> Result<(), Failure> {
    // A page of another site that a browser on this machine has open must not reach the broker through it.
    if let Some(origin) = header(request, ORIGIN) {
        let host = header(request, HOST).unwrap_or_default();
        if origin.split_once("://").is_none_or(|(_, authority)| authority != host) {
            return Err(Problem::forbidden("the request comes from a page of another site").into());
        }
    }
    // A link on such a page sends no origin with its GET, but says that it leads across sites.
    if header(request, "Sec-Fetch-Site").is_some_and(|site| site == "cross-site" || site == "same-site") {
        return Err(Problem::forbidden("the request comes from a page of another site").into());
    }
    Ok(())
}

/// Without tokens the broker listens on loopback; a name that somebody pointed here is not us.
fn keep_to_loopback(request: &HttpRequest) -> Result<(), Failure> {
    let name = header(request, HOST).map_or("localhost", name_of);
    let ours = name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if ours { Ok(()) } else { Err(Problem::forbidden("this broker answers to loopback names only").into()) }
}

/// The name in a `Host` header: without the port, an IPv6 address without its brackets.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_host_is_read_with_and_without_its_port() {
        for (host, name) in [("localhost:1", "localhost"), ("localhost", "localhost"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("", "")] {
            assert_eq!(name_of(host), name, "{host}");
        }
    }
}
