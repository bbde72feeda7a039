//! Ours compared with git's.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::delta::{blob_delta, tree_delta};
use super::objects::{ObjectType, name};
use super::pattern::Pattern;
use super::rules::{AllRules, Rules};

fn git(folder: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().stdout
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn line(&mut self) -> String {
        const PARTS: [&str; 26] = [
            "a", "b", "ab", "*", "?", "**", "/", "/", "**/", "/**", "[ab]", "[!a]", "[a-c]", "\\a",
            "\\*", ".x", "*.x", "a*", "a b", " ", "#", "!", "x", "[^b]", "[]a]", "[\\]a-]",
        ];
        (0..=self.below(4))
            .map(|_| PARTS[self.below(PARTS.len())])
            .collect()
    }
}

#[test]
fn files_are_ignored_as_git_ignores_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    git(at, &["init", "-q"], b"");
    let folders = ["a", "b", "a/ab", "a/b", "ab", "a/b/x", "c", "b/a b"];
    let names = [
        "a", "b", "ab", "x", "a.x", "b.x", "a b", "#", "!", "*", "ba", "]", "#a", "-",
    ];
    let mut all: Vec<(String, bool)> = Vec::new();
    for folder in folders {
        std::fs::create_dir_all(at.join(folder)).unwrap();
        all.push((folder.to_owned(), true));
    }
    for folder in ["."].into_iter().chain(folders) {
        for name in names {
            let path = Path::new(folder).join(name);
            let path = path.strip_prefix(".").unwrap_or(&path);
            if !at.join(path).exists() {
                std::fs::write(at.join(path), "").unwrap();
                all.push((path.to_str().unwrap().to_owned(), false));
            }
        }
    }
    let asked: Vec<u8> = all
        .iter()
        .flat_map(|(path, _)| [path.as_bytes(), b"\0"].concat())
        .collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut compared, mut ignored) = (0, 0);
    for _ in 0..400 {
        let mut rules = AllRules::new(Vec::new(), Vec::new(), false);
        let mut are_certain = true;
        for folder in ["", "a", "a/b"] {
            let lines: Vec<String> = (0..random.below(4)).map(|_| random.line()).collect();
            let file = lines.join(if random.below(5) == 0 { "\r\n" } else { "\n" });
            std::fs::write(at.join(folder).join(".gitignore"), &file).unwrap();
            let mut own = Rules::default();
            are_certain &= own.ignore(file.as_bytes()).is_ok();
            rules.set(folder.as_bytes(), own);
        }
        if !are_certain {
            continue;
        }
        let shown = git(at, &["check-ignore", "--no-index", "-z", "--stdin"], &asked);
        let theirs: BTreeSet<&[u8]> = shown
            .split(|&byte| byte == 0)
            .filter(|it| !it.is_empty())
            .collect();
        for (path, is_folder) in &all {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let in_ignored = !parent.is_empty() && theirs.contains(parent.as_bytes());
            let Ok(ours) = rules.ignores(path.as_bytes(), *is_folder) else {
                continue;
            };
            let is_ignored = ours || in_ignored;
            let files = ["", "a/", "a/b/"]
                .map(|it| std::fs::read_to_string(at.join(format!("{it}.gitignore"))).unwrap());
            assert_eq!(
                is_ignored,
                theirs.contains(path.as_bytes()),
                "{path} with {files:?}"
            );
            compared += 1;
            ignored += u32::from(is_ignored);
        }
    }
    assert!(compared > 10_000 && ignored > 1000, "{compared}, {ignored}");
}

#[test]
fn a_pattern_that_takes_for_ever_is_given_up() {
    let pattern = Pattern::new(b"*a*a*a*a*a*a*a*a*a*b").unwrap().unwrap();
    let path = vec![b'a'; 200];
    assert!(pattern.matches(&path, false).is_err());
}

