//! Frames to send: one unique buffer each, headers and payload copied into it, the ICRC over both.

use crate::buf::{Buf, Pool};
use crate::wire::{Bth, ExtendedHeaders, HeaderTemplate, Tail};

/// Makes a frame of `len` payload bytes that `put` writes; `None` if the pool is dry.
///
/// Buffers are large enough for the longest frame: that is checked when the worker is made.
#[inline]
pub(crate) fn build<P: Pool, H: ExtendedHeaders>(
    pool: &P,
    icrc: bool,
    template: &HeaderTemplate,
    bth: Bth,
    extended: &H,
    len: usize,
    put: impl FnOnce(&mut [u8]),
) -> Option<P::Buf> {
    let mut buf = pool.alloc()?;
    let head = template.headroom::<H>();
    let pad = Bth::pad_for(len);
    let frame = buf.append(head + len + usize::from(pad) + crate::wire::icrc::LEN)?;
    let (headers, rest) = frame.split_at_mut(head);
    let (payload, tail) = rest.split_at_mut(len);
    // Any identification will do, as nothing is fragmented; the PSN makes captures easier to read.
    let id = bth.psn.value() as u16;
    let bth = bth.with_migrated(true);
    // Two ways, for what the seal needs is kept on one of them only.
    if icrc {
        let written = template.write_headers(headers, len, id, bth, extended);
        put(payload);
        written.seal([&*payload]).write(tail);
    } else {
        template.write_headers(headers, len, id, bth, extended);
        put(payload);
        Tail::new(pad, [0; 4]).write(tail);
    }
    Some(buf)
}
