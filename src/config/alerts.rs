//! How alerts are sent.

use url::Url;

/// Checked settings of alerts.
#[derive(Clone, PartialEq, Eq)]
pub struct AlertConfig {
    /// The mail server; `None`: mail is not available.
    pub mail: Option<MailConfig>,
    /// Milliseconds within which similar events are collected into one message.
    pub gather_ms: u64,
}

impl Default for AlertConfig {
    fn default() -> Self {
        Self { mail: None, gather_ms: 60_000 }
    }
}

impl std::fmt::Debug for AlertConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "alerts mail={} gather={} ms", self.mail.is_some(), self.gather_ms)
    }
}

/// The mail server, and the sender.
#[derive(Clone, PartialEq, Eq)]
pub struct MailConfig {
    /// `smtp://user:password@host:port`, or `smtps://` for TLS from the first byte; `?tls=required` asks for STARTTLS.
    pub smtp_url: Url,
    /// The sender's address.
    pub from: String,
}

impl MailConfig {
    /// Combines the two settings, which require each other.
    ///
    /// # Errors
    /// One of them is missing or invalid. The text contains no password.
    pub fn parse(smtp_url: Option<&str>, from: Option<&str>) -> Result<Option<Self>, String> {
        let (smtp_url, from) = match (smtp_url, from) {
            (None, None) => return Ok(None),
            (Some(url), Some(from)) => (url, from),
            (Some(_), None) => return Err("--smtp-url needs --mail-from: mail needs a sender".to_owned()),
            (None, Some(_)) => return Err("--mail-from needs --smtp-url: mail needs a server".to_owned()),
        };
        let url = Url::parse(smtp_url).map_err(|e| format!("--smtp-url is not a URL: {e}"))?;
        if !matches!(url.scheme(), "smtp" | "smtps") || url.host_str().is_none_or(str::is_empty) {
            return Err("--smtp-url: expected smtp://host:port or smtps://host:port".to_owned());
        }
        if from.split_once('@').is_none_or(|(name, host)| name.is_empty() || host.is_empty()) {
            return Err(format!("--mail-from: `{from}` is not an address"));
        }
        Ok(Some(Self { smtp_url: url, from: from.to_owned() }))
    }
}

impl std::fmt::Debug for MailConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mail from={}", self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::MailConfig;

    #[test]
    fn the_two_settings_of_mail_go_together() {
        assert_eq!(MailConfig::parse(None, None), Ok(None));
        assert!(MailConfig::parse(Some("smtp://u:p@mail.test:25"), Some("a@b.test")).is_ok_and(|mail| mail.is_some()));
        for (url, from) in [
            (Some("smtp://mail.test"), None),
            (None, Some("a@b.test")),
            (Some("http://mail.test"), Some("a@b.test")),
            (Some("smtp://u:s3cret@"), Some("a@b.test")),
            (Some("smtp://u:s3cret@mail.test"), Some("nobody")),
        ] {
            let error = MailConfig::parse(url, from).map_err(|e| e.contains("s3cret"));
            assert_eq!(error, Err(false), "{url:?} {from:?}");
        }
    }
}
