//! Builds the static programs that go into every sandbox, so that one ordinary cargo command leaves a
//! user with all that a sandbox needs.
//!
//! The nested cargo has a target folder of its own (`target/guest`, shared by all profiles), so it never
//! waits for the lock that the outer one holds. It names its target, since `+crt-static` without one
//! would also reach the procedural macros, which cannot be static.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

const PROGRAMS: [&str; 2] = ["agentmine-guest", "mcp-server-text-editor"];
const SUPPORTED: [&str; 2] = ["x86_64", "aarch64"];

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = manifest.join("../..");
    for watched in [
        "Cargo.lock",
        "Cargo.toml",
        "crates/agentmine-guest/src",
        "crates/agentmine-guest/Cargo.toml",
        "crates/agentmine-process/src",
        "crates/agentmine-process/Cargo.toml",
        "crates/agentmine-tools/src",
        "crates/agentmine-tools/Cargo.toml",
    ] {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(watched).display()
        );
    }
    println!("cargo::rerun-if-changed=build.rs");

    let (os, arch) = (
        variable("CARGO_CFG_TARGET_OS"),
        variable("CARGO_CFG_TARGET_ARCH"),
    );
    if os != "linux" || !SUPPORTED.contains(&arch.as_str()) {
        fail(&format!(
            "sandboxes need linux on {}; this build is for {os} on {arch}",
            SUPPORTED.join(" or ")
        ));
    }
    let target = variable("TARGET");
    let folder = target_folder().join("guest");
    build(&workspace, &target, &folder);
    for program in PROGRAMS {
        let path = folder.join(&target).join("guest").join(program);
        let packed = PathBuf::from(variable("OUT_DIR")).join(format!("{program}.gz"));
        if let Err(err) = pack(&path, &packed) {
            fail(&format!("packing {}: {err}", path.display()));
        }
    }
}

/// Writes the file as gzip. The same content gives the same bytes.
fn pack(from: &Path, to: &Path) -> io::Result<()> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&fs::read(from)?)?;
    fs::write(to, packed.finish()?)
}

fn build(workspace: &Path, target: &str, folder: &Path) {
    // What the outer build needed is there already; only what it did not is fetched.
    let offline = cargo(workspace, target, folder, &["--offline"]);
    if offline.status.success() {
        return;
    }
    let complaint = String::from_utf8_lossy(&offline.stderr);
    if !complaint.contains("offline") {
        fail(&explained(&complaint));
    }
    let online = cargo(workspace, target, folder, &[]);
    if !online.status.success() {
        fail(&explained(&String::from_utf8_lossy(&online.stderr)));
    }
}

/// Says what to install where the linker finds no static C library, which Debian's libc6-dev includes.
fn explained(complaint: &str) -> String {
    let is_missing = ["cannot find -lc", "unable to find library -lc"]
        .iter()
        .any(|text| complaint.contains(text));
    match is_missing {
        true => format!(
            "{}\nhint: the programs for sandboxes are static: install glibc-static (Fedora, RHEL) or \
             glibc-devel-static (openSUSE)",
            complaint.trim_end()
        ),
        false => complaint.to_owned(),
    }
}

fn cargo(workspace: &Path, target: &str, folder: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(variable("CARGO"));
    command
        .current_dir(workspace)
        .args([
            "build",
            "--locked",
            "--profile",
            "guest",
            "--target",
            target,
            "--target-dir",
        ])
        .arg(folder)
        .args(["-p", "agentmine-guest", "-p", "agentmine-tools"])
        // Of the tools' servers only the editor goes into a sandbox.
        .args([
            "--no-default-features",
            "--features",
            "agentmine-guest/guest",
        ])
        .args(more);
    for program in PROGRAMS {
        command.args(["--bin", program]);
    }
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(belongs_to_the_outer_build) {
            command.env_remove(name);
        }
    }
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    match command.output() {
        Ok(output) => output,
        Err(err) => fail(&format!("cargo could not be started: {err}")),
    }
}

/// What the outer cargo, clippy or rustdoc says of its own build. What says where crates come from, and
/// how many jobs may run, stays.
fn belongs_to_the_outer_build(name: &str) -> bool {
    const KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_MAKEFLAGS",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTRY_",
        "CARGO_REGISTRIES_",
        "CARGO_SOURCE_",
    ];
    const DROPPED: [&str; 6] = ["CARGO_", "DEP_", "CLIPPY_", "RUSTC", "RUSTDOC", "RUSTFLAGS"];
    const EXACTLY: [&str; 7] = [
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "OUT_DIR",
        "NUM_JOBS",
    ];
    let dropped = DROPPED.iter().any(|prefix| name.starts_with(prefix));
    let kept = KEPT.iter().any(|prefix| name.starts_with(prefix));
    (dropped && !kept) || EXACTLY.contains(&name)
}

/// The outermost folder above `OUT_DIR` that cargo marked as its target folder.
fn target_folder() -> PathBuf {
    let out = PathBuf::from(variable("OUT_DIR"));
    let marked = out
        .ancestors()
        .filter(|folder| folder.join("CACHEDIR.TAG").exists());
    match marked.last().or_else(|| out.ancestors().nth(4)) {
        Some(folder) => folder.to_owned(),
        None => fail("OUT_DIR is not in a target folder"),
    }
}

fn variable(name: &str) -> String {
    match env::var(name) {
        Ok(value) => value,
        Err(_) => fail(&format!("cargo did not set {name}")),
    }
}

fn fail(why: &str) -> ! {
    for line in why.lines() {
        println!("cargo::error={line}");
    }
    std::process::exit(1);
}
