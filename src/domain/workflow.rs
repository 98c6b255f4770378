//! Successor graphs: jobs and the jobs that start after them, without loops.
//!
//! [`loop_from`] looks for a path back to its start; [`order`] sorts jobs after those that they name; [`begins`] decides whether a
//! successor starts after a given end. Names and stored rows are handled elsewhere.

use super::job::AfterEnd;
use super::run::RunState;
use std::collections::HashSet;
use std::hash::Hash;

/// Maximum number of successors that one job may name.
pub const MOST_SUCCESSORS: usize = 50;
/// Maximum number of direct and indirect successors of one job; the walk stops there.
pub const MOST_FOLLOWING: usize = 10_000;

/// The result of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Walk<T> {
    /// No path leads back.
    Open,
    /// A path that leads back: its first element is the start of the walk, its last element names the first.
    Loop(Vec<T>),
    /// There are more than [`MOST_FOLLOWING`] successors.
    Endless,
}

/// Looks for a path from `start` back to `start`; `next` returns the successors of an element.
///
/// # Errors
/// Errors of `next`.
pub fn loop_from<T: Copy + Eq + Hash, E>(start: T, mut next: impl FnMut(T) -> Result<Vec<T>, E>) -> Result<Walk<T>, E> {
    let mut seen = HashSet::from([start]);
    // The current path, and for each step the untried successors.
    let mut way = vec![(start, next(start)?)];
    while let Some((_, untried)) = way.last_mut() {
        let Some(one) = untried.pop() else {
            way.pop();
            continue;
        };
        if one == start {
            return Ok(Walk::Loop(way.into_iter().map(|(step, _)| step).collect()));
        }
        if seen.insert(one) {
            if seen.len() > MOST_FOLLOWING {
                return Ok(Walk::Endless);
            }
            way.push((one, next(one)?));
        }
    }
    Ok(Walk::Open)
}

/// An order in which each element comes after all that it names; `named[i]` are the elements that `i` names. Elements of a loop
/// come last, in their original order.
#[must_use]
pub fn order(named: &[Vec<usize>]) -> Vec<usize> {
    let mut left: Vec<usize> = named.iter().map(Vec::len).collect();
    let mut naming = vec![Vec::new(); named.len()];
    for (i, others) in named.iter().enumerate() {
        for other in others {
            naming[*other].push(i);
        }
    }
    let mut out: Vec<usize> = (0..named.len()).filter(|i| left[*i] == 0).collect();
    let mut done = 0;
    while let Some(one) = out.get(done).copied() {
        done += 1;
        for i in &naming[one] {
            left[*i] -= 1;
            if left[*i] == 0 {
                out.push(*i);
            }
        }
    }
    out.extend((0..named.len()).filter(|i| left[*i] > 0));
    out
}

/// Whether a successor starts after a run with this end.
#[must_use]
pub fn begins(on: AfterEnd, ended: RunState) -> bool {
    match on {
        AfterEnd::Success => ended == RunState::Success,
        AfterEnd::Failure => ended == RunState::Failed,
        AfterEnd::Always => ended.is_final(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn walk(graph: &[Vec<usize>], start: usize) -> Walk<usize> {
        loop_from(start, |i| Ok::<_, Infallible>(graph[i].clone())).unwrap_or(Walk::Endless)
    }

    /// Reachability by trying all paths: the reference for the test.
    fn reach(graph: &[Vec<usize>]) -> Vec<Vec<bool>> {
        let n = graph.len();
        let mut reach = vec![vec![false; n]; n];
        for (i, others) in graph.iter().enumerate() {
            others.iter().for_each(|other| reach[i][*other] = true);
        }
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    reach[i][j] |= reach[i][k] && reach[k][j];
                }
            }
        }
        reach
    }

    fn graphs() -> impl Strategy<Value = Vec<Vec<usize>>> {
        (1_usize..9).prop_flat_map(|n| prop::collection::vec(prop::collection::vec(0..n, 0..4), n))
    }

    proptest! {
        #[test]
        fn a_loop_is_found_if_and_only_if_there_is_one(graph in graphs()) {
            let reach = reach(&graph);
            for (start, reached) in reach.iter().enumerate() {
                match walk(&graph, start) {
                    Walk::Open => prop_assert!(!reached[start]),
                    Walk::Loop(way) => {
                        prop_assert_eq!(way[0], start);
                        for (i, step) in way.iter().enumerate() {
                            let next = way.get(i + 1).copied().unwrap_or(start);
                            prop_assert!(graph[*step].contains(&next), "{:?} is no way of {:?}", way, graph);
                        }
                    }
                    Walk::Endless => prop_assert!(false),
                }
            }
        }

        #[test]
        fn each_comes_after_what_it_names_unless_it_leads_into_a_loop(graph in graphs()) {
            let order = order(&graph);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..graph.len()).collect::<Vec<_>>());
            let reach = reach(&graph);
            let place = |i: usize| order.iter().position(|other| *other == i);
            for (i, others) in graph.iter().enumerate() {
                let stuck = (0..graph.len()).any(|j| reach[j][j] && (j == i || reach[i][j]));
                for other in others {
                    prop_assert!(stuck || place(*other) < place(i), "{} names {} in {:?}: {:?}", i, other, graph, order);
                }
            }
        }
    }

    #[test]
    fn a_walk_has_an_end() {
        let endless = loop_from(0_u64, |i| Ok::<_, Infallible>(vec![i + 1]));
        assert_eq!(endless, Ok(Walk::Endless));
    }

    #[test]
    fn successors_wait_for_their_end() {
        use AfterEnd::{Always, Failure, Success};
        let ends = [RunState::Success, RunState::Failed, RunState::Stopped];
        for (on, expected) in [(Success, [true, false, false]), (Failure, [false, true, false]), (Always, [true; 3])] {
            assert_eq!(ends.map(|end| begins(on, end)), expected, "{on:?}");
        }
        assert!(!begins(Always, RunState::Running));
    }
}
