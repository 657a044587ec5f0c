//! Man page and shell completions.

use clap::{Command, Subcommand};
use clap_complete::Shell;

use super::args;

/// What to print.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum What {
    /// The man page, in roff
    Man,
    /// A completion script
    Completions {
        /// Shell it is for
        shell: Shell,
    },
}

/// The text of it.
pub(super) fn text(what: What) -> String {
    match what {
        What::Man => man(args::command()),
        What::Completions { shell } => {
            let mut bytes = Vec::new();
            clap_complete::generate(shell, &mut args::command(), "isthmus", &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}

/// One page for all commands: they are few.
fn man(command: Command) -> String {
    let command = command.version(env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command.clone());
    let mut head = Vec::new();
    // Writing to memory cannot fail.
    let written = page
        .render_title(&mut head)
        .and_then(|()| page.render_name_section(&mut head))
        .and_then(|()| page.render_synopsis_section(&mut head))
        .and_then(|()| page.render_description_section(&mut head));
    debug_assert!(written.is_ok(), "{written:?}");
    let mut text = String::from_utf8_lossy(&head).into_owned();
    text.push_str(".SH COMMANDS\n");
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        text.push_str(&command_entry(sub));
    }
    if let Some(after) = command.get_after_help() {
        text.push_str(&format!(".SH NOTES\n.nf\n{}\n.fi\n", roff(&after.to_string())));
    }
    text
}

fn command_entry(command: &Command) -> String {
    let positional = command.get_positionals().filter_map(|arg| arg.get_value_names()?.first().cloned());
    let words: Vec<String> = positional.map(|name| format!("\\fI{}\\fR", roff(&name))).collect();
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let mut text =
        format!(".TP\n\\fB{}\\fR {}\n{}\n", roff(command.get_name()), words.join(" "), roff(&about));
    for option in command.get_opts().chain(command.get_arguments().filter(|arg| arg.get_num_args().is_none()))
    {
        if let Some(long) = option.get_long() {
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!(".RS\n.TP\n\\fB\\-\\-{}\\fR\n{}\n.RE\n", roff(long), roff(&help)));
        }
    }
    text
}

/// Text that roff takes literally.
fn roff(text: &str) -> String {
    let line = |line: &str| {
        let plain = line.replace('\\', "\\e").replace('-', "\\-");
        if plain.starts_with(['.', '\'']) { format!("\\&{plain}") } else { plain }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_man_page_names_every_command_and_exit_code() {
        let page = text(What::Man);
        for part in
            [".TH isthmus 1", "\\fBrun\\fR \\fICONF\\fR", "\\fBcheck\\fR", "\\-\\-json", "Exit codes:"]
        {
            assert!(page.contains(part), "{part} in\n{page}");
        }
        assert!(!page.contains("generate"));
    }

    #[test]
    fn completions_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = text(What::Completions { shell });
            assert!(script.contains("devices") && script.contains("check"), "{shell}");
        }
    }

    #[test]
    fn roff_is_kept_from_seeing_requests() {
        assert_eq!(roff(".x\n-l \\n"), "\\&.x\n\\-l \\en");
    }
}
