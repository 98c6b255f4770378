//! What waits to be sent, with a limit of its memory.

use std::collections::VecDeque;

/// Items in the order of their arrival.
#[derive(Debug)]
pub(super) struct Buffer<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    most_bytes: usize,
    dropped: u64,
}

impl<T> Buffer<T> {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { items: VecDeque::new(), bytes: 0, most_bytes, dropped: 0 }
    }

    /// Adds an item of this size; it is dropped if the buffer is full.
    pub(super) fn push(&mut self, item: T, bytes: usize) {
        if self.bytes + bytes > self.most_bytes {
            self.dropped += 1;
            return;
        }
        self.bytes += bytes;
        self.items.push_back((item, bytes));
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes the oldest items, at most this many.
    pub(super) fn take(&mut self, most: usize) -> Vec<T> {
        let taken = self.items.drain(..most.min(self.items.len()));
        let (items, sizes): (Vec<T>, Vec<usize>) = taken.unzip();
        self.bytes -= sizes.into_iter().sum::<usize>();
        items
    }

    /// Items that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_never_larger_than_its_limit() {
        let mut buffer = Buffer::new(10);
        for item in 1..=4 {
            buffer.push(item, 4);
        }
        assert_eq!((buffer.len(), buffer.take_dropped(), buffer.take_dropped()), (2, 2, 0));
        assert_eq!(buffer.take(1), [1]);
        buffer.push(5, 6);
        buffer.push(6, 1);
        assert_eq!((buffer.take(9), buffer.take_dropped()), (vec![2, 5], 1));
        buffer.push(7, 10);
        assert_eq!(buffer.take(9), [7]);
    }
}
