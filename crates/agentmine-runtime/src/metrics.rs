//! The process's metrics, in the Prometheus text format.
//!
//! Metrics are registered beside the code that updates them: a `describe_*!` with a help text (`promtool
//! check metrics` requires one), then `counter!`, `gauge!` or `histogram!`. A process has one recorder,
//! however many fleets run in it; their series add up.

mod process;

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Unit, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds for metrics named `*_seconds`: from a loop step to a whole task. The objectives are among them
/// (deploy/prometheus/rules.yaml): 60 s until a task is picked up, 90 s until a lost one is.
const SECONDS: [f64; 16] = [
    0.001, 0.005, 0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 90.0, 180.0, 600.0, 1800.0, 3600.0,
    7200.0,
];
/// Upper bounds for metrics named `*_bytes`: 1 KiB to 1 GiB.
const BYTES: [f64; 6] = [
    1024.0,
    16_384.0,
    262_144.0,
    4_194_304.0,
    67_108_864.0,
    1_073_741_824.0,
];

/// A handle that renders the metrics. Clones share it.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// All metrics in the text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// Installs the recorder, once in a process; later calls return the same handle. `service` is the label
/// of the caller in `agentmine_build_info`.
pub fn install(service: &'static str) -> Metrics {
    static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();
    let handle = INSTALLED.get_or_init(|| {
        let recorder = builder().build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed: /metrics will be empty");
        }
        describe_gauge!(
            "process_start_time_seconds",
            Unit::Seconds,
            "Start time of the process since unix epoch in seconds."
        );
        // The recorder is installed in the first milliseconds of `main`.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        gauge!("process_start_time_seconds").set(now.unwrap_or_default().as_secs_f64());
        describe_gauge!(
            "agentmine_build_info",
            "Always 1; the labels name the build and the service."
        );
        process::describe();
        process::measure();
        keep_histograms_small(handle.clone());
        handle
    });
    gauge!("agentmine_build_info", "service" => service, "version" => env!("CARGO_PKG_VERSION"))
        .set(1.0);
    Metrics(handle.clone())
}

/// Makes each series of a counter exist from the start: `rate` does not see the first event of a series that appears
/// with it.
pub fn zero(counter: &'static str, label: &'static str, values: &[&'static str]) {
    for value in values {
        metrics::counter!(counter, label => *value).increment(0);
    }
}

fn builder() -> PrometheusBuilder {
    let suffix = |name: &str| Matcher::Suffix(name.to_owned());
    let with_buckets = |builder: PrometheusBuilder| {
        builder
            .set_buckets_for_metric(suffix("_seconds"), &SECONDS)?
            .set_buckets_for_metric(suffix("_bytes"), &BYTES)
    };
    // The error case is an empty list of bounds.
    with_buckets(PrometheusBuilder::new()).unwrap_or_else(|_| PrometheusBuilder::new())
}

/// Samples stay in memory until they are rendered or this runs; perhaps nobody ever scrapes.
fn keep_histograms_small(handle: PrometheusHandle) {
    let run = move || {
        loop {
            process::measure();
            std::thread::sleep(Duration::from_secs(5));
            handle.run_upkeep();
        }
    };
    let started = std::thread::Builder::new()
        .name("metrics-upkeep".into())
        .spawn(run);
    if let Err(error) = started {
        tracing::warn!(error = %error, "cannot start the upkeep of metrics");
    }
}
