//! The types of the route table. A [`Resource`] is an address with its methods; each method has a handler and an [`Operation`], which
//! describes its inputs and outputs. Both the services ([`register`]) and the OpenAPI document ([`super::openapi`]) are built from the
//! one table, so that they always agree.

use super::access::{Access, Admission, Admit, Refuse, guarded};
use super::auth::Need;
use super::error::no_such_method;
use crate::protocol::BULK;
use actix_web::http::Method;
use actix_web::middleware::from_fn;
use actix_web::web::{self, ServiceConfig};
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Generates the schema of a type for the document.
pub(super) type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// The part of the table to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All routes: for the leader.
    Leader,
    /// For a standby: it serves what only reads stored data, and calls about runs that it executes. The rest is passed on to the leader.
    Standby,
}

/// What a standby does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtStandby {
    /// It answers from what is stored.
    Reads,
    /// It passes the call on to the leader, and answers from what is stored if that fails.
    LeaderFirst,
    /// It passes the call on to the leader.
    PassesOn,
}

/// An address and its methods.
pub struct Resource {
    pub(super) paths: Vec<&'static str>,
    pub(super) tag: &'static str,
    pub(super) texts: Vec<(&'static str, &'static str)>,
    pub(super) operations: Vec<Operation>,
    ignores_parameters: bool,
    routes: Vec<Box<dyn Fn() -> actix_web::Route>>,
}

/// A resource at this path; a part in braces is an id unless [`Resource::text`] describes it.
pub fn resource(path: &'static str) -> Resource {
    Resource { paths: vec![path], tag: "", texts: Vec::new(), operations: Vec::new(), ignores_parameters: false, routes: Vec::new() }
}

/// Groups the resources of one noun under its heading.
pub fn tagged(tag: &'static str, resources: Vec<Resource>) -> impl Iterator<Item = Resource> {
    resources.into_iter().map(move |resource| Resource { tag, ..resource })
}

macro_rules! methods {
    ($($name:ident $method:ident),*) => {$(
        /// Adds this method.
        pub fn $name<F, A>(mut self, handler: F, describe: fn(Operation) -> Operation) -> Self
        where
            F: actix_web::Handler<A>,
            A: actix_web::FromRequest + 'static,
            F::Output: actix_web::Responder + 'static,
        {
            let mut operation = describe(Operation::new(Method::$method));
            operation.ignores_parameters = self.ignores_parameters;
            // Every handler is added here, so none can skip the access check.
            let admission = Admission::of(&operation, self.paths[0]);
            self.operations.push(operation);
            self.routes.push(Box::new(move || web::$name().to(guarded(handler.clone(), admission))));
            self
        }
    )*};
}

impl Resource {
    methods!(get GET, post POST, put PUT, delete DELETE);

    /// The methods that follow ignore unknown parameters: the address belongs to the clients of another system.
    pub fn ignoring_parameters(mut self) -> Self {
        self.ignores_parameters = true;
        self
    }

    /// This path segment is a text and not an id.
    pub fn text(mut self, name: &'static str, description: &'static str) -> Self {
        self.texts.push((name, description));
        self
    }

    fn service(&self, path: &str, part: Part) -> actix_web::Resource {
        let methods: Vec<&str> = self.operations.iter().map(|operation| operation.method.as_str()).collect();
        let methods = methods.join(", ");
        let service = web::resource(path).default_service(web::to(move || no_such_method(methods.clone())));
        self.operations.iter().zip(&self.routes).fold(service, |service, (operation, route)| {
            if part == Part::Leader {
                return service.route(route());
            }
            let (admission, at_standby) = (Admission::of(operation, self.paths[0]), operation.at_standby());
            if operation.is_of_run {
                let place = move |request, next| super::of_run::at_standby(admission, at_standby, request, next);
                return service.route(route().wrap(from_fn(place)));
            }
            service.route(match at_standby {
                AtStandby::Reads => route(),
                AtStandby::LeaderFirst => {
                    route().wrap(from_fn(move |request, next| super::forward::leader_first(admission, request, next)))
                }
                AtStandby::PassesOn => {
                    web::method(operation.method.clone()).to(move |request, payload| super::forward::serve(admission, request, payload))
                }
            })
        })
    }

    /// Serves the same at another path.
    pub fn also_at(mut self, path: &'static str) -> Self {
        self.paths.push(path);
        self
    }
}

