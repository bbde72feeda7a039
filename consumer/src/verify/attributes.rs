//! Drivers that a changed `.gitattributes` names: programs that git starts on the machines of developers who have
//! them configured, when they check out, compare or merge files (gitattributes(5)).

use std::collections::BTreeSet;

use agentmine_domain::markdown::line;
use agentmine_gateway::facts::{BareRepo, FactsError};

/// How many files are compared, and how many drivers are named.
const MAX_FILES: usize = 50;
const MAX_NAMED: usize = 5;
/// Largest file that is read, in bytes. Git ignores larger ones than 100 MiB.
const MAX_SIZE: usize = 1024 * 1024;
/// Longest name of a driver that is shown, in characters.
const MAX_NAME: usize = 60;

/// The attributes that name a driver.
const DRIVERS: [&str; 3] = ["filter=", "diff=", "merge="];
/// Drivers that are built into git, which start no program (gitattributes(5)).
const BUILT_IN: [&str; 29] = [
    "ada", "bash", "bibtex", "binary", "cpp", "csharp", "css", "dts", "elixir", "fortran",
    "fountain", "golang", "html", "java", "kotlin", "markdown", "matlab", "objc", "pascal", "perl",
    "php", "python", "ruby", "rust", "scheme", "tex", "text", "union", "ini",
];

/// What the new drivers of each changed file are, as `(drivers, path)`.
pub(super) async fn new_drivers(
    repo: &BareRepo,
    base: &str,
    head: &str,
) -> Result<Vec<(String, String)>, FactsError> {
    let files = repo
        .changed(base, head, &[":(top,icase,glob)**/.gitattributes"])
        .await?;
    let mut found = Vec::new();
    for file in files.files.into_iter().take(MAX_FILES) {
        let (old, new) = tokio::try_join!(
            repo.file(base, &file.path, MAX_SIZE),
            repo.file(head, &file.path, MAX_SIZE)
        )?;
        let [old, new] = [old, new].map(|file| drivers(&file.unwrap_or_default()));
        let added: Vec<&str> = new.difference(&old).map(String::as_str).collect();
        if !added.is_empty() {
            found.push((named(&added), file.path));
        }
    }
    Ok(found)
}

fn named(drivers: &[&str]) -> String {
    let shown: Vec<String> = drivers
        .iter()
        .take(MAX_NAMED)
        .map(|driver| line(driver, MAX_NAME))
        .collect();
    match drivers.len().saturating_sub(MAX_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The drivers that are named in a file of attributes, as `filter=NAME`.
fn drivers(file: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(file);
    let words = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(str::split_whitespace);
    words
        .filter(|word| {
            DRIVERS.iter().any(|attribute| {
                word.strip_prefix(attribute)
                    .is_some_and(|name| !name.is_empty() && !BUILT_IN.contains(&name))
            })
        })
        .map(ToOwned::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_that_start_programs_are_found_and_others_are_not() {
        let file =
            b"# filter=no\n*.bin filter=lfs diff=lfs merge=lfs -text\n*.py diff=python text=auto\n\
                     \"a b\" merge=union eol=lf\n[attr]evil filter=evil\n*.x diff=\n";
        let found: Vec<String> = drivers(file).into_iter().collect();
        assert_eq!(
            found,
            ["diff=lfs", "filter=evil", "filter=lfs", "merge=lfs"]
        );
    }

    #[test]
    fn a_long_list_is_shortened() {
        let drivers = [
            "filter=a", "filter=b", "filter=c", "filter=d", "filter=e", "filter=f",
        ];
        let text = named(&drivers);
        assert_eq!(
            text,
            "filter=a, filter=b, filter=c, filter=d, filter=e and 1 more"
        );
    }
}
