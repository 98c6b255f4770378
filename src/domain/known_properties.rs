//! Misspelt properties of a job, and members of its `Site`. A job may have properties of its own, which its worker reads, so only a key
//! that is nearly one of Webloom's is refused.

use super::job::{InvalidProperty, JobKind, Properties, same_key};
use serde_json::{Map, Value};

/// The keys that the broker reads, of all kinds of jobs. `Pacakge` is how a seed spells it.
const KNOWN: [&str; 62] = [
    "AckWait",
    "Application",
    "Arguments",
    "BlockAttempts",
    "BlockSize",
    "ChangeIpPattern",
    "Choice",
    "CookieMode",
    "Cookies",
    "CpuSeconds",
    "Delay",
    "DepthLimit",
    "DropParameters",
    "Environment",
    "Files",
    "FullClassName",
    "Grace",
    "Lease",
    "MaxBody",
    "MaxBytes",
    "MaxCpu",
    "MaxPending",
    "MaxPerSite",
    "MaxRedirects",
    "MaxRepeatedSegments",
    "MaxRequests",
    "MaxUrlLength",
    "MemoryLimit",
    "MinFreeMemory",
    "NoNode",
    "NoWorker",
    "NodeCount",
    "NodeGroup",
    "OpenFiles",
    "Os",
    "Overlap",
    "Pacakge",
    "Package",
    "PerSite",
    "Redirects",
    "RetryDownload",
    "Robots",
    "SchedulerNetGroup",
    "SchedulerNetId",
    "SchedulerNetName",
    "Sha256",
    "Site",
    "SiteBy",
    "SleepTime",
    "SortQuery",
    "StaleAfter",
    "ThreadNum",
    "Timeout",
    "TrailingSlash",
    "User",
    "WorkerGroup",
    "WorkerJob",
    "WorkerKey",
    "WorkerStrategy",
    "WorkerTags",
    "WorkerVersion",
    "WorkerWait",
];
/// Keys that one kind of job reads; the member of a task and the key of an application that do the same.
const OF_ONE_KIND: [(&str, JobKind, &str, &str); 7] = [
    ("NoWorker", JobKind::Block, "noWorker", "NoNode"),
    ("NoNode", JobKind::Application, "noWorker", "NoNode"),
    ("WorkerGroup", JobKind::Block, "group", "NodeGroup"),
    ("WorkerVersion", JobKind::Block, "version", "NodeGroup"),
    ("WorkerTags", JobKind::Block, "tags", "NodeGroup"),
    ("WorkerStrategy", JobKind::Block, "strategy", "Choice"),
    ("WorkerKey", JobKind::Block, "key", "Choice"),
];
/// The members of a `Site` that is a JSON object.
const SITE: [&str; 5] = ["userAgent", "headers", "hosts", "proxy", "encoding"];

fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The known key that this key nearly is; `None` if it is one, or is far from all of them. Short keys are near to too many words, so
/// they must have the same letters.
fn nearly(key: &str) -> Option<&'static str> {
    let properties = Properties([(key.to_owned(), String::new())].into());
    if KNOWN.into_iter().any(|known| properties.get(known).is_some()) {
        return None;
    }
    let key = letters(key);
    let distance = |known: &str| strsim::osa_distance(&key, &letters(known));
    let most = |known: &str| [0, 1, 2][usize::from(known.len() >= 6) + usize::from(known.len() >= 9)];
    KNOWN.into_iter().filter(|known| distance(known) <= most(known)).min_by_key(|known| distance(known))
}

