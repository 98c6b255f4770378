//! HTTP and WebSocket: turns requests into messages, and answers into JSON; nothing more.
//!
//! It asks the [`Desk`] and never touches the store. Every error leaves as problem details (RFC 9457).

pub mod auth;
mod body;
mod error;
mod http;
mod ws;

use crate::actors::desk::Desk;
use crate::config::tokens::Tokens;
use actix_web::web::{self, ServiceConfig, delete, get, post, put};

/// What every handler may use.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The actors.
    pub desk: Desk,
    /// Who may do what.
    pub tokens: Tokens,
}

/// The whole route table.
pub fn routes(edge: Edge) -> impl Fn(&mut ServiceConfig) + Clone {
    use http::{groups, jobs, logs, node, nodes, plans, runs, status, transfer, workers};
    move |app: &mut ServiceConfig| {
        app.app_data(web::Data::new(edge.clone()))
            .app_data(error::query_config())
            .default_service(web::to(error::no_such_route))
            // The seeds' own addresses, with the prefix of 002's code and without.
            .route("/", get().to(ws::root))
            .route("/worker", get().to(ws::worker_socket))
            .route("/node/heartbeat", post().to(node::heartbeat))
            .route("/node/block", post().to(node::block))
            .route("/api/node/heartbeat", post().to(node::heartbeat))
            .route("/api/node/block", post().to(node::block))
            .service(queue_routes("/requestqueue/{identity}"))
            .service(queue_routes("/api/requestqueue/{identity}"))
            // Operators.
            .route("/healthz", get().to(status::healthz))
            .route("/readyz", get().to(status::readyz))
            .service(
                web::scope("/api/v1")
                    .default_service(web::to(error::no_such_route))
                    .service(resource("/jobs").get(jobs::list).post(jobs::create).done())
                    // Before what takes any word for an id.
                    .service(resource("/jobs/preview").post(plans::preview).done())
                    .service(resource("/jobs/export").get(transfer::export).done())
                    .service(resource("/jobs/import").post(transfer::import).done())
                    .service(resource("/jobs/{id}").get(jobs::read).put(jobs::update).delete(jobs::delete).done())
                    .service(resource("/jobs/{id}/enable").post(jobs::enable).done())
                    .service(resource("/jobs/{id}/disable").post(jobs::disable).done())
                    .service(resource("/jobs/{id}/restore").post(jobs::restore).done())
                    .service(resource("/jobs/{id}/purge").post(jobs::purge).done())
                    .service(resource("/jobs/{id}/backfill").post(jobs::backfill).done())
                    .service(resource("/jobs/{id}/redrive").post(jobs::redrive).done())
                    .service(resource("/jobs/{id}/trigger").get(jobs::trigger).post(jobs::trigger).done())
                    .service(resource("/jobs/{id}/next").get(plans::next).done())
                    .service(resource("/jobs/{id}/fires").get(plans::fires).done())
                    .service(resource("/jobs/{id}/why").get(plans::why).done())
                    .service(resource("/jobs/{id}/history").get(plans::history).done())
                    .service(resource("/changes").get(plans::changes).done())
                    .service(resource("/runs").get(runs::list).done())
                    .service(resource("/runs/{id}").get(runs::read).done())
                    .service(resource("/runs/{id}/stop").post(runs::stop).done())
                    .service(resource("/runs/{id}/retry").post(runs::retry).done())
                    .service(resource("/runs/{id}/next").post(runs::ask_next).done())
                    .service(resource("/runs/{id}/why").get(runs::why).done())
                    .service(resource("/runs/{id}/logs").get(logs::read).post(logs::append).done())
                    .service(resource("/runs/{id}/blocks").get(runs::blocks).done())
                    .service(resource("/runs/{id}/status").get(runs::status).done())
                    .service(resource("/runs/{id}/start-returned").post(runs::start_returned).done())
                    .service(resource("/groups").get(groups::list).post(groups::create).done())
                    .service(resource("/groups/{id}").get(groups::read).put(groups::update).delete(groups::delete).done())
                    .service(resource("/groups/{id}/enable").post(groups::enable).done())
                    .service(resource("/groups/{id}/disable").post(groups::disable).done())
                    .service(resource("/nodes").get(nodes::list).done())
                    .service(resource("/nodes/{id}").get(nodes::read).done())
                    .service(resource("/nodes/{id}/enable").post(nodes::enable).done())
                    .service(resource("/nodes/{id}/disable").post(nodes::disable).done())
                    .service(resource("/nodes/{id}/status").get(nodes::status).done())
                    .service(resource("/workers").get(workers::list).post(workers::register).done())
                    .service(resource("/workers/{id}/messages").get(workers::messages).done())
                    .service(resource("/actors").get(status::actors).done()),
            );
    }
}

fn queue_routes(path: &str) -> actix_web::Scope {
    use http::queue;
    web::scope(path).service(resource("").get(queue::poll).post(queue::push).done()).service(resource("/ack").post(queue::ack).done())
}

/// A resource whose other methods answer 405 with a problem.
struct Resource(actix_web::Resource);

fn resource(path: &str) -> Resource {
    Resource(web::resource(path).default_service(web::to(error::no_such_method)))
}

macro_rules! methods {
    ($($name:ident),*) => {$(
        fn $name<F, A>(self, handler: F) -> Self
        where
            F: actix_web::Handler<A>,
            A: actix_web::FromRequest + 'static,
            F::Output: actix_web::Responder + 'static,
        {
            Self(self.0.route($name().to(handler)))
        }
    )*};
}

impl Resource {
    methods!(get, post, put, delete);

    fn done(self) -> actix_web::Resource {
        self.0
    }
}
