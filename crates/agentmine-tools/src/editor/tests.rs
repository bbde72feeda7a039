use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::temporary::Survives;

/// A workspace with a `project` folder, beside a folder that must never be touched.
struct Fixture {
    _outer: TempDir,
    root: PathBuf,
    outside: PathBuf,
    editor: Editor,
}

fn fixture() -> Fixture {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("workspace");
    let outside = outer.path().join("outside");
    fs::create_dir_all(root.join("project")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), "TOPSECRET").unwrap();
    let editor = Editor::open(&root).unwrap();
    Fixture {
        _outer: outer,
        root,
        outside,
        editor,
    }
}

impl Fixture {
    fn project(&self, name: &str) -> PathBuf {
        self.root.join("project").join(name)
    }

    fn limit(&mut self, max: usize) {
        let editor = Editor::open(&self.root).unwrap();
        self.editor = editor.with_max_reply(max);
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.project(name)).unwrap()
    }

    fn run(&mut self, arguments: Value) -> Result<ToolReply, EditError> {
        self.editor.run(arguments.as_object().unwrap())
    }

    fn ok(&mut self, arguments: Value) -> ToolReply {
        self.run(arguments).unwrap()
    }

    fn refused(&mut self, arguments: Value) -> String {
        self.run(arguments).unwrap_err().to_string()
    }

    fn replace(&mut self, path: &str, old: &str, new: &str) -> Result<ToolReply, EditError> {
        self.run(json!({"command": "str_replace", "path": path, "old_str": old, "new_str": new}))
    }

    fn insert(&mut self, path: &str, line: i64, text: &str) -> Result<ToolReply, EditError> {
        self.run(json!({"command": "insert", "path": path, "insert_line": line, "new_str": text}))
    }

    fn create(&mut self, path: &str, text: &str) -> Result<ToolReply, EditError> {
        self.run(json!({"command": "create", "path": path, "file_text": text}))
    }

    fn view(&mut self, path: &str) -> Result<ToolReply, EditError> {
        self.run(json!({"command": "view", "path": path}))
    }

    fn undo(&mut self, path: &str) -> Result<ToolReply, EditError> {
        self.run(json!({"command": "undo_edit", "path": path}))
    }
}

// --- view ---------------------------------------------------------------------------------------

#[test]
fn view_numbers_lines() {
    let mut f = fixture();
    f.put("a.txt", "one\ntwo\n");
    let reply = f.view("a.txt").unwrap();
    assert_eq!(reply.content.unwrap(), "     1\tone\n     2\ttwo\n");
    assert_eq!(reply.message, "a.txt: lines 1 to 2 of 2");
}

#[test]
fn view_range_is_checked() {
    let mut f = fixture();
    f.put("a.txt", "1\n2\n3\n4\n5");
    let mut view = |range: Value| {
        f.run(json!({"command": "view", "path": "a.txt", "view_range": range}))
            .map(|reply| reply.content.unwrap())
            .map_err(|error| error.to_string())
    };
    assert_eq!(view(json!([2, 3])).unwrap(), "     2\t2\n     3\t3\n");
    assert_eq!(view(json!([4, -1])).unwrap(), "     4\t4\n     5\t5\n");
    assert_eq!(view(json!([5, 99])).unwrap(), "     5\t5\n");
    assert_eq!(view(json!([5.0, 5])).unwrap(), "     5\t5\n");
    for wrong in [
        json!([5, "5"]),
        json!("[5, 5]"),
        json!([0, 2]),
        json!([-1, 2]),
        json!([3, 2]),
        json!([1, -2]),
        json!([1]),
        json!([1, 2, 3]),
        json!([1.5, 2]),
        json!("all"),
        json!(7),
        json!([{}, 1]),
    ] {
        assert!(
            view(wrong.clone())
                .unwrap_err()
                .contains("view_range must be"),
            "{wrong}"
        );
    }
    assert!(view(json!([6, 7])).unwrap_err().contains("has 5 lines"));
}

#[test]
fn view_of_an_empty_file_is_empty() {
    let mut f = fixture();
    f.put("empty", "");
    let reply = f.view("empty").unwrap();
    assert_eq!(reply.content.unwrap(), "");
    assert!(reply.message.contains("empty file"));
    f.ok(json!({"command": "view", "path": "empty", "view_range": [1, -1]}));
}

