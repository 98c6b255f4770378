//! What a standby serves: it only reads stored data; everything that writes, waits or needs an actor is passed on to the leader
//! ([`super::forward`]), also reads of which the leader knows more, except calls about runs that this broker executes ([`super::of_run`]).

use super::Edge;
use super::error::{Failure, no_such_route, query_config};
use super::route::{self, Part};
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::Next;
use actix_web::web::{self, ServiceConfig};
use actix_web::{Error, ResponseError as _};
use std::sync::{Arc, OnceLock};

/// The [`Edge`] of this broker as the leader, set when it takes over. It serves the sockets that the standby passed on until then.
#[derive(Debug, Clone, Default)]
pub struct Successor(Arc<OnceLock<Edge>>);

impl Successor {
    /// This broker leads from now on.
    pub fn set(&self, leading: Edge) {
        // A broker leads once.
        let _ = self.0.set(leading);
    }

    pub(super) fn get(&self) -> Option<&Edge> {
        self.0.get()
    }
}

/// Routes that need no tables, or only those whose format never changes.
const ALWAYS: [&str; 5] = ["/", "/healthz", "/readyz", "/api/v1/brokers", "/api/v1/openapi.json"];

/// Builds the services of the table that a standby has.
pub fn standby_routes(edge: Edge) -> impl Fn(&mut ServiceConfig) + Clone {
    move |app: &mut ServiceConfig| {
        app.app_data(web::Data::new(edge.clone())).app_data(query_config()).default_service(web::to(no_such_route));
        route::register(&super::table(), app, Part::Standby);
    }
}

/// Wraps every request: rejects it if this program does not know the format of the tables, and closes the connection after a rejection or
/// when this broker becomes the leader, so that the client's next call reaches the right server.
///
/// # Errors
/// The errors of the service.
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