impl Properties {
    /// Refuses misspelt keys, unknown members of `Site`, and control characters in names. A property that the job has `already`, with the
    /// same value, is accepted: it was stored before.
    ///
    /// # Errors
    /// A key or a member is unknown; the error suggests the one that was probably meant.
    pub fn check_spelling(&self, already: &Self) -> Result<(), InvalidProperty> {
        let is_new = |(key, value): &(&String, &String)| already.0.get(*key) != Some(*value);
        for (key, value) in self.0.iter().filter(is_new) {
            if let Some(same) = self.0.keys().find(|other| *other != key && same_key(other, key)) {
                let detail = format!("`{}` and `{}` are one property: send one of them", same.escape_debug(), key.escape_debug());
                return Err(InvalidProperty { key: key.clone(), detail });
            }
            if let Some(meant) = nearly(key).filter(|_| !already.0.contains_key(key)) {
                let detail = format!(
                    "unknown property `{}`. Did you mean `{meant}`? A property of your own needs a name that differs more.",
                    key.escape_debug()
                );
                return Err(InvalidProperty { key: key.clone(), detail });
            }
            let names = |known: &str| Properties([(key.clone(), String::new())].into()).get(known).is_some();
            if key.chars().any(char::is_control) || names("FullClassName") && value.chars().any(char::is_control) {
                let detail = "must not contain control characters, such as a line break".to_owned();
                return Err(InvalidProperty { key: key.escape_debug().to_string(), detail });
            }
            let Some(Ok(site)) = names("Site").then(|| serde_json::from_str::<Map<String, Value>>(value)) else { continue };
            if let Some(member) = site.keys().find(|member| !SITE.contains(&member.as_str())) {
                let near = SITE.into_iter().map(|known| (strsim::jaro(&letters(member), &letters(known)), known));
                let near = near.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness >= 0.75);
                let hint = near.map_or_else(|| format!("Known are: {}", SITE.join(", ")), |(_, known)| format!("Did you mean `{known}`?"));
                let detail = format!("unknown member `{}` of a site. {hint}", member.escape_debug());
                return Err(InvalidProperty { key: key.clone(), detail });
            }
        }
        Ok(())
    }

    /// Refuses what another kind of job reads and this one would ignore, although a user relies on it. A property that the job has
    /// `already`, with the same value, is accepted.
    ///
    /// # Errors
    /// The property has no effect on this kind of job; the error names what has.
    pub fn check_kind(&self, kind: JobKind, already: &Self) -> Result<(), InvalidProperty> {
        for (known, reader, member, of_nodes) in OF_ONE_KIND {
            let given = self.entry(known).filter(|(key, value)| already.0.get(*key).map(String::as_str) != Some(*value));
            let Some((key, value)) = given.filter(|_| kind != reader) else { continue };
            let instead = match kind {
                JobKind::Task => format!("a task job has the member `task.{member}` instead"),
                JobKind::Application => format!("an application job runs on nodes: set `{of_nodes}`"),
                JobKind::Block => "its requests wait for a node in any case: `NoWorker` says what happens without a worker".to_owned(),
                JobKind::Callback => "a callback job needs neither a worker nor a node".to_owned(),
            };
            let detail = format!("has no effect on this kind of job (value `{value}`): {instead}");
            return Err(InvalidProperty { key: key.to_owned(), detail });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, value: &str) -> Option<String> {
        let properties = Properties([(key.to_owned(), value.to_owned())].into());
        assert_eq!(properties.check_spelling(&properties), Ok(()), "what is stored stays");
        properties.check_spelling(&Properties::default()).map_err(|error| error.detail).err()
    }

    #[test]
    fn a_misspelt_key_is_refused_with_the_one_that_was_meant() {
        for (key, meant) in [
            ("Redirect", "Redirects"),
            ("Robot", "Robots"),
            ("PerSites", "PerSite"),
            ("per-site", "PerSite"),
            ("Thread_Nums", "ThreadNum"),
            ("TreadNum", "ThreadNum"),
            ("DetphLimit", "DepthLimit"),
            ("FullClasName", "FullClassName"),
            ("MaxRequest", "MaxRequests"),
            ("Enviroment", "Environment"),
            ("WorkerJobs", "WorkerJob"),
            ("TrailngSlsh", "TrailingSlash"),
        ] {
            let refused = check(key, "1").expect("refused");
            assert!(refused.starts_with(&format!("unknown property `{key}`. Did you mean `{meant}`?")), "{refused}");
        }
    }

    #[test]
    fn two_spellings_of_one_property_are_refused() {
        let both = Properties([("NodeGroup", "a"), ("NODE_GROUP", "b")].map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let error = both.check_spelling(&Properties::default()).expect_err("two values");
        assert!(error.detail.ends_with("are one property: send one of them"), "{}", error.detail);
        assert_eq!(both.check_spelling(&both), Ok(()), "what is stored stays");
    }

    #[test]
    fn a_property_of_another_kind_of_job_is_refused() {
        let of = |key: &str| Properties([(key.to_owned(), "wait".to_owned())].into());
        let check = |key: &str, kind| of(key).check_kind(kind, &Properties::default()).map_err(|error| error.detail).err();
        for (key, kind) in [("NoWorker", JobKind::Block), ("NoNode", JobKind::Application), ("Locale", JobKind::Task)] {
            assert_eq!(check(key, kind), None, "{key}");
        }
        assert!(check("no_worker", JobKind::Task).is_some_and(|detail| detail.ends_with("`task.noWorker` instead")));
        assert!(check("NoWorker", JobKind::Application).is_some_and(|detail| detail.ends_with("set `NoNode`")));
        assert!(check("NoNode", JobKind::Block).is_some_and(|detail| detail.contains("`NoWorker`")));
        assert_eq!(check("WorkerTags", JobKind::Block), None);
        assert!(check("WORKER_TAGS", JobKind::Task).is_some_and(|detail| detail.ends_with("`task.tags` instead")));
        assert!(check("WorkerGroup", JobKind::Application).is_some_and(|detail| detail.ends_with("set `NodeGroup`")));
        assert!(check("NoNode", JobKind::Callback).is_some() && check("NoNode", JobKind::Task).is_some());
        assert_eq!(of("NoNode").check_kind(JobKind::Block, &of("NoNode")), Ok(()), "what is stored stays");
    }

    #[test]
    fn known_keys_in_any_spelling_and_keys_of_a_workers_own_are_taken() {
        for key in KNOWN.into_iter().chain([
            "thread_num",
            "NODE_COUNT",
            "robots",
            "Locale",
            "Currency",
            "ShopId",
            "Sites",
            "Trace",
            "File",
            "Deploy",
            "x",
            "Customers",
        ]) {
            assert_eq!(check(key, "1"), None, "{key}");
        }
    }

    #[test]
    fn members_of_a_site_are_known() {
        assert_eq!(check("Site", r#"{"userAgent":"x","headers":{},"hosts":[],"proxy":"p:1","encoding":"utf-8"}"#), None);
        assert_eq!(check("Site", "a text"), None);
        let member = |text: &str| check("SITE", text).expect("unknown");
        assert_eq!(member(r#"{"user_agent":"x"}"#), "unknown member `user_agent` of a site. Did you mean `userAgent`?");
        assert_eq!(member(r#"{"header":{}}"#), "unknown member `header` of a site. Did you mean `headers`?");
        assert!(member(r#"{"zz":1}"#).contains("Known are: userAgent"), "{}", member(r#"{"zz":1}"#));
    }

    #[test]
    fn each_key_that_is_read_is_known() {
        for source in [include_str!("job.rs"), include_str!("application/settings.rs"), include_str!("worker_properties.rs")] {
            let source = source.split("#[cfg(test)]").next().expect("code");
            for call in ["entry(\"", "get(\"", "parsed(\"", " text(\"", "any(\""] {
                for read in source.split(call).skip(1).filter_map(|rest| rest.split('"').next()) {
                    assert!(KNOWN.into_iter().any(|known| known == read), "{read}");
                }
            }
        }
    }
}
