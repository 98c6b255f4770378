//! Growing waits with jitter, so that peers that failed together do not retry together.

use std::time::Duration;

/// Waits that double from `first` to `most`; each is drawn from the upper half of its range.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// Begins with `first`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, failures: 0 }
    }

    /// The wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let span = self.first.saturating_mul(1 << self.failures.min(16)).min(self.most);
        self.failures += 1;
        span.mul_f64(0.5 + random_fraction() / 2.0)
    }

    /// Resets after a success: the next wait is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A random number from 0 to below 1. It uses a random UUID, which avoids another dependency.
#[must_use]
pub fn random_fraction() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_fields().0) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_most_and_begin_again() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        for span in [100, 200, 350, 350] {
            let wait = backoff.next_wait().as_millis();
            assert!((span / 2..=span).contains(&wait), "{wait} of {span}");
        }
        backoff.reset();
        assert!(backoff.next_wait().as_millis() <= 100);
    }
}
