use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::AllowedRoots;

struct Fixture {
    outer: TempDir,
    root: PathBuf,
    tool: FileWrite,
}

fn fixture() -> Fixture {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(&root).unwrap();
    fs::create_dir(outer.path().join("outside")).unwrap();
    fs::create_dir(outer.path().join("allowed")).unwrap();
    fs::write(outer.path().join("outside/kept"), "kept").unwrap();
    let roots = AllowedRoots {
        start: root.clone(),
        allowed: vec![outer.path().join("allowed")],
    };
    let tool = FileWrite::new(OpenRoots::open(&roots).unwrap());
    Fixture { outer, root, tool }
}

impl Fixture {
    fn run(&self, arguments: Value) -> Result<(), String> {
        self.tool.write(arguments.as_object().cloned())
    }

    fn write(&self, path: &str, content: &str) -> Result<(), String> {
        self.run(json!({"path": path, "content": content}))
    }

    fn overwrite(&self, path: &str, content: &str) -> Result<(), String> {
        self.run(json!({"path": path, "content": content, "overwrite": true}))
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }

    /// Nothing was written outside, and nothing was left behind.
    fn check(&self) {
        let outside = self.outer.path().join("outside");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
        for entry in fs::read_dir(&self.root).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(!name.to_string_lossy().ends_with(".tmp"), "{name:?}");
        }
    }
}

#[test]
fn files_are_made_with_their_folders() {
    let f = fixture();
    f.write("a.txt", "x").unwrap();
    f.write("new/deep/b.txt", "y").unwrap();
    f.write(f.root.join("c.txt").to_str().unwrap(), "").unwrap();
    assert_eq!(
        (f.text("a.txt"), f.text("new/deep/b.txt"), f.text("c.txt")),
        ("x".into(), "y".into(), String::new())
    );
    assert_eq!(
        fs::metadata(f.root.join("a.txt")).unwrap().mode() & 0o111,
        0
    );
    let allowed = f.outer.path().join("allowed/d.txt");
    f.write(allowed.to_str().unwrap(), "z").unwrap();
    assert_eq!(fs::read_to_string(&allowed).unwrap(), "z");
    // A relative path means the file where it is.
    f.overwrite("d.txt", "zz").unwrap();
    assert_eq!(fs::read_to_string(&allowed).unwrap(), "zz");
    f.check();
}

#[test]
fn only_overwrite_replaces_and_keeps_the_mode() {
    let f = fixture();
    f.write("a.txt", "1").unwrap();
    let error = f.write("a.txt", "2").unwrap_err();
    assert!(error.contains("set overwrite to true"), "{error}");
    f.run(json!({"path": "a.txt", "content": "2", "overwrite": false}))
        .unwrap_err();
    f.run(json!({"path": "a.txt", "content": "2", "overwrite": "true"}))
        .unwrap_err();
    assert_eq!(f.text("a.txt"), "1");
    fs::set_permissions(f.root.join("a.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    f.overwrite("a.txt", "2").unwrap();
    assert_eq!(f.text("a.txt"), "2");
    assert_eq!(
        fs::metadata(f.root.join("a.txt")).unwrap().mode() & 0o7777,
        0o640
    );
    f.overwrite("new.txt", "3").unwrap();
    f.check();
}

#[test]
fn links_and_paths_that_lead_out_are_refused() {
    let f = fixture();
    let outside = f.outer.path().join("outside");
    symlink(&outside, f.root.join("folder")).unwrap();
    symlink("../outside", f.root.join("relative")).unwrap();
    symlink(outside.join("kept"), f.root.join("file")).unwrap();
    symlink("../outside/new", f.root.join("dangling")).unwrap();
    symlink("inside.txt", f.root.join("inner")).unwrap();
    fs::write(f.root.join("inside.txt"), "inside").unwrap();
    for path in [
        "../outside/x",
        "folder/x",
        "relative/x",
        "folder/new/x",
        "file",
        "dangling",
        "inner",
        "/etc/x",
        "new/../../outside/x",
        "folder/../x/../../outside/x",
        "",
        "a/",
        "a/.",
        "..",
        ".",
        f.outer.path().join("outside/kept").to_str().unwrap(),
    ] {
        f.overwrite(path, "x").unwrap_err();
        f.write(path, "x").unwrap_err();
    }
    assert_eq!(f.text("inside.txt"), "inside");
    f.check();
}

#[test]
fn executables_are_refused_by_name_content_and_mode() {
    let f = fixture();
    for name in [
        "a.exe",
        "a.sh",
        "a.bat",
        "a.CMD",
        "a.ps1",
        "a.com",
        "a.msi",
        "a.dll",
        "a.so.1",
        "X.app/info",
        "a.app",
    ] {
        let error = f.write(name, "text").unwrap_err();
        assert!(
            error.contains("executable files are not allowed"),
            "{error}"
        );
    }
    for content in [
        "#!/bin/sh\nls\n",
        "\u{feff}#!/bin/sh\n",
        "\u{7f}ELF\u{2}\u{1}\u{1}\0",
        "MZ\0\u{3}\0",
        "\0asm\u{1}\0\0\0",
    ] {
        f.write("data", content).unwrap_err();
    }
    f.write("tool", "old").unwrap();
    fs::set_permissions(f.root.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let error = f.overwrite("tool", "new").unwrap_err();
    assert!(error.contains("executable bit"), "{error}");
    assert_eq!(f.text("tool"), "old");
    f.write("readme.md", "MZ is a company\n# run a.exe\n")
        .unwrap();
    f.check();
}

#[test]
fn only_regular_files_are_replaced() {
    let f = fixture();
    fs::create_dir(f.root.join("dir")).unwrap();
    std::process::Command::new("mkfifo")
        .arg(f.root.join("fifo"))
        .status()
        .unwrap();
    assert!(f.overwrite("dir", "x").unwrap_err().contains("folder"));
    assert!(f.overwrite("fifo", "x").unwrap_err().contains("named pipe"));
    f.write("file", "x").unwrap();
    assert!(f.write("file/below", "x").is_err());
    let large = "x".repeat(MAX_FILE + 1);
    assert!(
        f.write("large", &large)
            .unwrap_err()
            .contains("the limit is")
    );
    f.check();
}

#[test]
fn new_files_never_replace_one_another() {
    let f = fixture();
    let done = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|number: usize| {
                let f = &f;
                scope.spawn(move || {
                    (0..100)
                        .filter(|file| f.write(&format!("f{file}"), &number.to_string()).is_ok())
                        .count()
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!(done, 100, "each file was made by one of them");
    f.check();
}

#[test]
fn exchanged_links_never_lead_a_write_out() {
    let f = fixture();
    fs::create_dir(f.root.join("real")).unwrap();
    let link = f.root.join("swap");
    symlink("real", &link).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (inside, outside) = (f.root.join("to-inside"), f.root.join("to-outside"));
            while !done.load(Ordering::Relaxed) {
                let _ = symlink("../outside", &outside);
                fs::rename(&outside, &link).unwrap();
                let _ = symlink("real", &inside);
                fs::rename(&inside, &link).unwrap();
            }
        });
        for number in 0..5000 {
            let _ = f.overwrite(&format!("swap/{}/kept", number % 3), "changed");
            let _ = f.overwrite("swap/kept", "changed");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        fs::read_to_string(f.root.join("real/kept")).unwrap(),
        "changed"
    );
    f.check();
}
