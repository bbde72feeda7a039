//! Which programs a command line may not start.
//!
//! A courtesy to the model, which is told at once instead of meeting a permission error; the
//! sandbox itself is what holds. So a shell line is read roughly: words at command positions.

/// A program that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{program}` may not be run here (spec 001 §6.3; config: command_executor.execution.denied_commands)"
)]
pub struct Denied {
    /// Its name.
    pub program: String,
}

/// Words that start another command behind them.
const PREFIXES: [&str; 12] = [
    "exec", "env", "nohup", "time", "command", "builtin", "nice", "setsid", "then", "do", "else",
    "xargs",
];

/// Checks every word of `line` that stands where a program's name stands.
///
/// # Errors
/// The first refused program.
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
            assert!(refused(line), "{line} was let through");
        }
    }

    #[test]
    fn a_denied_name_as_an_argument_is_no_command() {
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