#[test]
fn long_view_is_cut_between_lines_and_the_note_is_exact() {
    let mut f = fixture();
    let text: String = (1..=20_000).map(|n| format!("\tline \"{n}\"\n")).collect();
    f.put("long", &text);
    for max in [2_000, 48 * 1024, 200_000] {
        f.limit(max);
        let reply = f.view("long").unwrap();
        let json = serde_json::to_string(&reply).unwrap();
        assert!(
            json.len() <= max && json.len() + 700 > max,
            "{max}: {}",
            json.len()
        );
        let content = reply.content.unwrap();
        let (shown, note) = content.split_once("[... ").unwrap();
        let last = shown.lines().count();
        assert_eq!(
            shown.lines().last(),
            Some(&*format!("{last:>6}\t\tline \"{last}\""))
        );
        let rest: usize = text.split_inclusive('\n').skip(last).map(str::len).sum();
        let (lines, next) = (20_000 - last, last + 1);
        assert_eq!(
            note,
            format!(
                "{rest} bytes, {lines} lines left out: see them with view_range [{next}, 20000] ...]\n"
            )
        );
        assert!(
            reply.message.ends_with(note.trim_end_matches(" ...]\n")),
            "{}",
            reply.message
        );
        let range = json!({"command": "view", "path": "long", "view_range": [next, next]});
        let rest = f.ok(range).content.unwrap();
        assert!(rest.starts_with(&format!("{next:>6}\t")), "{rest}");
    }
}

#[test]
fn long_listing_is_cut_between_lines() {
    let mut f = fixture();
    for n in 0..100 {
        f.put(&format!("{n:03}{}", "x".repeat(100)), "");
    }
    f.limit(4_000);
    let reply = f.view(".").unwrap();
    assert!(serde_json::to_string(&reply).unwrap().len() <= 4_000);
    let content = reply.content.unwrap();
    let (shown, note) = content.split_once("[... ").unwrap();
    let left_out = 100 - shown.lines().count();
    let bytes = left_out * 104;
    assert!(
        note.starts_with(&format!("{bytes} bytes, {left_out} lines left out")),
        "{note}"
    );
}

#[test]
fn one_endless_line_is_cut_within_itself() {
    let mut f = fixture();
    f.put("min.js", "é".repeat(100_000));
    let content = f.view("min.js").unwrap().content.unwrap();
    assert!(content.len() < 5_000, "{}", content.len());
    assert!(content.contains("196000 more bytes of this line are not shown"));
    assert!(!content.contains('\u{fffd}'));
}

#[test]
fn long_line_is_not_cut_within_a_token() {
    let mut f = fixture();
    let line = format!(
        "{} \"canary-token-0123456789\"{}",
        "x ".repeat(1_993),
        "y".repeat(9_000)
    );
    f.put("min.js", line);
    let content = f.view("min.js").unwrap().content.unwrap();
    assert!(
        content.contains("more bytes") && !content.contains("canary"),
        "{content}"
    );
}

#[test]
fn folder_is_listed_two_levels_deep() {
    let mut f = fixture();
    f.put("src/main.rs", "");
    f.put("src/deep/hidden.rs", "");
    f.put(".github/workflows/ci.yml", "");
    f.put(".git/HEAD", "");
    f.put("node_modules/x/index.js", "");
    symlink("src", f.project("link")).unwrap();
    let listed = f.view("/").map(|_| ()).unwrap_err().to_string();
    assert!(listed.contains("outside"), "{listed}");
    let reply = f.view(".").unwrap();
    assert_eq!(
        reply.content.unwrap(),
        ".git/ (not listed)\n.github/\n.github/workflows/\nlink -> src\n\
         node_modules/ (not listed)\nsrc/\nsrc/deep/\nsrc/main.rs\n"
    );
    let error = f.refused(json!({"command": "view", "path": ".", "view_range": [1, 2]}));
    assert!(error.contains("for files only"));
    let inside = f.view("node_modules").unwrap().content.unwrap();
    assert_eq!(inside, "x/\nx/index.js\n");
}

#[test]
fn huge_folder_is_cut() {
    let mut f = fixture();
    for number in 0..600 {
        f.put(&format!("many/{number:03}"), "");
    }
    let content = f.view("many").unwrap().content.unwrap();
    assert!(
        content.ends_with("... and 100 further entries\n"),
        "{content}"
    );
    let content = f.view(".").unwrap().content.unwrap();
    assert!(
        content.ends_with("many/... and 550 further entries\n"),
        "{content}"
    );
}

#[test]
fn name_with_control_characters_stays_on_its_line() {
    let mut f = fixture();
    f.put("a\nb", "");
    assert_eq!(f.view(".").unwrap().content.unwrap(), "a\\nb\n");
}

// --- create -------------------------------------------------------------------------------------

#[test]
fn create_makes_parents_and_exact_content() {
    let mut f = fixture();
    let path = f.project("a/b/c.txt");
    f.create(path.to_str().unwrap(), "x\r\ny").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"x\r\ny");
    let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    let plain = f.put("plain", "");
    assert_eq!(
        mode,
        fs::metadata(plain).unwrap().permissions().mode() & 0o777
    );
}

