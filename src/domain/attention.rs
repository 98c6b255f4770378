//! What an operator should look at: from when on, and for how long.

use super::time::Timestamp;

/// Failed and missed runs are shown for this long.
pub const FAILED_FOR_MS: i64 = 86_400_000;
/// Late runs are shown for this long.
pub const LATE_FOR_MS: i64 = 3_600_000;
/// A run that has waited for this long for a worker, a node or a slot is shown.
pub const WAITED_MS: i64 = 60_000;
/// A node that went offline is shown for this long.
const LOST_FOR_MS: i64 = 7 * 86_400_000;
/// Maximum number of warnings of one kind.
pub const MOST_OF_A_KIND: usize = 20;

/// A disk with less than one part in this many free is nearly full.
const LEAST_PART: u64 = 20;
const LEAST_BYTES: u64 = 1 << 30;

/// Whether a disk with this many free bytes is nearly full: less than a twentieth or less than 1 GiB is free.
#[must_use]
pub fn is_nearly_full(free: u64, total: u64) -> bool {
    free < LEAST_BYTES || free < total / LEAST_PART
}

/// Whether a node that is offline was lost: it should work, and was online not long ago.
#[must_use]
pub fn is_lost(should_work: bool, last_online: Timestamp, now: Timestamp) -> bool {
    should_work && now.since_ms(last_online) < LOST_FOR_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_nearly_full_by_its_part_or_by_its_bytes() {
        const GIB: u64 = 1 << 30;
        assert!(!is_nearly_full(6 * GIB, 100 * GIB) && is_nearly_full(4 * GIB, 100 * GIB));
        assert!(is_nearly_full(GIB / 2, GIB) && !is_nearly_full(GIB, 2 * GIB));
    }

    #[test]
    fn a_node_is_lost_for_a_week_unless_it_was_to_go() {
        let now = Timestamp(30 * 86_400_000);
        assert!(is_lost(true, now.plus_ms(-1_000), now));
        assert!(!is_lost(false, now.plus_ms(-1_000), now));
        assert!(!is_lost(true, now.plus_ms(-LOST_FOR_MS), now));
    }
}
