//! What the process uses, under the usual names of Prometheus. On Linux alone; elsewhere the series are absent.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

/// Clock ticks of `/proc/self/stat` in a second. The kernel shows 100 to programs, whatever it counts with.
const TICKS: u64 = 100;
/// Places of user and system time in `/proc/self/stat`, counted after the program's name.
const TIMES: [usize; 2] = [11, 12];

pub(super) fn describe() {
    describe_counter!(
        "process_cpu_seconds_total",
        Unit::Seconds,
        "User and system time of the process, in whole seconds."
    );
    describe_gauge!(
        "process_resident_memory_bytes",
        Unit::Bytes,
        "Memory of the process that is in RAM."
    );
    describe_gauge!("process_open_fds", "Files that the process has open.");
}

/// Sets them to what they are now.
pub(super) fn measure() {
    if let Some(seconds) = cpu_seconds() {
        counter!("process_cpu_seconds_total").absolute(seconds);
    }
    if let Some(bytes) = resident_bytes() {
        gauge!("process_resident_memory_bytes").set(bytes as f64);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        gauge!("process_open_fds").set(files.count() as f64);
    }
}

fn cpu_seconds() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may contain anything, so the fields are counted after its parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = TIMES.map(|at| fields.get(at)?.parse::<u64>().ok());
    Some((ticks[0]? + ticks[1]?) / TICKS)
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
