//! Calls that need the actor of a block run: they reach the broker that executes the run, whichever broker the client asks.
//!
//! The leader admits and records a call, and passes it on to the owner of the run with the secret of the database. An owner serves such calls and,
//! directly from clients, those that are not recorded in the audit, which only the leader writes. A call with the secret is never passed on again.

use super::Edge;
use super::access::Admission;
use super::auth::token;
use super::body::id;
use super::forward::{Passed, Receiver, leader_first, pass_on, refused, serve};
use super::route::AtStandby;
use crate::domain::ids::{BrokerId, Identity};
use crate::protocol::ownership::SECRET_HEADER;
use crate::protocol::problem::Problem;
use crate::protocol::{BULK, EXECUTOR_HEADER, RUN_HEADER};
use crate::service::Service;
use actix_web::body::BoxBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, FromRequest as _, HttpMessage as _, HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::FutureExt as _;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long the owner of a run is taken as it was: longer than between two calls about a run that is used. An owner that has lost the run answers 503.
const KNOWN: Duration = Duration::from_secs(1);
/// Number of runs whose owners are kept.
const MOST: usize = 10_000;

/// Serves calls about the runs that this broker executes for the leader.
#[derive(Debug, Clone, Default)]
pub struct OwnRuns(Arc<RwLock<Option<web::Data<Edge>>>>);

impl OwnRuns {
    /// From now on this broker owns runs, whose actors this service finds. All else is that of the standby.
    pub fn begin(&self, standby: &Edge, service: Service) {
        let edge = Edge { service, own_runs: Self::default(), ..standby.clone() };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(web::Data::new(edge));
    }

