use super::*;

/// Seeds that every test run goes through.
const SEEDS: u64 = 2000;

#[test]
fn all_rules_together_explain_every_history() {
    let mut total = Summary::default();
    for seed in 0..SEEDS {
        let s = run(seed, Rules::ALL).unwrap_or_else(|v| panic!("{v}"));
        total.gets += s.gets;
        total.hits += s.hits;
        total.mutations += s.mutations;
        total.races += s.races;
    }
    // Otherwise there would be nothing to explain.
    assert!(total.hits * 5 > total.gets && total.races * 5 > total.gets, "{total:?}");
    assert!(total.mutations > SEEDS * 10, "{total:?}");
}

/// For each rule a seed under which its absence is seen. When the model has changed find others:
/// `cargo run --release --example kv_model -- --without RULE`.
const SEEN: [(u8, u64); 8] = [(1, 1788), (2, 2182), (3, 96), (4, 83), (5, 1), (6, 1), (7, 19), (8, 7)];

#[test]
fn each_rule_is_needed() {
    for (rule, seed) in SEEN {
        assert!(run(seed, Rules::ALL).is_ok(), "seed {seed} with all rules");
        assert!(
            run(seed, Rules::without(rule)).is_err(),
            "nothing goes wrong without rule {rule} under seed {seed}"
        );
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    assert_eq!(run(7, Rules::ALL), run(7, Rules::ALL));
    assert_eq!(run(1788, Rules::without(1)), run(1788, Rules::without(1)));
}
