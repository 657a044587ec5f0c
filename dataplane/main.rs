//! The `isthmus` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    isthmus::cli::end_on_panic();
    isthmus::cli::main(std::env::args_os())
}
