//! The settings of a job for the sites that its runs use.

use super::{DEFAULT_DELAY_MS, DelayBy, Limits, Pace, SiteBy, SiteRule, is_private, site_key, slowest};
use serde::{Deserialize, Serialize};
use url::Url;

/// See the module documentation. Stored with each run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SitePolicy {
    /// How requests are grouped into sites.
    pub by: SiteBy,
    /// The limits for each site.
    pub limits: Limits,
    /// Whether robots.txt is obeyed; `None`: at public hosts only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robots: Option<bool>,
}

/// The site of a request under a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name of the site.
    pub name: String,
    /// Its pace.
    pub pace: Pace,
}

impl SitePolicy {
    /// Whether the robots.txt of a host is obeyed.
    #[must_use]
    pub fn obeys_robots(&self, url: &Url) -> bool {
        self.robots.unwrap_or_else(|| !is_private(url, None))
    }

    /// The site of a URL; `None` if neither a pace nor robots.txt applies there.
    #[must_use]
    pub fn site(&self, url: &Url, rules: &[SiteRule]) -> Option<Named> {
        let pace = self.pace(url, rules);
        if pace != Pace::FREE {
            return Some(Named { name: site_key(url, self.by, None), pace });
        }
        // Such a site is named by its origin, because each origin has its own robots.txt.
        self.obeys_robots(url).then(|| Named { name: url.origin().ascii_serialization(), pace })
    }

    /// The pace at the host of a URL.
    #[must_use]
    pub fn pace(&self, url: &Url, rules: &[SiteRule]) -> Pace {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let rules = rules.iter().filter(|rule| rule.is_about(host, port)).map(|rule| rule.limits);
        slowest(is_private(url, None), rules.chain([self.limits]))
    }

    /// What this delay at the host of a URL comes from. `is_of_robots`: a robots.txt has set it. For a domain, rules for any of its hosts count.
    #[must_use]
    pub fn delay_by(&self, delay_ms: u32, url: &Url, is_of_robots: bool, rules: &[SiteRule]) -> DelayBy {
        if is_of_robots {
            DelayBy::Robots
        } else if self.limits.delay_ms == Some(delay_ms) {
            DelayBy::Job
        } else if self.limits.delay_ms.is_none() && delay_ms == DEFAULT_DELAY_MS && !is_ruled(delay_ms, url, rules) {
            DelayBy::Default
        } else {
            DelayBy::Operator
        }
    }
}

/// Whether a rule of the operator sets this delay.
fn is_ruled(delay_ms: u32, url: &Url, rules: &[SiteRule]) -> bool {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    rules.iter().any(|rule| rule.is_about(host, port) && rule.limits.delay_ms == Some(delay_ms))
}

/// A URL on the site with this name.
#[must_use]
pub fn url_at(name: &str) -> Option<Url> {
    if name.contains("://") {
        return Url::parse(name).ok();
    }
    Url::parse(&format!("http://{name}/")).or_else(|_| Url::parse(&format!("http://[{name}]/"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn public_sites_are_paced_and_private_ones_only_if_asked() {
        let (usual, obeys) = (SitePolicy::default(), SitePolicy { robots: Some(true), ..SitePolicy::default() });
        let slow = SitePolicy { limits: Limits { connections: None, delay_ms: Some(250) }, ..SitePolicy::default() };
        let public = usual.site(&url("https://Example.com:8443/x"), &[]).expect("it is public");
        assert_eq!((public.name.as_str(), public.pace), ("example.com", Pace::default()));
        assert_eq!(usual.site(&url("http://127.0.0.1:8000/"), &[]), None);
        let own = obeys.site(&url("http://127.0.0.1:8000/x"), &[]).expect("robots.txt is to be obeyed");
        assert_eq!((own.name.as_str(), own.pace), ("http://127.0.0.1:8000", Pace::FREE));
        assert_eq!(
            slow.site(&url("http://127.0.0.1:8000/x"), &[]).map(|site| (site.name, site.pace.delay_ms)),
            Some(("127.0.0.1".into(), 250))
        );
        let rule: SiteRule = "*.example.com delay=5000".parse().expect("a rule");
        assert_eq!(slow.pace(&url("http://www.example.com/"), &[rule]).delay_ms, 5_000, "the slowest wins");
    }

    #[test]
    fn a_delay_has_a_cause() {
        let (usual, job) =
            (SitePolicy::default(), SitePolicy { limits: Limits { connections: None, delay_ms: Some(250) }, ..SitePolicy::default() });
        let (at, rule) = (url("http://a.example/"), |text: &str| vec![text.parse::<SiteRule>().expect("a rule")]);
        let by = |policy: &SitePolicy, delay_ms, rules: &[SiteRule]| policy.delay_by(delay_ms, &at, false, rules);
        assert_eq!(by(&usual, 1_000, &[]), DelayBy::Default);
        assert_eq!(by(&usual, 1_000, &rule("* delay=1000")), DelayBy::Operator);
        assert_eq!(by(&usual, 5_000, &rule("*.example delay=5000")), DelayBy::Operator);
        assert_eq!(by(&usual, 5_000, &rule("b.example delay=5000")), DelayBy::Operator, "of another host of the domain");
        assert_eq!(by(&job, 250, &rule("* connections=1")), DelayBy::Job);
        assert_eq!(by(&job, 5_000, &rule("* delay=5000")), DelayBy::Operator);
        assert_eq!(job.delay_by(3_000, &at, true, &[]), DelayBy::Robots);
    }

    #[test]
    fn a_site_is_found_by_its_name() {
        for text in ["http://example.com/", "http://[::1]/", "http://127.0.0.1/"] {
            let name = site_key(&url(text), SiteBy::Host, None);
            assert_eq!(url_at(&name), Some(url(text)), "{name}");
        }
        assert_eq!(url_at("http://127.0.0.1:8000"), Some(url("http://127.0.0.1:8000/")));
    }
}
