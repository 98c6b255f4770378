//! Tokens and their permissions.

use super::named_tokens::{Named, NamedToken};
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::protocol::sign::{SIGN_TOLERANCE_MS, owner, sign, sign_at};
use crate::protocol::token::{ROLES, role, split};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::watch;

/// Minimum characters of a token that is used on loopback only. The seeds' own example has four.
const LEAST_LOCAL: usize = 4;
/// Minimum characters of a token that is used over a network.
pub const LEAST: usize = 16;

/// The role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Read access only.
    ReadOnly,
    /// Access of a node.
    Agent,
    /// Access of a worker.
    Worker,
    /// Read access, and to trigger, stop, retry and pause.
    Operator,
    /// As an operator, and to change jobs.
    Editor,
}

impl Role {
    /// The role with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Admin, Self::ReadOnly, Self::Agent, Self::Worker, Self::Operator, Self::Editor];
        let name = role(name)?;
        all.into_iter().find(|role| role.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => ROLES[0],
            Self::ReadOnly => ROLES[1],
            Self::Agent => ROLES[2],
            Self::Worker => ROLES[3],
            Self::Operator => ROLES[4],
            Self::Editor => ROLES[5],
        }
    }
}

/// Identifies a token while the process runs: its SHA-256, which never leaves the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// The key of a token with this text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// As 64 hexadecimal digits.
    #[must_use]
    pub fn hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// From 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut key = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(key))
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a token")
    }
}

/// A valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Its role.
    pub role: Role,
    /// Its key.
    pub key: TokenKey,
    /// Its name; tokens of the command line and of the token file have none.
    pub name: Option<Arc<str>>,
    /// The groups of jobs that it is limited to; `None`: all.
    pub groups: Option<Arc<[String]>>,
}

impl Granted {
    fn unnamed(role: Role, key: TokenKey) -> Self {
        Self { role, key, name: None, groups: None }
    }
}

/// How a node proves that it has a token.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// The node.
    pub node: NodeId,
    /// 64 hexadecimal digits.
    pub sign: &'a str,
    /// The signed time.
    pub at: Option<Timestamp>,
}

/// The verdict on a `sign`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It was made with this token.
    Granted(Granted),
    /// … but this many milliseconds before (or, if negative, after) the broker's time, so it may have been copied.
    Stale(i64),
    /// It contains no time, but this broker requires one.
    Timeless,
    /// It matches no token that allows a caller to be a node.
    Unknown,
}

struct Entry {
    role: Role,
    text: String,
    key: TokenKey,
}

/// The source of the tokens, kept to read them again.
#[derive(Default)]
struct Source {
    texts: Vec<String>,
    file: Option<PathBuf>,
}

/// The tokens of a broker; clones share them. Without any token every caller may do everything.
#[derive(Clone, Default)]
pub struct Tokens {
    source: Arc<Source>,
    entries: Arc<RwLock<Arc<Vec<Entry>>>>,
    named: Named,
    reloads: watch::Sender<()>,
    /// Reject a `sign` without a time.
    pub needs_sign_time: bool,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Shows their number and roles, never their text, because settings are logged.
        f.debug_list().entries(self.entries().iter().map(|entry| entry.role.name())).finish()
    }
}

impl Tokens {
    /// Parses `role:text` entries; an entry without a colon is an admin token.
    ///
    /// # Errors
    /// A role is unknown; a token is too short, contains a character that is not allowed in a header, or has two roles.
    #[cfg(test)]
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, String> {
        Self::read(texts.iter().map(|text| text.as_ref().to_owned()).collect(), None)
    }

    /// Parses them, and those in a file: one `role:text` per line; empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// As [`Self::parse`], or the file cannot be read or contains no token.
    pub fn read(texts: Vec<String>, file: Option<PathBuf>) -> Result<Self, String> {
        let source = Source { texts, file };
        let entries = source.read()?;
        Ok(Self { source: Arc::new(source), entries: Arc::new(RwLock::new(Arc::new(entries))), ..Self::default() })
    }

