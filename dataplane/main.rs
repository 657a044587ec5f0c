//! The `isthmus` command.

fn main() {}
