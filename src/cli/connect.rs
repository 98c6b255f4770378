//! Explains why a broker could not be reached, and what to do about it.

use super::failure::Failure;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;
use url::Url;

/// Time limit for probing the server.
const LOOK: Duration = Duration::from_secs(2);
/// First byte of a TLS alert, which a TLS server sends when it cannot parse a message.
const ALERT: u8 = 21;

/// The stage at which a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before the connection was open.
    Connecting,
    /// On an open connection.
    Talking,
    /// At the timeout.
    TimedOut,
}

/// Translates a connection error.
pub async fn unreachable(broker: &Url, stage: Stage, error: &(dyn std::error::Error + 'static)) -> Failure {
    // The innermost cause is the useful one: connection refused, unknown name.
    let mut reason = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    let reason = if stage == Stage::TimedOut { "no response in time".to_owned() } else { reason.to_string() };
    let odd = stage == Stage::Talking && broker.scheme() == "http";
    let speaks_tls = odd && looks_like_tls(broker.clone()).await;
    Failure::Refused(explain(broker, &reason, speaks_tls))
}

fn explain(broker: &Url, reason: &str, speaks_tls: bool) -> String {
    let base = broker.as_str().trim_end_matches('/');
    let other = |scheme: &str| {
        let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
        format!("{scheme}://{rest}")
    };
    let has = |text: &str| reason.contains(text);
    if speaks_tls {
        return format!("{base} speaks TLS: use --broker {}", other("https"));
    }
    if has("InvalidContentType") {
        return format!("{base} does not speak TLS: use --broker {}", other("http"));
    }
    if has("UnknownIssuer") || has("CaUsedAsEndEntity") {
        return format!(
            "the certificate of {base} is not trusted: if it is your own, pass it, or that of its authority, with --ca-file FILE"
        );
    }
    if has("NotValidForName") || has("not valid for name") {
        return format!("the certificate of {base} is not for this name: use a name that it is for ({reason})");
    }
    if has("invalid peer certificate") {
        return format!("the certificate of {base} is not accepted ({reason}): the broker needs a valid one");
    }
    let dns = ["failed to lookup", "Name or service not known", "nodename nor servname", "No address associated"];
    if dns.iter().any(|text| has(text)) {
        let host = broker.host_str().unwrap_or_default();
        return format!("the host {host} is not known: check --broker or WEBLOOM_BROKER ({reason})");
    }
    if has("invalid HTTP") || has("HTTP version") || has("connection closed before message") {
        return format!("what listens at {base} is not a broker: its response is not HTTP. Check the port in --broker or WEBLOOM_BROKER");
    }
    let what_to_do = if has("refused") { "start one with `webloom broker`, or name another" } else { "check the address" };
    format!("no broker answers at {base}: {reason}. Is it running? Else {what_to_do} with --broker or WEBLOOM_BROKER")
}

/// Whether the server responds to a request without TLS with a TLS alert.
async fn looks_like_tls(broker: Url) -> bool {
    let look = move || {
        let address = (broker.host_str()?, broker.port_or_known_default()?).to_socket_addrs().ok()?.next()?;
        let mut stream = TcpStream::connect_timeout(&address, LOOK).ok()?;
        stream.set_read_timeout(Some(LOOK)).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut first = [0];
        stream.read_exact(&mut first).ok()?;
        Some(first[0] == ALERT)
    };
    tokio::task::spawn_blocking(look).await.ok().flatten().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_says_what_to_do() {
        let broker: Url = "https://localhost:1/".parse().unwrap();
        for (reason, expected) in [
            ("invalid peer certificate: UnknownIssuer", "pass it, or that of its authority, with --ca-file FILE"),
            ("received corrupt message of type InvalidContentType", "use --broker http://localhost:1"),
            ("invalid peer certificate: certificate not valid for name \"x\"", "use a name that it is for"),
            ("invalid peer certificate: Expired", "needs a valid one"),
            ("failed to lookup address information: x", "the host localhost is not known"),
            ("invalid HTTP version parsed", "is not a broker"),
            ("Connection refused (os error 111)", "start one with `webloom broker`"),
        ] {
            let text = explain(&broker, reason, false);
            assert!(text.contains(expected), "{text}");
        }
        let plain: Url = "http://h:2/".parse().unwrap();
        assert_eq!(explain(&plain, "x", true), "http://h:2 speaks TLS: use --broker https://h:2");
    }
}
