//! Messages to webhooks: JSON by POST, signed if the channel has a secret.

use crate::actors::callback::{addresses, to};
use crate::domain::targets::Targets;
use crate::domain::time::Timestamp;
use crate::protocol::alerts::{AlertMessage, EVENT, SIGNATURE};
use crate::protocol::sign::signature;
use crate::store::Claimed;
use awc::error::SendRequestError;
use awc::http::Method;
use std::time::Duration;
use url::Url;

/// How long the receiver may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a message to a channel. Redirects are not followed, because their targets are not approved.
pub(super) async fn send(targets: &Targets, claimed: &Claimed) -> Result<(), String> {
    // The client's own timeout ends when the response begins; this one covers everything.
    tokio::time::timeout(PATIENCE, try_send(targets, claimed)).await.map_err(|_| "no answer in time".to_owned())?
}

async fn try_send(targets: &Targets, claimed: &Claimed) -> Result<(), String> {
    let url = target_of(&claimed.channel.target)?;
    let body = serde_json::to_vec(&message(claimed)).map_err(|e| e.to_string())?;
    let mut last = "the name has no address".to_owned();
    for address in addresses(targets, &url).await? {
        let mut request =
            to(Method::POST, &url, address).insert_header((EVENT, claimed.event.event.as_str())).content_type("application/json");
        if let Some(secret) = &claimed.channel.secret {
            request = request.insert_header((SIGNATURE, signature(secret, Timestamp::now(), &body)));
        }
        match request.send_body(body.clone()).await {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => return Err(format!("answered {}", answer.status())),
            // Nothing was sent, so the next address may work.
            Err(SendRequestError::Connect(error)) => last = format!("no connection to {address}: {error}"),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(last)
}

/// The content of a message to a channel.
fn message(claimed: &Claimed) -> AlertMessage<'_> {
    let event = &claimed.event;
    AlertMessage {
        event: &event.event,
        at: event.at,
        job_id: event.job_id,
        job_name: event.detail.job_name.as_deref(),
        group: event.detail.group.as_deref(),
        run_id: event.identity,
        reason: event.detail.reason.as_deref(),
        count: claimed.events,
        id: event.id,
    }
}

/// The URL of a webhook.
///
/// # Errors
/// The text is not an HTTP or HTTPS URL.
pub fn target_of(target: &str) -> Result<Url, String> {
    let url = Url::parse(target).map_err(|_| format!("`{target}` is not a URL: https://example.com/hook is one"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("`{target}` is not a URL of http or https"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_web_is_a_target() {
        assert!(target_of("https://hooks.test/x?y=1").is_ok());
        for wrong in ["", "/x", "ftp://hooks.test/", "file:///etc/passwd", "mailto:a@b.test"] {
            assert!(target_of(wrong).is_err(), "{wrong}");
        }
    }
}
