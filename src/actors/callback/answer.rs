//! The result of an attempt of a callback.

use crate::domain::schedule::LONGEST;
use crate::domain::time::Timestamp;
use crate::store::NextAsked;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Response headers that are stored.
pub(super) const KEPT: [&str; 5] = ["content-type", "date", "location", "retry-after", "x-request-id"];

/// The stored part of a response.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<&'static str, String>,
    pub(super) body: Vec<u8>,
    /// The body was truncated.
    pub(super) is_cut: bool,
    /// The final URL after redirects, if it differs from the first.
    pub(super) url: Option<String>,
}

/// A completed attempt.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) answer: Option<Answer>,
    /// The reason of a failure.
    pub(super) failure: Option<String>,
    /// Duration in milliseconds.
    pub(super) duration_ms: i64,
    /// Milliseconds until the response began.
    pub(super) first_sign_ms: Option<i64>,
}

/// The fields by which a receiver may request the next time.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wish {
    next_at: Option<Timestamp>,
    next_in: Option<u64>,
}

impl Answer {
    /// The next time that the receiver requests, with `nextAt` or `nextIn` in a JSON object.
    pub(super) fn next(&self, now: Timestamp) -> Option<NextAsked> {
        if self.is_cut || !self.headers.get("content-type").is_some_and(|kind| kind.to_ascii_lowercase().contains("json")) {
            return None;
        }
        // The receiver defines its response; only these two fields have a meaning here.
        let wish: Wish = serde_json::from_slice(&self.body).ok()?;
        let pause = wish.next_in.filter(|ms| *ms <= LONGEST).map(|ms| NextAsked { at: now.plus_ms(ms as i64), from: Some(now) });
        wish.next_at.map(|at| NextAsked { at, from: None }).or(pause)
    }
}

impl Attempt {
    /// The form that is stored in the run.
    pub(super) fn result(&self, attempt: u32) -> String {
        let mut out = json!({ "durationMs": self.duration_ms, "attempt": attempt });
        if let Some(answer) = &self.answer {
            out["status"] = answer.status.into();
            out["headers"] = json!(answer.headers);
            out["body"] = String::from_utf8_lossy(&answer.body).into();
            if answer.is_cut {
                out["truncated"] = true.into();
            }
            if let Some(url) = &answer.url {
                out["url"] = url.as_str().into();
            }
        }
        out.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(kind: &str, body: &str) -> Option<i64> {
        let headers = [("content-type", kind.to_owned())].into_iter().collect();
        let answer = Answer { status: 200, headers, body: body.as_bytes().to_vec(), ..Answer::default() };
        answer.next(Timestamp(1_000)).map(|next| next.at.0)
    }

    #[test]
    fn a_receiver_may_name_its_next_time() {
        assert_eq!(next("application/json", r#"{"nextIn":500,"more":[]}"#), Some(1_500));
        assert_eq!(next("application/json; charset=utf-8", r#"{"nextAt":"1970-01-01T00:00:09Z","nextIn":1}"#), Some(9_000));
        let json = "application/json";
        for (kind, body) in
            [("text/plain", r#"{"nextIn":5}"#), (json, "[]"), (json, r#"{"nextIn":-5}"#), (json, r#"{"nextIn":18446744073709551615}"#)]
        {
            assert_eq!(next(kind, body), None, "{body}");
        }
    }

    #[test]
    fn a_body_is_kept_as_text() {
        let answer = Answer { status: 500, body: b"a\xff".to_vec(), is_cut: true, ..Answer::default() };
        let attempt = Attempt { answer: Some(answer), duration_ms: 7, ..Attempt::default() };
        let result: serde_json::Value = serde_json::from_str(&attempt.result(2)).expect("JSON");
        assert_eq!(result, json!({"status":500,"headers":{},"body":"a\u{fffd}","truncated":true,"durationMs":7,"attempt":2}));
    }
}
