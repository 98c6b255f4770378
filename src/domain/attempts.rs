//! Guessed tokens: how many wrong tokens each address may send, and which of them are logged.
//!
//! Each address may send [`BURST`] wrong tokens, and one more each second. Beyond that the broker rejects every token that was
//! not valid from this address before, without checking it, even if it is right. This stops guessing, because the response
//! reveals nothing. Callers whose token was valid before are not affected.

use super::time::Timestamp;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Wrong tokens that an address may send at once.
pub const BURST: u32 = 20;
/// Milliseconds until the address may send one more wrong token.
const REFILL_MS: i64 = 1_000;
/// Addresses that are tracked separately. All further ones share one allowance.
const MOST_ADDRESSES: usize = 4_096;
/// Valid tokens that are remembered per address.
const MOST_KNOWN: usize = 16;
/// Milliseconds between two log lines about one address, and between any two.
const LOG_ADDRESS_MS: i64 = 10_000;
const LOG_MS: i64 = 1_000;

/// The verdict on a token that an address sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It is valid.
    Passes,
    /// It is wrong. Log the number of rejections for this address since its last log line, if there is a number.
    Wrong(Option<u64>),
    /// The address sent too many wrong tokens. Log as above.
    TooMany(Option<u64>),
}

/// All addresses; `T` identifies a token.
#[derive(Debug)]
pub struct Attempts<T> {
    by_address: HashMap<IpAddr, Address<T>>,
    logged_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Address<T> {
    /// Wrong tokens counted against the address, as of `since`.
    wrong: u32,
    since: Timestamp,
    known: Vec<T>,
    unlogged: u64,
    logged_at: Option<Timestamp>,
}

impl<T> Address<T> {
    fn new(now: Timestamp) -> Self {
        Self { wrong: 0, since: now, known: Vec::new(), unlogged: 0, logged_at: None }
    }

    fn forgive(&mut self, now: Timestamp) {
        let forgiven = now.0.saturating_sub(self.since.0) / REFILL_MS;
        // If the clock was set back, the count does not shrink and the wait does not grow.
        self.since = if forgiven < 0 { now } else { Timestamp(self.since.0 + forgiven * REFILL_MS) };
        self.wrong = self.wrong.saturating_sub(u32::try_from(forgiven.max(0)).unwrap_or(u32::MAX));
    }
}

impl<T> Default for Attempts<T> {
    fn default() -> Self {
        Self { by_address: HashMap::new(), logged_at: None }
    }
}

impl<T: Copy + PartialEq> Attempts<T> {
    /// Whether this token was valid from this address before, so that no other check is needed.
    #[must_use]
    pub fn is_known(&self, from: IpAddr, token: T) -> bool {
        self.by_address.get(&network(from)).is_some_and(|address| address.known.contains(&token))
    }

    /// Judges a received token; `None` means that it is wrong.
    pub fn judge(&mut self, from: IpAddr, token: Option<T>, now: Timestamp) -> Judgement {
        if token.is_some_and(|token| self.is_known(from, token)) {
            return Judgement::Passes;
        }
        let key = self.place(network(from), now);
        let address = self.by_address.entry(key).or_insert_with(|| Address::new(now));
        address.forgive(now);
        let is_exhausted = address.wrong >= BURST;
        if let (Some(token), false) = (token, is_exhausted) {
            if address.known.len() >= MOST_KNOWN {
                address.known.remove(0);
            }
            address.known.push(token);
            return Judgement::Passes;
        }
        if !is_exhausted {
            if address.wrong == 0 {
                address.since = now;
            }
            address.wrong += 1;
        }
        address.unlogged += 1;
        let is_due = |at: Option<Timestamp>, pause: i64| at.is_none_or(|at| now.0 < at.0 || now.0 - at.0 >= pause);
        let line = (is_due(self.logged_at, LOG_MS) && is_due(address.logged_at, LOG_ADDRESS_MS)).then(|| {
            self.logged_at = Some(now);
            address.logged_at = Some(now);
            std::mem::take(&mut address.unlogged)
        });
        if is_exhausted { Judgement::TooMany(line) } else { Judgement::Wrong(line) }
    }

