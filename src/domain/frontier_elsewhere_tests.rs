use super::*;

#[test]
fn a_block_that_failed_at_a_node_prefers_another_for_a_while() {
    let mut frontier = Frontier::new(settings(1));
    pushed(&mut frontier, &[1, 2]);
    let (seq, _) = frontier.lease(node(1), T).expect("a block");
    frontier.begin_report(seq);
    frontier.given_back(seq);
    frontier.prefer_another(seq, node(1), T);
    assert_eq!((frontier.ready(), frontier.is_moved(seq), frontier.block_counts().0), (1, true, 2));
    assert_eq!(frontier.lease(node(1), T).map(|(other, _)| other), Some(1 - seq), "not the block that failed there");
    assert_eq!(frontier.lease(node(1), T), None);
    assert_eq!(frontier.avoided(T), (vec![node(1)], vec![]));
    assert_eq!(frontier.lease(node(2), T).map(|(other, _)| other), Some(seq));
    assert_eq!(frontier.lost(seq, node(2), 2), Some(Lost::Retry(2)));
    assert_eq!(frontier.lease(node(1), T).map(|(other, _)| other), Some(seq), "a lost node proves nothing");
    frontier.begin_report(seq);
    frontier.given_back(seq);
    frontier.prefer_another(seq, node(1), T);
    assert_eq!(frontier.avoided(T.plus_ms(9_999)), (vec![node(1)], vec![]));
    assert_eq!(frontier.avoided(T.plus_ms(10_000)), (vec![], vec![]), "no other came");
    assert_eq!(frontier.lease(node(1), T).map(|(other, _)| other), Some(seq));
    frontier.begin_report(seq);
    frontier.reported(seq, 0, 1);
    assert!(!frontier.is_moved(seq));
}

#[test]
fn a_site_where_a_node_failed_prefers_another() {
    let mut frontier = Frontier::new(settings(1));
    let site = frontier.site_number("a.org");
    for (seq, requests) in frontier.begin_push(&batch(&[1, 2, 3]), |_| Some(site)).blocks {
        frontier.stored(seq, requests.len() as u32);
    }
    let (seq, _) = frontier.lease_at(site, node(1), T).expect("a block");
    frontier.begin_report(seq);
    frontier.site_waits(site, T.plus_ms(1_000));
    frontier.given_back(seq);
    frontier.prefer_another(seq, node(1), T);
    let due = T.plus_ms(1_000);
    assert_eq!(frontier.avoided(T), (vec![], vec![]), "its site is not due");
    assert_eq!((frontier.avoided(due).1, frontier.sites_ready(due, 9), frontier.next_site_at()), (vec![node(1)], 0, None));
    assert_eq!((frontier.next_site(node(1), due), frontier.next_site(node(2), due)), (None, Some(site)));
    let (again, _) = frontier.lease_at(site, node(2), due).expect("a block");
    assert_eq!((again, frontier.next_site(node(2), due)), (seq, None), "one block of a site at a time");
    frontier.begin_report(again);
    frontier.site_waits(site, due.plus_ms(60_000));
    frontier.reported(again, 1, 0);
    let due = due.plus_ms(60_000);
    assert_eq!((frontier.next_site(node(1), due), frontier.next_site(node(2), due)), (None, Some(site)), "it went well there");
    let late = due.plus_ms(10_000);
    assert_eq!(frontier.avoided(late), (vec![], vec![]));
    assert_eq!((frontier.next_site(node(1), late), frontier.sites_ready(late, 9)), (Some(site), 1), "the other does not come");
}
