//! `agentmine doctor`: checks what a fleet needs, and says how to fix what is wrong.
//!
//! The checks run side by side, each under a time limit. They ask the same functions that producer, consumer and `run` ask
//! at their start, and change nothing but what those create in the state folder. No secret is printed.

mod checks;
mod clock;
mod finding;
mod services;

use std::path::PathBuf;
use std::time::Duration;

use agentmine_runtime::config::{self, Config, Sources};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use console::style;
use serde_json::json;

use crate::control::redactor;
use crate::embedded::{self, Kind};
use crate::print::{line, program, wrapped};
use clock::Clocks;
use finding::{Finding, Outcome, Report};

/// The arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// How long each check may take
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Runs all checks. Fails if one failed.
pub(crate) async fn run(file: Option<PathBuf>, args: DoctorArgs) -> Result<Exit> {
    let limit = Duration::from_secs(args.timeout);
    let sources = Sources::from_process(file);
    let (mut reports, exit) = match config::load(&sources) {
        Ok(config) => {
            let reports = Box::pin(all(config, &sources, limit)).await;
            (reports, Exit::Other)
        }
        Err(errors) => (
            checks::broken_configuration(&errors, &sources),
            Exit::Config,
        ),
    };
    reports.retain(|report| !report.findings.is_empty());
    let count = |outcome| {
        let findings = reports.iter().flat_map(|report| &report.findings);
        findings.filter(|it| it.outcome == outcome).count()
    };
    let (failed, warnings) = (count(Outcome::Failed), count(Outcome::Warning));
    match args.json {
        true => line(serde_json::to_string_pretty(&json!({
            "checks": reports.iter().flat_map(Report::json).collect::<Vec<_>>(),
            "failed": failed,
            "warnings": warnings,
        }))?),
        false => show(&reports, failed, warnings),
    }
    Ok(if failed == 0 { Exit::Done } else { exit })
}

/// All checks with a configuration that can be read.
async fn all(mut config: Config, sources: &Sources, limit: Duration) -> Vec<Report> {
    let secrets = redactor(&config);
    let kind = embedded::kind(&config);
    let state = match kind {
        Kind::Embedded => embedded::default_store(&mut config).err(),
        Kind::Fleet => None,
    };
    let clocks = Clocks::default();
    let (config, clocks_ref) = (&config, &clocks);
    let (git, trackers, database, broker, sandbox, model) = tokio::join!(
        within("git", limit, checks::git()),
        within(
            "trackers",
            limit,
            services::trackers(config, kind, clocks_ref)
        ),
        within("database", limit, async {
            match &state {
                Some(_) => vec![Finding::skipped("there is no state folder")],
                None => services::database(config, kind, clocks_ref).await,
            }
        }),
        within("broker", limit, services::broker(config)),
        within("sandbox", limit, services::sandbox(config, kind)),
        within("model", limit, services::model(config, clocks_ref)),
    );
    let mut reports = vec![
        Report::new("configuration", checks::configuration(config, sources)),
        Report::new("state folder", checks::state_folder(state)),
        git,
        Report::new("mcp file", checks::mcp_file(config)),
        trackers,
        database,
        broker,
        sandbox,
        model,
        Report::new("clock", clocks.findings()),
    ];
    for finding in reports.iter_mut().flat_map(|it| &mut it.findings) {
        finding.redact(&secrets);
    }
    reports
}

async fn within(
    name: &'static str,
    limit: Duration,
    check: impl Future<Output = Vec<Finding>>,
) -> Report {
    let findings = tokio::time::timeout(limit, check).await;
    let findings = findings.unwrap_or_else(|_| {
        let seconds = limit.as_secs();
        vec![
            Finding::failed(format!("no answer within {seconds} s"))
                .fix("check that it is reachable from this machine, or allow more with --timeout"),
        ]
    });
    Report::new(name, findings)
}

/// Columns before the text of a finding.
const INDENT: usize = 24;

fn show(reports: &[Report], failed: usize, warnings: usize) {
    for report in reports {
        for finding in &report.findings {
            let word = format!("{:<8}", finding.outcome.word());
            let word = match finding.outcome {
                Outcome::Good => style(word).green(),
                Outcome::Warning => style(word).yellow(),
                Outcome::Failed => style(word).red(),
                Outcome::Skipped => style(word).dim(),
            };
            let detail = wrapped(&finding.detail, INDENT);
            line(format!("{word}{:<16}{detail}", report.name));
            if let Some(fix) = &finding.fix {
                let fix = wrapped(&format!("fix: {fix}"), INDENT);
                line(format!("{}{fix}", " ".repeat(INDENT)));
            }
        }
    }
    line("");
    line(match (failed, warnings) {
        (0, 0) => "everything that was checked works".to_owned(),
        (0, n) => format!("nothing failed; {}", counted(n, "warning")),
        (failed, 0) => format!("{} failed", counted(failed, "check")),
        (failed, n) => format!(
            "{} failed; {}",
            counted(failed, "check"),
            counted(n, "warning")
        ),
    });
    if failed == 0 && warnings == 0 {
        line(format!(
            "hint: {} run --repo PATH works on a repository of this machine",
            program()
        ));
    }
}

fn counted(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}
