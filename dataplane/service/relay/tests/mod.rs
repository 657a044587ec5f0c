//! The relay on the loopback transport, on virtual time.
//!
//! | file | what it shows |
//! |---|---|
//! | `rig`, `watch` | two relays, and a transport that counts, refuses and loses |
//! | `carry` | order, sizes, copies, where messages are cut |
//! | `credits` | back-pressure, loss, credits that are lost |
//! | `paths` | paths dying, coming back and closing |
//! | `hostile` | messages that no relay sends |
//! | `balance`, `storm` | everything at random: no frame and no buffer is lost |

mod balance;
mod carry;
mod credits;
mod hostile;
mod paths;
mod rig;
mod storm;
mod watch;
