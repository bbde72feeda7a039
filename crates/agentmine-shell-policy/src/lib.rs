//! What a shell command line would run, and whether it may (spec 004 §3).
//!
//! A line is parsed before it is judged, so spacing, quotes, paths, wrappers (`env`, `xargs`, `sh -c`)
//! and substitutions do not hide a program. `shell_exec` refuses what cannot be parsed and asks the user
//! about a program or an option that only a running shell knows. The fleet's command tool applies the
//! operator's rules alone.
//!
//! This is a guard rail against mistakes and not a sandbox: scripts, makefiles and programs that a line
//! runs from files are not examined.

mod builtin;
mod expand;
mod parse;
mod policy;
mod rule;
mod script;
#[cfg(test)]
mod tests;
mod value;
mod verdict;
mod wrappers;

pub use policy::{BuiltinRules, ShellCommand, ShellPolicy};
pub use rule::EmptyRule;
pub use verdict::{Refusal, ShellVerdict};
