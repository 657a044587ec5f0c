//! A pair of queue pairs that is done makes place for another one in the same slots, while frames of the first are still
//! on their way.

use super::flow::Flow;
use super::host::{KEYS, connect_pair};
use super::run::Run;
use crate::transport::Transport;

impl Run {
    /// Renews the pairs that are done, once each.
    pub(super) fn renew(&mut self) -> Result<(), String> {
        for pair in 0..self.scenario.pairs {
            if self.renewals_left[pair] && (0..2).all(|end| self.is_flow_done(end, pair)) {
                self.renewals_left[pair] = false;
                self.renew_pair(pair)?;
            }
        }
        Ok(())
    }

    fn renew_pair(&mut self, pair: usize) -> Result<(), String> {
        self.retiring = true;
        for end in 0..2 {
            let qp = self.hosts[end].qps[pair];
            self.hosts[end].transport.fail(qp);
            self.poll(end)?;
        }
        self.retiring = false;
        for end in 0..2 {
            self.check_memory_of(end, pair)?;
        }
        for host in &mut self.hosts {
            host.transport.detach(host.qps[pair]).ok_or("a queue pair that is done cannot be detached")?;
        }
        connect_pair(&mut self.hosts, &self.scenario, pair);
        let area = self.scenario.area();
        for end in 0..2 {
            self.hosts[1 - end].region.window().copy_in(pair * area, &vec![0; area]);
            let flow = &mut self.flows[end][pair];
            *flow = Flow::after(std::mem::replace(flow, Flow::new(0, 0)), area, KEYS);
        }
        self.trace.note(self.now, 0, || format!("pair {pair} is renewed"));
        Ok(())
    }

    /// True if everything of a flow was posted, as far as it went, and is complete.
    pub(super) fn is_flow_done(&self, end: usize, pair: usize) -> bool {
        let flow = &self.flows[end][pair];
        let all = flow.requests.len() == self.scenario.requests as usize || flow.failed.is_some();
        all && flow.completed == flow.requests.len()
    }
}
