//! Access rules of operations: stated once, in the route table, and enforced around the handler when the route is registered.

use super::Edge;
use super::audit::{Audited, note_members};
use super::auth::{Caller, Need, admit};
use super::body::{MAX_JSON, read};
use super::error::Failure;
use super::forward::{Passed, Receiver, pass_on};
use super::live::IsWatched;
use super::of_run;
use super::route::Operation;
use super::scope::Scope;
use crate::protocol::problem::Problem;
use crate::protocol::unknown::refusal;
use actix_web::body::MessageBody;
use actix_web::{FromRequest, Handler, HttpMessage as _, HttpRequest, HttpResponse, Responder, ResponseError as _, web};

/// Identifies the caller, or rejects it. `None`: the operation does not check its callers.
pub(super) type Admit = fn(&Edge, &HttpRequest) -> Result<Option<Caller>, Failure>;
/// Builds the response for a rejected caller.
pub(super) type Refuse = fn(Failure) -> HttpResponse;

/// Who may call an operation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Access {
    /// The table does not state a rule: every call is rejected.
    Unstated,
    /// Everybody may call it.
    Public,
    /// Callers whose token has a role with this permission.
    Role(Need),
    /// Callers that this function admits: for routes that also accept a token outside the usual headers.
    By { need: Option<Need>, admit: Admit, refuse: Refuse },
}

impl Access {
    /// The permission that callers need.
    pub(super) fn need(self) -> Option<Need> {
        match self {
            Self::Role(need) => Some(need),
            Self::By { need, .. } => need,
            Self::Unstated | Self::Public => None,
        }
    }
}

/// Parameters of paged lists. Lists that are returned whole ignore them, so that clients can request any list in the same way.
const PAGING: [&str; 2] = ["limit", "cursor"];

/// What is checked before the arguments of a handler are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admission {
    access: Access,
    /// The operation has no parameters: any parameter is rejected.
    without_parameters: bool,
    /// What a token that is limited to groups may call.
    scope: Scope,
    audited: Option<Audited>,
    /// It needs the actor of a block run.
    is_of_run: bool,
    /// Windows may watch its answers.
    is_live: bool,
}

impl Admission {
    pub(super) fn of(operation: &Operation, path: &'static str) -> Self {
        let scope = if operation.limits_itself { Scope::Itself } else { Scope::of(path) };
        let audited = Audited::of(operation, path);
        Self {
            access: operation.access,
            without_parameters: operation.refuses_parameters(),
            scope,
            audited,
            is_of_run: operation.is_of_run,
            is_live: operation.is_live,
        }
    }

    /// Whether the leader records its calls.
    pub(super) fn is_audited(self) -> bool {
        self.audited.is_some()
    }

    /// Checks that the caller's token may see the object of the call.
    async fn check_scope(self, request: &HttpRequest) -> Result<(), HttpResponse> {
        let caller = request.extensions().get::<Caller>().filter(|caller| caller.groups.is_some()).cloned();
        let (Some(caller), Some(edge)) = (caller, request.app_data::<web::Data<Edge>>()) else { return Ok(()) };
        self.scope.check(edge, request, &caller).await.map_err(refused)
    }

    #[expect(clippy::result_large_err, reason = "a refusal is the answer itself, and is made once a call")]
    pub(super) fn check(self, request: &HttpRequest) -> Result<(), HttpResponse> {
        let answer = refused;
        if !self.is_live && request.extensions().contains::<IsWatched>() {
            let detail = "this path cannot be watched: its operation is not marked with `x-live` in the OpenAPI document";
            return Err(answer(Problem::invalid("path", detail).into()));
        }
        let edge = || request.app_data::<web::Data<Edge>>().ok_or_else(|| answer(Problem::internal().into()));
        let caller = match self.access {
            Access::Unstated => return Err(answer(Problem::forbidden("the route table states no access rule for this operation").into())),
            Access::Public => None,
            Access::Role(need) => Some(admit(edge()?, request, need).map_err(answer)?),
            Access::By { admit, refuse, .. } => admit(edge()?, request).map_err(refuse)?,
        };
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        if matches!(self.access.need(), Some(Need::Agent | Need::Worker)) {
            edge()?.service.check_lease().map_err(|problem| answer(problem.into()))?;
        }
        if self.without_parameters
            && let Ok(parameters) = web::Query::<Vec<(String, String)>>::from_query(request.query_string())
            && let Some((name, _)) = parameters.iter().find(|(name, _)| !PAGING.contains(&name.as_str()))
        {
            return Err(answer(Problem::invalid(name, refusal("parameter", name, &[])).into()));
        }
        Ok(())
    }
}

