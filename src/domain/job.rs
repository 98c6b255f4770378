//! Jobs: what to run.

#[cfg(feature = "broker")]
use super::callback::Callback;
use super::canonical::Canonicalisation;
#[cfg(feature = "broker")]
use super::ids::JobId;
use super::origin::check_hosts;
#[cfg(feature = "broker")]
use super::schedule::{Overlap, Policies, Schedule};
use super::settings::{CookieMode, DownloadSettings, QueueSettings, SiteSettings, check_proxy};
use super::sites::{MOST_CONNECTIONS, MOST_DELAY_MS, SitePolicy};
#[cfg(feature = "broker")]
use super::task::TaskSettings;
#[cfg(feature = "broker")]
use super::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

/// What kind of work a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Nodes download pages; a worker supplies the requests and processes the results.
    Block,
    /// A program on a group of nodes.
    Application,
    /// An HTTP request that the broker makes.
    Callback,
    /// A function on a worker.
    Task,
}

impl JobKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Block, Self::Application, Self::Callback, Self::Task];

    /// The name as stored and sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Application => "application",
            Self::Callback => "callback",
            Self::Task => "task",
        }
    }
}

impl FromStr for JobKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("unknown job kind `{text}`: expected block, task, application or callback"))
    }
}

/// The longest texts that a job may hold, in characters.
pub mod limits {
    /// Characters of a name.
    pub const NAME: usize = 50;
    /// Characters of a description.
    pub const DESCRIPTION: usize = 500;
    /// Characters of a property's key.
    pub const KEY: usize = 50;
    /// Characters of a property's value. The seeds say 500; a `Site` value or a set of cookies needs more.
    pub const VALUE: usize = 8_192;
    /// Characters of a class name.
    pub const CLASS: usize = 100;
    /// Number of properties of one job.
    pub const PROPERTIES: usize = 100;
}

/// A job as it is stored.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its name, unique among the jobs that are not deleted.
    pub name: String,
    /// Its kind.
    pub job_type: JobKind,
    /// Free text for people.
    pub description: Option<String>,
    /// The group of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether triggers start it.
    pub is_enabled: bool,
    /// Why it is disabled, if a reason was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// Whether it was deleted; its history stays.
    pub is_deleted: bool,
    /// A higher value runs first.
    pub priority: i32,
    /// All other settings, by key. Unknown keys are kept.
    pub properties: Properties,
    /// When it runs automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// How to handle fires that are late or overlap with a run, and runs that fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<Policies>,
    /// The request of a callback job. Its secret is never shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// The task of a task job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskSettings>,
    /// Jobs that begin when a run of this one ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub successors: Vec<Successor>,
    /// Incremented by each change; a change request may name the version that it is based on.
    pub version: i64,
    /// Who created it: the role of a token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who changed it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When it was last changed.
    pub update_time: Timestamp,
}

/// A job that begins when a run of another one ends.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Successor {
    /// The successor's name or id.
    pub job: String,
    /// The run ends after which it begins.
    #[serde(default)]
    pub on: AfterEnd,
}

/// The run ends after which a successor begins.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum AfterEnd {
    /// The run succeeded.
    #[default]
    Success,
    /// It failed for good.
    Failure,
    /// Any end, including a stop.
    Always,
}

#[cfg(feature = "broker")]
impl Job {
    /// The effective rules: its policies, completed by the properties of older clients.
    ///
    /// # Errors
    /// A property does not parse.
    pub fn rules(&self) -> Result<Policies, InvalidProperty> {
        let mut rules = self.policies.clone().unwrap_or_default();
        if rules.overlap.is_none() && self.properties.get("Overlap").is_some() {
            rules.overlap = Some(if self.properties.allows_overlap()? { Overlap::Allow } else { Overlap::Skip });
        }
        Ok(rules)
    }

    /// The name that the workers of a task job watch.
    #[must_use]
    pub fn handler(&self) -> Option<&str> {
        self.task.as_ref().and_then(|task| task.handler.as_deref()).or_else(|| self.properties.class_name())
    }

    /// A copy without secrets, for display and for the audit log.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        if let Some(callback) = &mut self.callback {
            callback.secret = callback.secret.take().map(|_| String::new());
        }
        self
    }
}

/// A property with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct InvalidProperty {
    /// The key as given.
    pub key: String,
    /// What is wrong.
    pub detail: String,
}

