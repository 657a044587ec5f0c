//! Queue pairs of a plan in words.

use super::table::counted;
use crate::config::QpKind;
use crate::plan::PlanQp;

/// A relay's queue pairs.
pub(super) fn qp_facts(qp: &PlanQp) -> Vec<(&'static str, String)> {
    let kind = match qp.kind {
        QpKind::Rc => "RC",
        QpKind::Uc => "UC",
        QpKind::Ud => "UD",
    };
    let shared = if qp.srq { " (shared by a worker's QPs)" } else { "" };
    let depths = format!(
        "{}, {}{shared}, CQ {}, {}, inline {} bytes, {} signalled",
        counted(qp.send_depth, "send"),
        counted(qp.recv_depth, "receive"),
        qp.cq_depth,
        counted(qp.max_sge, "segment"),
        qp.max_inline,
        every(qp.signal_every)
    );
    let mut facts = vec![("queue pairs", format!("{} {kind}", qp.count)), ("depths", depths)];
    if qp.kind == QpKind::Rc {
        facts.extend(retry_facts(qp));
    }
    facts
}

/// The queue pairs of one lane.
pub(super) fn lane(qp: &PlanQp) -> String {
    let receives =
        if qp.recv_depth == 0 { "no receives".to_owned() } else { counted(qp.recv_depth, "receive") };
    format!(
        "{}, {}, {receives}, CQ {}, {} signalled",
        counted(qp.count, "RC queue pair"),
        counted(qp.send_depth, "send"),
        qp.cq_depth,
        every(qp.signal_every)
    )
}

/// `all`, `every 2nd`, `every 16th`.
fn every(n: u32) -> String {
    match (n, n % 10, n % 100) {
        (1, ..) => "all".to_owned(),
        (_, _, 11..=13) => format!("every {n}th"),
        (_, 1, _) => format!("every {n}st"),
        (_, 2, _) => format!("every {n}nd"),
        (_, 3, _) => format!("every {n}rd"),
        _ => format!("every {n}th"),
    }
}

/// How often and how long a reliable connection tries.
pub(super) fn retry_facts(qp: &PlanQp) -> [(&'static str, String); 1] {
    let rnr = if qp.rnr_retry == 7 { "for ever".to_owned() } else { format!("{} times", qp.rnr_retry) };
    let text = format!(
        "{} after {:.0} us each; waits for receives {rnr}, RNR timer code {}",
        qp.retry,
        4.096 * 2f64.powi(i32::from(qp.ack_timeout_code)),
        qp.rnr_timer_code
    );
    [("retries", text)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_spoken() {
        let said = [1, 2, 3, 8, 11, 12, 21, 113].map(every);
        let meant = [
            "all",
            "every 2nd",
            "every 3rd",
            "every 8th",
            "every 11th",
            "every 12th",
            "every 21st",
            "every 113th",
        ];
        assert_eq!(said, meant);
        let qp = PlanQp {
            count: 1,
            send_depth: 1,
            recv_depth: 0,
            cq_depth: 8,
            signal_every: 1,
            ..PlanQp::default()
        };
        assert_eq!(lane(&qp), "1 RC queue pair, 1 send, no receives, CQ 8, all signalled");
    }
}
