//! What an agent allows a broker to run on its machine.
//!
//! These limits are set on the machine and not by the broker, so that a compromised broker does not own every machine. So programs are
//! disabled unless the owner of the machine enables them, and packages come only from the broker unless other hosts are listed.

use crate::protocol::application::ProgramLimits;
use url::Url;

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;

/// What happens to programs when their agent stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtStop {
    /// They are ended too.
    #[default]
    End,
    /// They continue, and the next agent with this data directory takes them over.
    Keep,
}

impl std::str::FromStr for AtStop {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "end" => Ok(Self::End),
            "keep" => Ok(Self::Keep),
            other => Err(format!("`{other}` is neither `end` nor `keep`")),
        }
    }
}

/// The program settings that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramLayer {
    /// Whether the broker may start programs.
    pub applications: Option<bool>,
    /// Hosts, besides the broker, that packages may come from.
    pub package_hosts: Option<Vec<String>>,
    /// Users that programs may run as.
    pub application_users: Option<Vec<String>>,
    /// Maximum size of a package in bytes.
    pub max_package_bytes: Option<u64>,
    /// Maximum size of all cached packages in bytes.
    pub cache_bytes: Option<u64>,
    /// Maximum number of concurrent programs.
    pub max_programs: Option<u32>,
    /// Upper bounds of each program's limits.
    pub program_limits: Option<ProgramLimits>,
    /// What happens to programs when the agent stops.
    pub programs_at_stop: Option<AtStop>,
}

/// The checked program settings.
#[derive(Debug, Clone)]
pub struct ProgramSettings {
    /// Whether the broker may start programs at all.
    pub are_allowed: bool,
    /// Hosts, besides the broker, that packages may come from.
    pub package_hosts: Vec<HostPattern>,
    /// Users that programs may run as, if the agent is root; the first is the default.
    pub users: Vec<String>,
    /// Maximum size of a downloaded package in bytes; unpacked it may have four times this size.
    pub max_package_bytes: u64,
    /// Maximum size of all cached packages in bytes.
    pub cache_bytes: u64,
    /// Maximum number of concurrent programs.
    pub max_programs: u32,
    /// Upper limits: an order may request less.
    pub limits: ProgramLimits,
    /// What happens to programs when the agent stops.
    pub at_stop: AtStop,
    /// Settings for tests; users need not set them.
    #[doc(hidden)]
    pub inner: Inner,
}

/// Settings for tests; users need not set them.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Inner {
    /// The command that starts the launcher: a program and its first arguments.
    pub launcher: Vec<String>,
    /// Maximum bytes of a program's output that wait for the broker.
    pub backlog_bytes: u64,
    /// Maximum number of lines that are sent before the first of them is acknowledged.
    pub window_lines: u64,
}

impl Default for Inner {
    fn default() -> Self {
        // This name refers to the running binary, even if an update has replaced its file.
        let launcher = vec!["/proc/self/exe".to_owned(), "launch".to_owned()];
        Self { launcher, backlog_bytes: 64 * MB, window_lines: 2_000 }
    }
}

impl Default for ProgramSettings {
    fn default() -> Self {
        Self {
            are_allowed: false,
            package_hosts: Vec::new(),
            users: Vec::new(),
            max_package_bytes: 512 * MB,
            cache_bytes: 4 * GB,
            max_programs: 5,
            limits: ProgramLimits::default(),
            at_stop: AtStop::End,
            inner: Inner::default(),
        }
    }
}

/// A host pattern: `example.com`, `*.example.com` for all subdomains, each also with `:port`; `*` for every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    name: String,
    port: Option<u16>,
}

impl HostPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It is not a host pattern; the text gives the reason.
    pub fn new(text: &str) -> Result<Self, String> {
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !text.ends_with(']') => (name, Some(port.parse().map_err(|_| format!("`{text}`: bad port `{port}`"))?)),
            _ => (text, None),
        };
        let host = name.strip_prefix("*.").unwrap_or(name);
        // Parsed like the host of a URL, so that both have the same spelling.
        let parsed = if name == "*" { Ok("*".to_owned()) } else { url::Host::parse(host).map(|host| host.to_string()) };
        let parsed = parsed.map_err(|e| format!("`{text}` is not a host: {e}"))?;
        if parsed.contains('*') && name != "*" {
            return Err(format!("`{text}`: `*` must be alone or at the start, as in `*.example.com`"));
        }
        let name = if host.len() < name.len() { format!("*.{parsed}") } else { parsed };
        Ok(Self { name, port })
    }

    /// Whether a URL is on this host.
    #[must_use]
    pub fn fits(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let is_host = match self.name.strip_prefix('*') {
            Some("") => true,
            Some(below) => host.ends_with(below) && host.len() > below.len(),
            None => host == self.name,
        };
        is_host && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }
}

