//! Values as `rte_tel_data`.

#![allow(unsafe_code)] // Fills DPDK's opaque structure through its functions.

use std::borrow::Cow;
use std::ffi::CString;

use dpdk_sys as sys;

use super::Value;

/// DPDK's limits (`RTE_TEL_MAX_*`), one less each for the mark of a cut.
const DICT_MAX: usize = 255;
const ARRAY_MAX: usize = 511;
const TEXT_MAX: usize = 127;
const ROOT_TEXT_MAX: usize = 8191;
/// Deepest nesting; a value is a tree, so this only stops mistakes.
const DEPTH_MAX: usize = 8;

/// Fills `out` with `value`. A lone number becomes `{"value": n}`: DPDK has no such answer.
///
/// # Safety
/// `out` is a valid, empty `rte_tel_data`.
pub(super) unsafe fn root(out: *mut sys::rte_tel_data, value: &Value) {
    // SAFETY: by the caller's word.
    unsafe {
        match value {
            Value::Text(text) => {
                sys::rte_tel_data_string(out, c_text(text, ROOT_TEXT_MAX).as_ptr());
            }
            value => container(out, value, 0),
        }
    }
}

/// # Safety
/// `out` is a valid, empty `rte_tel_data`.
unsafe fn container(out: *mut sys::rte_tel_data, value: &Value, depth: usize) {
    // SAFETY: by the caller's word; every function below only adds to `out`.
    unsafe {
        match value {
            Value::Dict(entries) => {
                sys::rte_tel_data_start_dict(out);
                for (name, value) in entries.iter().take(DICT_MAX) {
                    add_to_dict(out, name, value, depth);
                }
                if let Some(cut @ 1..) = entries.len().checked_sub(DICT_MAX) {
                    add_to_dict(out, "truncated", &Value::U64(cut as u64), depth);
                }
            }
            Value::Array(values) => match kind_of(values) {
                Some(kind) => array(out, kind, values),
                // DPDK 22.11 has no arrays of dictionaries, and prints arrays of arrays in one place only.
                None => {
                    let by_index = |(i, v): (usize, &Value)| (i.to_string(), v.clone());
                    container(out, &Value::Dict(values.iter().enumerate().map(by_index).collect()), depth);
                }
            },
            scalar => {
                sys::rte_tel_data_start_dict(out);
                add_to_dict(out, "value", scalar, depth);
            }
        }
    }
}

/// # Safety
/// `out` is a dictionary.
unsafe fn add_to_dict(out: *mut sys::rte_tel_data, name: &str, value: &Value, depth: usize) {
    let name = c_text(&clean_name(name), TEXT_MAX);
    // SAFETY: by the caller's word; DPDK copies names and strings.
    unsafe {
        match value {
            Value::Text(text) => {
                sys::rte_tel_data_add_dict_string(out, name.as_ptr(), c_text(text, TEXT_MAX).as_ptr());
            }
            Value::U64(n) => {
                sys::dpdk_sys_tel_add_dict_u64(out, name.as_ptr(), *n);
            }
            Value::I64(n) => match (u64::try_from(*n), i32::try_from(*n)) {
                (Ok(n), _) => add_to_dict(out, &name.to_string_lossy(), &Value::U64(n), depth),
                (_, Ok(n)) => {
                    sys::rte_tel_data_add_dict_int(out, name.as_ptr(), n as _);
                }
                // Negative beyond 32 bits: this DPDK has no number for it.
                _ => add_to_dict(out, &name.to_string_lossy(), &Value::Text(n.to_string()), depth),
            },
            Value::Dict(_) | Value::Array(_) => with_child(value, depth, |child| {
                sys::rte_tel_data_add_dict_container(out, name.as_ptr(), child, 0)
            }),
        }
    }
}