#[test]
fn create_of_an_empty_file_is_allowed() {
    let mut f = fixture();
    f.create("empty", "").unwrap();
    assert_eq!(f.bytes("empty"), b"");
}

#[test]
fn create_refuses_what_exists() {
    let mut f = fixture();
    f.put("a", "old");
    symlink("a", f.project("link")).unwrap();
    for path in ["a", "link", "."] {
        let error = f.create(path, "new").unwrap_err();
        assert!(matches!(error, EditError::Exists(_)), "{error}");
    }
    assert_eq!(f.bytes("a"), b"old");
    assert!(
        f.create("dir/", "x")
            .unwrap_err()
            .to_string()
            .contains("slash")
    );
    assert!(f.create("a/b", "x").is_err());
}

#[test]
fn create_of_too_much_is_refused() {
    let mut f = fixture();
    let text = "x".repeat(MAX_FILE + 1);
    assert!(matches!(
        f.create("big", &text),
        Err(EditError::TooLarge { .. })
    ));
    assert!(!f.project("big").exists());
}

// --- str_replace --------------------------------------------------------------------------------

#[test]
fn replacement_is_literal() {
    let mut f = fixture();
    f.put("a", "cost: X (a.c)\n");
    f.replace("a", "X", "$& $1 $$ \\0 `id`").unwrap();
    assert_eq!(f.bytes("a"), b"cost: $& $1 $$ \\0 `id` (a.c)\n");
    // The search text is not a pattern either.
    assert!(f.replace("a", "a?c", "y").is_err());
}

#[test]
fn replace_reports_the_lines_of_several_places() {
    let mut f = fixture();
    f.put("a", "x\ny\nx\n");
    let error = f.replace("a", "x", "z").unwrap_err().to_string();
    assert!(
        error.contains("found 2 times") && error.contains("lines 1, 3"),
        "{error}"
    );
    f.put("b", "x\n".repeat(50));
    let error = f.replace("b", "x", "z").unwrap_err().to_string();
    assert!(error.contains("more than 10 times"), "{error}");
    assert_eq!(f.bytes("a"), b"x\ny\nx\n");
}

#[test]
fn overlapping_places_are_several() {
    let mut f = fixture();
    f.put("a", "aaa");
    assert!(f.replace("a", "aa", "b").is_err());
}

#[test]
fn replace_without_a_place_hints_at_the_near_one() {
    let mut f = fixture();
    f.put("a", "def f():\n    return 1\n");
    let error = f
        .replace("a", "  def f():\n  return 1", "")
        .unwrap_err()
        .to_string();
    assert!(error.contains("at line 1"), "{error}");
    let error = f.replace("a", "nothing", "x").unwrap_err().to_string();
    assert!(error.contains("view the file"), "{error}");
}

#[test]
fn replace_without_a_place_hints_at_escapes_and_line_numbers() {
    let mut f = fixture();
    f.put("a", "print(\"x\")\n\treturn '\\d'\n");
    f.put("crlf", "one\r\ntwo\r\n");
    let mut hint = |path: &str, old: &str| f.replace(path, old, "y").unwrap_err().to_string();
    for (path, old, expected) in [
        ("a", r#"print(\"x\")"#, "escaped once"),
        ("a", r"\n\treturn '\\d'", "escaped once"),
        ("crlf", r"one\ntwo", "escaped once"),
        ("a", "     1\tprint(\"x\")", "line numbers that view shows"),
        (
            "a",
            "     1\tprint(\"x\")\n     2\t\treturn",
            "line numbers that view shows",
        ),
        ("crlf", "1\tone\n2\ttwo", "line numbers that view shows"),
        ("a", r"no\nwhere", "view the file"),
        ("a", "1\tnowhere", "view the file"),
        ("a", "", "old_str is empty"),
    ] {
        let error = hint(path, old);
        assert!(error.contains(expected), "{old:?}: {error}");
    }
}

#[test]
fn replace_with_nothing_deletes() {
    let mut f = fixture();
    f.put("a", "one\ntwo\n");
    f.replace("a", "two\n", "").unwrap();
    assert_eq!(f.bytes("a"), b"one\n");
}

#[test]
fn replace_shows_the_lines_around() {
    let mut f = fixture();
    let text: String = (1..=20).map(|n| format!("l{n}\n")).collect();
    f.put("a", text);
    let reply = f.replace("a", "l10\n", "new\nlines\n").unwrap();
    let content = reply.content.unwrap();
    assert!(content.starts_with("     6\tl6\n"), "{content}");
    assert!(content.contains("    10\tnew\n    11\tlines\n"));
    assert!(content.ends_with("    15\tl14\n"), "{content}");
}

#[test]
fn other_bytes_are_kept() {
    let mut f = fixture();
    let before = b"caf\xe9\nname\n\xff\xfe\x00\n";
    f.put("latin", before);
    let shown = f.view("latin").unwrap();
    assert!(shown.message.contains("not valid UTF-8"));
    f.replace("latin", "name", "título").unwrap();
    f.insert("latin", 1, "x").unwrap();
    assert_eq!(
        f.bytes("latin"),
        b"caf\xe9\nx\nt\xc3\xadtulo\n\xff\xfe\x00\n"
    );
    f.undo("latin").unwrap();
    f.undo("latin").unwrap();
    assert_eq!(f.bytes("latin"), before);
}

#[test]
fn utf16_is_shown_as_text_and_not_edited() {
    let mut f = fixture();
    let little: Vec<u8> = "\u{feff}one\r\ntwo\r\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let big: Vec<u8> = "\u{feff}one\r\ntwo\r\n"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    for (name, before) in [("little.rc", little), ("big.rc", big)] {
        f.put(name, &before);
        let shown = f.view(name).unwrap();
        assert_eq!(shown.content.unwrap(), "     1\tone\n     2\ttwo\n");
        assert!(shown.message.contains("UTF-16"), "{}", shown.message);
        for edit in [f.insert(name, 1, "x"), f.replace(name, "t", "three")] {
            let error = edit.unwrap_err().to_string();
            assert!(error.contains("UTF-16"), "{error}");
        }
        assert_eq!(f.bytes(name), before);
    }
}

