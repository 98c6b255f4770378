//! Redirects (RFC 9110, section 15.4): which request follows from a redirect response.

use super::fingerprint::{canonical, normalized};
use super::origin::Origin;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use url::Url;

/// Who requests the target of a redirect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Redirects {
    /// The node that got the redirect, as part of the same request.
    Follow,
    /// The run: the target is a new request, compared with the seen set like any other.
    #[default]
    Request,
}

impl Redirects {
    /// The value of a run that was stored before the setting existed.
    #[must_use]
    pub fn of_old_run() -> Self {
        Self::Follow
    }
}

impl FromStr for Redirects {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "follow" => Ok(Self::Follow),
            "request" => Ok(Self::Request),
            _ => Err(format!("`{text}` is neither follow nor request")),
        }
    }
}

/// Whether a status is a redirect that a client may follow by itself.
#[must_use]
pub fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Whether the next request is a GET without a body: a POST becomes one, unless the status forbids it.
#[must_use]
pub fn becomes_get(status: u16, method: &str) -> bool {
    match status {
        301 | 302 => method.eq_ignore_ascii_case("POST"),
        303 => !method.eq_ignore_ascii_case("HEAD"),
        _ => false,
    }
}

/// Whether a header describes a body. Names are in lower case.
#[must_use]
pub fn is_of_body(name: &str) -> bool {
    matches!(name, "content-type" | "content-encoding" | "content-language")
}

/// Whether a header only describes the wanted content and holds no secret: such headers are sent to every host. Names are in lower case.
#[must_use]
pub fn is_harmless(name: &str) -> bool {
    let of_request = "user-agent cache-control pragma range dnt upgrade-insecure-requests if-match if-none-match if-modified-since \
                      if-unmodified-since if-range";
    name == "accept" || name.starts_with("accept-") || is_of_body(name) || of_request.split_whitespace().any(|known| known == name)
}

/// The target of a redirect from this URL, without a fragment.
///
/// # Errors
/// It is not a URL, or not one of http or https.
pub fn target(from: &Url, location: &str) -> Result<Url, String> {
    let shown = || location.chars().take(200).collect::<String>();
    let mut url = from.join(location).map_err(|error| format!("the redirect to `{}` is invalid: {error}", shown()))?;
    url.set_fragment(None);
    match Origin::of(&url) {
        Some(_) => Ok(url),
        None => Err(format!("the redirect to `{}` is invalid: http or https is expected", shown())),
    }
}

/// The request that follows from a redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Its URL.
    pub target: Url,
    /// It is a GET without a body, whatever the redirected request was.
    pub becomes_get: bool,
    /// The target is of the same origin, so that all headers of the redirected request may be sent there.
    pub keeps_headers: bool,
    /// The key of the request, if its URL already answered with a redirect in this chain: the site has set a cookie in between. Such a
    /// URL has not been fetched, so it must not count as seen.
    pub key: Option<String>,
}

/// Decides what follows from a redirect response to `asked`. `from` are the URLs that redirected to it, in order; `most` limits their
/// number.
///
/// # Errors
/// The target is invalid, or the chain is too long.
pub fn hop(asked: &Url, method: &str, status: u16, location: &str, from: &[String], most: u32) -> Result<Hop, String> {
    if from.len() >= most as usize {
        return Err(format!("too many redirects: more than {most}"));
    }
    let target = target(asked, location)?;
    let target_text = comparable(&target);
    let is_again = comparable(asked) == target_text || is_in(&target, from);
    let becomes_get = becomes_get(status, method);
    // After a change of the method it is another request than the first one.
    let is_again = is_again && (!becomes_get || method.eq_ignore_ascii_case("GET"));
    let keeps_headers = match (Origin::of(asked), Origin::of(&target)) {
        (Some(asked), Some(target)) => asked.covers(&target),
        _ => false,
    };
    let key = is_again.then(|| format!("redirect {} {target_text}", from.len() + 1));
    Ok(Hop { target, becomes_get, keeps_headers, key })
}

/// Whether a URL is in a chain of redirects.
#[must_use]
pub fn is_in(url: &Url, from: &[String]) -> bool {
    let text = comparable(url);
    from.iter().filter_map(|earlier| Url::parse(earlier).ok()).any(|earlier| comparable(&earlier) == text)
}

/// A URL as it is compared, without a password.
fn comparable(url: &Url) -> String {
    let mut url = canonical(url.clone());
    let _ = (url.set_username(""), url.set_password(None));
    normalized(url.as_str()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(asked: &str, method: &str, status: u16, location: &str, from: &[&str]) -> Result<Hop, String> {
        let from: Vec<String> = from.iter().map(|url| (*url).to_owned()).collect();
        hop(&Url::parse(asked).expect("a url"), method, status, location, &from, 3)
    }

    #[test]
    fn a_post_becomes_a_get_unless_the_status_forbids_it() {
        for (status, method, is_get) in [
            (301, "POST", true),
            (302, "post", true),
            (303, "POST", true),
            (303, "PUT", true),
            (303, "HEAD", false),
            (301, "PUT", false),
            (307, "POST", false),
            (308, "POST", false),
        ] {
            assert_eq!(of("http://a/", method, status, "/x", &[]).map(|hop| hop.becomes_get), Ok(is_get), "{status} {method}");
        }
    }

    #[test]
    fn the_target_is_relative_to_the_request_and_has_no_fragment() {
        let target = |location: &str| of("http://a/d/x?q", "GET", 301, location, &[]).map(|hop| hop.target.to_string());
        assert_eq!(target("y#z"), Ok("http://a/d/y".to_owned()));
        assert_eq!(target("//b/"), Ok("http://b/".to_owned()));
        assert!(target("mailto:a@b").is_err_and(|why| why.contains("http or https is expected")));
        assert!(target("http://[").is_err_and(|why| why.contains("is invalid")));
    }

    #[test]
    fn headers_stay_at_their_origin() {
        let keeps = |location: &str| of("http://a/", "GET", 301, location, &[]).expect("a hop").keeps_headers;
        assert!(keeps("/x") && keeps("https://a/"));
        assert!(!keeps("http://b/") && !keeps("http://a:81/"));
        assert!(!of("https://a/", "GET", 301, "http://a/", &[]).expect("a hop").keeps_headers, "not in clear");
    }

    #[test]
    fn what_redirected_before_is_requested_again_and_the_chain_is_bounded() {
        let key = |location: &str, from: &[&str]| of("http://a/set", "GET", 302, location, from).map(|hop| hop.key);
        assert_eq!(key("/", &[]), Ok(None), "an ordinary page may have been seen");
        assert_eq!(key("/", &["http://a"]), Ok(Some("redirect 2 http://a/".to_owned())), "a cookie was set in between");
        assert_eq!(key("/set#x", &[]), Ok(Some("redirect 1 http://a/set".to_owned())));
        assert_eq!(key("/", &["http://a/1", "http://a/2", "http://a/3"]), Err("too many redirects: more than 3".to_owned()));
        let posted = of("http://a/form", "POST", 303, "/form", &[]).expect("a hop");
        assert_eq!(posted.key, None, "the page of the form may have been fetched");
    }
}
