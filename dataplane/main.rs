//! The `isthmus` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    isthmus::cli::main(std::env::args_os())
}