#[test]
fn byte_order_mark_stays_first() {
    let mut f = fixture();
    f.put("a.cs", b"\xEF\xBB\xBFusing System;\r\n");
    f.insert("a.cs", 0, "// first").unwrap();
    assert_eq!(
        f.bytes("a.cs"),
        b"\xEF\xBB\xBF// first\r\nusing System;\r\n"
    );
    f.replace("a.cs", "// first\nusing System;", "using X;")
        .unwrap();
    assert_eq!(f.bytes("a.cs"), b"\xEF\xBB\xBFusing X;\r\n");
    f.undo("a.cs").unwrap();
    f.undo("a.cs").unwrap();
    assert_eq!(f.bytes("a.cs"), b"\xEF\xBB\xBFusing System;\r\n");
}

#[test]
fn crlf_is_kept() {
    let mut f = fixture();
    f.put("dos", "one\r\ntwo\r\nthree\r\n");
    assert_eq!(
        f.view("dos").unwrap().content.unwrap(),
        "     1\tone\n     2\ttwo\n     3\tthree\n"
    );
    f.replace("dos", "one\ntwo\n", "1\n2\n2b\n").unwrap();
    assert_eq!(f.bytes("dos"), b"1\r\n2\r\n2b\r\nthree\r\n");
    f.replace("dos", "2b\r\n", "").unwrap();
    f.replace("dos", "three", "3\n4").unwrap();
    assert_eq!(f.bytes("dos"), b"1\r\n2\r\n3\r\n4\r\n");
    f.insert("dos", 0, "0").unwrap();
    f.insert("dos", 5, "5\n6\n").unwrap();
    assert_eq!(f.bytes("dos"), b"0\r\n1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n");
}

#[test]
fn mixed_line_ends_stay_where_they_are() {
    let mut f = fixture();
    f.put("mixed", "a\nb\r\nc\nd\r\n");
    f.replace("mixed", "c", "C\nC").unwrap();
    assert_eq!(f.bytes("mixed"), b"a\nb\r\nC\nC\nd\r\n");
    f.replace("mixed", "b\nC", "B\nX").unwrap();
    assert_eq!(f.bytes("mixed"), b"a\nB\r\nX\nC\nd\r\n");
}

#[test]
fn lf_file_takes_crlf_literally() {
    let mut f = fixture();
    f.put("unix", "a\nb\n");
    assert!(f.replace("unix", "a\r\nb", "x").is_err());
    f.replace("unix", "b", "b\r").unwrap();
    assert_eq!(f.bytes("unix"), b"a\nb\r\n");
}

// --- insert -------------------------------------------------------------------------------------

#[test]
fn insert_puts_whole_lines() {
    let mut f = fixture();
    f.put("a", "one\ntwo\n");
    f.insert("a", 1, "middle").unwrap();
    f.insert("a", 0, "top\n").unwrap();
    f.insert("a", 4, "end").unwrap();
    assert_eq!(f.bytes("a"), b"top\none\nmiddle\ntwo\nend\n");
    f.put("b", "one\ntwo");
    f.insert("b", 2, "three").unwrap();
    assert_eq!(f.bytes("b"), b"one\ntwo\nthree");
    f.put("empty", "");
    f.insert("empty", 0, "x").unwrap();
    assert_eq!(f.bytes("empty"), b"x\n");
    f.insert("empty", 1, "").unwrap();
    assert_eq!(f.bytes("empty"), b"x\n\n");
}