/// Builds a problem response.
pub(super) fn refused(failure: Failure) -> HttpResponse {
    failure.error_response()
}

/// Wraps a handler so that only permitted callers reach it: the arguments are read after the check.
pub(super) fn guarded<F, A>(handler: F, admission: Admission) -> impl Handler<(HttpRequest, web::Payload), Output = HttpResponse>
where
    F: Handler<A>,
    A: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    move |request: HttpRequest, payload: web::Payload| {
        let handler = handler.clone();
        async move {
            if let Err(refused) = admission.check(&request) {
                return refused;
            }
            if let Err(refused) = admission.check_scope(&request).await {
                return refused;
            }
            let edge = request.app_data::<web::Data<Edge>>().cloned();
            // The leader has recorded a call that it passes on.
            let audited = admission.audited.filter(|_| !of_run::is_passed_on(&request));
            let call = match audited.zip(edge.as_ref()).map(|(audited, edge)| audited.begin(edge, &request)).transpose() {
                Ok(call) => call,
                Err(problem) => return refused(problem.into()),
            };
            let executor = match edge.as_ref().filter(|_| admission.is_of_run) {
                Some(edge) => of_run::executor_of_call(edge, admission, &request).await,
                None => Ok(None),
            };
            let response = match executor {
                Ok(None) => match A::from_request(&request, &mut payload.into_inner()).await {
                    Ok(arguments) => answered(handler.call(arguments).await.respond_to(&request)),
                    Err(error) => HttpResponse::from_error(error),
                },
                Ok(Some(executor)) => passed(executor, call.is_some(), &request, payload).await.unwrap_or_else(refused),
                Err(problem) => refused(problem.into()),
            };
            if let (Some(call), Some(edge)) = (call, edge) {
                call.end(&edge, &request, &response);
            }
            response
        }
    }
}

/// Passes a call on to the broker that executes its run. The members of a body are recorded here.
async fn passed(executor: Receiver, is_recorded: bool, request: &HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let edge = request.app_data::<web::Data<Edge>>().ok_or_else(Problem::internal)?;
    let body = if is_recorded {
        let body = read(request, payload, MAX_JSON).await?;
        note_members(request, &body);
        Passed::Read(body)
    } else {
        Passed::Stream(payload)
    };
    let caller = request.extensions().get::<Caller>().cloned();
    let passed = pass_on(edge, executor, request, body);
    // The other broker learns later that a token is withdrawn.
    Ok(match caller {
        Some(caller) => caller.while_admitted(&edge.tokens, passed).await?,
        None => passed.await?,
    })
}

fn answered(response: HttpResponse<impl MessageBody + 'static>) -> HttpResponse {
    response.map_into_boxed_body()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::route::resource;

    #[test]
    fn every_operation_states_who_may_call_it() {
        let unstated = |resources: &[crate::edge::route::Resource]| {
            let operations = resources.iter().flat_map(|resource| &resource.operations);
            operations.filter(|operation| matches!(operation.access, Access::Unstated)).map(|operation| operation.name).collect::<Vec<_>>()
        };
        assert_eq!(unstated(&crate::edge::table()), Vec::<&str>::new());
        let forgotten = resource("/x").get(|| async { "x" }, |op| op.named("forgotten"));
        assert_eq!(unstated(&[forgotten]), ["forgotten"], "and the check sees one that does not");
    }

    /// A handler without checks of its own is protected: it rejects everybody if the table states no rule, and callers without
    /// permission.
    #[actix_web::test]
    async fn a_handler_cannot_forget_to_ask_who_calls() {
        use actix_web::test::{TestRequest, call_service, init_service};
        let table = [
            resource("/unstated").get(|| async { "x" }, |op| op),
            resource("/role").get(|| async { "x" }, |op| op.needs(Need::Read)),
            resource("/public").get(|| async { "x" }, Operation::for_everybody),
        ];
        let app = init_service(actix_web::App::new().configure(|app| {
            crate::edge::route::register(&table, app, crate::edge::route::Part::Leader);
        }))
        .await;
        let mut seen = Vec::new();
        for path in ["/unstated", "/role", "/public"] {
            seen.push(call_service(&app, TestRequest::get().uri(path).to_request()).await.status().as_u16());
        }
        // Without an `Edge` the tokens are unknown.
        assert_eq!(seen, [403, 500, 200]);
    }
}
