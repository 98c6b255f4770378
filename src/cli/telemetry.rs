//! The flags about OpenTelemetry, of a broker and of an agent.

use crate::telemetry::{Endpoint, Tee, Telemetry};
use clap::Args as ClapArgs;
use url::Url;

/// See the module documentation.
#[derive(Default, ClapArgs)]
pub struct TelemetryArgs {
    /// The URL of an OpenTelemetry collector, such as http://localhost:4318: traces, metrics and logs are sent there by OTLP/HTTP; an agent
    /// has no metrics [default: nothing is sent]
    #[arg(long, env = "WEBLOOM_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    otlp_endpoint: Option<Url>,
    /// A header of all requests to the collector, such as authorization=Bearer TOKEN. May be repeated
    #[arg(long = "otlp-header", env = "WEBLOOM_OTLP_HEADERS", value_name = "NAME=VALUE", value_delimiter = ',', hide_env_values = true,
        value_parser = header)]
    otlp_headers: Vec<(String, String)>,
}

impl std::fmt::Debug for TelemetryArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the headers, which may have a token.
        f.debug_struct("TelemetryArgs").field("otlp_endpoint", &self.otlp_endpoint).finish_non_exhaustive()
    }
}

impl TelemetryArgs {
    pub fn is_on(&self) -> bool {
        self.otlp_endpoint.is_some()
    }

    /// Begins to send, if there is an endpoint.
    ///
    /// # Errors
    /// The thread that sends cannot be started.
    pub fn start(self, service: &'static str) -> Result<Telemetry, String> {
        let Some(url) = self.otlp_endpoint else { return Ok(Telemetry::default()) };
        let endpoint = Endpoint { url, headers: self.otlp_headers };
        Telemetry::start(endpoint, service).map_err(|e| format!("cannot start the thread that sends telemetry: {e}"))
    }
}

/// Prints log lines as usual, and sends them as well once a [`Telemetry`] is started.
pub fn log_to_both(printer: env_logger::Logger) {
    log::set_max_level(printer.filter());
    // It fails if there is a logger already: this is the only place that sets one.
    let _ = log::set_boxed_logger(Box::new(Tee(printer)));
}

fn endpoint(text: &str) -> Result<Url, String> {
    const EXPECTED: &str = "the URL of a collector is expected, for example http://localhost:4318";
    let url = Url::parse(text).map_err(|_| EXPECTED.to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("{EXPECTED}, with http or https; gRPC (port 4317) is not supported"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL must not have a user or a password; give --otlp-header".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() || url.path().trim_end_matches('/').ends_with("/v1/traces") {
        return Err(format!("{EXPECTED}, without /v1/traces, `?` and `#`"));
    }
    Ok(url)
}

fn header(text: &str) -> Result<(String, String), String> {
    // The error does not repeat the text, which may be a secret; `without_secret` hides what clap adds.
    let expected = || "a header is expected, for example authorization=Bearer TOKEN".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(expected)?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let is_value = value.bytes().all(|b| (0x20..0x7f).contains(&b));
    (is_name && is_value).then(|| (name.to_owned(), value.to_owned())).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_without_more() {
        for good in ["http://localhost:4318", "https://otel.example.com/base/"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["", "localhost:4318", "grpc://localhost:4317", "http://u:p@localhost", "http://localhost:4318/v1/traces", "http://h/?x"]
        {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_header_is_not_repeated() {
        assert_eq!(header("authorization=Bearer a=b"), Ok(("authorization".to_owned(), "Bearer a=b".to_owned())));
        for bad in ["secret", "=secret", "na me=secret", "name=sec\nret"] {
            assert!(header(bad).is_err_and(|why| !why.contains("secret")), "{bad}");
        }
    }
}
