//! Who may do what.

use super::Edge;
use super::error::Failure;
use crate::config::tokens::{Granted, Role, Signed, TokenKey, Verdict};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use actix_web::dev::Payload;
use actix_web::http::header::{AUTHORIZATION, HOST, ORIGIN};
use actix_web::{FromRequest, HttpMessage as _, HttpRequest};
use std::future::{Ready, ready};

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
    /// The same, for questions.
    role: Option<Role>,
    /// Which token, unless it is an admin's, who may act for all.
    pub token: Option<TokenKey>,
}

impl Caller {
    /// An admin sees what others see masks of.
    #[must_use]
    pub fn sees_secrets(&self) -> bool {
        self.name.as_deref().is_none_or(|name| name == Role::Admin.name())
    }

    /// Whether the caller may do what asks for this.
    #[must_use]
    pub fn may(&self, need: Need) -> bool {
        self.role.is_none_or(|role| need.met_by(role))
    }

    /// That the caller may do what asks for this.
    ///
    /// # Errors
    /// It may not.
    pub fn must(&self, need: Need) -> Result<(), Problem> {
        match self.role.filter(|role| !need.met_by(*role)) {
            Some(role) => Err(Problem::forbidden(format!("a token of role {} may not do that", role.name()))),
            None => Ok(()),
        }
    }

    fn of(role: Role, granted: Granted) -> Self {
        Self { name: Some(role.name().to_owned()), role: Some(role), token: (granted.role != Role::Admin).then_some(granted.key) }
    }
}

/// The caller that the route has let pass.
impl FromRequest for Caller {
    type Error = Failure;
    type Future = Ready<Result<Self, Failure>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // Without one the table says that everybody may call: then nobody asks who does.
        ready(request.extensions().get::<Self>().cloned().ok_or_else(|| Problem::internal().into()))
    }
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

/// The caller that the route has let pass, if it may do this.
///
/// # Errors
/// It may not.
pub fn allow(_: &Edge, request: &HttpRequest, need: Need) -> Result<Caller, Failure> {
    let caller = request.extensions().get::<Caller>().cloned().ok_or_else(Problem::unauthorized)?;
    caller.must(need)?;
    Ok(caller)
}

/// Lets a caller pass or not: for the routes.
///
/// # Errors
/// No token where one is needed, one that is nobody's, or one that may not do this.
pub(super) fn admit(edge: &Edge, request: &HttpRequest, need: Need) -> Result<Caller, Failure> {
    judge(edge, request, need, token(request), None)
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
    signed: Option<Signed<'_>>,
) -> Result<Caller, Failure> {
    judge(edge, request, need, token(request).or(in_address), signed)
}

/// Lets everybody pass who comes from no page of another site: for what is public and asks for no token.
///
/// # Errors
/// The request comes from such a page, or to a name that is not ours.
pub fn allow_anyone(edge: &Edge, request: &HttpRequest) -> Result<(), Failure> {
    keep_out_other_sites(edge, request)?;
    if edge.tokens.is_open() { keep_to_loopback(request) } else { Ok(()) }
}

fn judge(edge: &Edge, request: &HttpRequest, need: Need, token: Option<&str>, signed: Option<Signed<'_>>) -> Result<Caller, Failure> {
    keep_out_other_sites(edge, request)?;
    if edge.tokens.is_open() {
        return keep_to_loopback(request).map(|()| Caller::default());
    }
    let from = request.peer_addr().map(|address| address.ip());
    let mut is_signed = false;
    let granted = match (signed.filter(|_| need == Need::Agent), token) {
        (None, None) => {
            edge.guard.missing();
            return Err(Problem::unauthorized().into());
        }
        (Some(signed), token) => match edge.tokens.judge(signed, Timestamp::now()) {
            Verdict::Granted(granted) => {
                is_signed = true;
                Some(granted)
            }
            _ if token.is_some() => token.and_then(|token| edge.tokens.find(token)),
            Verdict::Unknown => None,
            refused => {
                edge.guard.judge(from, None)?;
                return Err(of_sign(refused).into());
            }
        },
        (None, Some(token)) => edge.tokens.find(token),
    };
    edge.guard.judge(from, granted.map(|granted| granted.key))?;
    match granted {
        Some(granted) if is_signed => Ok(Caller::of(Role::Agent, granted)),
        Some(granted) => {
            let caller = Caller::of(granted.role, granted);
            caller.must(need)?;
            Ok(caller)
        }
        None => Err(Problem::unknown_token().into()),
    }
}

/// Why a `sign` that was made with a token is not taken.
fn of_sign(refused: Verdict) -> Problem {
    match refused {
        Verdict::Stale(ms) => {
            let (seconds, side) = (ms.unsigned_abs() / 1_000, if ms > 0 { "behind" } else { "ahead of" });
            Problem::sign(format!("its time is {seconds} s {side} the broker's: set the clock of this machine"))
        }
        _ => Problem::sign("this broker wants a sign with a time: send `signtime` too"),
    }
}

/// Whether a page of this origin is one of ours: same scheme, same host and port. A proxy that speaks TLS in our place says so.
fn is_own(origin: &str, host: &str, scheme: &str) -> bool {
    origin.split_once("://").is_some_and(|(s, authority)| s.eq_ignore_ascii_case(scheme) && authority.eq_ignore_ascii_case(host))
}

fn keep_out_other_sites(edge: &Edge, request: &HttpRequest) -> Result<(), Failure> {
    // A page of another site that a browser on this machine has open must not reach the broker through it.
    if let Some(origin) = header(request, ORIGIN) {
        let host = header(request, HOST).unwrap_or_default();
        // No page of another site can make a browser send this header.
        let forwarded = header(request, "X-Forwarded-Proto").and_then(|schemes| schemes.split(',').next()).map(str::trim);
        if !is_own(origin, host, forwarded.unwrap_or(if edge.is_tls { "https" } else { "http" })) {
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
    use super::{is_own, name_of};

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        assert!(is_own("http://broker:1", "broker:1", "http") && is_own("https://Broker:1", "broker:1", "HTTPS"));
        for (origin, scheme) in [("https://broker:1", "http"), ("http://broker:1", "https"), ("http://broker:2", "http"), ("null", "http")]
        {
            assert!(!is_own(origin, "broker:1", scheme), "{origin} {scheme}");
        }
    }

    #[test]
    fn a_host_is_read_with_and_without_its_port() {
        for (host, name) in [("localhost:1", "localhost"), ("localhost", "localhost"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("", "")] {
            assert_eq!(name_of(host), name, "{host}");
        }
    }
}
