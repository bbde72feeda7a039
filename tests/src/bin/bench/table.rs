//! Samples, and the small table that each benchmark prints.

use std::io::Write as _;
use std::time::Duration;

/// Repeated measurements of the same thing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(50)
    }

    /// The sample below which `percent` of all samples are.
    pub(crate) fn quantile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or_default()
    }
}

/// What a sample is compared with.
pub(crate) trait Quantiles {
    /// The duration below which `percent` of all samples are.
    fn quantile(&self, percent: usize) -> Duration;
}

impl Quantiles for Samples {
    fn quantile(&self, percent: usize) -> Duration {
        Self::quantile(self, percent)
    }
}

/// A floor that is the sum of others.
impl<F: Fn(usize) -> Duration> Quantiles for F {
    fn quantile(&self, percent: usize) -> Duration {
        self(percent)
    }
}

fn ratio(samples: &Samples, floor: &impl Quantiles, percent: usize) -> f64 {
    let floor = floor.quantile(percent).as_secs_f64();
    samples.quantile(percent).as_secs_f64() / floor.max(f64::MIN_POSITIVE)
}

/// The ratio of the fastest tenths. What else runs on a machine makes samples longer, never shorter, and a round trip
/// between two programs suffers more of it than its floor: a median says as much about the machine as about the code.
pub(crate) fn quiet_ratio(samples: &Samples, floor: &impl Quantiles) -> f64 {
    ratio(samples, floor, 10)
}

impl FromIterator<Duration> for Samples {
    fn from_iter<T: IntoIterator<Item = Duration>>(samples: T) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// The results of a benchmark.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<[String; 5]>,
    ratios: Vec<(String, f64)>,
}

impl Table {
    /// An empty table with this heading.
    pub(crate) fn new(heading: &str) -> Self {
        let head = [heading, "median", "p90", "of floor", "n"];
        Self {
            rows: vec![head.map(ToOwned::to_owned)],
            ratios: Vec::new(),
        }
    }

    /// A floor, or a row that has none.
    pub(crate) fn row(&mut self, what: &str, samples: &Samples) {
        self.push(what, samples, String::new());
    }

    /// A row with its ratio to a floor, by the medians.
    pub(crate) fn against(&mut self, what: &str, samples: &Samples, floor: &impl Quantiles) {
        let ratio = ratio(samples, floor, 50);
        self.push(what, samples, format!("{ratio:.2}x"));
        self.ratios
            .push((what.to_owned(), quiet_ratio(samples, floor)));
    }

    /// The rows with a ratio, by [`quiet_ratio`].
    pub(crate) fn ratios(self) -> Vec<(String, f64)> {
        self.ratios
    }

    fn push(&mut self, what: &str, samples: &Samples, ratio: String) {
        self.rows.push([
            what.to_owned(),
            readable(samples.median()),
            readable(samples.quantile(90)),
            ratio,
            samples.0.len().to_string(),
        ]);
    }

    /// Prints the table, and the goal below it.
    pub(crate) fn print(&self, goal: &str) -> std::io::Result<()> {
        let widths: [usize; 5] = std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        });
        let mut out = std::io::stdout().lock();
        for [what, numbers @ ..] in &self.rows {
            write!(out, "{what:<0$}", widths[0])?;
            for (cell, width) in numbers.iter().zip(&widths[1..]) {
                write!(out, "  {cell:>width$}")?;
            }
            writeln!(out)?;
        }
        writeln!(out, "goal: {goal}\n")
    }
}

fn readable(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    if micros < 1000.0 {
        format!("{micros:.1} µs")
    } else if micros < 100_000.0 {
        format!("{:.2} ms", micros / 1e3)
    } else {
        format!("{:.0} ms", micros / 1e3)
    }
}
