//! Tokens and what they allow.

use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::protocol::sign::{SIGN_TOLERANCE_MS, owner, sign, sign_at};
use crate::protocol::token::{ROLES, role, split};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use subtle::ConstantTimeEq;

/// The fewest characters of a token that is used on loopback only. The seeds' own example has four.
const LEAST_LOCAL: usize = 4;
/// The fewest characters of a token that is used over a network.
pub const LEAST: usize = 16;

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Looking, not touching.
    ReadOnly,
    /// Being a node.
    Agent,
    /// Being a worker.
    Worker,
}

impl Role {
    fn named(name: &str) -> Option<Self> {
        let all = [Self::Admin, Self::ReadOnly, Self::Agent, Self::Worker];
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
        }
    }
}

/// Stands for a token while the process lives: its SHA-256, which never leaves the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a token")
    }
}

/// A token that the broker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// What it is for.
    pub role: Role,
    /// Which it is.
    pub key: TokenKey,
}

/// How a node shows that it has a token.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// The node.
    pub node: NodeId,
    /// 64 hexadecimal digits.
    pub sign: &'a str,
    /// The time that is signed along.
    pub at: Option<Timestamp>,
}

/// What a `sign` is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was made with this token.
    Granted(Granted),
    /// … but so many milliseconds before (or, below 0, after) the broker's time that it may have been copied.
    Stale(i64),
    /// It has no time, and this broker wants one.
    Timeless,
    /// It was made with none of the tokens that let a caller be a node.
    Unknown,
}

struct Entry {
    role: Role,
    text: String,
    key: TokenKey,
}

/// Where the tokens come from, to be read again.
#[derive(Default)]
struct Source {
    texts: Vec<String>,
    file: Option<PathBuf>,
}

/// The tokens of a broker, shared by all copies of this. None at all: everybody may do everything.
#[derive(Clone, Default)]
pub struct Tokens {
    source: Arc<Source>,
    entries: Arc<RwLock<Arc<Vec<Entry>>>>,
    /// A `sign` without a time is refused.
    pub needs_sign_time: bool,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Their number and roles, never their text: settings are logged.
        f.debug_list().entries(self.entries().iter().map(|entry| entry.role.name())).finish()
    }
}

impl Tokens {
    /// Reads `role:text` texts; a text without a colon is an admin's.
    ///
    /// # Errors
    /// A role is none, a token is too short or holds a character that no header can carry, or has two roles.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, String> {
        Self::read(texts.iter().map(|text| text.as_ref().to_owned()).collect(), None)
    }

    /// Reads them, and those in a file: one `role:text` a line; lines that are empty or begin with `#` are passed over.
    ///
    /// # Errors
    /// As [`Self::parse`], or the file cannot be read or holds no token.
    pub fn read(texts: Vec<String>, file: Option<PathBuf>) -> Result<Self, String> {
        let source = Source { texts, file };
        let entries = source.read()?;
        Ok(Self { source: Arc::new(source), entries: Arc::new(RwLock::new(Arc::new(entries))), needs_sign_time: false })
    }

    /// The file that they come from.
    #[must_use]
    pub fn file(&self) -> Option<&PathBuf> {
        self.source.file.as_ref()
    }

    /// Reads the file again. If it is wrong, the tokens stay as they are.
    ///
    /// # Errors
    /// As [`Self::read`], or one has fewer than `least` characters.
    pub fn reload(&self, least: usize) -> Result<(), String> {
        let entries = self.source.read()?;
        check_length(&entries, least)?;
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(entries);
        Ok(())
    }

    /// Checks that each has so many characters.
    ///
    /// # Errors
    /// The role of one that is shorter.
    pub fn check_length(&self, least: usize) -> Result<(), String> {
        check_length(&self.entries(), least)
    }

    fn entries(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// There is none: no caller is asked for one.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.entries().is_empty()
    }

    /// What a token is for. Written as `role:text` it has to be of that role. Takes the same time whatever the token.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<Granted> {
        let entries = self.entries();
        let known = |text: &str| {
            let given = TokenKey::of(text);
            let mut found = None;
            for Entry { role, key, .. } in entries.iter() {
                if bool::from(given.0.ct_eq(&key.0)) {
                    found = Some(Granted { role: *role, key: *key });
                }
            }
            found
        };
        let whole = known(token);
        match split(token) {
            (Some(named), text) if whole.is_none() => known(text).filter(|granted| granted.role.name() == named),
            _ => whole,
        }
    }

    /// What a node's `sign` is worth, at this time.
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
                    _ => Verdict::Granted(Granted { role: *role, key: *key }),
                };
            }
        }
        verdict
    }

    /// Whether it is still one of the broker's.
    #[must_use]
    pub fn has(&self, key: TokenKey) -> bool {
        self.entries().iter().any(|entry| entry.key == key)
    }

    /// What is stored of the tokens that an id may belong to, with the token that each stands for.
    #[must_use]
    pub fn owners(&self, id: &str) -> Vec<(TokenKey, String)> {
        self.entries().iter().map(|entry| (entry.key, owner(&entry.text, id))).collect()
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
            // The line may hold a token: it is not shown.
            let at = |what: String| wrong(format!("line {number}: {what}"));
            let (name, token) = line.split_once(':').ok_or_else(|| at("`role:text` is expected".to_owned()))?;
            add(&mut entries, named(name.trim_end()).map_err(at)?, token.trim_start()).map_err(at)?;
        }
        // A file that was emptied by mistake must not open the broker.
        if entries.is_empty() { Err(wrong("there is no token in it".to_owned())) } else { Ok(entries) }
    }
}

fn named(name: &str) -> Result<Role, String> {
    // What stands before the colon may be the beginning of a token: a long one is not shown.
    let shown = if name.chars().count() <= 12 { format!("{name:?}") } else { "what stands before the colon".to_owned() };
    Role::named(name).ok_or_else(|| format!("{shown} is not a role. Use admin, readonly, agent or worker."))
}

fn add(entries: &mut Vec<Entry>, role: Role, token: &str) -> Result<(), String> {
    if token.len() < LEAST_LOCAL || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("a token of role {} is not usable: at least {LEAST_LOCAL} visible ASCII characters are expected", role.name()));
    }
    if token.contains(',') {
        return Err(format!("a token of role {} holds a comma, which stands between tokens", role.name()));
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
