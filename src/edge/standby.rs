//! What a broker serves that stands by: it reads what is stored; whatever writes, waits or needs an actor is the leader's.

use super::Edge;
use super::error::{Failure, no_such_route, query_config};
use super::route::{self, Part};
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::Next;
use actix_web::web::{self, ServiceConfig};
use actix_web::{Error, ResponseError as _};

/// What needs no tables but those that never change, or none.
const ALWAYS: [&str; 5] = ["/", "/healthz", "/readyz", "/api/v1/brokers", "/api/v1/openapi.json"];

/// Makes the services of the table, as far as a standby has them.
pub fn standby_routes(edge: Edge) -> impl Fn(&mut ServiceConfig) + Clone {
    move |app: &mut ServiceConfig| {
        app.app_data(web::Data::new(edge.clone())).app_data(query_config()).default_service(web::to(no_such_route));
        route::register(&super::table(), app, Part::Standby);
    }
}

/// For what the leader alone can do.
pub(super) async fn refuse(edge: web::Data<Edge>) -> Result<&'static str, Failure> {
    edge.service.must_lead()?;
    Ok("")
}

/// RunView every request: none is served from tables that this program does not know, and no connection outlives a refusal or
/// the day on which this broker leads, so that the next call of its client finds what it has become.
///
/// # Errors
/// As the service has it.
pub async fn gate(request: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse, Error> {
    let edge = request.app_data::<web::Data<Edge>>();
    let makes_way = edge.is_some_and(|edge| edge.service.makes_way());
    let can_read = match edge {
        Some(edge) if !ALWAYS.contains(&request.path()) => edge.service.can_read(),
        _ => Ok(()),
    };
    let mut response = match can_read {
        Ok(()) => next.call(request).await?,
        Err(problem) => request.into_response(Failure(problem).error_response()),
    };
    if response.status() == StatusCode::SERVICE_UNAVAILABLE || makes_way {
        response.response_mut().head_mut().set_connection_type(actix_web::http::ConnectionType::Close);
    }
    Ok(response)
}