#[test]
fn insert_line_is_checked() {
    let mut f = fixture();
    f.put("a", "one\ntwo\n");
    for line in [-1, 3, i64::MAX] {
        let error = f.insert("a", line, "x").unwrap_err().to_string();
        assert!(error.contains("insert_line is"), "{error}");
    }
    assert_eq!(f.bytes("a"), b"one\ntwo\n");
}

#[test]
fn insert_takes_insert_text_too() {
    let mut f = fixture();
    f.put("a", "");
    f.ok(
        json!({"command": "insert", "path": "a", "insert_line": 0, "insert_text": "x",
        "new_str": null}),
    );
    f.ok(
        json!({"command": "insert", "path": "a", "insert_line": 1.0, "insert_text": "",
        "new_str": "y"}),
    );
    assert_eq!(f.bytes("a"), b"x\ny\n");
    let error = f.refused(json!({"command": "insert", "path": "a", "insert_line": 0,
        "insert_text": "x", "new_str": "y"}));
    assert!(error.contains("differ"));
}

// --- undo ---------------------------------------------------------------------------------------

#[test]
fn undo_goes_back_to_before_creation() {
    let mut f = fixture();
    f.create("a", "1\n").unwrap();
    f.replace("a", "1", "2").unwrap();
    f.insert("a", 1, "3").unwrap();
    f.undo("a").unwrap();
    assert_eq!(f.bytes("a"), b"2\n");
    f.undo("a").unwrap();
    assert_eq!(f.bytes("a"), b"1\n");
    f.undo("a").unwrap();
    assert!(!f.project("a").exists());
    let error = f.undo("a").unwrap_err().to_string();
    assert!(error.contains("no edit"), "{error}");
    f.create("a", "again").unwrap();
}

#[test]
fn undo_is_per_file() {
    let mut f = fixture();
    f.create("a", "a").unwrap();
    f.create("b", "b").unwrap();
    f.replace("a", "a", "A").unwrap();
    f.undo("b").unwrap();
    assert!(!f.project("b").exists());
    f.undo("a").unwrap();
    assert_eq!(f.bytes("a"), b"a");
}

#[test]
fn undo_never_loses_what_something_else_wrote() {
    let mut f = fixture();
    f.create("a", "1").unwrap();
    fs::write(f.project("a"), "formatted").unwrap();
    let error = f.undo("a").unwrap_err().to_string();
    assert!(error.contains("changed by something else"), "{error}");
    assert_eq!(f.bytes("a"), b"formatted");
    fs::remove_file(f.project("a")).unwrap();
    let error = f.undo("a").unwrap_err().to_string();
    assert!(error.contains("removed by something else"), "{error}");
}

#[test]
fn undo_knows_a_file_by_any_of_its_paths() {
    let mut f = fixture();
    f.put("real/a", "1");
    symlink("real", f.project("link")).unwrap();
    f.replace("link/a", "1", "2").unwrap();
    let absolute = f.project("real/../real/a");
    f.undo(absolute.to_str().unwrap()).unwrap();
    assert_eq!(f.bytes("real/a"), b"1");
}

// --- paths --------------------------------------------------------------------------------------

#[test]
fn paths_outside_are_refused() {
    let mut f = fixture();
    symlink(&f.outside, f.project("out")).unwrap();
    symlink("../../outside/secret", f.project("file")).unwrap();
    symlink("/", f.project("slash")).unwrap();
    let outside = f.outside.join("secret").display().to_string();
    let dotted = format!("{}/project/../../outside/secret", f.root.display());
    let sibling = format!("{}-other/x", f.root.display());
    let slash = format!("slash{outside}");
    for path in [
        outside.as_str(),
        &dotted,
        &sibling,
        &slash,
        "../../outside/secret",
        "out/secret",
        "out/new",
        "file",
        "/etc/passwd",
        "/",
    ] {
        for result in [
            f.view(path),
            f.create(path, "x"),
            f.replace(path, "secret", "x"),
            f.insert(path, 0, "x"),
            f.undo(path),
        ] {
            let error = result.unwrap_err();
            assert!(
                matches!(error, EditError::Outside { .. }),
                "{path}: {error}"
            );
        }
    }
    assert_eq!(fs::read(f.outside.join("secret")).unwrap(), b"TOPSECRET");
    assert_eq!(fs::read_dir(&f.outside).unwrap().count(), 1);
}

