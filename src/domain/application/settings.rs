//! A job's description of its program: read from its properties, and checked when the job is created.

use super::super::job::{InvalidProperty, Properties};
use super::words::split;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Path prefix of packages that the broker stores; followed by the SHA-256.
pub const PACKAGES: &str = "/api/v1/packages/";
/// Default time between asking a program to end and killing it, in milliseconds.
const GRACE_MS: u64 = 30_000;
/// Maximum number of nodes that a run may request.
const MOST_NODES: u32 = 10_000;
/// Maximum length of a user name in characters.
const USER: usize = 64;

/// Which of the suitable nodes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Choice {
    /// Random nodes.
    Random,
    /// Those with the fewest programs and blocks for their size, then those with the least busy processors.
    #[default]
    LeastLoaded,
    /// All suitable nodes.
    All,
}

/// Settings of a job of the kind `application`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSettings {
    /// Where to download the program; `None`: it is installed on the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// SHA-256 of the package: 64 hexadecimal digits, in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// A path in the package, or the name of a program installed on the node.
    pub application: String,
    /// The argument line of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Added to the program's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Files in its working folder, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Number of nodes.
    pub node_count: u32,
    /// Only nodes of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_group: Option<String>,
    /// Only nodes whose operating system contains this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Which of the suitable nodes to use.
    #[serde(default)]
    pub choice: Choice,
    /// Only nodes with a CPU use below this percentage.
    pub max_cpu: u32,
    /// Only nodes with more free memory than this, in MB.
    pub min_free_memory: u64,
    /// Whether a run waits for a node if none fits. Otherwise it fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_node: bool,
    /// The user to run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Milliseconds between asking the program to end and killing it.
    pub grace: u64,
    /// Memory limit in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Limit of processor time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Limit of open files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

fn wrong(key: &str, detail: impl Into<String>) -> InvalidProperty {
    InvalidProperty { key: key.to_owned(), detail: detail.into() }
}

/// The hash in the URL of a package that the broker stores.
#[must_use]
pub fn package_hash(url: &str) -> Option<&str> {
    url.strip_prefix(PACKAGES).filter(|hash| is_hash(hash))
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl ApplicationSettings {
    /// Reads the properties of a job.
    ///
    /// # Errors
    /// A property is missing or invalid.
    pub fn read(properties: &Properties) -> Result<Self, InvalidProperty> {
        let text = |key: &str| properties.entry(key).filter(|(_, value)| !value.trim().is_empty());
        let any = |key: &str| text(key).map(|(_, value)| value.trim().to_owned()).filter(|value| !value.eq_ignore_ascii_case("all"));
        let (key, application) = text("Application").ok_or_else(|| wrong("Application", "an application job needs a program"))?;
        check_program(key, application)?;
        // The seeds misspell it.
        let package = match text("Package").or_else(|| text("Pacakge")) {
            Some((key, url)) => Some(package_of(key, url.trim())?),
            None => None,
        };
        let arguments = match text("Arguments") {
            Some((key, line)) => {
                let words = split(line).map_err(|detail| wrong(key, detail))?;
                if words.iter().any(|word| word.contains('\0')) {
                    return Err(wrong(key, "an argument must not contain a NUL"));
                }
                Some(line.to_owned())
            }
            None => None,
        };
        let user = text("User").map(|(key, user)| check_user(key, user.trim())).transpose()?;
        let settings = Self {
            sha256: sha256_of(text("Sha256"), package.as_deref())?,
            package,
            application: application.trim().to_owned(),
            arguments,
            environment: texts(text("Environment"), check_variable)?,
            files: texts(text("Files"), check_path)?,
            node_count: properties.parsed("NodeCount", 1..=MOST_NODES)?.unwrap_or(1),
            node_group: any("NodeGroup"),
            os: any("Os"),
            choice: choice_of(text("Choice"))?,
            max_cpu: properties.parsed("MaxCpu", 1..=101)?.unwrap_or(90),
            min_free_memory: properties.parsed("MinFreeMemory", 0..=1 << 40)?.unwrap_or(150),
            waits_for_node: waits_for_node(text("NoNode"))?,
            user,
            grace: properties.parsed("Grace", 0..=3_600_000)?.unwrap_or(GRACE_MS),
            memory_limit: properties.parsed("MemoryLimit", 1 << 20..=1 << 50)?,
            cpu_seconds: properties.parsed("CpuSeconds", 1..=31_536_000)?,
            open_files: properties.parsed("OpenFiles", 8..=1 << 20)?,
        };
        Ok(settings)
    }

    /// The argument words, before placeholders are filled in: the job's own, or the arguments of the trigger instead, unless the job's
    /// arguments contain `{arguments}` as the place for them.
    ///
    /// # Errors
    /// The arguments of the trigger cannot be split.
    pub fn words(&self, said: Option<&str>) -> Result<Vec<String>, String> {
        let own = self.arguments.as_deref().unwrap_or_default();
        match said {
            Some(said) if !own.contains("{arguments}") => split(said),
            _ => split(own),
        }
    }

    /// The arguments of the trigger, given those stored in the run: without its own arguments a trigger stores those of the job.
    #[must_use]
    pub fn said<'a>(&self, arguments: Option<&'a str>) -> Option<&'a str> {
        arguments.filter(|text| Some(*text) != self.arguments.as_deref())
    }
}

