//! The agreement of a person to what cannot be undone.

use std::io::{self, BufRead, IsTerminal as _, Write as _};

use agentmine_runtime::exit::{Exit, Failure};

/// Whether a person has agreed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub(crate) struct Agreement {
    /// Do not ask; required without a terminal
    #[arg(long)]
    yes: bool,
}

impl Agreement {
    /// Asks at the terminal, unless the person has agreed already. `what`: what happens, as a sentence without its period.
    ///
    /// # Errors
    /// [`Exit::Validation`] if there is nobody to ask, [`Exit::Other`] if the person does not agree.
    pub(crate) fn require(self, what: &str) -> Result<(), Failure> {
        match io::stdin().is_terminal() && io::stderr().is_terminal() {
            true => self.require_from(what, Some(&mut io::stdin().lock())),
            false => self.require_from(what, None),
        }
    }

    fn require_from(self, what: &str, person: Option<&mut dyn BufRead>) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let Some(person) = person else {
            let message = format!("{what}; expected --yes, since there is no terminal to ask at");
            return Err(
                Failure::new(Exit::Validation, message).hint("add --yes if that is what you want")
            );
        };
        // If stderr is closed, nobody answers.
        let _ = write!(io::stderr(), "{what}. Continue? [y/N] ");
        let mut answer = String::new();
        let is_read = person.read_line(&mut answer).is_ok();
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" if is_read => Ok(()),
            _ => Err(Failure::new(Exit::Other, "nothing was changed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_undone_needs_a_yes() {
        let given = |yes: bool, answer: Option<&str>| {
            let mut answer = answer.map(str::as_bytes);
            let person = answer.as_mut().map(|it| it as &mut dyn BufRead);
            let outcome = Agreement { yes }.require_from("It is gone", person);
            outcome.map_err(|error| Exit::of(&error.into()))
        };
        assert_eq!(given(true, None), Ok(()));
        assert_eq!(given(false, None), Err(Exit::Validation));
        for agreed in ["y\n", "YES\n"] {
            assert_eq!(given(false, Some(agreed)), Ok(()));
        }
        for refused in ["", "\n", "n\n", "yesterday\n"] {
            assert_eq!(given(false, Some(refused)), Err(Exit::Other), "{refused:?}");
        }
    }
}
