//! Everyday repositories, made by script: one for each package manager, with one dependency, a test that
//! fails, attributes, tags and 200 commits of history. Their files are in the archives of this folder.
#![expect(
    clippy::expect_used,
    reason = "a harness: a fault of its own has to end the test at once"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::model::{Scenario, commit_and_push, edit_replace, say};
use crate::registry::Registry;

mod table;

pub use table::*;

/// A repository and the change that fixes it.
pub struct Everyday {
    /// The part after `octo/`.
    pub name: &'static str,
    /// The files: a folder (empty for the root, else with a final slash) and an archive in the txtar format of
    /// what is in it. A later file replaces an earlier one. [`Registry::fill`] is applied to the texts.
    pub layers: &'static [(&'static str, &'static str)],
    /// The file to change, the old and the new text.
    pub fix: (&'static str, &'static str, &'static str),
    /// The check that is expected to be guessed.
    pub check: &'static str,
    /// The part of the registry that the set-up has to request; empty if there is no dependency.
    pub requests: &'static str,
}

const COMMITS: usize = 200;
const ATTRIBUTES: &str = "*.sh text eol=lf\n*.png binary\n";

impl Everyday {
    /// The repository's full name.
    pub fn full_name(&self) -> String {
        format!("octo/{}", self.name)
    }

    /// A reply script that fixes it.
    pub fn scenario(&self) -> Scenario {
        let (file, old, new) = self.fix;
        Scenario::new(self.name).replies([
            edit_replace(file, old, new),
            commit_and_push("Greet by name"),
            say("It greets by name now."),
        ])
    }

    /// The paths and texts of the last commit.
    fn files(&self, registry: &Registry) -> Vec<(String, String)> {
        let mut files = vec![(".gitattributes".to_owned(), ATTRIBUTES.to_owned())];
        for (folder, archive) in self.layers {
            let entries = entries(archive).into_iter();
            files.extend(
                entries.map(|(path, text)| (format!("{folder}{path}"), registry.fill(&text))),
            );
        }
        files
    }

    /// Writes the history into the bare repository `git_dir`.
    ///
    /// # Panics
    /// If git fails.
    pub fn write(&self, git_dir: &Path, registry: &Registry) {
        let mut stream = String::from("reset refs/heads/main\n");
        for n in 1..COMMITS {
            let notes: String = (1..=n % 20 + 1)
                .map(|i| format!("- change {i}\n"))
                .collect();
            commit(&mut stream, n, &[("CHANGES.md".to_owned(), notes)]);
            if n % 50 == 0 {
                let _ = write!(
                    stream,
                    "reset refs/tags/v0.{}\nfrom refs/heads/main\n\n",
                    n / 50
                );
            }
        }
        commit(&mut stream, COMMITS, &self.files(registry));
        import(git_dir, &stream);
    }
}

/// Adds the commits of a stream of `git fast-import` to a repository.
///
/// # Panics
/// If git refuses it.
pub fn import(git_dir: &Path, stream: &str) {
    let mut import = Command::new("git")
        .arg("-C")
        .arg(git_dir)
        .args(["fast-import", "--quiet", "--force"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("git");
    let mut input = import.stdin.take().expect("its stdin");
    input.write_all(stream.as_bytes()).expect("the history");
    drop(input);
    assert!(import.wait().expect("git").success(), "git fast-import");
}

fn commit(stream: &mut String, n: usize, files: &[(String, String)]) {
    let when = 1_700_000_000 + n * 3_600;
    let message = format!("Change {n}\n");
    let _ = write!(
        stream,
        "commit refs/heads/main\ncommitter Ada <ada@example.com> {when} +0100\ndata {}\n{message}\n",
        message.len()
    );
    for (path, text) in files {
        let _ = write!(
            stream,
            "M 100644 inline {path}\ndata {}\n{text}\n",
            text.len()
        );
    }
    stream.push('\n');
}

/// The files of an archive: a line `-- PATH --` begins each of them.
fn entries(archive: &str) -> Vec<(&str, String)> {
    let mut entries: Vec<(&str, String)> = Vec::new();
    for line in archive.split_inclusive('\n') {
        let path = line
            .strip_prefix("-- ")
            .and_then(|rest| rest.strip_suffix(" --\n"));
        match (path, entries.last_mut()) {
            (Some(path), _) => entries.push((path, String::new())),
            (None, Some((_, text))) => text.push_str(line),
            (None, None) => {}
        }
    }
    entries
}
