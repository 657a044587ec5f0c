//! Worker lcores and the scope that runs closures on them.

#![allow(unsafe_code)] // Hands boxed closures to EAL threads.

use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use core::marker::PhantomData;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use dpdk_sys as sys;

use super::{Eal, EalInner, lock};

/// A logical core of the EAL: one thread, pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcore {
    /// The EAL's number of it.
    pub id: u32,
    /// Its NUMA socket.
    pub socket: u32,
    /// The CPU it is pinned to, if it is one.
    pub cpu: Option<u32>,
}

/// Why a closure was not launched.
#[derive(Debug, thiserror::Error)]
pub enum LcoreError {
    /// Not one of [`Eal::worker_lcores`].
    #[error(
        "lcore {0} is not a worker of this EAL: choose one that `-l` or `--lcores` names, except the main one"
    )]
    NotAWorker(u32),
    /// It runs something already.
    #[error("lcore {0} is busy: join what runs there first")]
    Busy(u32),
    /// The EAL refused.
    #[error("lcore {id} could not be launched: {source}")]
    Launch {
        /// The lcore.
        id: u32,
        /// What its error number says.
        source: io::Error,
    },
}

impl Eal {
    /// The main lcore: the thread that called [`Eal::init`].
    pub fn main_lcore(&self) -> Lcore {
        // SAFETY: the EAL is up.
        lcore(unsafe { sys::rte_get_main_lcore() })
    }

    /// All other lcores, by number.
    pub fn worker_lcores(&self) -> Vec<Lcore> {
        // SAFETY: the EAL is up; passing the greatest number starts from the first.
        let next = |i: c_uint| unsafe { sys::rte_get_next_lcore(i, 1, 0) };
        std::iter::successors(Some(next(c_uint::MAX)), |&i| Some(next(i)))
            .take_while(|&i| i < sys::RTE_MAX_LCORE)
            .map(lcore)
            .collect()
    }

    /// Number of the lcore this thread is, if it is one.
    pub fn current_lcore() -> Option<u32> {
        // SAFETY: reads a thread-local integer.
        let id = unsafe { sys::dpdk_sys_lcore_id() };
        (id < sys::RTE_MAX_LCORE).then_some(id)
    }

    /// Runs `body`, which may launch closures on worker lcores that borrow from outside, and returns when it
    /// and all of them have returned, as `std::thread::scope` does. A panic in a closure aborts the process:
    /// an EAL thread has nowhere to unwind to.
    ///
    /// Waiting sleeps; it does not take time from a worker that shares the main lcore's CPU.
    pub fn scope<'env, T>(&'env self, body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
        let scope = Scope {
            eal: self.inner(),
            running: Mutex::new(BTreeMap::new()),
            _scope: PhantomData,
            _env: PhantomData,
        };
        let result = {
            let _join_even_on_unwind = JoinAll(&scope);
            body(&scope)
        };
        self.inner().reap_pools();
        result
    }
}

fn lcore(id: c_uint) -> Lcore {
    // SAFETY: the EAL is up and `id` is one of its lcores.
    unsafe {
        let cpu = sys::rte_lcore_to_cpu_id(id as c_int);
        Lcore { id, socket: sys::rte_lcore_to_socket_id(id), cpu: u32::try_from(cpu).ok() }
    }
}

/// Where closures can be launched that end before `'scope` does. Made by [`Eal::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    eal: &'env EalInner,
    running: Mutex<BTreeMap<u32, Arc<Done>>>,
    /// Invariant, as in `std::thread::Scope`.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// A launched closure; [`LcoreHandle::join`] waits for its result. Dropping it leaves that to the scope.
pub struct LcoreHandle<'scope, T> {
    id: u32,
    done: Arc<Done>,
    result: Arc<Mutex<Option<T>>>,
    join: &'scope dyn JoinLcore,
    _not_sync: PhantomData<Cell<()>>,
}

/// Set by the lcore as its last act.
#[derive(Default)]
struct Done {
    over: Mutex<bool>,
    changed: Condvar,
}

/// What crosses to the EAL thread.
struct Job<'scope> {
    work: Box<dyn FnOnce() + Send + 'scope>,
    done: Arc<Done>,
}

