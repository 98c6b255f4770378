//! The JSON of the request that follows from a redirect.

use crate::domain::redirect::{hop, is_harmless, is_of_body};
use serde_json::{Map, Value};
use url::Url;

/// The member with the URLs that redirected to a request, in order.
pub const REDIRECTED_FROM: &str = "redirectedFrom";

/// The request that follows from a redirect response to `request`, with the same depth, priority, custom value and unknown members.
/// `most` limits the redirects of a chain.
///
/// # Errors
/// The target is invalid, or the chain is too long.
pub fn redirected(request: &str, status: u16, location: &str, most: u32) -> Result<Map<String, Value>, String> {
    let unreadable = |why: &dyn std::fmt::Display| format!("the redirected request cannot be read: {why}");
    let mut members: Map<String, Value> = serde_json::from_str(request).map_err(|error| unreadable(&error))?;
    let asked = members.get("url").and_then(Value::as_str).unwrap_or_default().to_owned();
    let asked = Url::parse(&asked).map_err(|error| unreadable(&error))?;
    let method = members.get("method").and_then(Value::as_str).unwrap_or("GET").to_owned();
    let mut from: Vec<String> = members.get(REDIRECTED_FROM).and_then(|from| serde_json::from_value(from.clone()).ok()).unwrap_or_default();
    let hop = hop(&asked, &method, status, location, &from, most)?;
    from.push(without_password(asked));
    for own in ["requestId", "tries", "key"] {
        members.remove(own);
    }
    if hop.becomes_get {
        for of_method in ["method", "body", "idempotent"] {
            members.remove(of_method);
        }
    }
    if let Some(Value::Object(headers)) = members.get_mut("headers") {
        headers.retain(|name, _| {
            let name = name.to_ascii_lowercase();
            (hop.keeps_headers || is_harmless(&name)) && !(hop.becomes_get && is_of_body(&name))
        });
    }
    members.insert("url".to_owned(), String::from(hop.target).into());
    members.insert(REDIRECTED_FROM.to_owned(), from.into());
    // The target of a deliberate repetition is one, too: its id is unique without a key.
    let key = hop.key.filter(|_| members.get("dontFilter") != Some(&Value::Bool(true)));
    members.extend(key.map(|key| ("key".to_owned(), key.into())));
    Ok(members)
}

/// A password is only for the site.
fn without_password(mut url: Url) -> String {
    let _ = (url.set_username(""), url.set_password(None));
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn after(request: &Value, status: u16, location: &str) -> Result<Value, String> {
        redirected(&request.to_string(), status, location, 2).map(Value::Object)
    }

    #[test]
    fn the_request_keeps_what_the_worker_gave_it() {
        let first = json!({ "requestId": "00", "tries": 2, "url": "http://u:p@a/x", "depth": 3, "priority": 7, "meta": { "m": 1 }, "own": true,
            "key": "k", "headers": { "X-Api-Key": "secret", "Accept": "text/html" } });
        let second = after(&first, 301, "/y").expect("a request");
        assert_eq!(
            second,
            json!({ "url": "http://u:p@a/y", "depth": 3, "priority": 7, "meta": { "m": 1 }, "own": true, "redirectedFrom": ["http://a/x"],
                "headers": { "X-Api-Key": "secret", "Accept": "text/html" } })
        );
        let third = after(&second, 302, "http://b/").expect("a request");
        assert_eq!(
            (&third["headers"], &third["redirectedFrom"]),
            (&json!({ "Accept": "text/html" }), &json!(["http://a/x", "http://a/y"]))
        );
        assert_eq!(after(&third, 302, "/z"), Err("too many redirects: more than 2".to_owned()));
    }

    #[test]
    fn a_post_keeps_its_body_only_where_the_status_says_so() {
        let post = json!({ "url": "http://a/", "method": "POST", "body": "x=1", "idempotent": true, "headers": { "Content-Type": "text/plain", "X": "y" } });
        let get = after(&post, 303, "/done").expect("a request");
        assert_eq!(get, json!({ "url": "http://a/done", "headers": { "X": "y" }, "redirectedFrom": ["http://a/"] }));
        let again = after(&post, 307, "/done").expect("a request");
        assert_eq!((&again["method"], &again["body"], &again["idempotent"]), (&json!("POST"), &json!("x=1"), &json!(true)));
    }

    #[test]
    fn a_page_behind_a_cookie_is_reached() {
        let first = after(&json!({ "url": "http://a/" }), 302, "/set").expect("a request");
        let second = after(&first, 302, "/").expect("a request");
        assert_eq!(second["key"], "redirect 2 http://a/", "so it is not taken for the first request");
        let first = after(&json!({ "url": "http://a/", "dontFilter": true, "key": "random" }), 302, "/set").expect("a request");
        let second = after(&first, 302, "/").expect("a request");
        assert_eq!((second.get("key"), &second["dontFilter"]), (None, &json!(true)), "another repetition has another target");
    }
}
