//! What a benchmark ran on.

/// Whether the figures are those that users get.
pub(crate) const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// The machine, the build, and how busy it is.
pub(crate) fn line() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model
        .unwrap_or_default()
        .trim_start_matches(['\t', ' ', ':']);
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = load();
    format!(
        "{count} x {model}, Linux {}, {PROFILE} build, {load}",
        kernel.trim()
    )
}

/// How busy it is, by the mean of a minute.
pub(crate) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load {}", load.split(' ').next().unwrap_or_default())
}
