//! One endpoint against a scripted peer: every frame is made and read by the test.

mod admission;
mod lab;
mod requester;
mod responder;
mod states;
mod vectors;
