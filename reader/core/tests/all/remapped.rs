//! Views of an index in other orders: as good as the index, and refused where the order is none.

use std::collections::HashSet;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::searches::{
    POLICIES, filter, params, range_search, same_except_times, same_ranges_except_times, search,
};
use crate::common::{Random, Spec, UINT8, write_index};
use indexmill_core::graph::{Entry, Policy};
use indexmill_core::{Error, Index};

fn shuffled(n: usize, seed: u64) -> Vec<u32> {
    let (mut order, mut random) = ((0..n as u32).collect::<Vec<_>>(), Random(seed));
    (1..n).for_each(|i| order.swap(i, random.below(i + 1)));
    order
}

fn inverse(order: &[u32]) -> Vec<u32> {
    let mut slots = vec![0; order.len()];
    order.iter().zip(0..).for_each(|(&slot, at)| slots[slot as usize] = at);
    slots
}

fn view(index: &Index, order: &[u32]) -> Index {
    index.remapped(order).unwrap()
}

#[test]
fn a_view_and_its_inverse_are_the_index_again() {
    for (n, dim, dtype) in [(600, 12, UINT8), (60, 1000, 1), (30, 1500, 1), (1, 4, 1)] {
        let written = write_index(Spec { n, dim, dtype, ..Spec::default() });
        let index = Index::open(written.path(), "auto").unwrap();
        let order = shuffled(n, 5);
        let same = view(&view(&index, &order), &inverse(&order));
        let k = n.min(5);
        for policy in POLICIES {
            for entry in [Entry::Medoid, Entry::Centroids, Entry::Navigation] {
                for threads in [1, 3] {
                    let params = params(k, 20, policy).entry(entry).threads(threads);
                    let (a, b) = (search(&written, &same, 10, &params), search(&written, &index, 10, &params));
                    same_except_times(&a, &b);
                }
            }
            let ranged = |index| range_search(&written, index, 10, 2000.0, &params(1, 10, policy)).unwrap();
            same_ranges_except_times(&ranged(&same), &ranged(&index));
        }
    }
}

#[test]
fn a_view_finds_the_same_vectors_in_other_slots_and_knows_their_ids() {
    let written = write_index(Spec { n: 700, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let order = shuffled(700, 8);
    let view = view(&index, &order);
    let all = params(10, 700, Policy::Pipeline).entry(Entry::Navigation);
    let (a, b) = (search(&written, &view, 20, &all), search(&written, &index, 20, &all));
    assert_eq!(a.scores, b.scores, "both search exhaustively");
    for (row, homes) in a.slots.chunks(10).zip(b.slots.chunks(10)) {
        let found: HashSet<i64> = row[..9].iter().map(|&slot| i64::from(order[slot as usize])).collect();
        assert!(found.iter().filter(|home| !homes.contains(home)).count() <= 1, "ties at the end may differ");
    }
    for (&slot, &id) in a.slots.iter().zip(&a.vector_ids) {
        assert_eq!(written.vector_ids[order[slot as usize] as usize], id as u32);
    }
    let slots: Vec<u32> = vec![3, 699, 0];
    let homes: Vec<u32> = slots.iter().map(|&slot| order[slot as usize]).collect();
    assert_eq!(view.ids.user_ids(&slots).unwrap(), index.ids.user_ids(&homes).unwrap());
    let allow = Some(filter(&written, &index, |home| home % 5 == 0));
    let refused = crate::common::searches::with_queries(&written, 1, |q| {
        view.search(q, &params(3, 10, Policy::Page).allow(allow))
    });
    assert!(matches!(refused, Err(Error::Input(_))), "slots of one order mean nothing in another");
}

#[test]
fn an_order_that_is_no_permutation_is_refused_by_its_position() {
    let written = write_index(Spec { n: 50, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    let refused = |change: &dyn Fn(&mut Vec<u32>)| {
        let mut order = shuffled(50, 1);
        change(&mut order);
        match index.remapped(&order) {
            Err(Error::Input(message)) => message,
            _ => panic!("taken"),
        }
    };
    let ends = "pass a permutation of the slots 0..49";
    assert_eq!(refused(&|order| order.truncate(49)), format!("order: expected 50 slots, got 49; {ends}"));
    assert_eq!(refused(&|order| order.clear()), format!("order: expected 50 slots, got 0; {ends}"));
    let message = refused(&|order| order[7] = 50);
    assert_eq!(message, format!("order: position 7: expected a slot below 50, got 50; {ends}"));
    let message = refused(&|order| (order[3], order[9]) = (20, 20));
    assert!(message.starts_with("order: position "), "{message}");
    assert!(message.contains(": expected a slot of no other position, got 20, which position 3 has; "), "{message}");
}

#[test]
fn making_a_view_can_be_interrupted() {
    let written = write_index(Spec { n: 300, ..Spec::default() });
    let index = Index::open(written.path(), "auto").unwrap();
    assert!(matches!(index.remapped_unless(&shuffled(300, 1), &mut || true), Err(Error::Interrupted)));
    view(&index, &shuffled(300, 1));
}

#[test]
fn what_asks_whether_to_go_on_may_ask_the_index() {
    let written = write_index(Spec { n: 300, ..Spec::default() });
    let (done, result) = mpsc::channel();
    let path = written.path().to_owned();
    std::thread::spawn(move || {
        let index = Index::open(&path, "auto").unwrap();
        let (before, mut asked) = (index.memory_bytes(), 0);
        let view = index.remapped_unless(&shuffled(300, 1), &mut || {
            asked += 1;
            assert_eq!(index.memory_bytes(), before);
            index.remapped(&shuffled(300, 2)).unwrap();
            false
        });
        done.send((asked, view.is_ok(), index.memory_bytes() > before)).ok();
    });
    let told = result.recv_timeout(Duration::from_secs(60)).expect("no lock is held while the caller is asked");
    assert_eq!(told, (1, true, true));
}
