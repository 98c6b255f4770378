//! Wraps every call: counts it as in progress, charges its response to the budget until it is sent, and adds the headers for browsers and
//! caches.

use super::Edge;
use super::answer::{Counted, IsStreamed, OF_A_STREAM};
use super::body::nothing_held;
use super::error::Failure;
use crate::actors::budget::Charge;
use crate::protocol::problem::Problem;
use actix_web::body::{BodySize, BoxBody, MessageBody as _};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{CACHE_CONTROL, HeaderValue, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, ResponseError as _, web};

/// A browser that connected by TLS must use TLS for a year (RFC 6797).
const ONLY_TLS: HeaderValue = HeaderValue::from_static("max-age=31536000");
/// Responses up to this many bytes are not counted.
const FREE: u64 = 16 << 10;

/// See the module documentation.
///
/// # Errors
/// The errors of the service.
pub async fn shell(request: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse<Counted>, Error> {
    let Some(edge) = request.app_data::<web::Data<Edge>>().cloned() else { return Ok(finish(next.call(request).await?, None, false)) };
    let _at_work = edge.traffic.call();
    let mut response = next.call(request).await?;
    // The server closes connections when it ends, but it may notice the end after a call that has waited for it.
    if edge.traffic.is_ending() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    match charge(&edge, &response) {
        Ok(charge) => Ok(finish(response, charge, edge.is_tls)),
        Err(problem) => {
            // Dropping the response resolves its delivery receipt as failed.
            let (request, _) = response.into_parts();
            Ok(finish(ServiceResponse::new(request, Failure(problem).error_response()), None, edge.is_tls))
        }
    }
}

/// The memory that a response holds until it is sent.
fn charge(edge: &Edge, response: &ServiceResponse) -> Result<Option<Charge>, Problem> {
    let is_streamed = || response.response().extensions().contains::<IsStreamed>();
    let bytes = match response.response().body().size() {
        _ if response.status() == StatusCode::SWITCHING_PROTOCOLS => return Ok(None),
        BodySize::None => return Ok(None),
        BodySize::Sized(bytes) if bytes <= FREE => return Ok(None),
        BodySize::Sized(bytes) if !is_streamed() => usize::try_from(bytes).unwrap_or(usize::MAX),
        BodySize::Sized(_) | BodySize::Stream => OF_A_STREAM,
    };
    let mut charge = nothing_held(&edge.budget, response.request());
    charge.set(bytes)?;
    Ok(Some(charge))
}

fn finish(response: ServiceResponse, charge: Option<Charge>, is_tls: bool) -> ServiceResponse<Counted> {
    let mut response = response.map_body(|_, body| Counted::new(body, charge));
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Portal files may be cached; API responses are momentary and may be secret.
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if is_tls {
        headers.insert(STRICT_TRANSPORT_SECURITY, ONLY_TLS);
    }
    response
}
