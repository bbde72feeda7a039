//! The cycle of calls that the benchmarks of whole steps request: a command that does nothing, a new file of 2 KB, an
//! edit of it, a view of it.

/// What each call of the cycle is.
pub(crate) const KINDS: [&str; 4] = ["no-op command", "create 2 KB", "edit", "view"];

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Command(String),
    Create {
        file: String,
        text: String,
    },
    /// One whole line is replaced.
    Edit {
        file: String,
        old: String,
        new: String,
    },
    View {
        file: String,
    },
}

impl Act {
    /// The call at step `n`, counted from 0.
    pub(crate) fn at(n: usize) -> Self {
        let file = format!("new_{}.txt", n / KINDS.len());
        let line = |line: usize, n: usize| format!("line {line} of the new file no. {n}");
        match n % KINDS.len() {
            0 => Self::Command(format!(": {n}")),
            1 => Self::Create {
                file,
                text: (0..50).map(|at| line(at, n) + "\n").collect(),
            },
            2 => Self::Edit {
                file,
                old: line(25, n - 1),
                new: edited(n),
            },
            _ => Self::View { file },
        }
    }
}

/// The line that the edit at step `n` writes.
pub(crate) fn edited(n: usize) -> String {
    format!("line {n} was changed")
}
