//! Raw bindings to libdpdk, generated at build time.
