//! Authentication and permissions.

use super::Edge;
use super::error::Failure;
use crate::config::tokens::{Granted, Role, Signed, TokenKey, Tokens, Verdict};
use crate::domain::time::Timestamp;
use crate::protocol::ownership::SECRET_HEADER;
use crate::protocol::problem::Problem;
use actix_web::dev::Payload;
use actix_web::http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use actix_web::{FromRequest, HttpMessage as _, HttpRequest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::future::{Ready, ready};
use std::sync::Arc;

/// The permission that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To read.
    Read,
    /// To trigger, stop, retry and pause.
    Operate,
    /// To change jobs.
    Edit,
    /// To change everything else.
    Admin,
    /// To act as a node.
    Agent,
    /// To act as a worker, or to do a worker's calls.
    Worker,
}

impl Need {
    pub(super) fn met_by(self, role: Role) -> bool {
        match self {
            // A worker reads the runs it works for; a node needs none of this.
            Self::Read => matches!(role, Role::Admin | Role::ReadOnly | Role::Worker | Role::Operator | Role::Editor),
            Self::Operate => matches!(role, Role::Admin | Role::Operator | Role::Editor),
            Self::Edit => matches!(role, Role::Admin | Role::Editor),
            Self::Admin => role == Role::Admin,
            Self::Agent => matches!(role, Role::Admin | Role::Agent),
            Self::Worker => matches!(role, Role::Admin | Role::Worker),
        }
    }
}

/// The caller, as it is recorded in the history.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The name of the token, or of its role if it has no name; `None` if the broker needs no token.
    pub name: Option<String>,
    /// The role, for permission checks.
    role: Option<Role>,
    /// The key of the token; `None` for an admin, who may act for everybody.
    pub token: Option<TokenKey>,
    /// The token that was checked, and the permission that it was checked for.
    checked: Option<(TokenKey, Need)>,
    /// The groups of jobs that the token is limited to; `None`: all.
    pub groups: Option<Arc<[String]>>,
}

impl Caller {
    /// Whether the caller sees secrets in clear text: only admins do.
    #[must_use]
    pub fn sees_secrets(&self) -> bool {
        self.role.is_none_or(|role| role == Role::Admin)
    }

    /// The groups of jobs that lists are limited to.
    #[must_use]
    pub fn among(&self) -> Option<Vec<String>> {
        self.groups.as_ref().map(|groups| groups.to_vec())
    }

    /// The name of the role.
    #[must_use]
    pub fn role_name(&self) -> Option<&'static str> {
        self.role.map(Role::name)
    }

    /// Whose share of the memory budget it uses: each token has one, and so do all callers without a token together.
    #[must_use]
    pub fn share(&self) -> Option<TokenKey> {
        self.checked.map(|(key, _)| key)
    }

    /// Whether the caller has this permission.
    #[must_use]
    pub fn may(&self, need: Need) -> bool {
        self.role.is_none_or(|role| need.met_by(role))
    }

    /// Checks that the caller has this permission.
    ///
    /// # Errors
    /// It does not have it.
    pub fn must(&self, need: Need) -> Result<(), Problem> {
        match self.role.filter(|role| !need.met_by(*role)) {
            Some(role) => Err(role_lacks(role)),
            None => Ok(()),
        }
    }

    /// Completes when a reload of the tokens withdraws the caller's token: it is gone, or its role no longer has the permission that the
    /// route requires. Returns the problem that a new call with this token would get.
    pub fn withdrawn(&self, tokens: &Tokens) -> impl Future<Output = Problem> + use<> {
        let (tokens, checked) = (tokens.clone(), self.checked);
        async move {
            let Some((key, need)) = checked else { return std::future::pending().await };
            match tokens.withdrawn(key, |role| need.met_by(role)).await {
                Some(role) => role_lacks(role),
                None => Problem::unknown_token(),
            }
        }
    }

    /// Waits for `work`, but only as long as the caller's token is valid.
    ///
    /// # Errors
    /// Those of `work`, or the token was withdrawn.
    pub async fn while_admitted<T>(&self, tokens: &Tokens, work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
        tokio::select! {
            biased;
            problem = self.withdrawn(tokens) => Err(problem),
            done = work => done,
        }
    }

    fn of(role: Role, granted: Granted, need: Need) -> Self {
        let token = (granted.role != Role::Admin).then_some(granted.key);
        let name = granted.name.map_or_else(|| role.name().to_owned(), |name| name.as_ref().to_owned());
        Self { name: Some(name), role: Some(role), token, checked: Some((granted.key, need)), groups: granted.groups }
    }
}

fn role_lacks(role: Role) -> Problem {
    Problem::forbidden(format!("the role {} is not enough for this call", role.name()))
}

/// The caller that the route admitted.
impl FromRequest for Caller {
    type Error = Failure;
    type Future = Ready<Result<Self, Failure>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        // Public routes store no caller, and their handlers do not ask for one.
        ready(request.extensions().get::<Self>().cloned().ok_or_else(|| Problem::internal().into()))
    }
}

fn header(request: &HttpRequest, name: impl actix_web::http::header::AsHeaderName) -> Option<&str> {
    request.headers().get(name)?.to_str().ok()
}

/// The token of a request: `Token: …`, or `Authorization: Bearer …`.
pub(super) fn token(request: &HttpRequest) -> Option<&str> {
    header(request, "Token").or_else(|| {
        let (scheme, token) = header(request, AUTHORIZATION)?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    })
}

