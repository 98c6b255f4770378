//! Problem responses: one format on every route.

use crate::protocol::parser_errors::unread;
use crate::protocol::problem::{MEDIA_TYPE, Problem};
use actix_web::error::QueryPayloadError;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER};
use actix_web::{HttpRequest, HttpResponse, ResponseError, web};

/// A problem as an HTTP response.
#[derive(Debug)]
pub struct Failure(pub Problem);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        let mut answer = HttpResponse::build(self.status_code());
        answer.content_type(MEDIA_TYPE);
        if matches!(self.0.status, 429 | 503) {
            answer.insert_header((RETRY_AFTER, "1"));
        }
        if self.0.status == 401 {
            answer.insert_header(("WWW-Authenticate", "Bearer"));
        }
        answer.body(serde_json::to_vec(&self.0).expect("a problem is plain data"))
    }
}

/// Response for unknown paths.
pub async fn no_such_route(request: HttpRequest) -> Failure {
    Failure(Problem::not_found(format!("nothing is at {}", request.path())))
}

/// Response for unsupported methods; its `Allow` header lists the supported ones.
pub async fn no_such_method(methods: String) -> HttpResponse {
    let mut answer = Failure(Problem::method_not_allowed()).error_response();
    if let Ok(methods) = HeaderValue::from_str(&methods) {
        answer.headers_mut().insert(ALLOW, methods);
    }
    answer
}

impl actix_web::Responder for Failure {
    type Body = actix_web::body::BoxBody;
    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        self.error_response()
    }
}

/// Reports query strings that do not parse as problems too.
pub fn query_config() -> web::QueryConfig {
    web::QueryConfig::default().error_handler(|error, request| {
        let problem = match &error {
            QueryPayloadError::Deserialize(inner) => unread_query(request.query_string(), &inner.to_string()),
            other => Problem::malformed(other.to_string()),
        };
        Failure(problem).into()
    })
}

/// The reader of queries names no parameter whose value is wrong, so the query is shown.
fn unread_query(query: &str, why: &str) -> Problem {
    let problem = unread("parameter", "", why);
    if problem.field.is_some() {
        return problem;
    }
    let shown: String = query.chars().take(200).collect();
    let expected = match problem.detail.as_str() {
        "invalid digit found in string" | "cannot parse integer from empty string" => "a whole number from 0 is expected",
        "number too large to fit in target type" => "a number is too large",
        "provided string was not `true` or `false`" => "`true` or `false` is expected",
        other => other,
    };
    Problem::malformed(format!("cannot read the query `{shown}`: {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_cannot_be_read_is_shown_with_what_is_expected() {
        let said = |query: &str, why| unread_query(query, why).detail;
        assert_eq!(
            said("limit=-1", "invalid digit found in string"),
            "cannot read the query `limit=-1`: a whole number from 0 is expected"
        );
        assert_eq!(said("", "missing field `url`"), "the parameter `url` is missing");
        assert_eq!(said("a=1&a=2", "duplicate field `a`"), "the parameter `a` is given twice");
        assert_eq!(
            said("kind=tooLarge", "unknown variant `tooLarge`, expected one of `dns`, `too-large`"),
            "cannot read the query `kind=tooLarge`: unknown value `tooLarge`. Did you mean `too-large`?"
        );
        assert!(said(&"a".repeat(9_000), "x").len() < 300);
    }
}