#[test]
fn links_that_stay_inside_are_followed_and_kept() {
    let mut f = fixture();
    f.put("real.txt", "1");
    symlink("real.txt", f.project("relative")).unwrap();
    symlink(f.project("real.txt"), f.project("absolute")).unwrap();
    f.replace("relative", "1", "2").unwrap();
    f.replace("absolute", "2", "3").unwrap();
    assert_eq!(f.bytes("real.txt"), b"3");
    assert!(f.project("relative").is_symlink() && f.project("absolute").is_symlink());
    // A link whose target does not exist yet.
    symlink("later", f.project("dangling")).unwrap();
    f.create("dangling", "x").unwrap();
    assert_eq!(f.bytes("later"), b"x");
}

#[test]
fn links_in_a_circle_are_refused() {
    let mut f = fixture();
    symlink("b", f.project("a")).unwrap();
    symlink("a", f.project("b")).unwrap();
    assert!(matches!(f.view("a"), Err(EditError::Io { .. })));
}

#[test]
fn relative_paths_start_at_the_project() {
    let mut f = fixture();
    f.create("a", "x").unwrap();
    assert_eq!(f.bytes("a"), b"x");
    f.create("../tmp/b", "x").unwrap();
    assert!(f.root.join("tmp/b").exists());
    fs::remove_dir_all(f.root.join("project")).unwrap();
    f.create("c", "x").unwrap();
    assert!(f.root.join("c").exists());
}

#[test]
fn root_reached_through_a_link_works_by_both_names() {
    let f = fixture();
    f.put("a", "x");
    let alias = f.root.with_file_name("alias");
    symlink(&f.root, &alias).unwrap();
    let mut editor = Editor::open(&alias).unwrap();
    for root in [&alias, &f.root] {
        let path = root.join("project/a");
        let call = json!({"command": "view", "path": path});
        editor.run(call.as_object().unwrap()).unwrap();
    }
}

#[test]
fn special_files_are_refused_without_waiting() {
    let mut f = fixture();
    let status = std::process::Command::new("mkfifo")
        .arg(f.project("pipe"))
        .status()
        .unwrap();
    assert!(status.success());
    let error = f.view("pipe").unwrap_err().to_string();
    assert!(error.contains("named pipe"), "{error}");
    assert!(f.replace("pipe", "a", "b").is_err());
    let _socket = std::os::unix::net::UnixListener::bind(f.project("socket")).unwrap();
    assert!(f.view("socket").unwrap_err().to_string().contains("socket"));
}

#[test]
fn too_large_a_file_is_refused_with_advice() {
    let mut f = fixture();
    let path = f.put("big", "");
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(MAX_FILE as u64 + 1)
        .unwrap();
    let error = f.view("big").unwrap_err().to_string();
    assert!(error.contains("head, sed or grep"), "{error}");
}

#[test]
fn missing_and_folder_are_reported_with_a_next_step() {
    let mut f = fixture();
    assert!(f.view("nope").unwrap_err().to_string().contains("create"));
    assert!(
        f.replace("nope/../x", "a", "b")
            .unwrap_err()
            .to_string()
            .contains("does not exist")
    );
    assert!(
        f.insert(".", 0, "b")
            .unwrap_err()
            .to_string()
            .contains("is a folder")
    );
    f.put("a", "x");
    assert!(f.view("a/").is_err());
    assert!(f.view("a/b").is_err());
    assert!(f.view(&"x/".repeat(4000)).is_err());
    assert!(f.view(&"x".repeat(300)).is_err());
}

// --- writing ------------------------------------------------------------------------------------

#[test]
fn write_keeps_mode_and_leaves_nothing_behind() {
    let mut f = fixture();
    let path = f.put("run.sh", "#!/bin/sh\necho 1\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    let before = fs::metadata(&path).unwrap();
    f.replace("run.sh", "1", "2").unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.permissions().mode() & 0o7777, 0o751);
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino(), "a new file, renamed into place");
    f.undo("run.sh").unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o751
    );
    assert_eq!(fs::read_dir(f.project("")).unwrap().count(), 1);
}

/// In a sandbox and outside: anybody who reads meanwhile sees the old text or the new one, whole.
#[test]
fn reader_never_sees_a_part_of_an_edit() {
    let f = fixture();
    let (old, new) = ("a\n".repeat(20_000), "b\n".repeat(20_000));
    let path = f.put("a.txt", &old);
    let outside = Editor::open_at(f.root.join("project")).unwrap();
    let editors = [f.editor, outside];
    for mut editor in editors {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0;
                while !done.load(Ordering::Relaxed) || reads == 0 {
                    let seen = fs::read(&path).unwrap();
                    assert!(seen == old.as_bytes() || seen == new.as_bytes());
                    reads += 1;
                }
            });
            for (there, back) in [(&old, &new), (&new, &old)].repeat(100) {
                let call = json!({"command": "str_replace", "path": "a.txt", "old_str": there, "new_str": back});
                editor.run(call.as_object().unwrap()).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
    }
}