/// The scope as its handles see it, without its lifetimes.
trait JoinLcore: Sync {
    fn join_lcore(&self, id: u32, done: &Arc<Done>);
}

impl<'scope> Scope<'scope, '_> {
    /// Starts `work` on the worker `lcore`. Its result can be had from the handle.
    pub fn launch<T, F>(&'scope self, lcore: Lcore, work: F) -> Result<LcoreHandle<'scope, T>, LcoreError>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let id = lcore.id;
        let _one_at_a_time = lock(&self.eal.launch);
        check_idle(id)?;
        let result = Arc::new(Mutex::new(None));
        let done = Arc::new(Done::default());
        let slot = Arc::clone(&result);
        let work = Box::new(move || *lock(&slot) = Some(work()));
        let job = Box::into_raw(Box::new(Job { work, done: Arc::clone(&done) }));
        self.eal.running.fetch_add(1, Ordering::AcqRel);
        // SAFETY: `run` takes the job over. The closure may borrow for `'scope`: the scope does not end before
        // the closure has, whatever happens to the handle.
        let rc = unsafe { sys::rte_eal_remote_launch(Some(run), job.cast(), id) };
        if rc != 0 {
            self.eal.running.fetch_sub(1, Ordering::AcqRel);
            // SAFETY: the job was not taken.
            drop(unsafe { Box::from_raw(job) });
            return Err(LcoreError::Launch { id, source: io::Error::from_raw_os_error(-rc) });
        }
        lock(&self.running).insert(id, Arc::clone(&done));
        Ok(LcoreHandle { id, done, result, join: self, _not_sync: PhantomData })
    }
}

impl JoinLcore for Scope<'_, '_> {
    fn join_lcore(&self, id: u32, done: &Arc<Done>) {
        let mut over = lock(&done.over);
        while !*over {
            over = done.changed.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
        drop(over);
        let mut running = lock(&self.running);
        // Whoever comes first does the rest; the lcore may run something newer by then.
        if running.get(&id).is_some_and(|d| Arc::ptr_eq(d, done)) {
            // SAFETY: the EAL is up. The thread is past our code, so this spins for an instant at most.
            unsafe { sys::rte_eal_wait_lcore(id) };
            running.remove(&id);
            self.eal.running.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl<T> LcoreHandle<'_, T> {
    /// The lcore it runs on.
    pub fn lcore(&self) -> u32 {
        self.id
    }

    /// Whether the closure has returned.
    pub fn is_finished(&self) -> bool {
        *lock(&self.done.over)
    }

    /// Waits for the closure and returns its result; the lcore is free afterwards.
    pub fn join(self) -> T {
        self.join.join_lcore(self.id, &self.done);
        lock(&self.result).take().unwrap_or_else(|| unreachable!("a finished lcore has left its result"))
    }
}

struct JoinAll<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);

impl Drop for JoinAll<'_, '_, '_> {
    fn drop(&mut self) {
        loop {
            let next = lock(&self.0.running).first_key_value().map(|(id, done)| (*id, Arc::clone(done)));
            let Some((id, done)) = next else { return };
            self.0.join_lcore(id, &done);
        }
    }
}

fn check_idle(id: u32) -> Result<(), LcoreError> {
    // SAFETY: the EAL is up; passing `id - 1` yields `id` exactly if it is a worker.
    let is_worker =
        id < sys::RTE_MAX_LCORE && unsafe { sys::rte_get_next_lcore(id.wrapping_sub(1), 1, 0) } == id;
    if !is_worker {
        return Err(LcoreError::NotAWorker(id));
    }
    // SAFETY: `id` is an lcore.
    match unsafe { sys::rte_eal_get_lcore_state(id) } {
        sys::WAIT => Ok(()),
        _ => Err(LcoreError::Busy(id)),
    }
}

/// Runs on the EAL thread. Being `extern "C"`, it turns a panic into an abort.
unsafe extern "C" fn run(job: *mut c_void) -> c_int {
    // SAFETY: `launch` passes a boxed job exactly once.
    let Job { work, done } = *unsafe { Box::from_raw(job.cast::<Job<'_>>()) };
    work();
    *lock(&done.over) = true;
    done.changed.notify_all();
    0
}
