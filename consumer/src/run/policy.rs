//! Denied programs in shell commands.
//!
//! This is not a security boundary; the sandbox is. The check gives the model an immediate, clear
//! error instead of a permission error later. It only looks at words in command position.

/// A denied program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{program}` may not be run here (spec 001 §6.3; config: command_executor.execution.denied_commands)"
)]
pub struct Denied {
    /// The program's name.
    pub program: String,
}

/// Words that are followed by another command.
const PREFIXES: [&str; 12] = [
    "exec", "env", "nohup", "time", "command", "builtin", "nice", "setsid", "then", "do", "else",
    "xargs",
];

/// Checks every word of `line` in command position.
///
/// # Errors
/// Returns the first denied program.
pub fn check_command(line: &str, denied: &[String]) -> Result<(), Denied> {
    for part in line.split([';', '|', '&', '\n', '(', ')', '`', '{', '}', '!']) {
        let mut words = part
            .split_whitespace()
            .map(|w| w.trim_matches(['"', '\'', '\\', '$']));
        let program = words.find(|w| {
            !w.is_empty() && !w.contains('=') && !w.starts_with('-') && !PREFIXES.contains(w)
        });
        let Some(program) = program else { continue };
        let name = program.rsplit('/').next().unwrap_or(program);
        if denied.iter().any(|d| d == name) {
            return Err(Denied {
                program: name.to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> bool {
        check_command(line, &["sudo".to_owned(), "su".to_owned()]).is_err()
    }

    #[test]
    fn a_denied_program_is_found_wherever_a_command_begins() {
        for line in [
            "sudo make",
            "make && sudo make install",
            "/usr/bin/sudo id",
            "FOO=1 env BAR=2 sudo id",
            "echo $(sudo id)",
            "true; su - root",
            "if true; then sudo id; fi",
        ] {
            assert!(refused(line), "{line} was allowed");
        }
    }

    #[test]
    fn a_denied_name_as_an_argument_is_allowed() {
        for line in [
            "grep -r sudo .",
            "cat su.txt",
            "echo sudo",
            "git log --grep=sudo",
            "npm test",
        ] {
            assert!(!refused(line), "{line} was refused");
        }
    }
}
