//! Checks what the build needs.

fn main() {}
