//! TLS, the same for all connections of a program: which authorities it trusts, and the certificate that a broker shows.
//!
//! The usual authorities (Mozilla's) are compiled in: a machine without a certificate store can crawl too. Reading them once
//! and sharing the result is also what makes a new HTTP client cheap.

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::OnceLock;

static OWN: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();

/// Trusts the authorities of a PEM file beside the usual ones, in all connections of this process. To be called once, before
/// the first of them.
///
/// # Errors
/// The file cannot be read, holds no certificate or one that is none, or it is too late.
pub fn trust(file: &Path) -> Result<(), String> {
    let found = certificates(file)?;
    let mut roots = RootCertStore::empty();
    for certificate in &found {
        roots.add(certificate.clone()).map_err(|e| wrong(file, e))?;
    }
    OWN.set(found).map_err(|_| wrong(file, "other authorities are trusted already"))
}

/// The certificates in a file, one at least.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|e| wrong(file, e))?;
    if found.is_empty() { Err(wrong(file, "there is no certificate in it")) } else { Ok(found) }
}

fn wrong(file: &Path, why: impl std::fmt::Display) -> String {
    format!("{}: {why}", file.display())
}

/// Authorities that are trusted beside the usual ones.
#[must_use]
pub fn own_authorities() -> &'static [CertificateDer<'static>] {
    OWN.get_or_init(Vec::new)
}

/// The configuration of a client, without protocols for ALPN: each sets its own.
#[must_use]
pub fn client() -> ClientConfig {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    CONFIG.get_or_init(build_client).clone()
}

/// As [`client`]; if a file is given, it trusts the authorities in it and no others.
///
/// # Errors
/// The file cannot be read, or holds no certificate.
#[cfg(feature = "broker")]
pub fn client_for(file: Option<&Path>) -> Result<ClientConfig, String> {
    let Some(file) = file else { return Ok(client()) };
    provide();
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|e| wrong(file, e))?;
    }
    Ok(client_with(roots))
}

/// The configuration of a client that accepts every certificate: it protects only against passive eavesdropping.
#[cfg(feature = "broker")]
#[must_use]
pub fn unverified_client() -> ClientConfig {
    let mut config = client();
    config.dangerous().set_certificate_verifier(std::sync::Arc::new(Unverified(ring::default_provider())));
    config
}

/// Verifies that the server has the key of its certificate, and not whose certificate it is.
#[cfg(feature = "broker")]
#[derive(Debug)]
struct Unverified(CryptoProvider);

#[cfg(feature = "broker")]
impl rustls::client::danger::ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn build_client() -> ClientConfig {
    provide();
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    // They were checked when they were read.
    roots.add_parsable_certificates(own_authorities().iter().cloned());
    client_with(roots)
}

fn client_with(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// For code that uses the default provider of the process. An error only means that one is installed already.
fn provide() {
    let _ = CryptoProvider::install_default(ring::default_provider());
}

/// What a server shows: a chain of certificates, its own first, and the key.
///
/// # Errors
/// A file cannot be read, the key has a password, or they do not go together.
#[cfg(feature = "broker")]
pub fn server(chain: &Path, key: &Path) -> Result<rustls::ServerConfig, String> {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::Error::NoItemsFound;
    provide();
    let certificates = certificates(chain)?;
    let secret = std::fs::read(key).map_err(|e| wrong(key, e))?;
    let has_password = String::from_utf8_lossy(&secret).contains("ENCRYPTED");
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|e| match e {
        _ if has_password => wrong(key, "the key has a password: give one without, in a file that only the broker may read"),
        NoItemsFound => wrong(key, "there is no key in it"),
        e => wrong(key, e),
    })?;
    let config = rustls::ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(certificates, secret);
    config.map_err(|e| match e {
        rustls::Error::InconsistentKeys(_) => wrong(chain, format!("it does not go with the key in {}", key.display())),
        e => wrong(chain, e),
    })
}
