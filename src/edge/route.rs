//! What the route table is written in. A [`Resource`] is an address with its methods; each method comes with its handler
//! and an [`Operation`], which says what the handler takes and gives. From the one table the services are made
//! ([`register`]) and the OpenAPI document ([`super::openapi`]), so that neither has a route that the other lacks.

use super::access::{Access, Admission, Admit, Refuse, guarded};
use super::auth::Need;
use super::error::no_such_method;
use crate::protocol::BULK;
use actix_web::http::Method;
use actix_web::web::{self, ServiceConfig};
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Makes the schema of a type, when the document is asked for.
pub(super) type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// Whose services are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Those of the broker that leads: all.
    Leader,
    /// Those of a broker that stands by: what only reads what is stored. The rest is refused.
    Standby,
}

/// An address and what it takes.
pub struct Resource {
    pub(super) paths: Vec<&'static str>,
    pub(super) tag: &'static str,
    pub(super) texts: Vec<(&'static str, &'static str)>,
    pub(super) operations: Vec<Operation>,
    ignores_parameters: bool,
    routes: Vec<Box<dyn Fn() -> actix_web::Route>>,
}

/// A resource at this path; a part in braces is an id unless [`Resource::text`] says otherwise.
pub fn resource(path: &'static str) -> Resource {
    Resource { paths: vec![path], tag: "", texts: Vec::new(), operations: Vec::new(), ignores_parameters: false, routes: Vec::new() }
}

/// Puts the resources of one noun under its heading.
pub fn tagged(tag: &'static str, resources: Vec<Resource>) -> impl Iterator<Item = Resource> {
    resources.into_iter().map(move |resource| Resource { tag, ..resource })
}

macro_rules! methods {
    ($($name:ident $method:ident),*) => {$(
        /// What this method does here.
        pub fn $name<F, A>(mut self, handler: F, describe: fn(Operation) -> Operation) -> Self
        where
            F: actix_web::Handler<A>,
            A: actix_web::FromRequest + 'static,
            F::Output: actix_web::Responder + 'static,
        {
            let mut operation = describe(Operation::new(Method::$method));
            operation.ignores_parameters = self.ignores_parameters;
            // The only way to a handler leads through here, so none can forget to ask who calls.
            let admission = Admission::of(&operation);
            self.operations.push(operation);
            self.routes.push(Box::new(move || web::$name().to(guarded(handler.clone(), admission))));
            self
        }
    )*};
}

impl Resource {
    methods!(get GET, post POST, put PUT, delete DELETE);

    /// Parameters that the methods that follow do not know are ignored: the address belongs to the clients of another system.
    pub fn ignoring_parameters(mut self) -> Self {
        self.ignores_parameters = true;
        self
    }

    /// This part of the path is a text and no id.
    pub fn text(mut self, name: &'static str, says: &'static str) -> Self {
        self.texts.push((name, says));
        self
    }

    fn service(&self, path: &str, part: Part) -> actix_web::Resource {
        let methods: Vec<&str> = self.operations.iter().map(|operation| operation.method.as_str()).collect();
        let methods = methods.join(", ");
        let service = web::resource(path).default_service(web::to(move || no_such_method(methods.clone())));
        self.operations.iter().zip(&self.routes).fold(service, |service, (operation, route)| {
            if part == Part::Leader || operation.is_for_standby() {
                return service.route(route());
            }
            service.route(web::method(operation.method.clone()).to(super::standby::refuse))
        })
    }

    /// The same at another path.
    pub fn also_at(mut self, path: &'static str) -> Self {
        self.paths.push(path);
        self
    }
}

/// Makes services of a table. A method that a resource does not have is answered 405 with those that it has.
///
/// The router of actix-web tries what it has one after the other, and each path with a parameter by a regular expression.
/// So what begins alike is put together: the words up to the first parameter, then the parameter, then a plain text.
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
        // Words like `preview` before what would take them for ids.
        let scope = plain.into_iter().fold(web::scope(noun), |scope, (rest, resource)| scope.service(resource.service(rest, part)));
        let scope = named.into_iter().fold(scope, |scope, (name, resources)| {
            let inner = resources.into_iter().fold(web::scope(name), |inner, (rest, resource)| inner.service(resource.service(rest, part)));
            scope.service(inner)
        });
        app.service(scope);
    }
}

/// By what they begin with, in the order in which that came first.
type Groups<'a, T> = Vec<(&'a str, Vec<T>)>;

fn put<'a, T>(groups: &mut Groups<'a, T>, key: &'a str, value: T) {
    match groups.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) => values.push(value),
        None => groups.push((key, vec![value])),
    }
}

/// Where the words that name the noun end: the third at most, for `/api/v1` stands before most of them.
fn end_of_noun(path: &str) -> usize {
    let most = path.find("/{").unwrap_or(path.len());
    path[..most].match_indices('/').nth(3).map_or(most, |(at, _)| at)
}