impl ProgramLayer {
    /// Checks the settings; adds one line to `wrong` for each error.
    #[must_use]
    pub fn validate(self, max_process_count: u32, wrong: &mut Vec<String>) -> ProgramSettings {
        let defaults = ProgramSettings::default();
        let mut package_hosts = Vec::new();
        for text in self.package_hosts.unwrap_or_default() {
            match HostPattern::new(&text) {
                Ok(pattern) => package_hosts.push(pattern),
                Err(why) => wrong.push(format!("packageHosts: {why}")),
            }
        }
        let users = self.application_users.unwrap_or_default();
        if users.iter().any(|user| user.is_empty() || user.contains(['\0', ':', '/'])) {
            wrong.push("applicationUsers: must be names of users".to_owned());
        }
        let mut bytes = |key: &str, value: Option<u64>, default: u64| {
            let value = value.unwrap_or(default);
            if !(1..=1 << 44).contains(&value) {
                wrong.push(format!("{key}: must be 1 to 17592186044416, not {value}"));
            }
            value
        };
        let max_package_bytes = bytes("maxPackageBytes", self.max_package_bytes, defaults.max_package_bytes);
        let cache_bytes = bytes("cacheBytes", self.cache_bytes, defaults.cache_bytes);
        let max_programs = self.max_programs.unwrap_or(max_process_count.clamp(1, 1_000));
        if !(1..=1_000).contains(&max_programs) {
            wrong.push(format!("maxPrograms: must be 1 to 1000, not {max_programs}"));
        }
        let limits = self.program_limits.unwrap_or_default();
        if [limits.memory, limits.cpu_seconds, limits.open_files].contains(&Some(0)) {
            wrong.push("programLimits: 0 would let no program run".to_owned());
        }
        ProgramSettings {
            are_allowed: self.applications.unwrap_or(false),
            package_hosts,
            users,
            max_package_bytes,
            cache_bytes,
            max_programs,
            limits,
            at_stop: self.programs_at_stop.unwrap_or_default(),
            inner: defaults.inner,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_as_a_url_has_them() {
        let fits = |pattern: &str, url: &str| HostPattern::new(pattern).expect(pattern).fits(&url.parse().expect(url));
        for (pattern, url) in [
            ("*", "http://any.example/"),
            ("example.com", "https://EXAMPLE.com/a"),
            ("Example.COM:443", "https://example.com/"),
            ("*.example.com", "http://a.b.example.com/"),
            ("[::1]:8080", "http://[::1]:8080/"),
            ("10.0.0.1", "http://10.0.0.1:99/"),
            ("*:8080", "http://x:8080/"),
        ] {
            assert!(fits(pattern, url), "{pattern} {url}");
        }
        for (pattern, url) in [
            ("example.com", "http://example.com.evil.example/"),
            ("example.com", "http://a.example.com/"),
            ("*.example.com", "http://example.com/"),
            ("*.example.com", "http://badexample.com/"),
            ("example.com:80", "https://example.com/"),
        ] {
            assert!(!fits(pattern, url), "{pattern} {url}");
        }
        for bad in ["", "a b", "*a", "a.*.b", "host:port", "*."] {
            assert!(HostPattern::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_said_allows_nothing_and_every_bad_setting_is_named() {
        let mut wrong = Vec::new();
        let settings = ProgramLayer::default().validate(7, &mut wrong);
        assert!(wrong.is_empty() && !settings.are_allowed && settings.package_hosts.is_empty() && settings.users.is_empty());
        assert_eq!((settings.max_programs, settings.at_stop), (7, AtStop::End));
        let bad = ProgramLayer {
            package_hosts: Some(vec!["a b".to_owned()]),
            application_users: Some(vec![String::new()]),
            max_package_bytes: Some(0),
            cache_bytes: Some(0),
            max_programs: Some(0),
            program_limits: Some(ProgramLimits { memory: Some(0), ..ProgramLimits::default() }),
            ..ProgramLayer::default()
        };
        let _ = bad.validate(1, &mut wrong);
        for key in ["packageHosts", "applicationUsers", "maxPackageBytes", "cacheBytes", "maxPrograms", "programLimits"] {
            assert!(wrong.iter().any(|line| line.starts_with(&format!("{key}: "))), "{key} is not in {wrong:?}");
        }
    }
}
