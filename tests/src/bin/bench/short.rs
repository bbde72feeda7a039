//! The short form for CI: a few ratios to floors of the same run, against those that were recorded.
//!
//! On a busy machine a ratio may be anything for a moment, but it does not get better by chance. So what is too high is
//! measured again, a few times, and the lowest value counts: a step that really takes longer stays too high.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, ensure};

use crate::machine::PROFILE;
use crate::{Backend, command, editor, step, steps};

/// Lines of a build profile, a name and a ratio.
const RECORDED: &str = include_str!("ratios.txt");
/// What is allowed, in recorded ratios.
const WORSE: f64 = 1.5;
/// How often something that is too high is measured.
const TRIES: usize = 4;

/// Files of the project, and steps: a step that costs in proportion to the tree shows in the second.
const STEPS: [(u32, u32); 2] = [(100, 60), (10_000, 40)];

const PROJECT: step::Project = step::Project {
    large: 0,
    visible: false,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Loop,
    Command,
    Editor,
    Step,
}

const PARTS: [Part; 4] = [Part::Loop, Part::Command, Part::Editor, Part::Step];

impl Part {
    /// The names and ratios of this part.
    async fn measure(self) -> anyhow::Result<Vec<(String, f64)>> {
        let table = match self {
            Self::Loop => steps::over_sqlite(150).await?,
            Self::Command => command::table(Backend::Local, 100).await?,
            Self::Editor => editor::table(Backend::Local, 300).await?,
            Self::Step => {
                let mut ratios = Vec::new();
                for (files, steps) in STEPS {
                    let ratio = step::one(Backend::Local, PROJECT, files, steps).await?;
                    ratios.push((
                        format!("a step of the cycle, in the jail, {files} files"),
                        ratio,
                    ));
                }
                return Ok(ratios);
            }
        };
        Ok(table.ratios())
    }
}

/// Prints the ratios as they are recorded: the middle one of several runs.
pub(crate) async fn record() -> anyhow::Result<()> {
    for part in PARTS {
        let mut runs: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for _ in 0..3 {
            for (name, ratio) in part.measure().await? {
                runs.entry(name).or_default().push(ratio);
            }
        }
        for (name, mut ratios) in runs {
            ratios.sort_by(f64::total_cmp);
            let middle = ratios[ratios.len() / 2];
            writeln!(std::io::stdout(), "{PROFILE} | {name} | {middle:.2}")?;
        }
    }
    Ok(())
}

/// Fails if a ratio is above what is allowed each time.
pub(crate) async fn check() -> anyhow::Result<()> {
    let recorded = recorded()?;
    let mut worse = Vec::new();
    for part in PARTS {
        let mut lowest: BTreeMap<String, f64> = BTreeMap::new();
        for _ in 0..TRIES {
            for (name, ratio) in part.measure().await? {
                let low = lowest.entry(name).or_insert(ratio);
                *low = low.min(ratio);
            }
            if too_high(&lowest, &recorded)?.is_empty() {
                break;
            }
        }
        for (name, ratio) in &lowest {
            let before = recorded.get(name).copied().unwrap_or_default();
            writeln!(
                std::io::stdout(),
                "{name}: {ratio:.2}x, recorded {before:.2}x"
            )?;
        }
        worse.extend(too_high(&lowest, &recorded)?);
    }
    ensure!(
        worse.is_empty(),
        "worse than {WORSE} times the recorded ratio, in each of {TRIES} tries: {}. hint: if it has to be so, record it with \
         `bench short --record`",
        worse.join("; ")
    );
    Ok(())
}

fn too_high(
    measured: &BTreeMap<String, f64>,
    recorded: &BTreeMap<String, f64>,
) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, ratio) in measured {
        let before = recorded.get(name);
        let before =
            before.with_context(|| format!("no {PROFILE} ratio is recorded for {name:?}"))?;
        if *ratio > before * WORSE {
            found.push(format!("{name}: {ratio:.2}x, recorded {before:.2}x"));
        }
    }
    Ok(found)
}

fn recorded() -> anyhow::Result<BTreeMap<String, f64>> {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let mut found = BTreeMap::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [profile, name, ratio] = parts.as_slice() else {
            anyhow::bail!("the recorded line {line:?} has not three parts");
        };
        if *profile == PROFILE {
            found.insert(
                (*name).to_owned(),
                ratio.parse().context("a recorded ratio")?,
            );
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_got_worse_by_half_is_found_and_what_is_not_recorded_refused() {
        let ratios = |all: &[(&str, f64)]| -> BTreeMap<String, f64> {
            all.iter()
                .map(|(name, ratio)| ((*name).to_owned(), *ratio))
                .collect()
        };
        let before = ratios(&[("step", 2.0), ("view", 1.0), ("gone", 9.0)]);
        let now = ratios(&[("step", 3.01), ("view", 1.5)]);
        assert_eq!(
            too_high(&now, &before).unwrap(),
            ["step: 3.01x, recorded 2.00x"]
        );
        let unknown = too_high(&ratios(&[("start", 1.0)]), &before).unwrap_err();
        assert!(unknown.to_string().contains("start"), "{unknown}");
        assert!(!recorded().unwrap().is_empty());
    }
}