/// What a body is.
pub(super) struct Body {
    pub(super) required: bool,
    pub(super) shape: Shape,
    pub(super) bulk: bool,
    /// It is bytes of any kind, and no JSON.
    pub(super) raw: bool,
}

/// One of the answers of success.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) says: &'static str,
    pub(super) contents: Vec<(&'static str, Option<Shape>)>,
    pub(super) headers: Vec<(&'static str, &'static str)>,
}

/// What a method of a resource takes and gives.
pub struct Operation {
    pub(super) method: Method,
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) access: Access,
    /// Parameters that it does not know do no harm.
    pub(super) ignores_parameters: bool,
    pub(super) query: Option<Shape>,
    pub(super) body: Option<Body>,
    pub(super) answers: Vec<Answer>,
    pub(super) failures: Vec<u16>,
    /// It needs more than what is stored.
    pub(super) only_leader: bool,
}

impl Operation {
    fn new(method: Method) -> Self {
        Self {
            method,
            name: "",
            says: "",
            access: Access::Unstated,
            ignores_parameters: false,
            query: None,
            body: None,
            answers: Vec::new(),
            failures: Vec::new(),
            only_leader: false,
        }
    }

    /// Its name for programs: a verb and a noun, unique in the table.
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// What it does: the first sentence is its title.
    pub fn says(mut self, says: &'static str) -> Self {
        self.says = says;
        self
    }

    /// Who may call it: the route lets nobody else pass, and gives the handler the [`super::auth::Caller`].
    pub fn needs(mut self, need: Need) -> Self {
        self.access = Access::Role(need);
        self
    }

    /// Everybody may call it.
    pub fn is_public(mut self) -> Self {
        self.access = Access::Public;
        self
    }

    /// This function says who may call it, and the other one how a refusal is answered. In the document it needs what
    /// [`Operation::needs`] has said before.
    pub fn admits(mut self, admit: Admit, refuse: Refuse) -> Self {
        self.access = Access::By { need: self.access.need(), admit, refuse };
        self
    }

    /// Any parameter is refused. Where the table says that everybody may call it, or by a function of its own who may, nothing
    /// is known of its parameters.
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
        self.body = Some(Body { required: true, shape: shape::<T>, bulk: false, raw: false });
        self
    }

    /// The type of its JSON body, which may be left out.
    pub fn body_or_nothing<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body { required: false, shape: shape::<T>, bulk: false, raw: false });
        self
    }

    /// The type of its body, which is either JSON or in bulk form.
    pub fn body_or_bulk<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body { required: true, shape: shape::<T>, bulk: true, raw: false });
        self
    }

    /// Its body is bytes of any kind.
    pub fn body_as_bytes(mut self) -> Self {
        self.body = Some(Body { required: true, shape: shape::<String>, bulk: false, raw: true });
        self
    }

    fn answer(mut self, status: u16, says: &'static str, contents: Vec<(&'static str, Option<Shape>)>) -> Self {
        self.answers.push(Answer { status, says, contents, headers: Vec::new() });
        self
    }

    /// It answers JSON of this type.
    pub fn answers<T: JsonSchema>(self, status: u16, says: &'static str) -> Self {
        self.answer(status, says, vec![("application/json", Some(shape::<T>))])
    }

    /// It answers JSON of this type, or the bulk form to who accepts it.
    pub fn answers_or_bulk<T: JsonSchema>(self, status: u16, says: &'static str) -> Self {
        self.answer(status, says, vec![("application/json", Some(shape::<T>)), (BULK, None)])
    }

    /// It answers bytes of this media type.
    pub fn answers_as(self, status: u16, media_type: &'static str, says: &'static str) -> Self {
        self.answer(status, says, vec![(media_type, None)])
    }

    /// The answer that was named last may have this media type instead.
    pub fn or_as(mut self, media_type: &'static str) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.contents.push((media_type, None));
        }
        self
    }

    /// It answers without a body.
    pub fn answers_nothing(self, status: u16, says: &'static str) -> Self {
        self.answer(status, says, Vec::new())
    }

    /// The answer that was named last has this header.
    pub fn with_header(mut self, name: &'static str, says: &'static str) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.headers.push((name, says));
        }
        self
    }

    /// Though it is a GET, it writes, waits for something or asks actors: a broker that stands by refuses it.
    pub fn only_leader(mut self) -> Self {
        self.only_leader = true;
        self
    }

    /// Whether a broker that stands by serves it.
    pub(super) fn is_for_standby(&self) -> bool {
        self.method == Method::GET && !self.only_leader
    }

    /// Statuses of its failures besides those that follow from what it takes: [`super::openapi`] adds them.
    pub fn may_fail(mut self, statuses: &[u16]) -> Self {
        self.failures.extend_from_slice(statuses);
        self
    }
}