fn check_program(key: &str, program: &str) -> Result<(), InvalidProperty> {
    if program.chars().any(char::is_control) {
        return Err(wrong(key, "the name of a program must not contain control characters"));
    }
    if program.split(['/', '\\']).any(|part| part == "..") {
        return Err(wrong(key, "the path of a program must not contain `..`"));
    }
    Ok(())
}

fn package_of(key: &str, url: &str) -> Result<String, InvalidProperty> {
    if let Some(hash) = package_hash(url) {
        return Ok(format!("{PACKAGES}{}", hash.to_ascii_lowercase()));
    }
    let expected = || wrong(key, format!("`{url}` is neither http://…, https://… nor {PACKAGES}<sha256>"));
    let parsed = url::Url::parse(url).map_err(|_| expected())?;
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return Err(expected());
    }
    Ok(url.to_owned())
}

fn sha256_of(given: Option<(&str, &str)>, package: Option<&str>) -> Result<Option<String>, InvalidProperty> {
    let own = package.and_then(package_hash).map(str::to_owned);
    let Some((key, text)) = given else { return Ok(own) };
    let hash = text.trim().to_ascii_lowercase();
    if !is_hash(&hash) {
        return Err(wrong(key, "a SHA-256 must have 64 hexadecimal digits"));
    }
    if package.is_none() {
        return Err(wrong(key, "it needs a `Package`"));
    }
    if own.is_some_and(|own| own != hash) {
        return Err(wrong(key, "it differs from the hash in the package URL"));
    }
    Ok(Some(hash))
}

fn choice_of(given: Option<(&str, &str)>) -> Result<Choice, InvalidProperty> {
    let Some((key, text)) = given else { return Ok(Choice::default()) };
    let letters: String = text.chars().filter(char::is_ascii_alphabetic).flat_map(char::to_lowercase).collect();
    match letters.as_str() {
        "random" => Ok(Choice::Random),
        "leastloaded" => Ok(Choice::LeastLoaded),
        "all" => Ok(Choice::All),
        _ => Err(wrong(key, format!("`{text}` is neither random, leastLoaded nor all"))),
    }
}

fn waits_for_node(given: Option<(&str, &str)>) -> Result<bool, InvalidProperty> {
    match given {
        None => Ok(false),
        Some((_, word)) if word.trim().eq_ignore_ascii_case("fail") => Ok(false),
        Some((_, word)) if word.trim().eq_ignore_ascii_case("wait") => Ok(true),
        Some((key, word)) => Err(wrong(key, format!("`{word}` is neither fail nor wait"))),
    }
}

fn check_user(key: &str, user: &str) -> Result<String, InvalidProperty> {
    let is_fine = user.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '\\'));
    if !is_fine || user.starts_with('-') || user.chars().count() > USER {
        return Err(wrong(key, format!("`{user}` is not the name of a user")));
    }
    Ok(user.to_owned())
}