    /// The token file.
    #[must_use]
    pub fn file(&self) -> Option<&PathBuf> {
        self.source.file.as_ref()
    }

    /// Reads the file again. On an error the tokens do not change.
    ///
    /// # Errors
    /// As [`Self::read`], or a token has fewer than `least` characters.
    pub fn reload(&self, least: usize) -> Result<(), String> {
        let entries = self.source.read()?;
        check_length(&entries, least)?;
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(entries);
        // After the new tokens are in place: whoever is notified must find them.
        self.reloads.send_replace(());
        Ok(())
    }

    /// Completes when `is_enough` is no longer true for the role of this token; the role is `None` if the broker does not have the token
    /// any more. Checks at once and after each reload, so a reload that happens between the check of a caller and this call is not missed.
    pub async fn withdrawn(&self, key: TokenKey, is_enough: impl Fn(Role) -> bool) -> Option<Role> {
        let mut reloads = self.reloads.subscribe();
        loop {
            let role = self.entries().iter().find(|entry| entry.key == key).map(|entry| entry.role);
            let named = self.named.get(key, Timestamp::now());
            let role = role.or(named.as_ref().map(|token| token.role));
            if !role.is_some_and(&is_enough) {
                return role;
            }
            let left_ms = named.and_then(|token| token.left_ms(Timestamp::now()));
            let expired = async {
                match left_ms {
                    // The clock may be set meanwhile, so it is read again.
                    Some(left_ms) => tokio::time::sleep(Duration::from_millis(left_ms.clamp(1, 60_000))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = reloads.changed() => {
                    if changed.is_err() {
                        // The sender is a part of `self`, so this cannot happen.
                        return std::future::pending().await;
                    }
                }
                () = expired => {}
            }
        }
    }

    /// Checks the minimum length of each token.
    ///
    /// # Errors
    /// The role of a token that is too short.
    pub fn check_length(&self, least: usize) -> Result<(), String> {
        check_length(&self.entries(), least)
    }

    fn entries(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are no tokens, so that callers need none.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.entries().is_empty() && !self.named.is_used()
    }

    /// Replaces the named tokens. Tokens that are missing now are withdrawn at once.
    pub fn set_named(&self, tokens: Vec<NamedToken>) {
        if self.named.set(tokens) {
            self.reloads.send_replace(());
        }
    }

    /// Waits for a turn to read the named tokens from the store and to set them: an older list must not replace a newer one.
    pub async fn turn(&self) -> tokio::sync::OwnedMutexGuard<()> {
        self.named.turn().await
    }

    /// Looks up a token. With the prefix `role:` it must have that role. The time that it takes tells nothing of the texts of tokens: unnamed
    /// ones are all compared in constant time, named ones are found by their hash.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<Granted> {
        let entries = self.entries();
        let known = |text: &str| {
            let given = TokenKey::of(text);
            let mut found = None;
            for Entry { role, key, .. } in entries.iter() {
                if bool::from(given.0.ct_eq(&key.0)) {
                    found = Some(Granted::unnamed(*role, *key));
                }
            }
            found.or_else(|| self.named.get(given, Timestamp::now()).map(NamedToken::granted))
        };
        let whole = known(token);
        match split(token) {
            (Some(named), text) if whole.is_none() => known(text).filter(|granted| granted.role.name() == named),
            _ => whole,
        }
    }

    /// Checks a node's `sign` at this time.
    #[must_use]
    pub fn judge(&self, signed: Signed<'_>, now: Timestamp) -> Verdict {
        let given = signed.sign.to_ascii_lowercase();
        let mut verdict = Verdict::Unknown;
        for Entry { role, text, key } in self.entries().iter().filter(|entry| matches!(entry.role, Role::Agent | Role::Admin)) {
            let expected = signed.at.map_or_else(|| sign(text, signed.node), |at| sign_at(text, signed.node, at));
            if bool::from(expected.as_bytes().ct_eq(given.as_bytes())) {
                verdict = match signed.at.map(|at| now.0.saturating_sub(at.0)) {
                    None if self.needs_sign_time => Verdict::Timeless,
                    Some(age) if age.saturating_abs() > SIGN_TOLERANCE_MS => Verdict::Stale(age),
                    _ => Verdict::Granted(Granted::unnamed(*role, *key)),
                };
            }
        }
        verdict
    }

    /// Whether the key still belongs to a token of the broker.
    #[must_use]
    pub fn has(&self, key: TokenKey) -> bool {
        self.entries().iter().any(|entry| entry.key == key) || self.named.get(key, Timestamp::now()).is_some()
    }

    /// The stored values that identify the tokens as owners of an id, each with the key of its token.
    #[must_use]
    pub fn owners(&self, id: &str) -> Vec<(TokenKey, String)> {
        let unnamed = self.entries();
        let unnamed = unnamed.iter().map(|entry| (entry.key, owner(&entry.text, id)));
        // The text of a named token is not stored, so its hash stands for it.
        unnamed.chain(self.named.keys().into_iter().map(|key| (key, owner(&key.hex(), id)))).collect()
    }

    /// The stored value that identifies one token as the owner of an id.
    #[must_use]
    pub fn owner(&self, key: TokenKey, id: &str) -> Option<String> {
        let unnamed = self.entries().iter().find(|entry| entry.key == key).map(|entry| owner(&entry.text, id));
        unnamed.or_else(|| self.named.get(key, Timestamp::now()).map(|token| owner(&token.key.hex(), id)))
    }
}

impl Source {
    fn read(&self) -> Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        for text in &self.texts {
            let text = text.trim();
            let (role, token) = match text.split_once(':') {
                Some((name, token)) => (named(name)?, token),
                None => (Role::Admin, text),
            };
            add(&mut entries, role, token)?;
        }
        let Some(path) = &self.file else { return Ok(entries) };
        let wrong = |what: String| format!("the token file {}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        for (number, line) in (1..).zip(text.lines()).map(|(number, line)| (number, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The line may contain a token, so it is not shown.
            let at = |what: String| wrong(format!("line {number}: {what}"));
            let (name, token) = line.split_once(':').ok_or_else(|| at("expected `role:text`".to_owned()))?;
            add(&mut entries, named(name.trim_end()).map_err(at)?, token.trim_start()).map_err(at)?;
        }
        // A file that was emptied by mistake must not open the broker.
        if entries.is_empty() { Err(wrong("it contains no token".to_owned())) } else { Ok(entries) }
    }
}

