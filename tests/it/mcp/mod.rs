//! The client manager with servers: real third-party ones, and one that does everything wrong.

mod command_line;
mod conformance;
mod faulty;
mod real;
mod rig;
pub(crate) mod served;
