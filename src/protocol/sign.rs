//! `sign`: how a node shows in its address that it has the token, without showing the token; and how a receiver of a
//! request sees that it comes from a broker which knows the secret.

use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// HMAC-SHA256 of the node's id (its 32 digits) under the token, as 64 hexadecimal digits.
#[must_use]
pub fn sign(token: &str, node: NodeId) -> String {
    hmac_hex(token, &[node.to_string().as_bytes()])
}

/// The value of the header `Webloom-Signature` of a request: `t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`. The time is
/// signed along, so that a receiver can refuse what is old.
#[must_use]
pub fn signature(secret: &str, now: Timestamp, body: &[u8]) -> String {
    let t = now.0;
    format!("t={t},v1={}", hmac_hex(secret, &[format!("{t}.").as_bytes(), body]))
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
    fn a_signature_covers_time_and_body() {
        // printf '1700000000123.{"a":1}' | openssl dgst -sha256 -hmac whsec
        let expected = "t=1700000000123,v1=a331bb5ff10a3567ec51a9fbd3ecdb29fa51bc69fe9ec7fd86551d3eef592ce4";
        assert_eq!(signature("whsec", Timestamp(1_700_000_000_123), br#"{"a":1}"#), expected);
    }
}
