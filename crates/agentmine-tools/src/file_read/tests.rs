use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::AllowedRoots;

struct Fixture {
    outer: TempDir,
    root: PathBuf,
    tool: FileRead,
}

/// A root and an allowed folder beside a secret.
fn fixture() -> Fixture {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    let allowed = outer.path().join("allowed");
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::create_dir_all(&allowed).unwrap();
    fs::create_dir(outer.path().join("outside")).unwrap();
    fs::write(outer.path().join("outside/secret"), "TOPSECRET").unwrap();
    fs::write(root.join("a.txt"), "a").unwrap();
    fs::write(allowed.join("b.txt"), "b").unwrap();
    let roots = AllowedRoots {
        start: root.clone(),
        allowed: vec![allowed],
    };
    let tool = FileRead::new(OpenRoots::open(&roots).unwrap());
    Fixture { outer, root, tool }
}

impl Fixture {
    fn read(&self, path: impl AsRef<Path>) -> Result<String, String> {
        let arguments = json!({ "path": path.as_ref().to_str().unwrap() });
        self.tool.read(arguments.as_object().cloned())
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.root.join(name), bytes).unwrap();
    }
}

#[test]
fn files_of_all_roots_are_read() {
    let f = fixture();
    assert_eq!(f.read("a.txt").unwrap(), "a");
    assert_eq!(f.read("sub/../a.txt").unwrap(), "a");
    assert_eq!(f.read(f.root.join("a.txt")).unwrap(), "a");
    assert_eq!(f.read("b.txt").unwrap(), "b", "the other root");
    assert_eq!(f.read(f.outer.path().join("allowed/b.txt")).unwrap(), "b");
    symlink("../a.txt", f.root.join("sub/link")).unwrap();
    assert_eq!(f.read("sub/link").unwrap(), "a", "a link that stays inside");
}

#[test]
fn nothing_outside_is_read() {
    let f = fixture();
    let outside = f.outer.path().join("outside");
    symlink(outside.join("secret"), f.root.join("absolute")).unwrap();
    symlink("../outside/secret", f.root.join("relative")).unwrap();
    symlink(&outside, f.root.join("folder")).unwrap();
    symlink("/proc/self/root", f.root.join("magic")).unwrap();
    for path in [
        outside.join("secret"),
        f.root.join("../outside/secret"),
        "../outside/secret".into(),
        "absolute".into(),
        "relative".into(),
        "folder/secret".into(),
        "magic/etc/passwd".into(),
        "/etc/passwd".into(),
        "/proc/self/environ".into(),
    ] {
        let error = f.read(&path).unwrap_err();
        assert!(
            error.contains("outside the allowed folders"),
            "{path:?}: {error}"
        );
    }
}

#[test]
fn files_of_the_kernel_are_refused_under_any_root() {
    let roots = AllowedRoots {
        start: "/".into(),
        allowed: Vec::new(),
    };
    let tool = FileRead::new(OpenRoots::open(&roots).unwrap());
    for path in [
        "/proc/self/environ",
        "proc/version",
        "/sys/kernel/uevent_seqnum",
    ] {
        let error = tool
            .read(json!({ "path": path }).as_object().cloned())
            .unwrap_err();
        assert!(error.contains("kernel"), "{error}");
    }
    let error = tool
        .read(json!({"path": "/dev/null"}).as_object().cloned())
        .unwrap_err();
    assert!(error.contains("device"), "{error}");
}

#[test]
fn special_and_large_files_are_refused() {
    let f = fixture();
    std::process::Command::new("mkfifo")
        .arg(f.root.join("fifo"))
        .status()
        .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(f.root.join("socket")).unwrap();
    f.put("large", &vec![b'x'; MAX_FILE as usize + 1]);
    f.put("largest", &vec![b'x'; MAX_FILE as usize]);
    for (path, what) in [
        ("fifo", "named pipe"),
        ("socket", "socket"),
        ("sub", "folder"),
        ("missing", "does not exist"),
        ("a.txt/x", "Not a directory"),
        ("large", "the limit is 1048576"),
    ] {
        let error = f.read(path).unwrap_err();
        assert!(error.contains(what), "{path}: {error}");
    }
    assert_eq!(f.read("largest").unwrap().len(), MAX_FILE as usize);
}

