//! The benchmarks' short form, as CI runs it.

use tokio::process::Command;

use crate::rig::binary;

#[tokio::test]
async fn no_ratio_to_a_floor_got_worse_by_half() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Command::new(binary("bench"));
    bench.arg("short").env("XDG_STATE_HOME", folder.path());
    let out = bench.output().await.unwrap();
    let said = [&out.stdout, &out.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    assert!(out.status.success(), "{}", said.concat());
}