#[test]
fn create_that_fails_leaves_nothing_behind() {
    let f = fixture();
    let found = f.editor.workspace.resolve("a").unwrap();
    let What::Missing(place) = found.what else {
        panic!("a exists");
    };
    // Another process creates it between the check and the write.
    f.put("a", "theirs");
    assert!(matches!(
        place.create("a", b"ours"),
        Err(EditError::Exists(_))
    ));
    assert_eq!(f.bytes("a"), b"theirs");
    assert_eq!(fs::read_dir(f.project("")).unwrap().count(), 1);
}

#[test]
fn folder_exchanged_for_a_link_in_between_does_not_lead_out() {
    let f = fixture();
    f.put("dir/a", "mine");
    let found = f.editor.workspace.resolve("dir/a").unwrap();
    let What::File(file) = found.what else {
        panic!("no file");
    };
    let current = file.read("dir/a").unwrap();
    fs::rename(f.project("dir"), f.project("moved")).unwrap();
    symlink(&f.outside, f.project("dir")).unwrap();
    fs::write(f.outside.join("a"), "theirs").unwrap();
    file.write("dir/a", b"new", &current.stat, Survives::Kill)
        .unwrap();
    assert_eq!(fs::read(f.outside.join("a")).unwrap(), b"theirs");
    assert_eq!(f.bytes("moved/a"), b"new");
}

// --- arguments ----------------------------------------------------------------------------------

#[test]
fn wrong_arguments_are_reported_with_what_is_expected() {
    let mut f = fixture();
    f.put("a", "x");
    for (arguments, expected) in [
        (json!({}), "command is required"),
        (json!({"command": "view"}), "path is required"),
        (json!({"command": "view", "path": ""}), "path is empty"),
        (json!({"command": "view", "path": "a\0b"}), "NUL"),
        (
            json!({"command": "view", "path": 3}),
            "path must be a string, not a number",
        ),
        (
            json!({"command": "delete", "path": "a"}),
            "unknown command \"delete\"",
        ),
        (
            json!({"command": "create", "path": "b"}),
            "file_text is required",
        ),
        (
            json!({"command": "str_replace", "path": "a", "new_str": ""}),
            "old_str is required",
        ),
        (
            json!({"command": "str_replace", "path": "a", "old_str": "x"}),
            "new_str is required",
        ),
        (
            json!({"command": "str_replace", "path": "a", "old_str": "", "new_str": "y"}),
            "old_str is empty",
        ),
        (
            json!({"command": "str_replace", "path": "a", "old_str": "x", "new_str": "x"}),
            "nothing would change",
        ),
        (
            json!({"command": "insert", "path": "a", "new_str": "x"}),
            "insert_line is required",
        ),
        (
            json!({"command": "insert", "path": "a", "insert_line": 0}),
            "new_str is required",
        ),
        (
            json!({"command": "insert", "path": "a", "insert_line": [], "new_str": "x"}),
            "insert_line must be an integer such as 5, not an array",
        ),
        (
            json!({"command": "insert", "path": "a", "insert_line": "0", "new_str": "x"}),
            "insert_line must be an integer such as 5, not a string",
        ),
        (
            json!({"command": "insert", "path": "a", "insert_line": 0.5, "new_str": "x"}),
            "insert_line must be an integer such as 5",
        ),
    ] {
        let error = f.refused(arguments.clone());
        assert!(error.contains(expected), "{arguments}: {error}");
    }
    assert_eq!(f.bytes("a"), b"x");
}

// --- properties ---------------------------------------------------------------------------------

/// Paths out of names that exist and do not, `..`, links inside and out, and the places' full names.
fn any_path() -> impl Strategy<Value = Vec<&'static str>> {
    let step = prop::sample::select(vec![
        "..",
        ".",
        "",
        "a",
        "b",
        "dir",
        "in",
        "out",
        "up",
        "loop",
        "abs",
        "new",
        "project",
        "outside",
        "secret",
        "workspace",
        "ROOT",
        "OUTSIDE",
    ]);
    prop::collection::vec(step, 1..9)
}

