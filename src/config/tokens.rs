//! Tokens and what they allow.

use crate::domain::ids::NodeId;
use crate::protocol::sign::sign;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Looking, not touching.
    ReadOnly,
    /// Being a node.
    Agent,
    /// Being a worker.
    Worker,
}

impl Role {
    fn named(name: &str) -> Option<Self> {
        match name {
            "admin" => Some(Self::Admin),
            "readonly" | "read-only" => Some(Self::ReadOnly),
            "agent" => Some(Self::Agent),
            "worker" => Some(Self::Worker),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ReadOnly => "readonly",
            Self::Agent => "agent",
            Self::Worker => "worker",
        }
    }
}

/// The tokens of a broker. None at all: everybody may do everything.
#[derive(Clone, Default)]
pub struct Tokens(Vec<(Role, String)>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Their number and roles, never their text: settings are logged.
        f.debug_list().entries(self.0.iter().map(|(role, _)| role.name())).finish()
    }
}

impl Tokens {
    /// Reads `role:token` texts; a text without a role is an admin's.
    ///
    /// # Errors
    /// A token is empty or too short to be one, or holds a character that no header can carry.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, String> {
        let mut out = Vec::new();
        for text in texts {
            let text = text.as_ref().trim();
            let (role, token) = match text.split_once(':').map(|(name, token)| (Role::named(name), token)) {
                Some((Some(role), token)) => (role, token),
                _ => (Role::Admin, text),
            };
            // The seeds' own example is four characters long.
            if token.len() < 4 || !token.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(format!("a token of role {} is not usable: at least 4 visible ASCII characters are expected", role.name()));
            }
            out.push((role, token.to_owned()));
        }
        Ok(Self(out))
    }

    /// There is none: no caller is asked for one.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// The role of a token. Takes the same time whatever the token.
    #[must_use]
    pub fn role_of(&self, token: &str) -> Option<Role> {
        let given = Sha256::digest(token.as_bytes());
        let mut found = None;
        for (role, known) in &self.0 {
            if bool::from(given.as_slice().ct_eq(Sha256::digest(known.as_bytes()).as_slice())) {
                found = Some(*role);
            }
        }
        found
    }

    /// Whether a node's `sign` was made with a token that lets it be a node.
    #[must_use]
    pub fn accepts_sign(&self, node: NodeId, given: &str) -> bool {
        let given = given.to_ascii_lowercase();
        let mut accepted = false;
        for (_, known) in self.0.iter().filter(|(role, _)| matches!(role, Role::Agent | Role::Admin)) {
            accepted |= bool::from(sign(known, node).as_bytes().ct_eq(given.as_bytes()));
        }
        accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_and_secrets_are_not_shown() {
        let tokens = Tokens::parse(&["agent:1234", "readonly:look", "s3cret:with:colons"]).expect("tokens");
        assert_eq!(tokens.role_of("1234"), Some(Role::Agent));
        assert_eq!(tokens.role_of("look"), Some(Role::ReadOnly));
        assert_eq!(tokens.role_of("s3cret:with:colons"), Some(Role::Admin));
        assert_eq!(tokens.role_of("agent:1234"), None);
        assert_eq!(tokens.role_of(""), None);
        assert!(!format!("{tokens:?}").contains("1234"));
        assert!(Tokens::parse(&["admin:"]).is_err() && Tokens::parse(&["a b c d"]).is_err());
    }

    #[test]
    fn a_sign_is_bound_to_its_node_and_its_role() {
        let tokens = Tokens::parse(&["agent:1234", "readonly:5678"]).expect("tokens");
        let (node, other) = (NodeId::random(), NodeId::random());
        assert!(tokens.accepts_sign(node, &sign("1234", node)));
        assert!(tokens.accepts_sign(node, &sign("1234", node).to_uppercase()));
        assert!(!tokens.accepts_sign(other, &sign("1234", node)));
        assert!(!tokens.accepts_sign(node, &sign("5678", node)));
    }
}
