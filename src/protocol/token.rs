//! Tokens in the form that people write: `role:text`, or only the text.

/// How the texts of named tokens begin. The broker has only their hashes, so a client must send the text: it cannot prove it by `sign`.
pub const NAMED: &str = "wl_";

/// The roles that a token can have.
pub const ROLES: [&str; 6] = ["admin", "readonly", "agent", "worker", "operator", "editor"];

/// The role with this name, as in [`ROLES`]. `viewer` and `read-only` mean `readonly`.
#[must_use]
pub fn role(name: &str) -> Option<&'static str> {
    let name = if matches!(name, "read-only" | "viewer") { "readonly" } else { name };
    ROLES.into_iter().find(|role| *role == name)
}

/// Splits `role:text`. A text that does not begin with a role is not split, because a token may contain a colon.
#[must_use]
pub fn split(entry: &str) -> (Option<&'static str>, &str) {
    match entry.split_once(':').map(|(name, text)| (role(name), text)) {
        Some((Some(role), text)) => (Some(role), text),
        _ => (None, entry),
    }
}

/// The token that a client sends. A shell that runs a broker has all of its tokens in one variable, separated by commas: the one whose
/// role comes first in `preferred` is used. A token without a role takes precedence over all others.
#[must_use]
pub fn own<'a>(text: &'a str, preferred: &[&str]) -> (Option<&'static str>, &'a str) {
    let rank = |role: Option<&str>| role.map_or(0, |role| preferred.iter().position(|one| *one == role).map_or(usize::MAX, |at| at + 1));
    let entries = text.split(',').map(|entry| split(entry.trim()));
    entries.min_by_key(|(role, _)| rank(*role)).unwrap_or((None, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_the_token_of_its_role() {
        for (text, preferred, token) in [
            ("secret", &["admin"][..], "secret"),
            ("admin:secret", &["admin"], "secret"),
            ("agent:a,admin:b,worker:c", &["admin", "readonly"], "b"),
            ("agent:a,admin:b,worker:c", &["worker", "admin"], "c"),
            ("agent:a, read-only:b", &["admin", "readonly"], "b"),
            ("with:colon", &["admin"], "with:colon"),
            ("worker:only", &["agent"], "only"),
        ] {
            assert_eq!(own(text, preferred).1, token, "{text}");
        }
        assert_eq!(own("worker:only", &["agent", "admin"]).0, Some("worker"));
    }
}
