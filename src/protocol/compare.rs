//! The ids of requests in a run with its own rules for comparing URLs.

use super::borrowed::Text;
use super::push::{canonical_url, print_of};
use crate::domain::canonical::Canonicalisation;
use crate::domain::request::RequestBatch;
use serde::Deserialize;
use std::borrow::Cow;

/// The members from which an id is computed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compared<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow, default)]
    method: Option<Text<'a>>,
    #[serde(borrow, default)]
    body: Option<Text<'a>>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(default)]
    dont_filter: Option<bool>,
}

/// Sets the ids of the requests of a checked batch by these rules. A request with a key, or one that is not compared, keeps its id.
pub fn compare_by(rules: &Canonicalisation, batch: &mut RequestBatch) {
    if rules.is_none() {
        return;
    }
    for request in &mut batch.requests {
        let json = &batch.text[request.span.start as usize..request.span.end as usize];
        // It was checked when it arrived.
        let Ok(compared) = serde_json::from_slice::<Compared<'_>>(json) else { continue };
        if compared.key.is_some() || compared.dont_filter == Some(true) {
            continue;
        }
        let Ok(url) = canonical_url(&compared.url) else { continue };
        let method = compared.method.as_deref().unwrap_or("GET");
        request.id = print_of(method, &rules.apply(&url), compared.body.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::push::read_push;
    use bytes::Bytes;

    #[test]
    fn a_run_compares_as_its_job_chooses() {
        let text = r#"[{"url":"http://a/x?b=1&a=2&sid=3"},{"url":"http://a/x/?a=2&b=1"},{"url":"http://a/x?a=2&b=2"},
            {"url":"http://a/x?a=2&b=1","key":"k"},{"url":"http://a/x?a=2&b=1","dontFilter":true},{"url":"http://a/x?a=2&b=1","method":"post"}]"#;
        let before = read_push(Bytes::from_static(text.as_bytes())).expect("a push");
        let ids = |rules: &Canonicalisation| {
            let mut batch = before.clone();
            compare_by(rules, &mut batch);
            batch.requests.iter().map(|request| request.id).collect::<Vec<_>>()
        };
        let usual = ids(&Canonicalisation::default());
        assert_eq!(usual, before.requests.iter().map(|request| request.id).collect::<Vec<_>>());
        let rules = Canonicalisation {
            sort_query: true,
            drop_parameters: vec!["sid".into()],
            trailing_slash: crate::domain::canonical::TrailingSlash::Drop,
        };
        let own = ids(&rules);
        assert_eq!(own[0], own[1]);
        assert_ne!(own[0], own[2]);
        assert_eq!(own[3..5], usual[3..5], "they are not compared by their URL");
        assert_ne!(own[0], own[5]);
    }
}
