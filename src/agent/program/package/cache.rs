//! The package cache: by hash, or by address and ETag; the least recently used packages are deleted when the cache is too large.

use super::fetch::{Fetched, Fetcher};
use super::refusal;
use crate::agent::program::launch;
use crate::config::agent::AgentConfig;
use crate::private;
use crate::protocol::application::{Package, ProgramError, ProgramErrorKind};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;
use tokio::sync::Mutex;
use tokio::time::Instant;

const FOLDER: &str = "packages";
const DRAFT: &str = "draft";

/// All cached packages.
pub struct Packages {
    folder: PathBuf,
    fetcher: Fetcher,
    most_bytes: u64,
    slots_by_key: RefCell<HashMap<String, Rc<Slot>>>,
}

/// A package in use. One task at a time fetches it; the lock holds the time of the last fetch.
#[derive(Default)]
struct Slot(Mutex<Option<Instant>>);

/// A package in use: it is not deleted while this exists.
pub struct Kept {
    /// The file.
    pub path: PathBuf,
    _slot: Rc<Slot>,
}

/// Data of a package that was fetched without a hash.
#[derive(Serialize, Deserialize)]
struct Meta {
    etag: Option<String>,
}

impl Packages {
    /// The cache in this data directory.
    pub fn new(config: &AgentConfig, data_dir: &Path) -> Self {
        let folder = data_dir.join(FOLDER);
        Self { folder, fetcher: Fetcher::new(config), most_bytes: config.programs.cache_bytes, slots_by_key: RefCell::default() }
    }

    /// Deletes incomplete files of an earlier agent.
    pub fn clean(&self) {
        private::keep(&self.folder);
        for path in files(&self.folder).filter(|path| path.extension().is_some_and(|e| e == DRAFT) && is_ours(path)) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Checks that a package may be fetched.
    ///
    /// # Errors
    /// Its host is not allowed, or its hash is malformed.
    pub fn check(&self, package: &Package) -> Result<(), ProgramError> {
        if package.sha256.as_ref().is_some_and(|hash| hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err(refusal(ProgramErrorKind::PackageHash, "the SHA-256 must be 64 hexadecimal digits"));
        }
        self.fetcher.address(&package.url).map(|_| ())
    }

    /// The package, from the cache or fetched now. Concurrent calls for the same package share one fetch.
    ///
    /// # Errors
    /// It cannot be fetched, or does not match its hash.
    pub async fn get(&self, package: &Package) -> Result<Kept, ProgramError> {
        let asked = Instant::now();
        let url = self.fetcher.address(&package.url)?;
        let hash = package.sha256.as_ref().map(|hash| hash.to_ascii_lowercase());
        let key = hash.clone().unwrap_or_else(|| format!("url-{}", hex(&Sha256::digest(url.as_str()))));
        let slot = Rc::clone(self.slots_by_key.borrow_mut().entry(key.clone()).or_default());
        let path = self.folder.join(&key);
        let kept = Kept { path: path.clone(), _slot: Rc::clone(&slot) };
        {
            let mut fetched_at = slot.0.lock().await;
            let is_there = path.is_file();
            if !is_there || (hash.is_none() && fetched_at.is_none_or(|at| at < asked)) {
                let failed = |e: io::Error| refusal(ProgramErrorKind::PackageFetch, format!("cannot store the package: {e}"));
                private::make_folder(&self.folder).map_err(failed)?;
                let meta: Option<Meta> = launch::read(&self.folder, &meta_name(&key)).ok().flatten().filter(|_| is_there);
                let draft = Draft(self.folder.join(format!("{key}.{DRAFT}")));
                match self.fetcher.fetch(&url, meta.and_then(|meta| meta.etag).as_deref(), &draft.0).await? {
                    Fetched::New { sha256, .. } if hash.as_ref().is_some_and(|hash| *hash != sha256) => {
                        return Err(refusal(
                            ProgramErrorKind::PackageHash,
                            format!("the package does not match its hash: its SHA-256 is {sha256}"),
                        ));
                    }
                    Fetched::New { etag, .. } => {
                        if hash.is_none() {
                            // Deleted before the file changes, so that an ETag never belongs to the wrong file.
                            let _ = std::fs::remove_file(self.folder.join(meta_name(&key)));
                        }
                        std::fs::rename(&draft.0, &path).map_err(failed)?;
                        if hash.is_none() {
                            launch::write_durable(&self.folder, &meta_name(&key), &Meta { etag }).map_err(failed)?;
                        }
                    }
                    Fetched::Unchanged => {}
                }
                *fetched_at = Some(Instant::now());
            }
        }
        touch(&path);
        self.evict();
        Ok(kept)
    }

    /// Deletes the least recently used packages until the rest is within the limit. Packages in use stay.
    fn evict(&self) {
        let mut slots = self.slots_by_key.borrow_mut();
        // The map itself holds one reference.
        slots.retain(|_, slot| Rc::strong_count(slot) > 1);
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = files(&self.folder)
            .filter(|path| path.extension().is_none() && is_ours(path))
            .filter_map(|path| {
                let meta = path.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), path))
            })
            .collect();
        kept.sort_unstable();
        let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, path) in kept {
            let Some(key) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if bytes <= self.most_bytes {
                return;
            }
            if !slots.contains_key(key) && std::fs::remove_file(&path).is_ok() {
                let _ = std::fs::remove_file(self.folder.join(meta_name(key)));
                bytes -= size;
            }
        }
    }
}

/// A temporary file, deleted on drop unless it was renamed.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether a file has a name of this cache: other files in the folder are left alone.
fn is_ours(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let hash = name.strip_prefix("url-").unwrap_or(name);
    hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit())
}

fn meta_name(key: &str) -> String {
    format!("{key}.json")
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The time of last use is stored as the file's modification time, so that it survives a restart.
fn touch(path: &Path) {
    if let Ok(file) = File::options().append(true).open(path) {
        let _ = futimens(&file, &TimeSpec::UTIME_OMIT, &TimeSpec::UTIME_NOW);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
