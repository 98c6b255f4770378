//! `sign`: proves in a node's URL that it has the token, without showing the token; and the signature by which a receiver verifies that a
//! request comes from a broker with the secret.

use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Maximum difference in milliseconds between the time of a `sign` and the broker's clock.
pub const SIGN_TOLERANCE_MS: i64 = 15 * 60_000;

/// HMAC-SHA256 of the node's id (its 32 digits) under the token, as 64 hexadecimal digits. It never expires.
#[must_use]
pub fn sign(token: &str, node: NodeId) -> String {
    hmac_hex(token, &[node.to_string().as_bytes()])
}

/// HMAC-SHA256 of `<node's id>.<ms>` under the token, as 64 hexadecimal digits. The time is sent along in `signtime`.
#[must_use]
pub fn sign_at(token: &str, node: NodeId, at: Timestamp) -> String {
    hmac_hex(token, &[format!("{node}.{}", at.0).as_bytes()])
}

/// The stored key of an id's owner token: it reveals nothing of the token, and differs from id to id.
#[must_use]
pub fn owner(token: &str, id: &str) -> String {
    hmac_hex(token, &[b"owner of ", id.as_bytes()])
}

/// The value of the header `Webloom-Signature` of a request: `t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`. The time is part of the
/// signature, so that a receiver can reject old requests.
#[must_use]
pub fn signature(secret: &str, now: Timestamp, body: &[u8]) -> String {
    let t = now.0;
    format!("t={t},v1={}", hmac_hex(secret, &[format!("{t}.").as_bytes(), body]))
}

/// HMAC-SHA256 of a body under the secret of a hook, as 64 hexadecimal digits: `X-Hub-Signature-256` of GitHub without `sha256=`.
#[must_use]
pub fn signature_of_body(secret: &str, body: &[u8]) -> String {
    hmac_hex(secret, &[body])
}

fn hmac_hex(key: &str, parts: &[&[u8]]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_hmac_that_others_compute() {
        // printf 6f9619ff8b86d011b42d00c04fc964ff | openssl dgst -sha256 -hmac 1234
        let node = "6F9619FF-8B86-D011-B42D-00C04FC964FF".parse().expect("an id");
        assert_eq!(sign("1234", node), "5df3fc021b966462debfe3e037f6d2451670284822f10dcbd2777362effa5303");
    }

    #[test]
    fn a_sign_with_a_time_is_the_hmac_that_others_compute() {
        // printf 6f9619ff8b86d011b42d00c04fc964ff.1700000000123 | openssl dgst -sha256 -hmac 1234
        let node = "6F9619FF-8B86-D011-B42D-00C04FC964FF".parse().expect("an id");
        assert_eq!(sign_at("1234", node, Timestamp(1_700_000_000_123)), "22389ae8ae4f142244c374fb352c98cc4843334f4ffe6b830b379c6ec9321cb0");
        assert_ne!(owner("1234", "a"), owner("1234", "b"));
    }

    #[test]
    fn a_signature_covers_time_and_body() {
        // printf '1700000000123.{"a":1}' | openssl dgst -sha256 -hmac whsec
        let expected = "t=1700000000123,v1=a331bb5ff10a3567ec51a9fbd3ecdb29fa51bc69fe9ec7fd86551d3eef592ce4";
        assert_eq!(signature("whsec", Timestamp(1_700_000_000_123), br#"{"a":1}"#), expected);
    }
}