/// Builds the services of a table. Unsupported methods of a resource get 405 with the supported ones.
///
/// The router of actix-web tries its entries one after the other, and each path with a parameter by a regular expression. So paths with a
/// common beginning are grouped: the words up to the first parameter, then the parameter, then a plain text.
pub fn register(table: &[Resource], app: &mut ServiceConfig, part: Part) {
    let mut nouns: Groups<(&str, &Resource)> = Vec::new();
    for resource in table {
        for path in &resource.paths {
            let (noun, rest) = path.split_at(end_of_noun(path));
            put(&mut nouns, noun, (rest, resource));
        }
    }
    for (noun, resources) in nouns {
        if let [("", resource)] = resources[..] {
            app.service(resource.service(noun, part));
            continue;
        }
        let (mut plain, mut named): (Vec<_>, Groups<(&str, &Resource)>) = (Vec::new(), Vec::new());
        for (rest, resource) in resources {
            if rest.starts_with("/{") {
                let (name, rest) = rest.split_at(rest.find('}').map_or(rest.len(), |end| end + 1));
                put(&mut named, name, (rest, resource));
            } else {
                plain.push((rest, resource));
            }
        }
        // Words like `preview` before the routes that would read them as ids.
        let scope = plain.into_iter().fold(web::scope(noun), |scope, (rest, resource)| scope.service(resource.service(rest, part)));
        let scope = named.into_iter().fold(scope, |scope, (name, resources)| {
            let inner = resources.into_iter().fold(web::scope(name), |inner, (rest, resource)| inner.service(resource.service(rest, part)));
            scope.service(inner)
        });
        app.service(scope);
    }
}

/// Grouped by their first part, in the order of first occurrence.
type Groups<'a, T> = Vec<(&'a str, Vec<T>)>;

fn put<'a, T>(groups: &mut Groups<'a, T>, key: &'a str, value: T) {
    match groups.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) => values.push(value),
        None => groups.push((key, vec![value])),
    }
}

/// The end of the words that name the noun: at most the third, because most paths begin with `/api/v1`.
fn end_of_noun(path: &str) -> usize {
    let most = path.find("/{").unwrap_or(path.len());
    path[..most].match_indices('/').nth(3).map_or(most, |(at, _)| at)
}

/// The body of a request.
pub(super) struct Body {
    pub(super) required: bool,
    pub(super) shape: Shape,
    pub(super) bulk: bool,
    /// Any bytes, not JSON.
    pub(super) raw: bool,
    /// Its media type, if it is a form.
    pub(super) form: Option<&'static str>,
}

/// One of the success responses.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) contents: Vec<(&'static str, Option<Shape>)>,
    pub(super) headers: Vec<(&'static str, &'static str)>,
}

/// The inputs and outputs of a method of a resource.
pub struct Operation {
    pub(super) method: Method,
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) access: Access,
    /// Unknown parameters are ignored.
    pub(super) ignores_parameters: bool,
    pub(super) query: Option<Shape>,
    pub(super) body: Option<Body>,
    pub(super) answers: Vec<Answer>,
    pub(super) failures: Vec<u16>,
    /// It needs more than stored data.
    pub(super) only_leader: bool,
    leader_first: bool,
    /// It needs the actor of a block run.
    pub(super) is_of_run: bool,
    /// Its handler shows a token that is limited to groups only their jobs.
    pub(super) limits_itself: bool,
    /// The run that it makes records who made it, so the audit does not list the call.
    pub(super) is_recorded_in_its_run: bool,
    /// Windows may watch its answers (`/live`).
    pub(super) is_live: bool,
}

impl Operation {
    fn new(method: Method) -> Self {
        Self {
            method,
            name: "",
            description: "",
            access: Access::Unstated,
            ignores_parameters: false,
            query: None,
            body: None,
            answers: Vec::new(),
            failures: Vec::new(),
            only_leader: false,
            leader_first: false,
            is_of_run: false,
            limits_itself: false,
            is_recorded_in_its_run: false,
            is_live: false,
        }
    }

    /// The operation id: a verb and a noun, unique in the table.
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The description; its first sentence is the title.
    pub fn description(mut self, description: &'static str) -> Self {
        self.description = description;
        self
    }

    /// The required permission: the route rejects other callers, and passes the [`super::auth::Caller`] to the handler.
    pub fn needs(mut self, need: Need) -> Self {
        self.access = Access::Role(need);
        self
    }

    /// Everybody may call it.
    pub fn for_everybody(mut self) -> Self {
        self.access = Access::Public;
        self
    }

