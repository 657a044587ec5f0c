//! Bring-up as a typestate: RESET, INIT, RTR, RTS, each step consuming the one before.

use super::attr::{Change, InitAttr, QpSpec, RtrAttr, RtsAttr};
use crate::transport::Device;
use crate::types::Qpn;
use std::marker::PhantomData;

/// Marks a queue pair in RESET.
#[derive(Debug)]
pub enum Reset {}
/// Marks a queue pair in INIT.
#[derive(Debug)]
pub enum Init {}
/// Marks a queue pair in RTR.
#[derive(Debug)]
pub enum Rtr {}

/// A queue pair on its way up. Dropping it on the way destroys it.
#[derive(Debug)]
pub struct BringUp<'d, D: Device, S> {
    device: &'d D,
    qp: D::Qp,
    state: PhantomData<S>,
}

impl<'d, D: Device> BringUp<'d, D, Reset> {
    /// Creates a queue pair for the worker with this index.
    pub fn create(device: &'d D, worker: usize, spec: &QpSpec) -> Result<Self, D::Error> {
        let qp = device.create_qp(worker, spec)?;
        Ok(BringUp { device, qp, state: PhantomData })
    }

    /// To INIT.
    pub fn init(self, attr: InitAttr) -> Result<BringUp<'d, D, Init>, D::Error> {
        self.step(&Change::Init(attr))
    }
}

impl<'d, D: Device> BringUp<'d, D, Init> {
    /// To RTR.
    pub fn rtr(self, attr: RtrAttr) -> Result<BringUp<'d, D, Rtr>, D::Error> {
        self.step(&Change::Rtr(attr))
    }

    /// Leaves the typestate in INIT, to be continued when the peer is known.
    pub fn pause(self) -> D::Qp {
        self.qp
    }

    /// Takes up a queue pair that [`pause`](Self::pause) gave.
    pub fn resume(device: &'d D, qp: D::Qp) -> Self {
        BringUp { device, qp, state: PhantomData }
    }
}

impl<D: Device> BringUp<'_, D, Rtr> {
    /// To RTS; the queue pair is ready to be attached to its worker's transport.
    pub fn rts(mut self, attr: RtsAttr) -> Result<D::Qp, D::Error> {
        self.device.modify(&mut self.qp, &Change::Rts(attr))?;
        Ok(self.qp)
    }
}

impl<'d, D: Device, S> BringUp<'d, D, S> {
    /// Its number, which the peer needs.
    pub fn qpn(&self) -> Qpn {
        self.device.qpn(&self.qp)
    }

    fn step<T>(mut self, change: &Change) -> Result<BringUp<'d, D, T>, D::Error> {
        self.device.modify(&mut self.qp, change)?;
        Ok(BringUp { device: self.device, qp: self.qp, state: PhantomData })
    }
}