#[test]
fn text_is_decoded_and_other_content_is_refused() {
    let f = fixture();
    f.put("bom", b"\xef\xbb\xbfx\xc3\xa9");
    f.put("le", b"\xff\xfeh\0\xe9\0");
    f.put("be", b"\xfe\xff\0h\0\xe9");
    assert_eq!(f.read("bom").unwrap(), "x\u{e9}");
    assert_eq!(f.read("le").unwrap(), "h\u{e9}");
    assert_eq!(f.read("be").unwrap(), "h\u{e9}");
    f.put("empty", b"");
    assert_eq!(f.read("empty").unwrap(), "");
    f.put("script.sh", b"#!/bin/sh\n");
    assert_eq!(f.read("script.sh").unwrap(), "#!/bin/sh\n");
    for (name, bytes, what) in [
        ("latin", b"caf\xe9".as_slice(), "byte 3 is not UTF-8"),
        ("nul", b"a\0b", "NUL"),
        ("odd", b"\xff\xfea", "UTF-16"),
        ("utf32", b"\xff\xfe\0\0a\0\0\0", "UTF-32"),
        ("zip", b"PK\x03\x04\x14\0\0\0\x08\0", "application/zip"),
        ("png", b"\x89PNG\r\n\x1a\n\0\0\0\x0d", "image/png"),
        ("pdf", b"%PDF-1.7\n%text\n", "application/pdf"),
        ("text.zip", b"text", ".zip files"),
        ("text.EXE", b"text", ".exe files"),
    ] {
        f.put(name, bytes);
        let error = f.read(name).unwrap_err();
        assert!(error.contains(what), "{name}: {error}");
    }
}

#[test]
fn malformed_arguments_are_reported() {
    let f = fixture();
    for arguments in [
        json!({}),
        json!({"path": null}),
        json!({"path": 1}),
        json!({"path": ""}),
        json!({"path": "a\0b"}),
        json!({"path": "x".repeat(5000)}),
        json!({"path": "a.txt", "pth": "x"}),
    ] {
        f.tool.read(arguments.as_object().cloned()).unwrap_err();
    }
}

#[test]
fn exchanged_links_never_lead_out() {
    let f = fixture();
    fs::create_dir(f.root.join("real")).unwrap();
    fs::write(f.root.join("real/secret"), "inside").unwrap();
    let link = f.root.join("swap");
    let (inside, outside) = (f.root.join("to-inside"), f.root.join("to-outside"));
    symlink("real", &link).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = symlink("../outside", &outside);
                fs::rename(&outside, &link).unwrap();
                let _ = symlink("real", &inside);
                fs::rename(&inside, &link).unwrap();
            }
        });
        let mut seen = 0;
        for _ in 0..20_000 {
            match f.read("swap/secret") {
                Ok(text) => {
                    assert_eq!(text, "inside");
                    seen += 1;
                }
                Err(error) => assert!(!error.contains("TOPSECRET"), "{error}"),
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(seen > 0, "the link never led inside");
    });
}

/// A name, or a step up, or a link made before.
fn step() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("..".to_owned()),
        Just(".".to_owned()),
        Just("sub".to_owned()),
        Just("outside".to_owned()),
        Just("secret".to_owned()),
        Just("root".to_owned()),
        Just("l0".to_owned()),
        Just("l1".to_owned()),
        Just("sub/l2".to_owned()),
        Just("".to_owned()),
    ]
}

fn path() -> impl Strategy<Value = String> {
    (any::<bool>(), prop::collection::vec(step(), 1..7)).prop_map(|(absolute, steps)| {
        let path = steps.join("/");
        match absolute {
            true => format!("/{path}"),
            false => path,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_path_and_no_links_lead_out(
        targets in prop::collection::vec((any::<bool>(), path()), 3),
        read in path(),
        below in any::<bool>(),
    ) {
        let f = fixture();
        for (link, (in_outer, target)) in ["l0", "l1", "sub/l2"].iter().zip(&targets) {
            let target = match in_outer {
                true => format!("{}/{target}", f.outer.path().display()),
                false => target.clone(),
            };
            if !target.is_empty() {
                symlink(target, f.root.join(link)).unwrap();
            }
        }
        let read = match below {
            true => format!("{}/{read}", f.root.display()),
            false => read,
        };
        if let Ok(text) = f.read(&read) {
            prop_assert!(!text.contains("TOPSECRET"), "{} by {:?}", read, targets);
        }
    }
}