/// # Safety
/// `out` is a valid, empty `rte_tel_data`.
unsafe fn array(out: *mut sys::rte_tel_data, kind: Kind, values: &[Value]) {
    let values = &values[..values.len().min(ARRAY_MAX + 1)];
    let (kept, cut) = values.split_at(values.len().min(ARRAY_MAX));
    // SAFETY: by the caller's word; what is added is of the kind the array was started with.
    unsafe {
        match kind {
            Kind::U64 => {
                sys::dpdk_sys_tel_start_u64_array(out);
                for value in kept {
                    sys::dpdk_sys_tel_add_array_u64(out, as_i128(value) as u64);
                }
            }
            Kind::Int => {
                sys::rte_tel_data_start_array(out, sys::RTE_TEL_INT_VAL);
                for value in kept {
                    sys::rte_tel_data_add_array_int(out, as_i128(value) as _);
                }
            }
            Kind::Text => {
                sys::rte_tel_data_start_array(out, sys::RTE_TEL_STRING_VAL);
                for value in kept.iter().map(as_text).chain(cut.iter().map(|_| "truncated".into())) {
                    sys::rte_tel_data_add_array_string(out, c_text(&value, TEXT_MAX).as_ptr());
                }
            }
        }
    }
}

/// Makes a value of its own for a container and hands it to its parent, which frees it later.
///
/// # Safety
/// `add` adds the value it gets to a container, or returns an error.
unsafe fn with_child(value: &Value, depth: usize, add: impl FnOnce(*mut sys::rte_tel_data) -> i32) {
    if depth == DEPTH_MAX {
        return;
    }
    // SAFETY: the child is fresh; it is freed here unless the parent took it.
    unsafe {
        let child = sys::rte_tel_data_alloc();
        if child.is_null() {
            return;
        }
        container(child, value, depth + 1);
        if add(child) != 0 {
            sys::rte_tel_data_free(child);
        }
    }
}

/// What an array can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    U64,
    /// Signed, of 32 bits in DPDK 22.11.
    Int,
}

/// The one kind that all values of an array can have; `None` if some are not scalar.
fn kind_of(values: &[Value]) -> Option<Kind> {
    let numbers = || values.iter().map(as_i128);
    if values.iter().any(|v| matches!(v, Value::Dict(_) | Value::Array(_))) {
        return None;
    }
    Some(if values.iter().any(|v| matches!(v, Value::Text(_))) {
        Kind::Text
    } else if numbers().all(|n| n >= 0) {
        Kind::U64
    } else if numbers().all(|n| i32::try_from(n).is_ok()) {
        Kind::Int
    } else {
        Kind::Text
    })
}

fn as_i128(value: &Value) -> i128 {
    match value {
        Value::U64(n) => (*n).into(),
        Value::I64(n) => (*n).into(),
        _ => 0,
    }
}

fn as_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Text(text) => Cow::Borrowed(text),
        number => Cow::Owned(as_i128(number).to_string()),
    }
}

/// A name as it stands in a dictionary: characters other than letters, digits, `/` and `_` become `_`.
pub fn clean_name(name: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '/' || c == '_' { c } else { '_' };
    name.chars().map(clean).collect()
}

/// Printable ASCII, at most `max` bytes: DPDK 22.11 makes broken JSON of anything else.
fn c_text(text: &str, max: usize) -> CString {
    let printable = |c: char| if matches!(c, ' '..='~') { c as u8 } else { b'?' };
    CString::new(text.chars().map(printable).take(max).collect::<Vec<u8>>()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_one_kind() {
        use Value::{I64, U64};
        assert_eq!(kind_of(&[U64(1), I64(2)]), Some(Kind::U64));
        assert_eq!(kind_of(&[U64(1), I64(-2)]), Some(Kind::Int));
        assert_eq!(kind_of(&[U64(u64::MAX), I64(-2)]), Some(Kind::Text));
        assert_eq!(kind_of(&[U64(1), "a".into()]), Some(Kind::Text));
        assert_eq!(kind_of(&[U64(1), Value::Array(Vec::new())]), None);
    }

    #[test]
    fn text_is_plain_and_short() {
        assert_eq!(c_text("aé\0b", 9).as_c_str(), c"a??b");
        assert_eq!(c_text("abc", 2).as_c_str(), c"ab");
        assert_eq!(clean_name("rx.bytes 1"), "rx_bytes_1");
    }
}
