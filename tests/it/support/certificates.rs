//! An authority of a test, and what it has signed.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::PathBuf;
use tempfile::TempDir;

/// Files in PEM.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// An authority, and a certificate of this machine's that it signed.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = params.self_signed(&key).expect("a certificate");
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
        let own = CertificateParams::new(names).expect("parameters").signed_by(&key, &issuer).expect("a certificate");
        for (name, text) in [("ca.pem", authority.pem()), ("own.pem", own.pem()), ("key.pem", key.serialize_pem())] {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What those who connect are to trust.
    pub fn authority(&self) -> String {
        self.path("ca.pem").display().to_string()
    }

    /// What a server shows.
    pub fn certificate(&self) -> String {
        self.path("own.pem").display().to_string()
    }

    /// … and the key to it.
    pub fn key(&self) -> String {
        self.path("key.pem").display().to_string()
    }

    /// For a server in this process.
    pub fn server(&self) -> rustls::ServerConfig {
        webloom::tls::server(&self.path("own.pem"), &self.path("key.pem")).expect("a server's configuration")
    }
}