/// The token of basic authentication: the password, or the user if the password is empty.
fn basic_token(request: &HttpRequest) -> Option<String> {
    let (scheme, text) = header(request, AUTHORIZATION)?.split_once(' ')?;
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| BASE64_STANDARD.decode(text.trim()).ok())??;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(if password.is_empty() { user } else { password }.to_owned())
}

/// Like [`admit`], also for clients that can only use basic authentication.
///
/// # Errors
/// Same as [`admit`].
pub(super) fn admit_basic(edge: &Edge, request: &HttpRequest, need: Need) -> Result<Caller, Failure> {
    judge(edge, request, need, token(request).or(basic_token(request).as_deref()), None)
}

/// Checks the token of a caller, for the routes.
///
/// # Errors
/// A required token is missing or unknown, or its role lacks the permission.
pub(super) fn admit(edge: &Edge, request: &HttpRequest, need: Need) -> Result<Caller, Failure> {
    judge(edge, request, need, token(request), None)
}

/// Checks a peer that opens a socket: its token may also be in the URL, or be proven by `sign`.
///
/// # Errors
/// Same as [`admit`].
pub fn allow_peer(
    edge: &Edge,
    request: &HttpRequest,
    need: Need,
    in_address: Option<&str>,
    signed: Option<Signed<'_>>,
) -> Result<Caller, Failure> {
    judge(edge, request, need, token(request).or(in_address), signed)
}

/// Admits every caller except pages of other sites: for public routes without a token.
///
/// # Errors
/// The request comes from a page of another site, or to a host name that is not ours.
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
        (Some(signed), token) => match edge.tokens.judge(signed, admitted_at(edge, request)) {
            Verdict::Granted(granted) => {
                is_signed = true;
                Some(granted)
            }
            _ if token.is_some() => token.and_then(|token| edge.tokens.find(token)),
            Verdict::Unknown => None,
            refused => {
                edge.guard.judge(from, None, "token")?;
                return Err(of_sign(refused).into());
            }
        },
        (None, Some(token)) => edge.tokens.find(token),
    };
    edge.guard.judge(from, granted.as_ref().map(|granted| granted.key), "token")?;
    match granted {
        Some(granted) if is_signed => Ok(Caller::of(Role::Agent, granted, need)),
        Some(granted) => {
            let caller = Caller::of(granted.role, granted, need);
            caller.must(need)?;
            Ok(caller)
        }
        None => Err(Problem::unknown_token().into()),
    }
}

/// The header in which another broker states when it admitted the client of a socket that it passes on to this leader, in ms since 1970.
pub(super) const ADMITTED: HeaderName = HeaderName::from_static("webloom-admitted");

/// When this broker, as a standby, admitted the client of a socket that it serves itself now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted(pub Timestamp);

/// The time at which the `sign` of a call must have been valid: now, unless the client keeps a socket that it opened at an earlier leader.
fn admitted_at(edge: &Edge, request: &HttpRequest) -> Timestamp {
    if let Some(Admitted(at)) = request.extensions().get() {
        return *at;
    }
    let is_of_broker = || header(request, SECRET_HEADER).is_some_and(|secret| edge.service.knows_secret(secret.as_bytes()));
    let stated = header(request, ADMITTED).and_then(|at| at.parse().ok()).filter(|_| is_of_broker());
    stated.map_or_else(Timestamp::now, Timestamp)
}

/// Why a `sign` was rejected.
fn of_sign(refused: Verdict) -> Problem {
    match refused {
        Verdict::Stale(ms) => {
            let (seconds, side) = (ms.unsigned_abs() / 1_000, if ms > 0 { "behind" } else { "ahead of" });
            Problem::sign(format!("`signtime` is {seconds} s {side} the broker's clock: set the clock of this machine"))
        }
        _ => Problem::sign("this broker requires a sign with a time: send `signtime` too"),
    }
}

/// Whether this origin is our own: same scheme, host and port. A proxy that terminates TLS for us reports the scheme.
fn is_own(origin: &str, host: &str, scheme: &str) -> bool {
    origin.split_once("://").is_some_and(|(s, authority)| s.eq_ignore_ascii_case(scheme) && authority.eq_ignore_ascii_case(host))
}

fn keep_out_other_sites(edge: &Edge, request: &HttpRequest) -> Result<(), Failure> {
    // A page of another site, open in a browser on this machine, must not reach the broker.
    if let Some(origin) = header(request, ORIGIN) {
        let host = header(request, HOST).unwrap_or_default();
        // No page of another site can make a browser send this header.
        let forwarded = header(request, "X-Forwarded-Proto").and_then(|schemes| schemes.split(',').next()).map(str::trim);
        if !is_own(origin, host, forwarded.unwrap_or(if edge.is_tls { "https" } else { "http" })) {
            return Err(Problem::forbidden("the request comes from a page of another site").into());
        }
    }
    // A link on such a page sends no origin with its GET, but the browser marks the request as cross-site.
    if header(request, "Sec-Fetch-Site").is_some_and(|site| site == "cross-site" || site == "same-site") {
        return Err(Problem::forbidden("the request comes from a page of another site").into());
    }
    Ok(())
}

/// Without tokens the broker listens on loopback only; any other host name was pointed here by somebody else.
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
