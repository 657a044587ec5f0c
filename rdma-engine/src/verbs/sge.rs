//! From buffer chains to scatter/gather lists.

use super::ffi;
use crate::buf::Buf;
use crate::mem::KeyTable;
use crate::wr::Refusal;

/// Bytes that a datagram's network header takes in front of its payload.
pub(super) const GRH_BYTES: usize = 40;

/// One segment as the device reads it: `ibv_sge` by another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
#[doc(alias = "ibv_sge")]
pub(super) struct Sge {
    /// Address.
    pub(super) addr: u64,
    /// Bytes.
    pub(super) length: u32,
    /// Key of the region it lies in.
    pub(super) lkey: u32,
}

const _: () = {
    assert!(size_of::<Sge>() == size_of::<ffi::ibv_sge>() && align_of::<Sge>() == align_of::<ffi::ibv_sge>());
    assert!(std::mem::offset_of!(Sge, lkey) == std::mem::offset_of!(ffi::ibv_sge, lkey));
};

/// No bytes, no key.
pub(super) const NO_SGE: Sge = Sge { addr: 0, length: 0, lkey: 0 };

/// An area of local memory: address, bytes.
type Area = (u64, usize);

/// The non-empty segments of the contents.
#[inline]
pub(super) fn contents<B: Buf>(buf: &B) -> impl Iterator<Item = Area> {
    buf.segments().filter(|s| !s.is_empty()).map(|s| (s.as_ptr().expose_provenance() as u64, s.len()))
}

/// The non-empty writable areas, cut to `most` bytes.
#[inline]
pub(super) fn spare<B: Buf>(buf: &mut B, most: usize) -> impl Iterator<Item = Area> {
    buf.spare()
        .scan(most, |left, area| {
            let n = area.len().min(*left);
            *left -= n;
            Some((area.as_mut_ptr().expose_provenance() as u64, n))
        })
        .filter(|(_, n)| *n > 0)
}

/// The writable areas with the 40 bytes in front of the first one, which belong to the headroom.
#[inline]
pub(super) fn spare_behind_grh<B: Buf>(buf: &mut B) -> impl Iterator<Item = Area> {
    let mut front = GRH_BYTES;
    buf.spare()
        .map(move |area| {
            let grh = std::mem::take(&mut front);
            (area.as_mut_ptr().expose_provenance() as u64 - grh as u64, area.len() + grh)
        })
        .filter(|(_, n)| *n > 0)
}

/// Writes `areas` into `out`, each with the key of its range; returns how many.
#[inline]
pub(super) fn keyed(
    areas: impl Iterator<Item = Area>,
    keys: &mut KeyTable,
    out: &mut [Sge],
) -> Result<usize, Refusal> {
    let mut n = 0;
    for (addr, len) in areas {
        let slot = out.get_mut(n).ok_or(Refusal::TooManySegments)?;
        let lkey = keys.lkey(addr as usize, len).ok_or(Refusal::NotRegistered)?;
        let length = u32::try_from(len).map_err(|_| Refusal::TooLong)?;
        *slot = Sge { addr, length, lkey: lkey.0 };
        n += 1;
    }
    Ok(n)
}

/// Writes `areas` into `out` without keys: for bytes that the CPU copies into the request.
#[inline]
pub(super) fn unkeyed(areas: impl Iterator<Item = Area>, out: &mut [Sge]) -> Result<usize, Refusal> {
    let mut n = 0;
    for (addr, len) in areas {
        let slot = out.get_mut(n).ok_or(Refusal::TooManySegments)?;
        *slot = Sge { addr, length: len as u32, lkey: 0 };
        n += 1;
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Pool;
    use crate::heap::HeapPool;
    use crate::types::Lkey;

    fn keys_of(buf: &crate::heap::HeapBuf, keys: &mut KeyTable) {
        for s in buf.segments() {
            keys.insert(s.as_ptr() as usize - 128, 128 + 256, Lkey(7));
        }
    }

    #[test]
    fn chains_become_lists_and_limits_hold() {
        let pool = HeapPool::new(4, 256);
        let mut keys = KeyTable::new();
        let mut buf = pool.alloc().unwrap();
        buf.append(3).unwrap();
        let mut tail = pool.alloc().unwrap();
        tail.append(5).unwrap();
        buf.chain(pool.alloc().unwrap()).unwrap();
        buf.chain(tail).unwrap();
        let mut out = [NO_SGE; 2];
        assert_eq!(keyed(contents(&buf), &mut keys, &mut out), Err(Refusal::NotRegistered));
        keys_of(&buf, &mut keys);
        assert_eq!(keyed(contents(&buf), &mut keys, &mut out), Ok(2), "the empty segment is passed over");
        assert_eq!([out[0].length, out[1].length, out[0].lkey], [3, 5, 7]);
        assert_eq!(keyed(contents(&buf), &mut keys, &mut out[..1]), Err(Refusal::TooManySegments));
        assert_eq!(unkeyed(contents(&buf), &mut out), Ok(2));
    }

    #[test]
    fn spare_areas_are_cut_and_the_grh_lies_in_front() {
        let pool = HeapPool::new(4, 256);
        let mut buf = pool.alloc().unwrap();
        buf.chain(pool.alloc().unwrap()).unwrap();
        let lens = |areas: Vec<Area>| areas.iter().map(|a| a.1).collect::<Vec<_>>();
        assert_eq!(lens(spare(&mut buf, 300).collect()), [256, 44]);
        assert_eq!(lens(spare(&mut buf, 256).collect()), [256]);
        assert_eq!(lens(spare(&mut buf, 0).collect()), [0; 0]);
        let first = spare(&mut buf, 1).next().unwrap().0;
        let with_grh: Vec<_> = spare_behind_grh(&mut buf).collect();
        assert_eq!(with_grh[0], (first - 40, 296));
        assert_eq!(lens(with_grh), [296, 256]);
    }
}
