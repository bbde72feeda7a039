//! No two files of a library or program import from each other, directly or by way of others (CONTRIBUTING.md): whoever
//! uses something is above what it uses, and a reader can begin at the bottom.

mod circles;
mod names;
mod source;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use circles::circles;
use names::Uses;
use source::modules;

#[test]
fn files_do_not_import_each_other_in_a_circle() {
    let mut report = String::new();
    for (package, root) in roots() {
        let uses = names::uses(&modules(&root));
        for circle in circles(&uses) {
            describe(&mut report, &package, &circle, &uses);
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// The root files of the product's libraries and programs, each with its package.
fn roots() -> Vec<(String, PathBuf)> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .other_options(vec!["--offline".into()])
        .exec()
        .unwrap();
    let mut roots = Vec::new();
    for package in metadata.packages {
        for target in package.targets {
            let is_product = target.is_lib() || target.is_bin();
            if is_product && package.name.as_str() != "agentmine-tests" {
                roots.push((package.name.to_string(), target.src_path.into()));
            }
        }
    }
    assert!(roots.len() > 20, "some packages are not found: {roots:?}");
    roots
}

/// `commands/obey.rs -> capacity.rs: capacity::applies`, for each use within a circle.
fn describe(report: &mut String, package: &str, circle: &BTreeSet<String>, uses: &Uses) {
    writeln!(report, "\n{package}: {} files in a circle", circle.len()).unwrap();
    for file in circle {
        let used = uses[file].iter().filter(|(it, _)| circle.contains(*it));
        for (other, path) in used {
            writeln!(report, "  {file} -> {other}: {path}").unwrap();
        }
    }
}

/// The circles of a crate of these files, by their names.
fn circles_in(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let uses = names::uses(&modules(&folder.path().join("lib.rs")));
    let circles = circles(&uses).into_iter();
    circles.map(|it| it.into_iter().collect()).collect()
}

#[test]
fn a_child_that_uses_its_parent_is_in_a_circle_if_the_parent_uses_it() {
    let parent = "mod b; pub struct Limit; fn f() { b::g() }";
    for use_of_parent in [
        "use super::Limit;",
        "use super::{Limit as Most};",
        "use crate::a::*;",
        "fn h() { let it: crate::a::Limit; }",
        "fn h() { assert!(matches!(1, crate::a::Limit)) }",
        "#[serde(default = \"super::Limit::new\")] struct S;",
        "mod inner { use super::super::Limit; }",
    ] {
        let child = format!("{use_of_parent} pub fn g() {{}}");
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", parent),
            ("a/b.rs", child.as_str()),
        ];
        assert_eq!(circles_in(&files), [["a/b.rs", "a/mod.rs"]], "{child}");
    }
}

#[test]
fn a_circle_is_found_by_way_of_third_files_and_re_exports() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d; pub use d::D;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "pub struct B(crate::c::C);"),
        ("c/mod.rs", "mod own; pub use own::C;"),
        ("c/own.rs", "use crate::a::A; pub struct C;"),
        ("d.rs", "use crate::a::A; pub struct D;"),
    ];
    assert_eq!(circles_in(&files), [["a.rs", "b.rs", "c/own.rs"]]);
}

#[test]
fn a_circle_is_found_through_a_re_export_with_the_name_of_its_module() {
    let files = [
        ("lib.rs", "mod look; mod low;"),
        ("look.rs", "use crate::low::look; pub struct Look;"),
        ("low/mod.rs", "mod look; pub use look::look;"),
        ("low/look.rs", "use crate::look::Look; pub fn look() {}"),
    ];
    assert_eq!(circles_in(&files), [["look.rs", "low/look.rs"]]);
}

#[test]
fn declarations_tests_and_re_exports_by_the_parent_of_others_are_no_circle() {
    let files = [
        (
            "lib.rs",
            "mod a; mod b; pub use a::A; #[cfg(test)] mod tests;",
        ),
        (
            "a.rs",
            "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
        ),
        (
            "b.rs",
            "use crate::A; pub struct B; impl B { #[cfg(test)] fn f() { crate::c::D; } }",
        ),
    ];
    assert_eq!(circles_in(&files), Vec::<Vec<String>>::new());
}

#[test]
fn what_a_macro_defines_is_in_the_file_that_calls_it() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::Id; pub struct A;"),
        ("b.rs", "id! { Id } use crate::a::A;"),
    ];
    assert_eq!(circles_in(&files), [["a.rs", "b.rs"]]);
}
