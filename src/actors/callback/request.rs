//! One attempt: the request, its redirects, the response.
//!
//! Names are resolved here, and the request goes to exactly the address that was checked, so that a later change of the name
//! cannot bypass the check. Connections are not reused: each request is checked again, and none fails because the receiver closed
//! an old connection.
//!
//! A known limit of awc 3.11: it reads a body that ends too early, or ends with the connection, as complete or empty. So the
//! status decides how an attempt ended, never the body.

use super::answer::{Answer, Attempt, KEPT};
use super::outbound::{addresses, to};
use crate::domain::callback::{Callback, Filled, MOST_BODY};
use crate::domain::run::Run;
use crate::domain::secrets::mask_url;
use crate::domain::targets::Targets;
use crate::domain::time::Timestamp;
use crate::domain::trace::SpanId;
use crate::protocol::sign::signature;
use awc::error::{PayloadError, SendRequestError};
use awc::http::Method;
use awc::http::header::{HeaderName, HeaderValue};
use awc::{ClientRequest, ClientResponse};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::net::SocketAddr;
use std::time::Duration;
use url::Url;

/// Maximum number of redirects that are followed.
const MOST_REDIRECTS: usize = 5;
/// Sends the request of a run, with this timeout in milliseconds.
pub(super) async fn attempt(targets: &Targets, run: &Run, timeout_ms: u64) -> Attempt {
    let began = Timestamp::now();
    let mut out = Attempt::default();
    let made = match &run.rules.callback {
        Some(callback) => {
            let call = Call { targets, callback, run, began };
            tokio::time::timeout(Duration::from_millis(timeout_ms), call.make(&mut out)).await
        }
        None => Ok(Err("the run has no request".to_owned())),
    };
    out.failure = match made {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(why),
        Err(_) => Some(format!("it took longer than {timeout_ms} ms")),
    };
    out.duration_ms = Timestamp::now().since_ms(began);
    out
}

struct Call<'a> {
    targets: &'a Targets,
    callback: &'a Callback,
    run: &'a Run,
    began: Timestamp,
}

/// One request in a chain of redirects.
struct Hop<'a> {
    url: Url,
    method: Method,
    body: Option<&'a str>,
    /// The origin is the one in the job, and not one from a receiver.
    is_own: bool,
}

