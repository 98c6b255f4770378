//! Which spellings of a URL a run treats as the same page, beyond what every run does ([`super::fingerprint`]).
//!
//! It works on the text of a canonical URL ([`super::fingerprint::canonical`]) and does not parse it again.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::str::FromStr;

/// How to treat a slash at the end of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TrailingSlash {
    /// Keep it.
    #[default]
    Keep,
    /// Remove it, except from the root path.
    Drop,
    /// Add it where it is missing, except after a name with a dot (`a.html`).
    Add,
}

impl FromStr for TrailingSlash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [("keep", Self::Keep), ("drop", Self::Drop), ("add", Self::Add)];
        let found = all.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text.trim()));
        found.map(|(_, value)| value).ok_or_else(|| format!("`{text}` is neither keep nor drop nor add"))
    }
}

/// How a run compares URLs. By default it compares them unchanged. The run downloads a page under the first URL pushed for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Canonicalisation {
    /// Sort query parameters by name; parameters with the same name keep their order.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sort_query: bool,
    /// Names of parameters to ignore: `PHPSESSID`, `utm_*`. Compared without case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drop_parameters: Vec<String>,
    /// How to treat a slash at the end of the path.
    #[serde(skip_serializing_if = "TrailingSlash::is_keep")]
    pub trailing_slash: TrailingSlash,
}

/// Maximum number of parameter names in a job's list.
pub const MOST_DROPPED: usize = 64;
/// Maximum length of such a name in characters.
const MOST_NAME: usize = 100;

impl TrailingSlash {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }
}

impl Canonicalisation {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        !self.sort_query && self.drop_parameters.is_empty() && self.trailing_slash == TrailingSlash::Keep
    }

    /// Checks what a client sent.
    ///
    /// # Errors
    /// Too many parameters, or an invalid name.
    pub fn check(&self) -> Result<(), String> {
        if self.drop_parameters.len() > MOST_DROPPED {
            return Err(format!("must be at most {MOST_DROPPED} parameters"));
        }
        let is_name = |name: &String| {
            let stem = name.strip_suffix('*').unwrap_or(name);
            !stem.is_empty()
                && name.chars().count() <= MOST_NAME
                && !stem.contains(['*', '&', '=', '#'])
                && !stem.contains(char::is_whitespace)
        };
        match self.drop_parameters.iter().find(|name| !is_name(name)) {
            Some(name) => Err(format!(
                "`{}` is not a parameter name: expected a name, with an optional * at its end",
                name.chars().take(MOST_NAME).collect::<String>()
            )),
            None => Ok(()),
        }
    }

    /// The URL in the form that the job's settings define. Borrowed if nothing changes. Idempotent.
    #[must_use]
    pub fn apply<'u>(&self, url: &'u str) -> Cow<'u, str> {
        if self.is_none() {
            return Cow::Borrowed(url);
        }
        let (before, query) = url.split_once('?').map_or((url, None), |(before, query)| (before, Some(query)));
        let path = self.path(before);
        let query = query.map(|query| self.query(query));
        let is_same =
            matches!(path, Cow::Borrowed(same) if same.len() == before.len()) && matches!(query, None | Some(Some(Cow::Borrowed(_))));
        if is_same {
            return Cow::Borrowed(url);
        }
        match query.flatten() {
            Some(query) => Cow::Owned(format!("{path}?{query}")),
            None => Cow::Owned(path.into_owned()),
        }
    }

    fn path<'u>(&self, before: &'u str) -> Cow<'u, str> {
        let root = before.find("://").and_then(|at| before[at + 3..].find('/').map(|slash| at + 3 + slash)).unwrap_or(before.len());
        let path = &before[root..];
        match self.trailing_slash {
            TrailingSlash::Drop if path.len() > 1 && path.ends_with('/') => {
                // Remove all trailing slashes; removing one at a time would not be idempotent.
                let kept = path.trim_end_matches('/').len().max(1);
                Cow::Borrowed(&before[..root + kept])
            }
            TrailingSlash::Add if !path.ends_with('/') && !path.rsplit('/').next().unwrap_or_default().contains('.') => {
                Cow::Owned(format!("{before}/"))
            }
            _ => Cow::Borrowed(before),
        }
    }

    /// `None` if no parameter is left.
    fn query<'u>(&self, query: &'u str) -> Option<Cow<'u, str>> {
        let mut kept: Vec<&str> = query.split('&').filter(|parameter| !self.drops(name(parameter))).collect();
        let all = query.split('&').count();
        if kept.is_empty() || kept.len() < all && kept.iter().all(|parameter| parameter.is_empty()) {
            return None;
        }
        let was_sorted = !self.sort_query || kept.is_sorted_by_key(|parameter| name(parameter));
        if self.sort_query {
            kept.sort_by_key(|parameter| name(parameter));
        }
        if kept.len() == all && was_sorted { Some(Cow::Borrowed(query)) } else { Some(Cow::Owned(kept.join("&"))) }
    }

    fn drops(&self, name: &str) -> bool {
        self.drop_parameters.iter().any(|dropped| match dropped.strip_suffix('*') {
            Some(stem) => name.get(..stem.len()).is_some_and(|start| start.eq_ignore_ascii_case(stem)),
            None => name.eq_ignore_ascii_case(dropped),
        })
    }
}

