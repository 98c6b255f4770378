//! One TLS configuration for all connections of the agent.
//!
//! The root certificates are compiled in: a machine without a certificate store can crawl too. Reading them once and
//! sharing the result is also what makes a new HTTP client cheap.

use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};
use std::sync::OnceLock;

/// The configuration, without protocols for ALPN: each client sets its own.
#[must_use]
pub fn config() -> ClientConfig {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    CONFIG.get_or_init(build).clone()
}

fn build() -> ClientConfig {
    // For whoever asks the process for one. An error only says that somebody was here before.
    let _ = CryptoProvider::install_default(ring::default_provider());
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
