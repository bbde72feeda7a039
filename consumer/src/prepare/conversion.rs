//! Files that git would store differently from how they are stored, although nobody has changed them.
//!
//! A `.gitattributes` that came after the files, or was not obeyed, says that their ends of lines or their content are
//! converted (gitattributes(5)). A fresh clone then has changes that nobody made: they would become part of the work, and
//! keep git from merging and rebasing. Here they are stored as they are.
//!
//! Accepted: `git add --renormalize` leaves them as they are, too. Files that git does not look into, since they were written
//! long before the index, are found only where somebody changes them.

use std::time::Duration;

use super::workspace::Workspace;
use crate::error::WorkspaceError;

/// Time limit for the list of the changes, and for writing the attributes.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// Maximum size in bytes of the list.
const MAX_LISTING: usize = 256 * 1024;
/// Git compares each file with each line of attributes: of more files, none is exempted.
const MAX_FILES: usize = 1000;

/// Lists the files that differ from the index.
const CHANGED: &str = "git -c core.fileMode=false ls-files --modified -z";

/// The files of a fresh clone that count as changed although nobody has changed them: the script that exempts them from
/// conversion, if there are any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Converted(Option<String>);

impl Converted {
    /// Looks for them. `None` if they cannot be listed, or are too many.
    pub(super) async fn find(workspace: &Workspace) -> Result<Option<Self>, WorkspaceError> {
        let changed = workspace.shell(CHANGED, TIME_LIMIT, MAX_LISTING).await?;
        if changed.exit_code != 0 || changed.stdout.is_cut() {
            return Ok(None);
        }
        let script = exempt(&String::from_utf8_lossy(&changed.stdout));
        Ok(Some(Self(script)))
    }

    /// Keeps git from converting them.
    pub(super) async fn keep_as_stored(&self, workspace: &Workspace) -> Result<(), WorkspaceError> {
        if let Some(script) = &self.0 {
            workspace.script(script, TIME_LIMIT).await?;
        }
        Ok(())
    }
}

/// The script that exempts the listed files, each of which is followed by NUL; `None` if there are none, or too many.
fn exempt(changed: &str) -> Option<String> {
    let paths: Vec<&str> = changed.split_terminator('\0').collect();
    let lines: String = paths.iter().filter_map(|path| attributes(path)).collect();
    if lines.is_empty() || paths.len() > MAX_FILES {
        return None;
    }
    // A line begins with a slash or a quotation mark.
    Some(format!(
        "mkdir -p .git/info && cat >> .git/info/attributes <<'END'\n{lines}END\n"
    ))
}

/// The line for a file: a pattern that matches it alone, in quotation marks if it has more than ordinary characters.
fn attributes(path: &str) -> Option<String> {
    if path.chars().any(char::is_control) {
        return None;
    }
    let mut pattern = String::from("/");
    for c in path.chars() {
        if "\\*?[".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    if pattern.contains(|c: char| c.is_whitespace() || "\\\"".contains(c)) {
        pattern = format!("\"{}\"", pattern.replace('\\', "\\\\").replace('"', "\\\""));
    }
    Some(format!("{pattern} -text -filter -ident\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sh;

    #[test]
    fn a_fresh_clone_has_no_changes_and_keeps_its_ends_of_lines() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // The attributes come after the files.
        sh(
            folder,
            r#"git init -q --template= . && mkdir 'a b'
            for file in plain.cs 'a b/"q" [x]*\y.cs'; do printf 'one\r\ntwo\r\n' > "$file"; done
            git add . && git commit -qm files
            echo '*.cs text' > .gitattributes && git add .gitattributes && git commit -qm attributes
            touch -d '2 seconds' *.cs */*.cs"#,
        );
        let changed = sh(folder, CHANGED);
        assert_eq!(changed, "a b/\"q\" [x]*\\y.cs\0plain.cs\0");
        sh(folder, &exempt(&changed).unwrap());
        assert_eq!(sh(folder, "git status --porcelain"), "");
        sh(folder, "printf 'three\\r\\n' >> plain.cs");
        let changes = sh(folder, "git add --all && git diff --cached --numstat");
        assert_eq!(changes, "1\t0\tplain.cs\n");
        assert_eq!(exempt(&sh(folder, CHANGED)), None);
    }
}
