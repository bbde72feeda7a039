//! What PHP of this machine loads on the command line.
//!
//! Debian's PHP has hardly any extensions built in: those that Composer and PHPUnit need are loaded by files of `/etc/php`.
//! Other lines and files there may hold keys of services, so a jail sees only the lines with the settings in [`SHOWN`].

use std::path::{Path, PathBuf};

/// What loads an extension, and the limit of memory, which Debian lifts for the command line.
const SHOWN: [&str; 3] = ["extension", "zend_extension", "memory_limit"];

/// Where a jail needs which lines: a file for each version of PHP below `etc`, which is `/etc/php`.
pub(super) fn settings(etc: &Path) -> Vec<(PathBuf, String)> {
    let found = names(etc).into_iter().map(|version| {
        let program = etc.join(version).join("cli");
        let folder = program.join("conf.d");
        // PHP reads them in this order: some extensions need others.
        let files = names(&folder).into_iter().map(|name| folder.join(name));
        let files = std::iter::once(program.join("php.ini")).chain(files);
        let texts: Vec<String> = files
            .filter(|file| file.extension().is_some_and(|it| it == "ini"))
            .filter_map(|file| std::fs::read_to_string(file).ok())
            .collect();
        let lines = texts.iter().flat_map(|text| text.lines());
        let shown = lines.filter(|line| is_shown(line));
        let text: String = shown.map(|line| format!("{line}\n")).collect();
        (folder.join("agentmine.ini"), text)
    });
    found.filter(|(_, text)| !text.is_empty()).collect()
}

/// The entries of a folder in order; none if it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

fn is_shown(line: &str) -> bool {
    let key = line.split_once('=').map(|(key, _)| key.trim());
    key.is_some_and(|key| SHOWN.contains(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_that_load_extensions_are_shown_and_in_their_order() {
        let etc = tempfile::tempdir().unwrap();
        let folder = etc.path().join("8.4/cli/conf.d");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(etc.path().join("7.4/fpm/pool.d")).unwrap();
        for (name, text) in [
            ("20-dom.ini", "; priority=20\nextension=dom.so\n"),
            ("15-xml.ini", "extension = xml.so\n"),
            (
                "../php.ini",
                "memory_limit = -1\nmysqli.default_pw=secret\n",
            ),
            (
                "10-opcache.ini",
                "zend_extension=opcache.so\nopcache.jit=off\n",
            ),
            ("90-apm.ini", "apm.license=\"secret\"\n;extension=apm.so\n"),
            ("notes.txt", "extension=never.so\n"),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let expected =
            "memory_limit = -1\nzend_extension=opcache.so\nextension = xml.so\nextension=dom.so\n";
        assert_eq!(
            settings(etc.path()),
            [(folder.join("agentmine.ini"), expected.to_owned())]
        );
        assert!(settings(&etc.path().join("none")).is_empty());
    }
}
