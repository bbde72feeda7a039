//! Compiles the launcher, a static program of a few hundred bytes that is embedded in this crate.
//!
//! Not a program of cargo's: cargo would build it with the profile of the whole, and also as a test.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "launcher/main.rs";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=build.rs");
    let os = env::var("CARGO_CFG_TARGET_OS")?;
    if os != "linux" {
        // This script runs early in a build; the same check of the sandbox's script would come minutes later.
        println!(
            "cargo::error=AgentMine needs Linux on x86_64 or aarch64; this build is for {os}. Build it in a Linux virtual \
             machine or container"
        );
        std::process::exit(1);
    }
    let launcher = PathBuf::from(env::var("OUT_DIR")?).join("launcher");
    let mut rustc = Command::new(env::var("RUSTC")?);
    rustc
        .args([
            "--edition",
            "2024",
            "--crate-name",
            "launcher",
            SOURCE,
            "-o",
        ])
        .arg(launcher)
        .args(["--target", &env::var("TARGET")?])
        .args([
            "-C",
            "panic=abort",
            "-C",
            "opt-level=s",
            "-C",
            "strip=symbols",
        ])
        .args([
            "-C",
            "relocation-model=static",
            "-C",
            "target-feature=+crt-static",
        ])
        .args(["-C", "link-arg=-nostartfiles", "-C", "link-arg=-static"]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let done = rustc.output()?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into());
    }
    Ok(())
}
