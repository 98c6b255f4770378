//! Messages by mail.

use crate::config::alerts::MailConfig;
use crate::store::Claimed;
use lettre::message::Mailbox;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use std::time::Duration;

/// How long the server may take to accept a mail.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connection to the mail server, if one is configured.
pub(super) struct Mail(Option<Result<Way, String>>);

struct Way {
    server: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mail {}", self.0.is_some())
    }
}

impl Mail {
    pub(super) fn new(config: Option<&MailConfig>) -> Self {
        Self(config.map(|config| {
            let from = config.from.parse().map_err(|e| format!("invalid sender address: {e}"))?;
            // The error may contain the URL, and with it the password.
            let server = AsyncSmtpTransport::<Tokio1Executor>::from_url(config.smtp_url.as_str());
            let mut server = server.map_err(|_| "invalid URL of the mail server".to_owned())?;
            if let Some(tls) = own_tls(&config.smtp_url)? {
                server = server.tls(tls);
            }
            Ok(Way { server: server.timeout(Some(PATIENCE)).build(), from })
        }))
    }

    pub(super) async fn send(&self, claimed: &Claimed) -> Result<(), String> {
        let way = self.0.as_ref().ok_or("the broker was started without a mail server")?.as_ref().map_err(Clone::clone)?;
        let to: Address = claimed.channel.target.parse().map_err(|e| format!("invalid address: {e}"))?;
        let mail = Message::builder()
            .from(way.from.clone())
            .to(Mailbox::new(None, to))
            .subject(subject(claimed))
            // The same id in every attempt.
            .message_id(Some(format!("<{}.{}@webloom>", claimed.event.id, claimed.channel.id)))
            .body(text(claimed))
            .map_err(|e| e.to_string())?;
        let sent = tokio::time::timeout(PATIENCE, way.server.send(mail)).await;
        sent.map_err(|_| "the mail server did not accept the message in time".to_owned())?.map(drop).map_err(|e| e.to_string())
    }
}

/// The TLS mode of the URL, with the configured authorities in addition to the usual ones. `None` if there are none.
fn own_tls(url: &url::Url) -> Result<Option<Tls>, String> {
    let own = crate::tls::own_authorities();
    let asked = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, value)| value.into_owned());
    let make: fn(TlsParameters) -> Tls = match (url.scheme(), asked.as_deref()) {
        _ if own.is_empty() => return Ok(None),
        ("smtps", _) => Tls::Wrapper,
        (_, Some("required")) => Tls::Required,
        (_, Some("opportunistic")) => Tls::Opportunistic,
        _ => return Ok(None),
    };
    let mut parameters = TlsParameters::builder(url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned());
    for authority in own {
        let authority = Certificate::from_der(authority.to_vec()).map_err(|e| format!("invalid trusted authority: {e}"))?;
        parameters = parameters.add_root_certificate(authority);
    }
    parameters.build_rustls().map(make).map(Some).map_err(|e| format!("TLS to the mail server: {e}"))
}

/// Validates a mail address.
///
/// # Errors
/// The text is not a mail address.
pub fn check_address(text: &str) -> Result<(), String> {
    text.parse::<Address>().map(drop).map_err(|e| format!("`{text}` is not a mail address: {e}"))
}

fn subject(claimed: &Claimed) -> String {
    let event = &claimed.event;
    let name = event.detail.job_name.as_deref().map(|name| format!(": {name}")).unwrap_or_default();
    let times = if claimed.events > 1 { format!(" ({} times)", claimed.events) } else { String::new() };
    // A line break would start another header.
    format!("[webloom] {}{name}{times}", event.event).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn text(claimed: &Claimed) -> String {
    let event = &claimed.event;
    let mut lines = vec![format!("event:  {}", event.event), format!("at:     {}", event.at)];
    let named = [
        ("job:    ", event.detail.job_name.clone()),
        ("job id: ", event.job_id.map(|id| id.to_string())),
        ("group:  ", event.detail.group.clone()),
        ("run:    ", event.identity.map(|id| id.to_string())),
        ("reason: ", event.detail.reason.clone()),
    ];
    lines.extend(named.into_iter().filter_map(|(name, value)| value.map(|value| format!("{name}{value}"))));
    if claimed.events > 1 {
        lines.push(format!("count:  {} of them; this is the first", claimed.events));
    }
    lines.join("\n") + "\n"
}