/// A property that is a JSON object of strings.
fn texts(given: Option<(&str, &str)>, check: fn(&str, &str) -> Result<(), String>) -> Result<BTreeMap<String, String>, InvalidProperty> {
    let Some((key, text)) = given else { return Ok(BTreeMap::new()) };
    let map: BTreeMap<String, String> = serde_json::from_str(text).map_err(|e| wrong(key, format!("not a JSON object of strings: {e}")))?;
    for (name, value) in &map {
        check(name, value).map_err(|detail| wrong(key, detail))?;
    }
    Ok(map)
}

fn check_variable(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
        return Err(format!("`{}` is not a valid environment variable", name.escape_debug()));
    }
    Ok(())
}

fn check_path(path: &str, _: &str) -> Result<(), String> {
    let stays = !path.is_empty()
        && !path.contains(['\\', ':', '\0'])
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if stays { Ok(()) } else { Err(format!("`{}` is not a path that stays in the working folder", path.escape_debug())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<ApplicationSettings, String> {
        let mut all: BTreeMap<String, String> = [("Application".to_owned(), "bin/x".to_owned())].into();
        all.extend(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        ApplicationSettings::read(&Properties(all)).map_err(|e| e.key)
    }

    #[test]
    fn the_seeds_names_are_understood() {
        let hash = "AB".repeat(32);
        let settings = read(&[
            ("Pacakge", &format!("/api/v1/packages/{hash}")),
            ("NODE_COUNT", "3"),
            ("node_group", "Vps"),
            ("OS", "all"),
            ("choice", "least_loaded"),
            ("NO_NODE", "Wait"),
            ("Environment", r#"{"A":"1"}"#),
            ("Files", r#"{"etc/a.conf":"x"}"#),
        ])
        .expect("settings");
        assert_eq!((settings.node_count, settings.node_group.as_deref(), settings.os), (3, Some("Vps"), None));
        assert_eq!(settings.sha256, Some(hash.to_lowercase()), "known by its address");
        assert_eq!((settings.choice, settings.max_cpu, settings.min_free_memory, settings.grace), (Choice::LeastLoaded, 90, 150, 30_000));
        assert_eq!(settings.files["etc/a.conf"], "x");
        assert!(settings.waits_for_node && !read(&[]).expect("settings").waits_for_node);
        assert_eq!(
            read(&[("Package", "https://x.test/a.zip"), ("Pacakge", "ftp://x")]).expect("settings").package.as_deref(),
            Some("https://x.test/a.zip")
        );
    }

    #[test]
    fn a_wrong_value_names_its_property() {
        let hash = "0".repeat(64);
        let own = format!("/api/v1/packages/{hash}");
        for (key, value) in [
            ("Application", " "),
            ("Application", "../x"),
            ("Package", "ftp://x.test/a.zip"),
            ("Pacakge", "/api/v1/packages/12"),
            ("Package", "C:\\a.zip"),
            ("Arguments", "'a"),
            ("NodeCount", "0"),
            ("NODE_COUNT", "many"),
            ("Sha256", "12"),
            ("Sha256", &hash),
            ("Environment", "[]"),
            ("Environment", r#"{"A=":"1"}"#),
            ("Files", r#"{"../a":"1"}"#),
            ("Files", r#"{"/a":"1"}"#),
            ("Files", r#"{"a\\b":"1"}"#),
            ("Choice", "best"),
            ("NoNode", "later"),
            ("Grace", "-1"),
            ("User", "a b"),
            ("User", "-x"),
            ("MaxCpu", "0"),
            ("MemoryLimit", "1"),
            ("OpenFiles", "x"),
        ] {
            assert_eq!(read(&[(key, value)]), Err(key.to_owned()), "{value}");
        }
        assert_eq!(read(&[("Package", &own), ("Sha256", &"1".repeat(64))]), Err("Sha256".to_owned()), "another one's");
    }

    #[test]
    fn a_trigger_may_bring_arguments() {
        let own = read(&[("Arguments", "a 'b c'")]).expect("settings");
        assert_eq!(own.words(own.said(Some("a 'b c'"))).expect("words"), ["a", "b c"]);
        assert_eq!(own.words(own.said(Some("x y"))).expect("words"), ["x", "y"]);
        let placed = read(&[("Arguments", "--input {arguments}")]).expect("settings");
        assert_eq!(placed.words(Some("x y")).expect("words"), ["--input", "{arguments}"]);
    }
}
