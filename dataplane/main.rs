//! The `isthmus` command.

fn main() {
    let path = std::env::args().nth(2).expect("isthmus run CONF");
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::INFO).init();
    let file = isthmus::config::ConfigFile::load(path.as_ref()).expect("config");
    match isthmus::run::run(&file, &[]) {
        Ok(()) => {}
        Err(e) => {
            eprintln!("{e}");
            if let isthmus::run::RunError::Refused(p) = &e {
                for p in p {
                    eprintln!("{p}");
                }
            }
            std::process::exit(1)
        }
    }
}