/// Keys and text values. Key lookup ignores case and underscores (`NODE_COUNT` is `NodeCount`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Properties(pub BTreeMap<String, String>);

/// Whether two keys name one property: case and underscores do not count.
pub(crate) fn same_key(a: &str, b: &str) -> bool {
    // Compares characters without allocation: this runs some thirty times for each run.
    fn letters(text: &str) -> impl Iterator<Item = char> {
        text.chars().filter(|c| *c != '_').flat_map(char::to_lowercase)
    }
    letters(a).eq(letters(b))
}

impl Properties {
    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entry(key).map(|(_, value)| value)
    }

    pub(super) fn entry(&self, key: &str) -> Option<(&str, &str)> {
        self.0.iter().find(|(k, _)| same_key(k, key)).map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Replaces the value of a key in any spelling; `None` removes it.
    pub fn put(&mut self, key: &str, value: Option<String>) {
        self.0.retain(|known, _| !same_key(known, key));
        if let Some(value) = value {
            self.0.insert(key.to_owned(), value);
        }
    }

    /// Parses the value of a key.
    ///
    /// # Errors
    /// The value is present but not a `T`, or out of `range`.
    pub(super) fn parsed<T: FromStr + PartialOrd + std::fmt::Display>(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<Option<T>, InvalidProperty> {
        let Some((key, value)) = self.entry(key) else { return Ok(None) };
        match value.trim().parse::<T>() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(InvalidProperty {
                key: key.to_owned(),
                detail: format!("`{value}` is not a whole number from {} to {}", range.start(), range.end()),
            }),
        }
    }

    /// The class whose worker runs a block job.
    #[must_use]
    pub fn class_name(&self) -> Option<&str> {
        // In seed 002 the column *Application* holds the class of a block job.
        self.get("FullClassName").or_else(|| self.get("Application")).filter(|name| !name.is_empty())
    }

    /// How the nodes download.
    ///
    /// # Errors
    /// A property is invalid.
    pub fn download(&self) -> Result<DownloadSettings, InvalidProperty> {
        let mut out = DownloadSettings::default();
        if let Some(n) = self.parsed("ThreadNum", 1..=1_024)? {
            out.thread_num = n;
        }
        out.change_ip_pattern = self.get("ChangeIpPattern").filter(|p| !p.is_empty()).map(str::to_owned);
        if let Some((key, text)) = self.entry("Site").filter(|(_, text)| text.trim_start().starts_with('{')) {
            out.site = serde_json::from_str::<SiteSettings>(text)
                .map_err(|e| InvalidProperty { key: key.to_owned(), detail: format!("not the settings of a site: {e}") })?;
        }
        if let Some((key, _)) = self.entry("Site") {
            let invalid = |detail| InvalidProperty { key: key.to_owned(), detail };
            out.site.proxy.as_deref().filter(|proxy| !proxy.is_empty()).map(check_proxy).transpose().map_err(invalid)?;
            out.site.hosts.as_deref().map(check_hosts).transpose().map_err(invalid)?;
        }
        out.start_origins = Some([].into());
        out.cookies = self.get("Cookies").filter(|c| !c.is_empty()).map(str::to_owned);
        out.cookie_mode = match self.entry("CookieMode") {
            None => CookieMode::Initial,
            Some((_, mode)) if mode.eq_ignore_ascii_case("initial") => CookieMode::Initial,
            Some((_, mode)) if mode.eq_ignore_ascii_case("fixed") => CookieMode::Fixed,
            Some((key, mode)) => {
                return Err(InvalidProperty { key: key.to_owned(), detail: format!("`{mode}` is neither initial nor fixed") });
            }
        };
        if let Some(ms) = self.parsed("SleepTime", 0..=3_600_000)? {
            out.sleep_time = ms;
        }
        if let Some(ms) = self.parsed("Timeout", 1..=3_600_000)? {
            out.timeout = ms;
        }
        if let Some(bytes) = self.parsed("MaxBody", 1..=1 << 30)? {
            out.max_body = bytes;
        }
        if let Some(n) = self.parsed("MaxRedirects", 0..=50)? {
            out.max_redirects = n;
        }
        out.retry_download = self.parsed("RetryDownload", 0..=20)?;
        Ok(out)
    }

    /// Which URLs count as the same page in a run: `SortQuery`, `DropParameters`, `TrailingSlash`.
    fn canonicalisation(&self) -> Result<Canonicalisation, InvalidProperty> {
        let mut out = Canonicalisation::default();
        let invalid = |key: &str, detail| InvalidProperty { key: key.to_owned(), detail };
        if let Some((key, text)) = self.entry("SortQuery") {
            let expected = || format!("`{text}` is neither true nor false");
            out.sort_query = text.trim().to_ascii_lowercase().parse().map_err(|_| invalid(key, expected()))?;
        }
        if let Some((key, text)) = self.entry("DropParameters") {
            out.drop_parameters = text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
            out.check().map_err(|detail| invalid(key, detail))?;
        }
        if let Some((key, text)) = self.entry("TrailingSlash") {
            out.trailing_slash = text.parse().map_err(|detail| invalid(key, detail))?;
        }
        Ok(out)
    }

    /// The politeness settings for the sites of a run: `SiteBy`, `Delay`, `PerSite`, `Robots`.
    fn sites(&self) -> Result<SitePolicy, InvalidProperty> {
        let mut out = SitePolicy::default();
        if let Some((key, text)) = self.entry("SiteBy") {
            out.by = text.parse().map_err(|detail| InvalidProperty { key: key.to_owned(), detail })?;
        }
        // `SleepTime` of the seeds is the same as a delay.
        let pause: Option<u32> = self.parsed("SleepTime", 0..=3_600_000)?;
        out.limits.delay_ms = self.parsed("Delay", 0..=MOST_DELAY_MS)?.or(pause.filter(|ms| *ms > 0));
        out.limits.connections = self.parsed("PerSite", 1..=MOST_CONNECTIONS)?;
        out.robots = match self.entry("Robots") {
            None => None,
            Some((_, word)) if word.eq_ignore_ascii_case("obey") => Some(true),
            Some((_, word)) if word.eq_ignore_ascii_case("ignore") => Some(false),
            Some((key, word)) => {
                return Err(InvalidProperty { key: key.to_owned(), detail: format!("`{word}` is neither obey nor ignore") });
            }
        };
        Ok(out)
    }

    /// Whether a trigger starts a run while another run of the job is not over (`Overlap`: allow or skip).
    ///
    /// # Errors
    /// The value is not allow or skip.
    pub fn allows_overlap(&self) -> Result<bool, InvalidProperty> {
        match self.entry("Overlap") {
            None => Ok(true),
            Some((_, word)) if word.eq_ignore_ascii_case("allow") => Ok(true),
            Some((_, word)) if word.eq_ignore_ascii_case("skip") => Ok(false),
            Some((key, word)) => Err(InvalidProperty { key: key.to_owned(), detail: format!("`{word}` is neither allow nor skip") }),
        }
    }

    /// Milliseconds after its scheduled time at which a fire is stale and starts no run (`StaleAfter`); `None`: never.
    ///
    /// # Errors
    /// The value is not a number in range.
    pub fn stale_after(&self) -> Result<Option<i64>, InvalidProperty> {
        self.parsed("StaleAfter", 1..=31_536_000_000)
    }

    /// The job that starts a worker when no worker watches the class (`WorkerJob`: its name or id), and the milliseconds to wait for that
    /// worker (`WorkerWait`).
    ///
    /// # Errors
    /// The name is too long, or the time is not a number in range.
    pub fn worker_job(&self) -> Result<Option<(&str, i64)>, InvalidProperty> {
        let wait = self.parsed("WorkerWait", 1_000..=3_600_000)?.unwrap_or(60_000);
        match self.entry("WorkerJob").filter(|(_, name)| !name.is_empty()) {
            Some((key, name)) if name.chars().count() > limits::NAME => {
                Err(InvalidProperty { key: key.to_owned(), detail: "expected the name or the id of a job".to_owned() })
            }
            named => Ok(named.map(|(_, name)| (name, wait))),
        }
    }

    /// What happens to a run whose class no worker watches: `NoWorker` is `fail` (the default) or `wait`.
    ///
    /// # Errors
    /// The value is not `fail` or `wait`.
    pub fn no_worker(&self) -> Result<super::task::NoWorker, InvalidProperty> {
        use super::task::NoWorker;
        match self.entry("NoWorker").map(|(key, value)| (key, value.trim())) {
            None => Ok(NoWorker::Fail),
            Some((_, value)) if value.eq_ignore_ascii_case("fail") => Ok(NoWorker::Fail),
            Some((_, value)) if value.eq_ignore_ascii_case("wait") => Ok(NoWorker::Wait),
            Some((key, value)) => Err(InvalidProperty { key: key.to_owned(), detail: format!("`{value}` is neither `fail` nor `wait`") }),
        }
    }

    /// The settings of a run's queue.
    ///
    /// # Errors
    /// A property is invalid.
    pub fn queue(&self) -> Result<QueueSettings, InvalidProperty> {
        let mut out = QueueSettings::default();
        if let Some(n) = self.parsed("BlockSize", 1..=1_000)? {
            out.block_size = n;
        }
        out.depth_limit = self.parsed("DepthLimit", 0..=u32::MAX)?;
        out.max_requests = self.parsed("MaxRequests", 1..=u64::MAX)?;
        if let Some(n) = self.parsed("BlockAttempts", 1..=1_000)? {
            out.block_attempts = n;
        }
        if let Some(ms) = self.parsed("AckWait", 100..=86_400_000)? {
            out.ack_wait = ms;
        }
        if let Some(ms) = self.parsed("Lease", 100..=86_400_000)? {
            out.lease = ms;
        }
        if let Some(n) = self.parsed("MaxPending", 1..=u64::MAX)? {
            out.max_pending = n;
        }
        out.max_per_site = self.parsed("MaxPerSite", 1..=u64::MAX)?;
        out.max_bytes = self.parsed("MaxBytes", 1..=u64::MAX)?;
        if let Some(bytes) = self.parsed("MaxUrlLength", 0..=u32::MAX)? {
            out.guards.url_length = bytes;
        }
        if let Some(n) = self.parsed("MaxRepeatedSegments", 0..=u32::MAX)? {
            out.guards.repeated_segments = n;
        }
        out.canonicalisation = self.canonicalisation()?;
        if let Some((key, text)) = self.entry("Redirects") {
            out.redirects = text.parse().map_err(|detail| InvalidProperty { key: key.to_owned(), detail })?;
        }
        out.sites = self.sites()?;
        let any = |text: &&str| !text.is_empty() && !text.eq_ignore_ascii_case("all");
        out.node_group = self.get("NodeGroup").filter(any).map(str::to_owned);
        out.os = self.get("Os").filter(any).map(str::to_owned);
        out.workers = Arc::new(self.workers()?);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Properties {
        Properties(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn keys_are_found_in_both_spellings() {
        let properties = of(&[("THREAD_NUM", "4"), ("fullclassname", "a.B"), ("Unknown", "kept")]);
        assert_eq!(properties.download().map(|d| d.thread_num), Ok(4));
        assert_eq!(properties.class_name(), Some("a.B"));
        assert_eq!(properties.0.len(), 3);
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        for (key, value) in [
            ("ThreadNum", "0"),
            ("ThreadNum", "many"),
            ("CookieMode", "sometimes"),
            ("Site", "{\"headers\":1}"),
            ("Site", "{\"proxy\":\"tor://x\"}"),
            ("SITE", "{\"hosts\":[\"http://x\"]}"),
        ] {
            assert_eq!(of(&[(key, value)]).download().map_err(|e| e.key), Err(key.to_owned()), "{value}");
        }
        for (key, value) in [
            ("SortQuery", "yes"),
            ("DropParameters", "a,b&c"),
            ("TrailingSlash", "maybe"),
            ("Redirects", "never"),
            ("MaxPending", "0"),
            ("MaxPerSite", "0"),
            ("MaxBytes", "1M"),
            ("MaxUrlLength", "-1"),
            ("MaxRepeatedSegments", "x"),
            ("WorkerStrategy", "broadcast"),
            ("WORKER_STRATEGY", "sometimes"),
            ("WorkerKey", "/customer"),
            ("WorkerGroup", "a\u{7}b"),
            ("WorkerTags", "gpu,a\u{7}b"),
        ] {
            assert_eq!(of(&[(key, value)]).queue().map_err(|e| e.key), Err(key.to_owned()), "{value}");
        }
        assert_eq!(of(&[("BLOCK_SIZE", "-1")]).queue().map_err(|e| e.key), Err("BLOCK_SIZE".to_owned()));
    }
}