/// Everything under a folder: names, and content of files.
fn snapshot(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() || path.is_file() {
            all.push((path.clone(), fs::read(&path).ok()));
        } else {
            all.extend(snapshot(&path));
            all.push((path, None));
        }
    }
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn no_path_escapes_the_root(paths in prop::collection::vec(any_path(), 1..12)) {
        let mut f = fixture();
        f.put("a", "mine");
        f.put("dir/b", "b");
        symlink("dir", f.project("in")).unwrap();
        symlink(&f.outside, f.project("out")).unwrap();
        symlink("../..", f.project("up")).unwrap();
        symlink("loop", f.project("loop")).unwrap();
        symlink(f.project("dir"), f.project("abs")).unwrap();
        symlink("../../outside", f.project("dir/out")).unwrap();
        let outer = f.root.parent().unwrap().to_owned();
        let before = snapshot(&f.outside);
        for steps in paths {
            let path = steps
                .join("/")
                .replace("ROOT", f.root.to_str().unwrap())
                .replace("OUTSIDE", f.outside.to_str().unwrap())
                .replace("//", "/");
            for result in [
                f.view(&path),
                f.create(&path, "created"),
                f.replace(&path, "TOP", "replaced"),
                f.insert(&path, 0, "inserted"),
                f.undo(&path),
                f.undo(&path),
            ] {
                let reply = serde_json::to_string(&result.ok()).unwrap();
                prop_assert!(!reply.contains("SECRET"), "{path}: {reply}");
            }
        }
        prop_assert_eq!(before, snapshot(&f.outside));
        prop_assert_eq!(fs::read_dir(outer).unwrap().count(), 2);
    }

    #[test]
    fn replace_equals_the_reference(
        content in "[ab\n]{0,24}",
        old in "[ab\n]{1,3}",
        new in "[ab$&\n]{0,4}",
    ) {
        prop_assume!(old != new);
        let places = (0..content.len()).filter(|at| content[*at..].starts_with(&old)).count();
        let edited = text::replace_once(content.as_bytes(), old.as_bytes(), new.as_bytes());
        match edited {
            Ok(edit) => {
                prop_assert_eq!(places, 1);
                prop_assert_eq!(edit.bytes, content.replacen(&old, &new, 1).into_bytes());
            }
            Err(text::Miss::Nowhere) => prop_assert_eq!(places, 0),
            Err(text::Miss::Several { lines, more }) => {
                prop_assert!(places > 1);
                prop_assert!(more || lines.len() == places);
            }
        }
    }

    /// A CRLF file behaves as its LF twin does.
    #[test]
    fn crlf_file_is_edited_as_its_twin(
        content in "[ab\n]{0,24}\n",
        old in "[ab\n]{1,3}",
        new in "[ab\n]{0,4}",
        line in 0usize..6,
    ) {
        let dos = content.replace('\n', "\r\n");
        let back = |edit: text::Edit| String::from_utf8(edit.bytes).unwrap();
        let unix_edit = text::replace_once(content.as_bytes(), old.as_bytes(), new.as_bytes());
        let dos_edit = text::replace_once(dos.as_bytes(), old.as_bytes(), new.as_bytes());
        prop_assert_eq!(
            unix_edit.map(|edit| back(edit).replace('\n', "\r\n")),
            dos_edit.map(back)
        );
        let unix_edit = text::insert_after(content.as_bytes(), line, new.as_bytes());
        let dos_edit = text::insert_after(dos.as_bytes(), line, new.as_bytes());
        prop_assert_eq!(
            unix_edit.map(|edit| back(edit).replace('\n', "\r\n")),
            dos_edit.map(back)
        );
    }

    #[test]
    fn as_many_undos_as_edits_bring_everything_back(
        content in prop::collection::vec(any::<u8>(), 0..40),
        edits in prop::collection::vec(("[a-c\n]{1,2}", "[a-c\n]{0,3}", 0i64..5), 1..12),
    ) {
        let mut f = fixture();
        f.put("a", &content);
        let mut done = 0;
        for (old, new, line) in edits {
            done += usize::from(f.replace("a", &old, &new).is_ok());
            done += usize::from(f.insert("a", line, &new).is_ok());
        }
        for _ in 0..done {
            f.undo("a").unwrap();
        }
        prop_assert_eq!(f.bytes("a"), content);
        prop_assert!(f.undo("a").is_err());
    }

    #[test]
    fn arbitrary_arguments_never_panic(
        command in prop::sample::select(COMMANDS.to_vec()),
        numbers in prop::collection::vec(any::<i64>(), 0..3),
        content in prop::collection::vec(prop::sample::select(b"a\r\n\xff".to_vec()), 0..20),
        old in "[a\r\n]{0,3}",
        new in "[a\r\n]{0,3}",
        line in -1i64..8,
    ) {
        let mut f = fixture();
        f.put("a", &content);
        let _ = f.run(json!({"command": command, "path": "a", "view_range": numbers,
            "old_str": old, "new_str": new, "insert_line": line, "file_text": new}));
    }
}

const COMMANDS: [&str; 5] = crate::server::COMMANDS;
