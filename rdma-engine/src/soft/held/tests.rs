use super::*;
use proptest::prelude::*;

/// A packet with this PSN.
fn held(psn: Psn) -> Held<u32> {
    Held { packet: Arrived::with_psn(psn), frame: psn.value() }
}

proptest! {
    /// Two queue pairs of one pool against sorted lists.
    #[test]
    fn lists_are_sorted_and_shares_fair(steps in prop::collection::vec((0usize..2, 0u32..40, 0u8..8), 0..200)) {
        let start = Psn::new(0xFF_FFF0);
        let mut pool = HeldPool::new(12);
        let mut queues = [Queue::new(); 2];
        let mut model = [const { Vec::<u32>::new() }; 2];
        for (who, n, what) in steps {
            let (queue, list) = (&mut queues[who], &mut model[who]);
            match what {
                0 => {
                    let (taken, stale) = pool.pop_at(queue, start.advance(n));
                    let before = list.len();
                    list.retain(|m| *m >= n);
                    prop_assert_eq!(stale as usize, before - list.len());
                    let due = list.first() == Some(&n);
                    prop_assert_eq!(taken.map(|h| h.frame), due.then(|| start.advance(n).value()));
                    list.retain(|m| *m > n || !due);
                }
                1 => {
                    pool.clear(queue);
                    list.clear();
                }
                _ => {
                    let own = queue.len();
                    let free = 12 - pool.used();
                    let kept = pool.keep(queue, own, held(start.advance(n)));
                    if list.contains(&n) {
                        prop_assert_eq!(kept, Err(DropReason::Duplicate));
                    } else if own >= free {
                        prop_assert_eq!(kept, Err(DropReason::OutOfOrder));
                    } else {
                        prop_assert_eq!(kept, Ok(()));
                        list.push(n);
                        list.sort_unstable();
                    }
                }
            }
            let psns: Vec<_> = pool.psns(&queues[who]).map(|p| p.since(start) as u32).collect();
            prop_assert_eq!(&psns, &model[who]);
            prop_assert_eq!(pool.used() as usize, model[0].len() + model[1].len());
        }
    }
}

#[test]
fn whoever_takes_all_he_can_leaves_as_much_again() {
    let mut pool = HeldPool::new(90);
    let mut queues = [Queue::new(); 2];
    for n in 0..100 {
        let own = queues[0].len();
        pool.keep(&mut queues[0], own, held(Psn::new(n))).ok();
    }
    assert_eq!(queues[0].len(), 45);
    for n in 0..100 {
        let own = queues[1].len();
        pool.keep(&mut queues[1], own, held(Psn::new(n))).ok();
    }
    assert_eq!(queues[1].len(), 23);
}