impl Call<'_> {
    async fn make(&self, out: &mut Attempt) -> Result<(), String> {
        let filled = self.callback.filled(self.run);
        let first = self.first_url(&filled)?;
        let method = Method::from_bytes(self.callback.method().as_bytes()).map_err(|e| e.to_string())?;
        let mut hop = Hop { url: first.clone(), method, body: filled.body.as_deref(), is_own: true };
        for redirects in 0.. {
            let mut response = self.send(&hop, &filled).await?;
            out.first_sign_ms.get_or_insert_with(|| Timestamp::now().since_ms(self.began));
            let status = response.status().as_u16();
            let text = |name: &str| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            let expected = self.callback.expects(status);
            let location = text("location").filter(|_| !expected && matches!(status, 301 | 302 | 303 | 307 | 308));
            if let Some(location) = location {
                if redirects == MOST_REDIRECTS {
                    return Err(format!("more than {MOST_REDIRECTS} redirects"));
                }
                hop = self.follow(&first, hop, status, &location)?;
                continue;
            }
            let headers = KEPT.into_iter().filter_map(|name| Some((name, text(name)?))).collect();
            let url = (hop.url != first).then(|| hop.url.to_string());
            let answer = out.answer.insert(Answer { status, headers, url, ..Answer::default() });
            while let Some(chunk) = response.next().await {
                let Ok(chunk) = chunk else { break };
                let room = MOST_BODY - answer.body.len();
                answer.body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if chunk.len() > room {
                    answer.is_cut = true;
                    break;
                }
            }
            return if expected { Ok(()) } else { Err(format!("the answer is {status}")) };
        }
        Ok(())
    }

    fn first_url(&self, filled: &Filled) -> Result<Url, String> {
        let mut url =
            Url::parse(&filled.url).map_err(|e| format!("with placeholders replaced, `{}` is not a URL: {e}", mask_url(&filled.url)))?;
        let meant = Url::parse(&self.callback.url).map_err(|e| e.to_string())?;
        if url.origin() != meant.origin() {
            return Err(format!("with placeholders replaced, the URL leads to `{}`", url.host_str().unwrap_or_default()));
        }
        url.set_fragment(None);
        Ok(url)
    }

    /// The target of a redirect. As in browsers, a POST becomes a GET unless the status forbids it.
    fn follow<'a>(&self, first: &Url, hop: Hop<'a>, status: u16, location: &str) -> Result<Hop<'a>, String> {
        let mut url = hop.url.join(location).map_err(|e| format!("a redirect leads to `{}`: {e}", mask_url(location)))?;
        url.set_fragment(None);
        if !matches!(url.scheme(), "http" | "https") || hop.url.scheme() == "https" && url.scheme() == "http" {
            return Err(format!("a redirect from {} to {} is not followed", hop.url.scheme(), url.scheme()));
        }
        let is_own = hop.is_own && url.origin() == first.origin();
        let becomes_get = match status {
            301 | 302 => hop.method == Method::POST,
            303 => hop.method != Method::HEAD,
            _ => false,
        };
        Ok(if becomes_get { Hop { url, method: Method::GET, body: None, is_own } } else { Hop { url, is_own, ..hop } })
    }

    /// Sends to the first address that accepts the connection.
    async fn send(
        &self,
        hop: &Hop<'_>,
        filled: &Filled,
    ) -> Result<ClientResponse<impl Stream<Item = Result<Bytes, PayloadError>> + Unpin + use<>>, String> {
        let mut last = "the name has no address".to_owned();
        for address in addresses(self.targets, &hop.url).await? {
            let request = self.request(hop, filled, address)?;
            let sent = match hop.body {
                Some(body) => request.send_body(body.to_owned()).await,
                None => request.send().await,
            };
            match sent {
                Ok(response) => return Ok(response),
                // Nothing was sent, so the next address may work.
                Err(SendRequestError::Connect(error)) => last = format!("no connection to {address}: {error}"),
                Err(error) => return Err(format!("no answer from {address}: {error}")),
            }
        }
        Err(last)
    }

    fn request(&self, hop: &Hop<'_>, filled: &Filled, address: SocketAddr) -> Result<ClientRequest, String> {
        let mut request = to(hop.method.clone(), &hop.url, address);
        let headers = request.headers_mut();
        for (name, value) in &filled.headers {
            // Headers for one receiver, for example a key, must not go to another one; headers that describe the body may.
            if hop.is_own || name.eq_ignore_ascii_case("content-type") || name.eq_ignore_ascii_case("accept") {
                let cannot = || format!("the header `{name}` is invalid");
                let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| cannot())?;
                headers.insert(key, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| cannot())?);
            }
        }
        let run = self.run;
        let mut own = vec![
            ("webloom-run", run.identity.to_string()),
            ("webloom-attempt", run.attempt.to_string()),
            ("idempotency-key", run.identity.to_string()),
            ("traceparent", traceparent(run)),
        ];
        if let Some(secret) = self.callback.secret.as_deref().filter(|secret| !secret.is_empty() && hop.is_own) {
            own.push(("webloom-signature", signature(secret, Timestamp::now(), hop.body.unwrap_or_default().as_bytes())));
        }
        for (name, value) in own {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value).map_err(|e| e.to_string())?);
        }
        Ok(if hop.body.is_some() { request.insert_header_if_none(("Content-Type", "application/json")) } else { request })
    }
}

/// The run's trace, with the span of the attempt (W3C Trace Context).
fn traceparent(run: &Run) -> String {
    let trace = run.trace_id.clone().unwrap_or_else(|| run.identity.to_string());
    format!("00-{trace}-{}-01", SpanId::of_attempt(run.identity, 0, run.attempt))
}
