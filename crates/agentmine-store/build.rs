//! Embeds every migration file, in order. sqlx has a macro for this, but its macro crate compiles SQLite and
//! most of sqlx a second time.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let migrations = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../migrations");
    let mut source = String::new();
    for (folder, name) in [("postgres", "POSTGRES"), ("sqlite", "SQLITE")] {
        let folder = migrations.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        source += &format!("pub(crate) const {name}: &[Embedded] = &[\n");
        for file in sql_files(&folder) {
            source += &entry(&file);
        }
        source += "];\n";
    }
    let target = Path::new(&variable("OUT_DIR")).join("migrations.rs");
    if let Err(err) = fs::write(&target, source) {
        fail(&format!("{}: {err}", target.display()));
    }
}

fn sql_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(err) => fail(&format!("{}: {err}", folder.display())),
    };
    files.retain(|file| file.extension().is_some_and(|suffix| suffix == "sql"));
    files.sort();
    files
}

/// `0001_first_tables.sql` becomes version 1, "first tables".
fn entry(file: &Path) -> String {
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    let named = stem.and_then(|stem| stem.split_once('_'));
    let Some((Ok(version), words)) = named.map(|(number, words)| (number.parse::<i64>(), words))
    else {
        fail(&format!(
            "{}: expected NNNN_what_it_does.sql",
            file.display()
        ));
    };
    println!("cargo::rerun-if-changed={}", file.display());
    let words = words.replace('_', " ");
    format!(
        "    Embedded {{ version: {version}, description: {words:?}, sql: include_str!({file:?}) }},\n"
    )
}

fn variable(name: &str) -> String {
    match env::var(name) {
        Ok(value) => value,
        Err(_) => fail(&format!("cargo did not set {name}")),
    }
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    std::process::exit(1);
}
