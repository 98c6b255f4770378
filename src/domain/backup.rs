//! The manifest of a backup: which files belong to it, and how they are recognised.
//!
//! A backup is a folder. Its manifest is written last, so a folder without one is not a backup.

use super::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;

/// The name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// Its name until all other files are on disk.
pub const UNFINISHED: &str = "manifest.json.unfinished";
/// The name of the database in a backup.
pub const DATABASE: &str = "webloom.db";
/// Appended to the name of a database: the folder of its results.
pub const RESULTS: &str = "-results";
/// Appended to the name of a database: the folder of its packages.
pub const PACKAGES: &str = "-packages";

/// The layout that this version writes.
const FORMAT: u32 = 1;
/// Hexadecimal digits of a SHA-256.
const HASH_DIGITS: usize = 64;

/// The manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The layout of the backup.
    pub format: u32,
    /// The version of the program that made it.
    pub version: String,
    /// The last migration of the database.
    pub schema: String,
    /// The path of the database that was copied.
    pub source: String,
    /// Everything that a broker answered before this time is in the backup.
    pub created_at: Timestamp,
    /// What is in it.
    pub counts: Counts,
    /// What was lost or damaged before the backup was made, as texts for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Its files.
    pub files: Vec<Entry>,
    /// SHA-256 of the list of files: a line `<sha256> <bytes> <name>` for each.
    #[serde(default)]
    pub check: String,
}

/// What is in a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Jobs, without deleted ones.
    pub jobs: u64,
    /// Runs.
    pub runs: u64,
    /// Runs that are not over.
    pub open_runs: u64,
    /// Blocks whose results wait for a worker.
    pub results: u64,
    /// Packages.
    pub packages: u64,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its path in the backup.
    pub name: FileName,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its content: 64 hexadecimal digits.
    pub sha256: String,
}

/// A file that a backup may have. No other name is read or written, whatever a manifest contains.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum FileName {
    /// The database.
    Database,
    /// The segment of results with this number.
    Segment(i32),
    /// The package with this SHA-256.
    Package(String),
}

impl FileName {
    /// Its path beside a database with this name: in a backup, or where it is restored.
    #[must_use]
    pub fn beside(&self, database: &str) -> String {
        match self {
            Self::Database => database.to_owned(),
            Self::Segment(number) => format!("{database}{RESULTS}/{number}.seg"),
            Self::Package(sha256) => format!("{database}{PACKAGES}/{sha256}"),
        }
    }
}

impl From<FileName> for String {
    fn from(name: FileName) -> Self {
        name.beside(DATABASE)
    }
}

impl TryFrom<String> for FileName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let found = text.strip_prefix(DATABASE).and_then(|rest| match rest.split_once('/') {
            None => rest.is_empty().then_some(Self::Database),
            Some((RESULTS, name)) => name.strip_suffix(".seg")?.parse().ok().map(Self::Segment),
            Some((PACKAGES, name)) => is_hash(name).then(|| Self::Package(name.to_owned())),
            Some(_) => None,
        });
        // Numbers have several spellings, and files have one.
        found.filter(|name| name.beside(DATABASE) == text).ok_or_else(|| format!("`{text}` is not the name of a file of a backup"))
    }
}