    /// The key of an address in the map: its own entry while there is capacity, else the entry that all further ones share.
    fn place(&mut self, from: IpAddr, now: Timestamp) -> IpAddr {
        if self.by_address.contains_key(&from) || self.by_address.len() < MOST_ADDRESSES {
            return from;
        }
        self.by_address.retain(|_, address| {
            address.forgive(now);
            address.wrong > 0
        });
        if self.by_address.len() < MOST_ADDRESSES { from } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) }
    }
}

/// The address that stands for a peer: one machine may own all addresses of an IPv6 /64 network.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits((v6.to_bits() >> 64) << 64)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn at(ms: i64) -> Timestamp {
        Timestamp(NOW.0 + ms)
    }

    fn from(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn guessing_stops_and_is_told_nothing() {
        let (mut attempts, guesser) = (Attempts::default(), from("192.0.2.1"));
        for _ in 0..BURST {
            assert!(matches!(attempts.judge(guesser, None, NOW), Judgement::Wrong(_)));
        }
        assert!(matches!(attempts.judge(guesser, None, NOW), Judgement::TooMany(_)));
        assert!(matches!(attempts.judge(guesser, Some(7), NOW), Judgement::TooMany(_)), "also a right one");
        assert_eq!(attempts.judge(from("192.0.2.2"), Some(7), NOW), Judgement::Passes, "another address");
        assert!(matches!(attempts.judge(guesser, None, at(999)), Judgement::TooMany(_)));
        assert!(matches!(attempts.judge(guesser, None, at(1_000)), Judgement::Wrong(_)), "one each second");
        assert!(matches!(attempts.judge(guesser, Some(7), at(1_001)), Judgement::TooMany(_)));
        assert_eq!(attempts.judge(guesser, Some(7), at(2_000)), Judgement::Passes);
        // A minute of guesses as fast as they come, and the tokens that were read in it.
        let read = (2_001..62_000).filter(|ms| matches!(attempts.judge(guesser, None, at(*ms)), Judgement::Wrong(_))).count();
        assert!((59..=61).contains(&read), "{read}");
    }

    #[test]
    fn whoever_was_right_before_goes_on() {
        let (mut attempts, shared) = (Attempts::default(), from("127.0.0.1"));
        assert_eq!(attempts.judge(shared, Some(7), NOW), Judgement::Passes);
        for _ in 0..100 {
            let _ = attempts.judge(shared, None, NOW);
        }
        assert_eq!(attempts.judge(shared, Some(7), NOW), Judgement::Passes);
        assert!(attempts.is_known(shared, 7) && !attempts.is_known(shared, 8));
    }

    #[test]
    fn log_lines_are_few_and_count_all() {
        let (mut attempts, one, other) = (Attempts::<u8>::default(), from("192.0.2.1"), from("192.0.2.2"));
        assert_eq!(attempts.judge(one, None, NOW), Judgement::Wrong(Some(1)));
        assert_eq!(attempts.judge(other, None, at(1)), Judgement::Wrong(None), "at most one each second");
        for ms in 2..9_999 {
            assert!(matches!(attempts.judge(one, None, at(ms)), Judgement::Wrong(None) | Judgement::TooMany(None)));
        }
        assert_eq!(attempts.judge(other, None, at(10_000)), Judgement::Wrong(Some(2)));
        assert_eq!(attempts.judge(one, None, at(11_000)), Judgement::Wrong(Some(9_998)));
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let mut attempts = Attempts::<u8>::default();
        for i in 0..20_000_u32 {
            let _ = attempts.judge(IpAddr::V4((0x0a00_0000 + i).into()), None, NOW);
        }
        assert!(attempts.by_address.len() <= MOST_ADDRESSES + 1);
        assert!(matches!(attempts.judge(from("192.0.2.1"), None, NOW), Judgement::TooMany(_)), "what is shared is used up");
        assert!(matches!(attempts.judge(from("192.0.2.1"), None, at(60_000)), Judgement::Wrong(_)), "and given back");
        assert_eq!(network(from("2001:db8:1:2:3::4")), network(from("2001:db8:1:2:ffff::1")));
        assert_eq!(network(from("::ffff:192.0.2.1")), from("192.0.2.1"));
    }
}
