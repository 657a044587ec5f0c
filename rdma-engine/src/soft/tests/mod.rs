//! One endpoint against a scripted peer: every frame is made and read by the test.

mod admission;
mod imprint;
mod lab;
mod recorder;
mod requester;
mod responder;
mod selective;
mod states;
mod vectors;
