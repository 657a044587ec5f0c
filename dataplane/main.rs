//! The `isthmus` command.

fn main() {
    let path = std::env::args().nth(2).expect("isthmus run CONF");
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let file = isthmus::config::ConfigFile::load(path.as_ref()).expect("config");
    let plan = file.plan(None).expect("plan");
    if let Err(error) = isthmus::run::run(&file, plan) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
