//! What to do with a command.

/// What to do with a command. A greater value is stricter.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShellVerdict {
    /// Run it.
    #[default]
    Allow,
    /// Run it if the user agrees; the reason for asking.
    Ask(String),
    /// Do not run it.
    Deny(Refusal),
}

/// Why a command is not run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// It cannot be parsed with certainty; the construct that prevents it.
    #[error(
        "it cannot be parsed with certainty ({0}), so it is not run; simplify it or split it into several calls"
    )]
    Unclear(String),
    /// A built-in rule matches; its reason.
    #[error("{0}")]
    Builtin(String),
    /// One of the operator's rules matches.
    #[error("the operator's rule {rule:?} refuses {program}")]
    Rule {
        /// The rule as it was written.
        rule: String,
        /// The program that it matched.
        program: String,
    },
}
