//! Stored sites and robots.txt rules.

use super::*;
use crate::domain::sites::SiteState;

const DAY: i64 = 86_400_000;

#[test]
fn what_does_not_hold_any_more_goes() {
    with_store(|store, _| async move {
        for (name, at) in [("old.test", T), ("new.test", T.plus_ms(30 * DAY))] {
            let keep = KeepSite { name: name.into(), state: Some(SiteState::default()), held_by: None, now: at };
            store.write(keep).await.expect("kept");
        }
        for (origin, until) in [("http://old.test", T.plus_ms(DAY)), ("http://new.test", T.plus_ms(90 * DAY))] {
            let keep = KeepRobots { origin: origin.into(), agent: "webloom".into(), rules: "User-agent: *".into(), until };
            store.write(keep).await.expect("kept");
        }
        let now = T.plus_ms(61 * DAY);
        assert_eq!(store.write(PruneSites { now }).await, Ok(2));
        assert_eq!(store.write(PruneSites { now }).await, Ok(0));
        let left: Vec<Arc<str>> = store.read(LoadSites).await.expect("sites").into_iter().map(|(name, ..)| name).collect();
        assert_eq!(left, ["new.test".into()]);
        let of = async |origin: &str| store.read(RobotsOf { origin: origin.into(), agent: "webloom".into() }).await.expect("a look");
        assert!(of("http://old.test").await.is_none() && of("http://new.test").await.is_some());
    });
}