/// A checksum as text.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number of bytes for people: `1.2 GB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1_000 {
        return format!("{bytes} bytes");
    }
    let (mut value, mut unit) = (bytes as f64 / 1e3, 0);
    // 999.95 would be shown as 1000.0.
    while value >= 999.95 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1e3, unit + 1);
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn is_hash(text: &str) -> bool {
    text.len() == HASH_DIGITS && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

impl Manifest {
    /// A manifest without files.
    #[must_use]
    pub fn new(schema: String, source: String, created_at: Timestamp, counts: Counts) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, version, schema, source, created_at, counts, warnings: Vec::new(), files: Vec::new(), check: String::new() }
    }

    /// The text of the finished manifest.
    #[must_use]
    pub fn seal(&mut self) -> String {
        self.check = self.list();
        serde_json::to_string_pretty(self).expect("a manifest is JSON") + "\n"
    }

    fn list(&self) -> String {
        let line = |entry: &Entry| format!("{} {} {}\n", entry.sha256, entry.bytes, String::from(entry.name.clone()));
        hex(&Sha256::digest(self.files.iter().map(line).collect::<String>()))
    }

    /// Parses and checks one.
    ///
    /// # Errors
    /// It is not a manifest, or this version cannot restore it; a clause for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Layout {
            format: u32,
        }
        let damaged = |e: serde_json::Error| format!("{MANIFEST} is damaged: {e}");
        let Layout { format } = serde_json::from_str(text).map_err(damaged)?;
        if format != FORMAT {
            return Err(format!(
                "it has the format {format}, and this version of webloom reads the format {FORMAT}: use the version that made it"
            ));
        }
        let manifest: Self = serde_json::from_str(text).map_err(damaged)?;
        if manifest.check != manifest.list() {
            return Err(format!("{MANIFEST} was changed: the checksum of its list of files does not match"));
        }
        let mut names = HashSet::new();
        for entry in &manifest.files {
            let name = String::from(entry.name.clone());
            if !is_hash(&entry.sha256) {
                return Err(format!("{MANIFEST} is damaged: the checksum of {name} is not a SHA-256"));
            }
            if matches!(&entry.name, FileName::Package(sha256) if *sha256 != entry.sha256) {
                return Err(format!("{MANIFEST} is damaged: the checksum of the package {name} is not its name"));
            }
            if !names.insert(&entry.name) {
                return Err(format!("{MANIFEST} is damaged: it lists {name} twice"));
            }
        }
        if !names.contains(&FileName::Database) {
            return Err(format!("{MANIFEST} is damaged: it does not list {DATABASE}"));
        }
        Ok(manifest)
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|entry| entry.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let counts = Counts { jobs: 1, ..Counts::default() };
        let mut manifest = Manifest::new("2026".into(), "/var/w.db".into(), Timestamp(0), counts);
        let (one, two) = ("0f".repeat(32), "a1".repeat(32));
        manifest.files = vec![
            Entry { name: FileName::Database, bytes: 5, sha256: one.clone() },
            Entry { name: FileName::Segment(7), bytes: 6, sha256: one },
            Entry { name: FileName::Package(two.clone()), bytes: 7, sha256: two },
        ];
        manifest
    }

    fn text(manifest: &Manifest) -> String {
        manifest.clone().seal()
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let written = manifest();
        let read = Manifest::parse(&text(&written)).expect("whole");
        assert_eq!((Manifest { check: String::new(), ..read }, written.bytes()), (written.clone(), 18));
        assert!(text(&written).contains("webloom.db-results/7.seg"));
    }

    #[test]
    fn sizes_are_short() {
        let shown = [0, 999, 1_000, 999_949, 999_950, 1_234_567_890, 5_000_000_000_000_000].map(size);
        assert_eq!(shown, ["0 bytes", "999 bytes", "1.0 kB", "999.9 kB", "1.0 MB", "1.2 GB", "5000.0 TB"]);
    }

    #[test]
    fn only_files_of_a_store_have_names() {
        let package = format!("webloom.db-packages/{}", "ab".repeat(32));
        for name in ["webloom.db", "webloom.db-results/12.seg", &package] {
            let parsed = FileName::try_from(name.to_owned());
            assert_eq!(parsed.map(String::from), Ok(name.to_owned()));
        }
        for name in [
            "",
            "/etc/passwd",
            "webloom.db-wal",
            "webloom.db-results/../x.seg",
            "webloom.db-results/012.seg",
            "webloom.db-results/1.seg/2.seg",
            "webloom.db-packages/../../x",
            "webloom.db-packages/AB",
            "../webloom.db",
            "other.db",
        ] {
            assert!(FileName::try_from(name.to_owned()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_damaged_manifest_is_refused_with_the_reason() {
        let whole = text(&manifest());
        let mut twice = manifest();
        twice.files.push(twice.files[0].clone());
        let mut without = manifest();
        without.files.remove(0);
        let mut unreadable = manifest();
        unreadable.files[0].sha256 = "x".into();
        let mut renamed = manifest();
        renamed.files[2].sha256 = "b2".repeat(32);
        for (text, why) in [
            (whole[..whole.len() / 2].to_owned(), "is damaged: "),
            (whole.replace("\"format\": 1", "\"format\": 2"), "reads the format 1"),
            (whole.replace("0f0f", "1f0f"), "its list of files"),
            (whole.replace("\"bytes\": 6", "\"bytes\": 60"), "its list of files"),
            (text(&unreadable), "not a SHA-256"),
            (whole.replace("-results/7.seg", "-results/../../7.seg"), "not the name of a file of a backup"),
            (text(&twice), "twice"),
            (text(&without), "does not list webloom.db"),
            (text(&renamed), "is not its name"),
        ] {
            assert!(Manifest::parse(&text).is_err_and(|error| error.contains(why)), "{why}: {text}");
        }
    }
}
