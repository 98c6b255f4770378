//! Named places where a test makes the program panic, fail or die: planned faults instead of lucky ones.
//!
//! Without the cargo feature `faults` every call here is empty. With it, the environment variable `WEBLOOM_FAULTS`, or
//! `plan` in the same process, lists what happens where: `run.report=panic@3,store.commit=die@40` panics at the third
//! passage of `run.report` and ends the process as `kill -9` would at the fortieth of `store.commit`. `fail` lets the place fail,
//! `hang` stops the process as `kill -STOP` would. `WEBLOOM_CLOCK_FILE` names a file with the number of milliseconds by which the wall
//! clock is wrong, and may be written while the program runs.

#[cfg(feature = "faults")]
mod planned {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, PoisonError};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Deed {
        Panic,
        Die,
        Fail,
        Hang,
    }

    static PLAN: LazyLock<Mutex<HashMap<String, (Deed, u64)>>> = LazyLock::new(|| {
        let text = std::env::var("WEBLOOM_FAULTS").unwrap_or_default();
        Mutex::new(parse(&text))
    });

    fn parse(text: &str) -> HashMap<String, (Deed, u64)> {
        let one = |part: &str| {
            let (place, rest) = part.split_once('=')?;
            let (deed, at) = rest.split_once('@').unwrap_or((rest, "1"));
            let deed = match deed {
                "panic" => Deed::Panic,
                "die" => Deed::Die,
                "fail" => Deed::Fail,
                "hang" => Deed::Hang,
                _ => return None,
            };
            Some((place.trim().to_owned(), (deed, at.parse().ok()?)))
        };
        text.split(',').filter(|part| !part.is_empty()).map(|part| one(part).unwrap_or_else(|| panic!("no fault: {part}"))).collect()
    }

    #[cfg(unix)]
    fn hang() {
        use nix::sys::signal::{Signal, raise};
        raise(Signal::SIGSTOP).expect("a process may stop itself");
    }

    #[cfg(not(unix))]
    fn hang() {
        panic!("there is no such fault here");
    }

    /// Adds faults to the plan of this process.
    #[cfg(test)]
    pub(crate) fn plan(text: &str) {
        PLAN.lock().unwrap_or_else(PoisonError::into_inner).extend(parse(text));
    }

    /// The content of the file that `WEBLOOM_CLOCK_FILE` names: by this many milliseconds the wall clock is wrong.
    pub fn clock_offset_ms() -> i64 {
        static FILE: LazyLock<Option<std::path::PathBuf>> = LazyLock::new(|| std::env::var_os("WEBLOOM_CLOCK_FILE").map(Into::into));
        let text = FILE.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    pub fn passes(place: &str) -> bool {
        let deed = {
            let mut plan = PLAN.lock().unwrap_or_else(PoisonError::into_inner);
            match plan.get_mut(place) {
                None => return false,
                Some((_, left)) if *left > 1 => {
                    *left -= 1;
                    return false;
                }
                Some(_) => plan.remove(place).map(|(deed, _)| deed),
            }
        };
        match deed {
            Some(Deed::Panic) => panic!("a planned fault at {place}"),
            Some(Deed::Die) => std::process::abort(),
            Some(Deed::Fail) => true,
            Some(Deed::Hang) => {
                hang();
                false
            }
            None => false,
        }
    }
}

#[cfg(all(test, feature = "faults"))]
pub(crate) use planned::plan;

/// Each unit test with a store holds this: planned faults affect the whole process, so only one such test may run at a time.
#[cfg(all(test, feature = "broker"))]
pub(crate) fn only_test_with_a_store() -> std::sync::MutexGuard<'static, ()> {
    static ONLY: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONLY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// This place is passed. True if the plan wants it to fail; it may also not return at all.
#[cfg(feature = "broker")]
#[must_use]
pub fn fails(place: &str) -> bool {
    #[cfg(feature = "faults")]
    return planned::passes(place);
    #[cfg(not(feature = "faults"))]
    {
        let _ = place;
        false
    }
}

/// How far a test sets the wall clock of this process off, in milliseconds.
#[must_use]
pub fn clock_offset_ms() -> i64 {
    #[cfg(feature = "faults")]
    return planned::clock_offset_ms();
    #[cfg(not(feature = "faults"))]
    0
}

/// This place is passed; it cannot fail, but it may panic or die.
#[cfg(feature = "broker")]
pub fn point(place: &str) {
    let _ = fails(place);
}