    /// It owns none any more.
    pub fn end(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Serves them, if there are any.
    pub fn edge(&self) -> Option<web::Data<Edge>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Other brokers that execute runs.
#[derive(Debug, Clone, Default)]
pub struct Executors(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The owners of runs, and when they were read.
    by_run: HashMap<Identity, (BrokerId, Instant)>,
    /// Addresses, which never change.
    urls: HashMap<BrokerId, String>,
}

impl Executors {
    fn known<T>(&self, read: impl FnOnce(&mut Known) -> T) -> T {
        read(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another broker that executes this run. `is_exact`: what was known a moment ago does not count.
    async fn find(&self, service: &Service, run: Identity, is_exact: bool) -> Result<Option<BrokerId>, Problem> {
        let known = |known: &mut Known| known.by_run.get(&run).filter(|(_, at)| at.elapsed() < KNOWN).map(|(owner, _)| *owner);
        let known = if is_exact { None } else { self.known(known) };
        if known.is_some() {
            return Ok(known);
        }
        let found = service.stored_owner(run).await?;
        if let Some(owner) = found {
            self.known(|known| {
                if known.by_run.len() >= MOST {
                    known.by_run.retain(|_, (_, at)| at.elapsed() < KNOWN);
                }
                known.by_run.insert(run, (owner, Instant::now()));
            });
        }
        Ok(found)
    }

    async fn url(&self, service: &Service, broker: BrokerId) -> Result<String, Problem> {
        if let Some(url) = self.known(|known| known.urls.get(&broker).cloned()) {
            return Ok(url);
        }
        let url = service.url_of_broker(broker).await?.ok_or_else(Problem::owner_unreachable)?;
        self.known(|known| known.urls.insert(broker, url.clone()));
        Ok(url)
    }
}

/// Marks a call that the leader has passed on.
#[derive(Debug, Clone, Copy)]
struct IsPassedOn;

/// Whether the leader has passed this call on, and has recorded it.
pub(super) fn is_passed_on(request: &HttpRequest) -> bool {
    request.extensions().contains::<IsPassedOn>()
}

/// The run that a call names by its full id.
fn named(request: &HttpRequest) -> Option<Identity> {
    let header = || request.headers().get(RUN_HEADER)?.to_str().ok();
    part(request).map(|(_, text)| text).or_else(header)?.parse().ok()
}

/// The part of the path that names a run.
fn part(request: &HttpRequest) -> Option<(&'static str, &str)> {
    let path = request.match_info();
    ["identity", "id"].into_iter().find_map(|name| Some((name, path.get(name)?)))
}

/// The run that a call names, also by its number. `None`: the handler says what is wrong with its name.
async fn meant(edge: &Edge, request: &HttpRequest) -> Option<Identity> {
    match (named(request), part(request)) {
        (None, Some((name, _))) => id(edge, request, name).await.ok(),
        (named, _) => named,
    }
}

/// The other broker that executes the run of a call; `None`: this broker serves the call.
///
/// # Errors
/// See [`executor`].
pub(super) async fn executor_of_call(edge: &Edge, admission: Admission, request: &HttpRequest) -> Result<Option<Receiver>, Problem> {
    match meant(edge, request).await {
        // Of a run that is over, the leader itself must serve what people change.
        Some(run) => executor(edge, request, run, admission.is_audited()).await,
        None => Ok(None),
    }
}

/// The other broker that executes a run.
///
/// # Errors
/// It cannot be reached, or the run moves to another broker.
async fn executor(edge: &Edge, request: &HttpRequest, run: Identity, is_exact: bool) -> Result<Option<Receiver>, Problem> {
    let service = &edge.service;
    if service.executes(run) {
        return Ok(None);
    }
    if service.link_secret().is_none() {
        return Ok(None); // a standby, which reads what is stored
    }
    let Some(owner) = edge.executors.find(service, run, is_exact).await? else { return Ok(None) };
    let secret = service.link_secret().and_then(|secret| HeaderValue::from_str(secret).ok());
    let (Some(secret), false) = (secret, service.is_owner() || carries_secret(edge, request)) else { return Err(Problem::moving()) };
    let url = edge.executors.url(service, owner).await?;
    let run = HeaderValue::from_str(&run.to_string()).map_err(|_| Problem::internal())?;
    let headers = vec![(HeaderName::from_static(SECRET_HEADER), secret), (HeaderName::from_static(RUN_HEADER), run)];
    let mut gone = service.owners().is_lost(owner).map(|()| "it does not execute the run any more").boxed_local();
    if (&mut gone).now_or_never().is_some() {
        // Its runs are being taken back.
        return Err(Problem::moving());
    }
    Ok(Some(Receiver { url, gone, unreachable: Problem::owner_unreachable(), headers }))
}

/// Passes a report that this broker has read on to the broker that executes its run; `None`: this broker stores it.
///
/// # Errors
/// See [`executor`], or the header names another run.
pub(super) async fn pass_report_on(
    edge: &Edge,
    request: &HttpRequest,
    run: Identity,
    pack: Bytes,
) -> Result<Option<HttpResponse>, Problem> {
    if named(request).is_some_and(|named| named != run) {
        return Err(Problem::malformed("the header names another run than the report").at(RUN_HEADER));
    }
    let Some(mut executor) = executor(edge, request, run, false).await? else { return Ok(None) };
    executor.headers.push((CONTENT_TYPE, HeaderValue::from_static(BULK)));
    pass_on(edge, executor, request, Passed::Read(pack)).await.map(Some)
}

fn carries_secret(edge: &Edge, request: &HttpRequest) -> bool {
    request.headers().get(SECRET_HEADER).is_some_and(|secret| edge.service.knows_secret(secret.as_bytes()))
}

/// Wraps an operation at a standby: serves a call about a run that this broker executes, and otherwise does what a standby does.
///
/// # Errors
/// The errors of the service.
pub(super) async fn at_standby(
    admission: Admission,
    at_standby: AtStandby,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    let standby = request.app_data::<web::Data<Edge>>().cloned();
    let own = standby.as_ref().and_then(|edge| edge.own_runs.edge());
    if request.headers().contains_key(SECRET_HEADER) {
        return match own {
            Some(own) if is_for(&own, admission, request.request()).await => {
                request.extensions_mut().insert(IsPassedOn);
                serve_own(own, request, next).await
            }
            _ => Ok(request.into_response(refused(Problem::moving()))),
        };
    }
    if !admission.is_audited()
        && let Some(own) = own
        && let Some(run) = named(request.request())
        && own.service.executes(run)
        // Otherwise the leader knows the owner.
        && own.service.check_lease().is_ok()
    {
        return serve_own(own, request, next).await;
    }
    match at_standby {
        AtStandby::Reads => return next.call(request).await,
        AtStandby::LeaderFirst => return leader_first(admission, request, next).await,
        AtStandby::PassesOn => {}
    }
    let (request, mut payload) = request.into_parts();
    let payload = web::Payload::from_request(&request, &mut payload).await?;
    let response = serve(admission, request.clone(), payload).await;
    Ok(ServiceResponse::new(request, response))
}

/// Whether the leader has passed this call on to the right broker.
async fn is_for(own: &Edge, admission: Admission, request: &HttpRequest) -> bool {
    if !carries_secret(own, request) {
        return false;
    }
    if !own.tokens.is_open() && token(request).is_some_and(|token| own.tokens.find(token).is_none()) {
        // The leader knows tokens that are newer than those that this broker has read.
        let _ = own.load_tokens().await;
    }
    // Calls that are recorded may need the leader if their run is over.
    match meant(own, request).await {
        Some(run) => own.service.has_executed(run, admission.is_audited()).await.unwrap_or(false),
        None => false,
    }
}

/// Serves a call with the actors of the runs of this broker. The answer names this broker, so that the client may call it directly.
async fn serve_own(own: web::Data<Edge>, mut request: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse, Error> {
    let url = HeaderValue::from_str(own.service.address()).ok();
    let mut extensions = Extensions::new();
    extensions.insert(own);
    request.add_data_container(Rc::new(extensions));
    let mut response = next.call(request).await?;
    if let Some(url) = url {
        response.headers_mut().insert(HeaderName::from_static(EXECUTOR_HEADER), url);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::table;
    use actix_web::test::TestRequest;

    #[test]
    fn every_operation_of_a_run_names_it() {
        let table = table();
        let operations = table.iter().flat_map(|resource| resource.operations.iter().map(move |operation| (operation, &resource.paths)));
        let mut marked: Vec<_> = operations.filter(|(operation, _)| operation.is_of_run).collect();
        let by_header =
            marked.extract_if(.., |(_, paths)| !paths.iter().all(|path| path.contains("/{identity}") || path.contains("/runs/{id}")));
        assert_eq!(by_header.map(|(operation, _)| operation.name).collect::<Vec<_>>(), ["reportBlock"]);
        let mut names: Vec<_> = marked.iter().map(|(operation, _)| operation.name).collect();
        names.sort_unstable();
        let expected = [
            "acknowledgeBlocks",
            "discardRequests",
            "explainUrl",
            "listBlocks",
            "listRunSites",
            "pauseRun",
            "pollBlocks",
            "pushRequests",
            "requeueRequests",
            "resumeRun",
            "startReturned",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_run_is_named_by_the_path_or_else_by_the_header() {
        let [in_path, in_header] = [Identity::random(), Identity::random()];
        let header = || TestRequest::default().insert_header((RUN_HEADER, in_header.to_string()));
        assert_eq!(named(&header().to_http_request()), Some(in_header));
        for part in ["identity", "id"] {
            assert_eq!(named(&header().param(part, in_path.to_string()).to_http_request()), Some(in_path));
        }
        assert_eq!(named(&header().param("id", "4711").to_http_request()), None, "a number is read from the database");
        assert_eq!(named(&TestRequest::default().insert_header((RUN_HEADER, "x")).to_http_request()), None);
    }
}