#[test]
fn names_are_those_of_git() {
    let folder = tempfile::tempdir().unwrap();
    for content in [&b""[..], b"x\n", &[7; 100_000]] {
        let theirs = git(folder.path(), &["hash-object", "--stdin"], content);
        let ours = name(ObjectType::Blob, content).unwrap().to_string();
        assert_eq!(ours, String::from_utf8(theirs).unwrap().trim());
    }
}

#[test]
fn the_difference_of_large_trees_is_small() {
    let tree = |changed: usize| -> Vec<u8> {
        let entries = (0..1000).filter(|n| n % 7 != changed % 7).flat_map(|n| {
            let oid = [if n == changed { 1 } else { 2 }; 20];
            [format!("100644 file_{n:04}\0").as_bytes(), &oid].concat()
        });
        entries.collect()
    };
    let (old, new) = (tree(0), tree(7));
    assert!(tree_delta(&old[..100], &new[..100]).is_none());
    assert_eq!(applied(&old, &tree_delta(&old, &new).unwrap()), new);
    let all = tree(3);
    // Everything moves by one entry, in and out.
    if let Some(delta) = tree_delta(&old, &all) {
        assert_eq!(applied(&old, &delta), all);
    }
    let one = [&old[..37 * 10], &old[37 * 11..]].concat();
    let delta = tree_delta(&old, &one).unwrap();
    assert!(delta.len() < 40, "{}", delta.len());
    assert_eq!(applied(&old, &delta), one);
}

#[test]
fn the_difference_of_two_files_is_what_they_do_not_share() {
    let old: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let with = |from: usize, to: usize, new: &[u8]| [&old[..from], new, &old[to..]].concat();
    let news = [
        old.clone(),
        with(0, 0, b"at the start"),
        with(400_000, 400_000, b"at the end"),
        with(200_000, 200_001, b""),
        with(200_000, 210_000, &[7; 300]),
        with(0, 1, b""),
        with(399_999, 400_000, b""),
        // The same bytes before and after what was inserted.
        with(8, 8, &old[..8]),
        [&old[..], &old].concat(),
    ];
    for new in &news[..8] {
        let delta = blob_delta(&old, new).unwrap();
        assert!(delta.len() < 500, "{}", delta.len());
        assert_eq!(&applied(&old, &delta), new);
    }
    assert_eq!(blob_delta(&old, &news[8]), None);
    let text = |own: [usize; 2]| -> Vec<u8> {
        let lines = (0..10_000).map(|n| match own.contains(&n) {
            true => format!("{n} is another one\n"),
            // Many are the same.
            false if n % 3 == 0 => "}\n".to_owned(),
            false => format!("line {n}\n"),
        });
        lines.collect::<String>().into_bytes()
    };
    let (old, new) = (text([3, 8000]), text([700, 9999]));
    let delta = blob_delta(&old, &new).unwrap();
    assert!(delta.len() < 500, "{}", delta.len());
    assert_eq!(applied(&old, &delta), new);
    assert_eq!(blob_delta(b"", b""), None);
    assert_eq!(blob_delta(&old, b""), None);
}

/// What a difference makes of a base (gitformat-pack(5)).
fn applied(base: &[u8], delta: &[u8]) -> Vec<u8> {
    let mut at = 0;
    let mut length = || {
        let mut length = 0;
        for shift in (0..).step_by(7) {
            length |= usize::from(delta[at] & 0x7f) << shift;
            at += 1;
            if delta[at - 1] & 0x80 == 0 {
                break;
            }
        }
        length
    };
    let (from, to) = (length(), length());
    assert_eq!(from, base.len());
    let mut out = Vec::new();
    while at < delta.len() {
        let code = delta[at];
        at += 1;
        if code & 0x80 == 0 {
            out.extend(&delta[at..at + usize::from(code)]);
            at += usize::from(code);
            continue;
        }
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte))
        };
        let (offset, size) = (number(&delta[at..at + 4]), number(&delta[at + 4..at + 7]));
        out.extend(&base[offset..offset + size]);
        at += 7;
    }
    assert_eq!(out.len(), to);
    out
}