    /// Uses these functions to admit callers and to build the response of a rejection. The document shows the permission of a previous
    /// [`Operation::needs`].
    pub fn admits(mut self, admit: Admit, refuse: Refuse) -> Self {
        self.access = Access::By { need: self.access.need(), admit, refuse };
        self
    }

    /// Whether any parameter is rejected. Public operations and those with their own admit function may read parameters that the table
    /// does not list.
    pub(super) fn refuses_parameters(&self) -> bool {
        matches!(self.access, Access::Role(_)) && self.query.is_none() && !self.ignores_parameters
    }

    /// The type of its query.
    pub fn query<T: JsonSchema>(mut self) -> Self {
        // Not a component: its members become parameters.
        self.query = Some(T::json_schema);
        self
    }

    /// The type of its JSON body.
    pub fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body { required: true, shape: shape::<T>, bulk: false, raw: false, form: None });
        self
    }

    /// The fields of its body, which is an HTML form of this media type.
    pub fn body_as_form<T: JsonSchema>(mut self, media_type: &'static str) -> Self {
        self.body = Some(Body { required: true, shape: shape::<T>, bulk: false, raw: false, form: Some(media_type) });
        self
    }

    /// The type of its optional JSON body.
    pub fn body_or_nothing<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body { required: false, shape: shape::<T>, bulk: false, raw: false, form: None });
        self
    }

    /// The type of its body, which is either JSON or the bulk form.
    pub fn body_or_bulk<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body { required: true, shape: shape::<T>, bulk: true, raw: false, form: None });
        self
    }

    /// Its body is any bytes.
    pub fn body_as_bytes(mut self) -> Self {
        self.body = Some(Body { required: true, shape: shape::<String>, bulk: false, raw: true, form: None });
        self
    }

    fn answer(mut self, status: u16, description: &'static str, contents: Vec<(&'static str, Option<Shape>)>) -> Self {
        self.answers.push(Answer { status, description, contents, headers: Vec::new() });
        self
    }

    /// It returns JSON of this type.
    pub fn answers<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.answer(status, description, vec![("application/json", Some(shape::<T>))])
    }

    /// It returns JSON of this type, or the bulk form to clients that accept it.
    pub fn answers_or_bulk<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.answer(status, description, vec![("application/json", Some(shape::<T>)), (BULK, None)])
    }

    /// It returns bytes of this media type.
    pub fn answers_as(self, status: u16, media_type: &'static str, description: &'static str) -> Self {
        self.answer(status, description, vec![(media_type, None)])
    }

    /// The previous response may have this media type instead.
    pub fn or_as(mut self, media_type: &'static str) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.contents.push((media_type, None));
        }
        self
    }

    /// It returns no body.
    pub fn answers_nothing(self, status: u16, description: &'static str) -> Self {
        self.answer(status, description, Vec::new())
    }

    /// The previous response has this header.
    pub fn with_header(mut self, name: &'static str, description: &'static str) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.headers.push((name, description));
        }
        self
    }

    /// Although it is a GET, it writes, waits or needs actors: a standby passes it on to the leader.
    pub fn only_leader(mut self) -> Self {
        self.only_leader = true;
        self
    }

    /// The leader has newer data than the database: a standby passes the call on to it, and answers from the database if that fails.
    pub fn leader_first(mut self) -> Self {
        self.leader_first = true;
        self
    }

    /// It needs the actor of the block run that its path names: the broker that executes the run serves it.
    pub fn of_run(mut self) -> Self {
        self.is_of_run = true;
        self
    }

    /// It makes runs, each of which stores who made it. The audit does not list such calls: there may be thousands a second.
    pub fn recorded_in_its_run(mut self) -> Self {
        self.is_recorded_in_its_run = true;
        self
    }

    /// The handler shows a token that is limited to groups only their jobs, and lets it change only them. Without this, such a token
    /// may call only the addresses of a job and of a run.
    pub fn limits_itself(mut self) -> Self {
        self.limits_itself = true;
        self
    }

    /// Windows may watch its answers: it changes nothing, does not wait, and is cheap enough to be called each second.
    pub fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// What a standby does with a call.
    pub(super) fn at_standby(&self) -> AtStandby {
        match (self.method == Method::GET && !self.only_leader, self.leader_first) {
            (true, false) => AtStandby::Reads,
            (true, true) => AtStandby::LeaderFirst,
            (false, _) => AtStandby::PassesOn,
        }
    }

    /// Failure statuses besides those that [`super::openapi`] derives from its inputs.
    pub fn may_fail(mut self, statuses: &[u16]) -> Self {
        self.failures.extend_from_slice(statuses);
        self
    }
}
