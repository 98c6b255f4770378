//! Errors for clients: problem details (RFC 9457), in the same format on every route and socket.

use serde::{Deserialize, Serialize};

/// The media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// An error, for programs (`type`, `status`, `field`) and for people (`title`, `detail`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[error("{title}: {detail}")]
pub struct Problem {
    /// `/problems/` and a name that never changes.
    #[serde(rename = "type")]
    pub kind: String,
    /// A title for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The details of this error.
    pub detail: String,
    /// The part of the input with the error: `requests[3].url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Problem {
    const STANDBY: &str = "standby";

    fn new(word: &str, title: &str, status: u16, detail: impl Into<String>) -> Self {
        Self { kind: format!("/problems/{word}"), title: title.into(), status, detail: detail.into(), field: None }
    }

    /// Sets the part of the input with the error.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// 400: the input cannot be parsed.
    #[must_use]
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new("malformed", "The input cannot be read", 400, detail)
    }
    /// 401: the token is missing.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new("unauthorized", "A token is needed", 401, "send a token in `Token: …` or `Authorization: Bearer …`")
    }
    /// 401: the token is unknown.
    #[must_use]
    pub fn unknown_token() -> Self {
        Self::new("unauthorized", "The token is not known", 401, "the broker does not have this token; it may have been changed or removed")
    }
    /// 401: there is no such hook, or its secret is wrong.
    #[must_use]
    pub fn unknown_hook() -> Self {
        let detail = "there is no such hook, or its secret or the signature of the body is wrong";
        Self::new("unauthorized", "The hook is not known", 401, detail)
    }
    /// 401: an invalid or expired `sign`.
    #[must_use]
    pub fn sign(detail: impl Into<String>) -> Self {
        Self::new("unauthorized", "The sign is not taken", 401, detail).at("sign")
    }
    /// 429: tokens from this address are rejected for a while.
    #[must_use]
    pub fn too_many_attempts() -> Self {
        let detail = "too many wrong tokens came from this address: send the right one in a second or later";
        Self::new("too-many-attempts", "Too many wrong tokens", 429, detail)
    }
    /// 403: the caller lacks the permission.
    #[must_use]
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new("forbidden", "This token may not do that", 403, detail)
    }
    /// 404: it does not exist.
    #[must_use]
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new("not-found", "There is no such thing", 404, detail)
    }
    /// 405: the method is not supported.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new("method-not-allowed", "Not with this method", 405, "this address does not support the method")
    }
    /// 409: it conflicts with the present state.
    #[must_use]
    pub fn conflict(word: &str, detail: impl Into<String>) -> Self {
        Self::new(word, "It does not fit the present state", 409, detail)
    }
    /// 413: the body exceeds the limit.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        Self::new("too-large", "The body is too large", 413, format!("the body must be at most {limit} bytes"))
    }
    /// 413: the body exceeds the limit when it is unpacked.
    #[must_use]
    pub fn too_dense(ratio: usize) -> Self {
        let detail = format!("it unpacks to more than {ratio} times its size: send it in several calls, or not compressed");
        Self::new("too-large", "The body is too large", 413, detail)
    }
    /// 415: the format or the encoding is not supported.
    #[must_use]
    pub fn unsupported(detail: impl Into<String>) -> Self {
        Self::new("unsupported-media-type", "This format is not taken", 415, detail)
    }
    /// 422: the input parses, but a value is not allowed.
    #[must_use]
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new("invalid", "A value is not allowed", 422, detail).at(field)
    }
    /// 408: the body arrives too slowly.
    #[must_use]
    pub fn too_slow(detail: impl Into<String>) -> Self {
        Self::new("too-slow", "The body comes too slowly", 408, detail)
    }
    /// 429: the caller's share is used up; retry later.
    #[must_use]
    pub fn too_many(detail: impl Into<String>) -> Self {
        Self::new("too-many", "Come again in a moment", 429, detail)
    }
    /// 503: retry later.
    #[must_use]
    pub fn busy(detail: impl Into<String>) -> Self {
        Self::new("busy", "Come again in a moment", 503, detail)
    }
    /// 503: nothing can be stored, because of the disk.
    #[must_use]
    pub fn disk(trouble: &str) -> Self {
        Self::new(
            "disk",
            "Nothing can be stored",
            503,
            format!("{trouble}: the broker cannot store anything until this is fixed; retry later"),
        )
    }
    /// 503: this broker is a standby; `leader` is the URL of the leader.
    #[must_use]
    pub fn standby(leader: Option<&str>) -> Self {
        let detail = leader.map_or_else(|| "no broker leads yet; retry later".to_owned(), |url| format!("the broker at {url} leads"));
        Self::new(Self::STANDBY, "This broker stands by", 503, detail)
    }
    /// 503: this broker is a standby, and did not reach the leader to pass the call on: certainly nothing was done.
    #[must_use]
    pub fn leader_unreachable(leader: &str) -> Self {
        let detail = format!("the broker at {leader} leads, and this one cannot reach it at that address; retry later");
        Self::new(Self::STANDBY, "This broker stands by", 503, detail)
    }
    /// The leader has refused a socket that a standby passed on, with this status.
    #[must_use]
    pub fn socket_refused(leader: &str, status: u16) -> Self {
        let detail = format!("the broker at {leader} leads, and answered {status}: connect to it to read the reason");
        Self::new("socket-refused", "The leader refuses the socket", status, detail)
    }
    /// 502: the call was passed on to another broker, and its answer did not come.
    #[must_use]
    pub fn lost(broker: &str, why: &str) -> Self {
        let detail = format!(
            "the call was passed on to the broker at {broker}, and its answer did not come ({why}): it may have been carried out or not. \
            Look before you repeat it"
        );
        Self::new("answer-lost", "The answer is lost", 502, detail)
    }
    /// 503: the same for a `GET`, which can be sent again.
    #[must_use]
    pub fn lost_read(broker: &str, why: &str) -> Self {
        Self::busy(format!("the call was passed on to the broker at {broker}, and its answer did not come ({why}): send it again"))
    }
    /// 503: this broker is stopping; another one, or this one after a restart, will continue.
    #[must_use]
    pub fn ending() -> Self {
        Self::new(Self::STANDBY, "This broker ends", 503, "retry in a moment, or at the address of another broker")
    }
    /// 503: the broker that executes the run cannot be reached: certainly nothing was done.
    #[must_use]
    pub fn owner_unreachable() -> Self {
        Self::busy("the broker that executes the run cannot be reached; retry later")
    }
    /// 503: the run moves from one broker to another.
    #[must_use]
    pub fn moving() -> Self {
        Self::busy("the run is moving to another broker; retry later")
    }
    /// 503: this broker executes runs for the leader, and cannot show that they have not been taken from it.
    #[must_use]
    pub fn right_in_doubt() -> Self {
        Self::busy("this broker has not reached the database for too long, so another one may execute the run; retry in a moment")
    }
    /// 503: another broker may lead already, because this one cannot renew its lease.
    #[must_use]
    pub fn in_doubt() -> Self {
        let detail = "this broker cannot renew its lease, so another one may lead; retry in a moment, or at the address of another broker";
        Self::new(Self::STANDBY, "Another broker may lead", 503, detail)
    }
    /// Whether another broker should be tried.
    #[must_use]
    pub fn is_standby(&self) -> bool {
        self.kind.strip_prefix("/problems/") == Some(Self::STANDBY)
    }
    /// 500: an internal error.
    #[must_use]
    pub fn internal() -> Self {
        Self::new("internal", "The broker failed", 500, "internal error; see the broker's log")
    }
}
