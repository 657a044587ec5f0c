//! Access rights as a set, least privilege by default.

use std::fmt;

/// What may be done with a region or through a queue pair. The default, [`Access::LOCAL`], lets nobody but the local
/// device in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "ibv_access_flags")]
pub struct Access(u8);

/// A set of rights that the verbs do not allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("remote write and remote atomic need local write as well: add Access::LOCAL_WRITE to {0:?}")]
pub struct AccessError(pub Access);

impl Access {
    /// The local device reads; nothing else.
    pub const LOCAL: Access = Access(0);
    /// The local device writes (receives, READ destinations).
    #[doc(alias = "IBV_ACCESS_LOCAL_WRITE")]
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers WRITE. Needs `LOCAL_WRITE`.
    #[doc(alias = "IBV_ACCESS_REMOTE_WRITE")]
    pub const REMOTE_WRITE: Access = Access(2);
    /// Peers READ.
    #[doc(alias = "IBV_ACCESS_REMOTE_READ")]
    pub const REMOTE_READ: Access = Access(4);
    /// Peers FETCH_ADD and COMPARE_SWAP. Needs `LOCAL_WRITE`.
    #[doc(alias = "IBV_ACCESS_REMOTE_ATOMIC")]
    pub const REMOTE_ATOMIC: Access = Access(8);

    const NAMES: [(Access, &'static str); 4] = [
        (Access::LOCAL_WRITE, "local write"),
        (Access::REMOTE_WRITE, "remote write"),
        (Access::REMOTE_READ, "remote read"),
        (Access::REMOTE_ATOMIC, "remote atomic"),
    ];

    /// The bits, as `ibv_access_flags` numbers them.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// True if every right of `other` is in `self`.
    #[inline]
    pub const fn allows(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// The rights a region needs, checked: remote write and atomic need local write.
    pub const fn checked(self) -> Result<Access, AccessError> {
        let writes = self.0 & (Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0) != 0;
        if writes && !self.allows(Access::LOCAL_WRITE) { Err(AccessError(self)) } else { Ok(self) }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter().filter(|(a, _)| self.allows(*a)).map(|(_, n)| *n);
        f.write_str(names.next().unwrap_or("local read"))?;
        names.try_for_each(|n| write!(f, " + {n}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_needs_local_write() {
        let error = Access::REMOTE_WRITE.and(Access::REMOTE_READ).checked().unwrap_err();
        assert!(error.to_string().contains("LOCAL_WRITE to remote write + remote read"), "{error}");
        assert!(Access::REMOTE_ATOMIC.and(Access::LOCAL_WRITE).checked().is_ok());
        assert!(Access::REMOTE_READ.checked().is_ok());
        assert_eq!(format!("{:?}", Access::default()), "local read");
    }
}
