//! Messages to webhooks: JSON by POST, signed where the channel has a secret.

use crate::domain::time::Timestamp;
use crate::protocol::alerts::{AlertMessage, EVENT, SIGNATURE};
use crate::store::Claimed;
use hmac::{Hmac, KeyInit, Mac};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use sha2::Sha256;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// In which the other side must have answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// The client that all webhooks share.
pub(super) struct Webhooks(awc::Client);

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("webhooks")
    }
}

impl Webhooks {
    pub(super) fn new() -> Self {
        let connector = awc::Connector::new().rustls_0_23(Arc::new(tls())).timeout(PATIENCE);
        // Where a message is redirected to, nobody has agreed to.
        Self(awc::Client::builder().connector(connector).timeout(PATIENCE).disable_redirects().finish())
    }

    pub(super) async fn send(&self, claimed: &Claimed) -> Result<(), String> {
        let target = &claimed.channel.target;
        target_allowed(target)?;
        let body = serde_json::to_vec(&message(claimed)).map_err(|e| e.to_string())?;
        let mut request = self.0.post(target).insert_header((EVENT, claimed.event.event.as_str())).content_type("application/json");
        if let Some(secret) = &claimed.channel.secret {
            request = request.insert_header((SIGNATURE, signature(secret, Timestamp::now(), &body)));
        }
        // The client's own limit ends where the answer begins; this one holds for all.
        let answer = tokio::time::timeout(PATIENCE, request.send_body(body)).await;
        let answer = answer.map_err(|_| "no answer in time".to_owned())?.map_err(|e| e.to_string())?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("answered {}", answer.status())) }
    }
}

/// What a channel is told.
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

/// Whether the broker may speak to this URL; asked when a channel is stored and before each message.
///
/// # Errors
/// Why not.
pub fn target_allowed(target: &str) -> Result<(), String> {
    let url = Url::parse(target).map_err(|e| format!("`{target}` is no absolute URL: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("`{target}` is no http or https URL"));
    }
    Ok(())
}

/// `t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`
fn signature(secret: &str, now: Timestamp, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(format!("{}.", now.0).as_bytes());
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={},v1={hex}", now.0)
}

/// With the roots compiled in: a machine without a certificate store can send too.
fn tls() -> ClientConfig {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_hmac_that_others_compute() {
        // printf '1700000000000.{"a":1}' | openssl dgst -sha256 -hmac key
        let expected = "t=1700000000000,v1=2c8bc12f88d77789404ce0a63cf69acf735ba98832f7a7d36147f537be556f3e";
        assert_eq!(signature("key", Timestamp(1_700_000_000_000), br#"{"a":1}"#), expected);
    }

    #[test]
    fn only_the_web_is_a_target() {
        assert!(target_allowed("https://hooks.test/x?y=1").is_ok());
        for wrong in ["", "/x", "ftp://hooks.test/", "file:///etc/passwd", "mailto:a@b.test"] {
            assert!(target_allowed(wrong).is_err(), "{wrong}");
        }
    }
}
