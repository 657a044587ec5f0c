//! The Isthmus application: configuration, workers, services and control.