fn named(name: &str) -> Result<Role, String> {
    // The text before the colon may be the beginning of a token: a long one is not shown.
    let shown = if name.chars().count() <= 12 { format!("{name:?}") } else { "the text before the colon".to_owned() };
    Role::named(name).ok_or_else(|| format!("{shown} is not a role. Use admin, editor, operator, readonly, agent or worker."))
}

fn add(entries: &mut Vec<Entry>, role: Role, token: &str) -> Result<(), String> {
    if token.len() < LEAST_LOCAL || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("a token of role {} is not usable: it must have at least {LEAST_LOCAL} visible ASCII characters", role.name()));
    }
    if token.contains(',') {
        return Err(format!("a token of role {} must not contain a comma, which separates tokens", role.name()));
    }
    let key = TokenKey::of(token);
    match entries.iter().find(|entry| entry.key == key) {
        Some(entry) if entry.role != role => {
            Err(format!("one token has two roles, {} and {}. Give each role a token of its own.", entry.role.name(), role.name()))
        }
        Some(_) => Ok(()),
        None => {
            entries.push(Entry { role, text: token.to_owned(), key });
            Ok(())
        }
    }
}

fn check_length(entries: &[Entry], least: usize) -> Result<(), String> {
    match entries.iter().find(|entry| entry.text.len() < least) {
        Some(entry) => Err(format!(
            "a token of role {} has fewer than {least} characters, which can be guessed over a network. Make one with \"openssl rand -hex 24\", or listen on 127.0.0.1.",
            entry.role.name()
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