fn name(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use url::Url;

    fn rules(sort_query: bool, drop: &[&str], trailing_slash: TrailingSlash) -> Canonicalisation {
        Canonicalisation { sort_query, drop_parameters: drop.iter().map(|name| (*name).to_owned()).collect(), trailing_slash }
    }

    #[test]
    fn urls_are_made_canonical_as_the_job_chooses() {
        let keep = TrailingSlash::Keep;
        let cases = [
            (Canonicalisation::default(), "http://a/x/?b=2&a=1", "http://a/x/?b=2&a=1"),
            (rules(true, &[], keep), "http://a/?b=2&a=1&b=1", "http://a/?a=1&b=2&b=1"),
            (rules(true, &[], keep), "http://a/?", "http://a/?"),
            (rules(true, &[], keep), "http://a/x", "http://a/x"),
            (rules(false, &["sid", "utm_*"], keep), "http://a/?SID=1&x=sid&UTM_source=y&utm_=z&sid&sidx=1", "http://a/?x=sid&sidx=1"),
            (rules(false, &["sid"], keep), "http://a/x?sid=1", "http://a/x"),
            (rules(false, &["sid"], keep), "http://a/x?sid=1&", "http://a/x"),
            (rules(false, &["sid"], keep), "http://a/x?", "http://a/x?"),
            (rules(false, &["é*"], keep), "http://a/x?%C3%A9=1", "http://a/x?%C3%A9=1"),
            (rules(false, &[], TrailingSlash::Drop), "http://a/x/?q=/", "http://a/x?q=/"),
            (rules(false, &[], TrailingSlash::Drop), "http://a/", "http://a/"),
            (rules(false, &[], TrailingSlash::Drop), "http://a/x//", "http://a/x"),
            (rules(false, &[], TrailingSlash::Add), "http://a/x?q", "http://a/x/?q"),
            (rules(false, &[], TrailingSlash::Add), "http://a/x.html", "http://a/x.html"),
            (rules(false, &[], TrailingSlash::Add), "http://a.b/x.y/z", "http://a.b/x.y/z/"),
            (rules(true, &["b"], TrailingSlash::Drop), "http://a/x/?c&b&a", "http://a/x?a&c"),
        ];
        for (rules, url, expected) in cases {
            assert_eq!(rules.apply(url), expected, "{rules:?}");
            assert_eq!(matches!(rules.apply(url), Cow::Borrowed(same) if same == url), url == expected, "{url}");
        }
    }

    #[test]
    fn rules_are_read_and_checked() {
        let read = |text: &str| {
            serde_json::from_str::<Canonicalisation>(text).map_err(|e| e.to_string()).and_then(|rules| rules.check().map(|()| rules))
        };
        assert_eq!(read("{}"), Ok(Canonicalisation::default()));
        let text = r#"{"sortQuery":true,"dropParameters":["utm_*"],"trailingSlash":"drop"}"#;
        let rules = rules(true, &["utm_*"], TrailingSlash::Drop);
        assert_eq!(read(text).as_ref(), Ok(&rules));
        assert_eq!(serde_json::to_string(&rules).expect("plain data"), text);
        for bad in
            [r#"{"dropParameters":["*"]}"#, r#"{"dropParameters":["a&b"]}"#, r#"{"dropParameters":[""]}"#, r#"{"trailingSlash":"no"}"#]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        let many = Canonicalisation { drop_parameters: vec!["a".into(); MOST_DROPPED + 1], ..Canonicalisation::default() };
        assert!(many.check().is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..Default::default() })]

        #[test]
        fn doing_it_twice_changes_nothing_more(
            url in "http://[a-z.]{1,4}/[a-c./]{0,6}(\\?[a-c=&]{0,8})?", sort in any::<bool>(), drop in proptest::collection::vec("[a-c]\\*?", 0..3), slash in 0..3_u8
        ) {
            let trailing_slash = [TrailingSlash::Keep, TrailingSlash::Drop, TrailingSlash::Add][usize::from(slash)];
            let rules = Canonicalisation { sort_query: sort, drop_parameters: drop, trailing_slash };
            if let Ok(url) = Url::parse(&url) {
                let once = rules.apply(url.as_str()).into_owned();
                prop_assert_eq!(&rules.apply(&once), &once);
                let parsed = Url::parse(&once);
                prop_assert_eq!(parsed.map(String::from), Ok(once.clone()));
            }
        }
    }
}
