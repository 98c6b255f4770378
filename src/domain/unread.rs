//! The messages that wait for a worker without a socket until it polls: bounded in number and in bytes.

use std::collections::VecDeque;

/// Maximum number of messages that wait.
pub const MOST_MESSAGES: usize = 1_000;
/// Maximum bytes of the messages that wait, if there are several.
pub const MOST_BYTES: usize = 4 << 20;

/// See the module documentation. A message is of any type; its sender states its length in bytes.
#[derive(Debug)]
pub struct Unread<M> {
    messages: VecDeque<(M, usize)>,
    bytes: usize,
}

impl<M> Default for Unread<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), bytes: 0 }
    }
}

impl<M> Unread<M> {
    /// Adds a message. If they are too many then, or too large together, drops the oldest and returns their number. The newest stays.
    pub fn push(&mut self, message: M, bytes: usize) -> usize {
        self.bytes += bytes;
        self.messages.push_back((message, bytes));
        let before = self.messages.len();
        while self.messages.len() > 1 && (self.messages.len() > MOST_MESSAGES || self.bytes > MOST_BYTES) {
            self.pop();
        }
        before - self.messages.len()
    }

    /// Whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes out the oldest messages. After this many bytes no further one is added.
    pub fn take(&mut self, bytes: usize) -> Vec<(M, usize)> {
        let (mut taken, mut sum) = (Vec::new(), 0);
        while sum < bytes
            && let Some((message, bytes)) = self.pop()
        {
            sum += bytes;
            taken.push((message, bytes));
        }
        taken
    }

    /// Puts messages back that [`Unread::take`] took out and that were not delivered.
    pub fn put_back(&mut self, taken: Vec<(M, usize)>) {
        for (message, bytes) in taken.into_iter().rev() {
            self.bytes += bytes;
            self.messages.push_front((message, bytes));
        }
    }

    fn pop(&mut self) -> Option<(M, usize)> {
        let (message, bytes) = self.messages.pop_front()?;
        self.bytes -= bytes;
        Some((message, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken(unread: &mut Unread<u32>, bytes: usize) -> Vec<u32> {
        unread.take(bytes).into_iter().map(|(message, _)| message).collect()
    }

    #[test]
    fn the_oldest_are_dropped() {
        let mut unread = Unread::default();
        assert!(unread.is_empty() && unread.take(1).is_empty());
        for n in 0..MOST_MESSAGES as u32 {
            assert_eq!(unread.push(n, 10), 0);
        }
        assert_eq!(unread.push(7_000, 10), 1);
        assert_eq!(taken(&mut unread, 15), [1, 2], "the second one passes the limit, and no other is added");
        assert_eq!(unread.push(8_000, MOST_BYTES - 20), MOST_MESSAGES - 4, "those that fit with it stay");
        assert_eq!(unread.push(9_000, MOST_BYTES + 1), 3);
        assert_eq!(taken(&mut unread, 1), [9_000], "a single message may be larger");
    }

    #[test]
    fn what_was_not_delivered_comes_first_again() {
        let mut unread = Unread::default();
        for n in 0..4 {
            unread.push(n, 10);
        }
        let lost = unread.take(20);
        unread.put_back(lost);
        assert_eq!(taken(&mut unread, 1_000), [0, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn they_are_never_more_than_the_limits(sizes in proptest::collection::vec(0_usize..2 * MOST_BYTES, 0..60)) {
            let mut unread = Unread::default();
            for (n, bytes) in sizes.iter().enumerate() {
                let (before, dropped) = (unread.messages.len(), unread.push(n, *bytes));
                prop_assert_eq!(unread.messages.len(), before + 1 - dropped);
                prop_assert_eq!(unread.messages.back().map(|(n, _)| *n), Some(n));
                prop_assert_eq!(unread.bytes, unread.messages.iter().map(|(_, bytes)| *bytes).sum::<usize>());
                prop_assert!(unread.bytes <= MOST_BYTES || unread.messages.len() == 1);
            }
        }
    }
}
