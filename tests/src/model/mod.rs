//! A scripted model server that speaks OpenAI Chat Completions, with server-sent events and without.
//!
//! What it says is decided by the request alone ([`Script`]), so it may be stopped and started in the
//! middle of a task. What it remembers is for tests: the requests it saw, the faults it has yet to
//! make, and the gates at which requests wait ([`ScriptedModel::hold_at`]).

mod file;
mod script;
mod server;
mod wire;

pub use file::{default_script, load_script};
pub use script::{
    Answer, Call, Fault, Scenario, Script, Turn, call, commit_and_push, edit_create, edit_replace,
    edit_view, say, shell,
};
pub use server::{ScriptedModel, Seen};

#[cfg(test)]
mod tests;
