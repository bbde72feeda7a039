//! A scripted model server that speaks OpenAI Chat Completions and Anthropic Messages, with server-sent events and without.
//!
//! Its replies depend on the request alone ([`Script`]), so it can be restarted in the middle of a
//! task. Its state is for tests only: the requests it got, the faults still to inject, and the gates at
//! which requests wait ([`ScriptedModel::hold_at`]).

mod file;
mod grammar;
mod known;
mod messages;
mod script;
mod server;
mod wire;

pub use file::{default_script, load_script};
pub use known::{loading, overflows, rate_limits, string_code, web_page};
pub use script::{
    Answer, Call, Fault, Grammar, Refusal, Scenario, Script, Turn, call, commit_and_push,
    edit_create, edit_replace, edit_view, say, shell,
};
pub use server::{Api, ScriptedModel, Seen};

#[cfg(test)]
mod tests;
