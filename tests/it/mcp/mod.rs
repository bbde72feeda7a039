//! The client manager against servers: real ones that nobody here wrote, and one that does everything
//! wrong.

mod command_line;
mod conformance;
mod faulty;
mod real;
mod rig;
