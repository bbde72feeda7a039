//! The start of the work: the base commit and the project's set-up and checks.

use serde::{Deserialize, Serialize};

use crate::text::on_one_line;

/// The base commit and the checks that the work is measured against. Recorded before the agent begins,
/// so that a later attempt does not read them from commits that the agent has pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The base commit.
    pub base: String,
    /// The commit of the work branch that a rebase onto the base commit replaces, if that is what the work is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebases: Option<String>,
    /// The commit whose files declare the checks, the set-up and the MCP servers, if that is not the base commit: the work is on an
    /// existing pull request, and the commit is one of its target branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// How the repository is set up and checked.
    pub project: Project,
}

/// How a repository is set up and checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    /// Shell commands that prepare a fresh clone.
    pub setup: Vec<String>,
    /// Shell commands that must succeed.
    pub checks: Vec<String>,
    /// Where the checks come from.
    pub checks_from: String,
    /// Whether the checks were guessed: one that cannot start in the sandbox does not count.
    pub guessed: bool,
    /// Why the repository's settings file was not used.
    pub warning: Option<String>,
    /// What was omitted from the set-up, and why.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Checks of the agent's definition of done, in addition to those of the project. They are never guessed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<DoneCheck>,
    /// What a clone lacks.
    #[serde(default, skip_serializing_if = "Absent::is_nothing")]
    pub absent: Absent,
}

/// What a clone lacks of a repository, since nothing serves it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// How many files are pointers of Git LFS.
    #[serde(default)]
    pub lfs_pointers: u64,
    /// The paths of the submodules.
    #[serde(default)]
    pub submodules: Vec<String>,
}

/// How many submodules are named.
const MAX_SUBMODULES: usize = 10;
/// Maximum length of a submodule's path that is shown, in bytes.
const MAX_PATH: usize = 200;

impl Absent {
    /// Whether the clone is complete.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Sentences for people and for the model.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let lfs = (self.lfs_pointers > 0).then(|| {
            let files = match self.lfs_pointers {
                1 => "1 file is".to_owned(),
                count => format!("{count} files are"),
            };
            format!(
                "{files} in Git LFS: the clone has only pointers, short texts in place of the content. A change of such a \
                 file cannot be published."
            )
        });
        let named = self.submodules.iter().take(MAX_SUBMODULES);
        let named: Vec<String> = named
            .map(|path| format!("`{}`", on_one_line(path, MAX_PATH).replace('`', "'")))
            .collect();
        let more = match self.submodules.len().saturating_sub(MAX_SUBMODULES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let submodules = (!named.is_empty()).then(|| {
            let named = named.join(", ");
            format!("Submodules that are not checked out, so that their folders are empty: {named}{more}.")
        });
        lfs.into_iter().chain(submodules).collect()
    }
}

/// A check of an agent's definition of done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneCheck {
    /// Its name.
    pub name: String,
    /// A shell command that must succeed.
    pub command: String,
    /// Its time limit in seconds, if it has one of its own.
    pub timeout_seconds: Option<u64>,
}

impl Project {
    /// All checks, each once.
    #[must_use]
    pub fn all_checks(&self) -> Vec<&str> {
        let own = self.checks.iter().map(String::as_str);
        let others = self.done.iter().map(|check| check.command.as_str());
        let others = others.filter(|line| !self.checks.iter().any(|own| own == line));
        let mut all: Vec<&str> = own.collect();
        for line in others {
            if !all.contains(&line) {
                all.push(line);
            }
        }
        all
    }

    /// Whether this check was only guessed.
    #[must_use]
    pub fn is_guessed(&self, command: &str) -> bool {
        self.guessed && !self.done.iter().any(|check| check.command == command)
    }

    /// The lowest time limit that a definition of done gives this check, in seconds.
    #[must_use]
    pub fn limit_of(&self, command: &str) -> Option<u64> {
        let of_command = self.done.iter().filter(|check| check.command == command);
        of_command.filter_map(|check| check.timeout_seconds).min()
    }
}

impl Start {
    pub(crate) fn redacted(self, redact: &dyn Fn(String) -> String) -> Self {
        let Self {
            base,
            rebases,
            rules,
            project,
        } = self;
        let Project {
            setup,
            checks,
            checks_from,
            guessed,
            warning,
            notes,
            done,
            absent: Absent {
                lfs_pointers,
                submodules,
            },
        } = project;
        Self {
            base: redact(base),
            rebases: rebases.map(redact),
            rules: rules.map(redact),
            project: Project {
                setup: setup.into_iter().map(redact).collect(),
                checks: checks.into_iter().map(redact).collect(),
                checks_from: redact(checks_from),
                guessed,
                warning: warning.map(redact),
                notes: notes.into_iter().map(redact).collect(),
                done: done
                    .into_iter()
                    .map(|check| DoneCheck {
                        name: redact(check.name),
                        command: redact(check.command),
                        timeout_seconds: check.timeout_seconds,
                    })
                    .collect(),
                absent: Absent {
                    lfs_pointers,
                    submodules: submodules.into_iter().map(redact).collect(),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(name: &str, command: &str, timeout_seconds: Option<u64>) -> DoneCheck {
        DoneCheck {
            name: name.into(),
            command: command.into(),
            timeout_seconds,
        }
    }

    fn project() -> Project {
        Project {
            checks: vec!["make test".into(), "make lint".into()],
            guessed: true,
            done: vec![
                done("lint", "make lint", Some(90)),
                done("docs", "make docs", None),
                done("links", "make docs", Some(30)),
                done("slow links", "make docs", Some(60)),
            ],
            ..Project::default()
        }
    }

    #[test]
    fn each_check_is_listed_once_those_of_the_project_first() {
        assert_eq!(
            project().all_checks(),
            ["make test", "make lint", "make docs"]
        );
    }

    #[test]
    fn a_check_that_a_definition_of_done_names_is_not_guessed() {
        let mut project = project();
        let guessed = |project: &Project| {
            ["make test", "make lint", "make docs"].map(|command| project.is_guessed(command))
        };
        assert_eq!(guessed(&project), [true, false, false]);
        project.guessed = false;
        assert_eq!(guessed(&project), [false, false, false]);
    }

    #[test]
    fn each_part_that_a_clone_lacks_has_one_sentence() {
        assert!(Absent::default().sentences().is_empty());
        let absent = Absent {
            lfs_pointers: 2,
            submodules: (0..12).map(|n| format!("lib/{n}\n")).collect(),
        };
        let sentences = absent.sentences();
        assert!(sentences[0].starts_with("2 files are in Git LFS: "));
        assert!(
            sentences[1].contains(" `lib/0`, `lib/1`, ") && sentences[1].ends_with(" and 2 more.")
        );
        assert_eq!(sentences.len(), 2);
    }

    #[test]
    fn the_lowest_limit_of_a_check_holds() {
        let limits =
            ["make test", "make lint", "make docs"].map(|command| project().limit_of(command));
        assert_eq!(limits, [None, Some(90), Some(30)]);
    }
}
