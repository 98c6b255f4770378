//! When a node or a worker is lost: after a long silence, or some time after its connection closed.

use crate::domain::time::Timestamp;

/// Milliseconds until a node or a worker is lost, or the reason for which it is lost now. `silent_since` and `closed_since` do not include
/// the time in which the broker was in doubt.
pub fn ms_left(
    now: Timestamp,
    silent_since: Timestamp,
    closed_since: Option<Timestamp>,
    offline_ms: u64,
    grace_ms: u64,
) -> Result<u64, &'static str> {
    let ms_left = |since, limit_ms: u64| u64::try_from(since + limit_ms as i64 - now.0);
    let until_silent = ms_left(silent_since.0, offline_ms).map_err(|_| "no heartbeat for too long")?;
    let until_closed = closed_since.map(|since| ms_left(since.0, grace_ms)).transpose().map_err(|_| "connection closed")?;
    Ok(until_closed.map_or(until_silent, |until_closed| until_closed.min(until_silent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_lost_after_its_silence_or_some_time_after_its_connection_closed() {
        let t = Timestamp;
        let left = |now, silent_since, closed_since: Option<i64>| ms_left(t(now), t(silent_since), closed_since.map(t), 30_000, 3_000);
        let (silent, closed) = (Err("no heartbeat for too long"), Err("connection closed"));
        assert_eq!([5_000, 30_000, 30_001].map(|now| left(now, 0, None)), [Ok(25_000), Ok(0), silent]);
        assert_eq!([10_000, 13_000, 13_001].map(|now| left(now, 0, Some(10_000))), [Ok(3_000), Ok(0), closed]);
        assert_eq!([29_000, 30_001, 40_000].map(|now| left(now, 0, Some(29_000))), [Ok(1_000), silent, silent], "the silence ends first");
        assert_eq!(left(13_001, 12_000, None), Ok(28_999), "it has connected again");
    }
}
