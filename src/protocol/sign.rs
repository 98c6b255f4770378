//! `sign`: how a node shows in its address that it has the token, without showing the token.

use crate::domain::ids::NodeId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// HMAC-SHA256 of the node's id (its 32 digits) under the token, as 64 hexadecimal digits.
#[must_use]
pub fn sign(token: &str, node: NodeId) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(node.to_string().as_bytes());
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
}
