//! What `agentmine task why` prints for people.

use agentmine_control::fleet::{Environment, EnvironmentLimits};
use agentmine_control::tasks::Why;

use crate::print::{amount, clean, line, one_line, wrapped};

/// Columns before a value.
const INDENT: usize = 11;

pub(super) fn print(why: &Why) {
    let what = match (why.id, &why.item) {
        (_, Some(item)) => one_line(item, 200),
        (Some(id), None) => format!("task #{id}"),
        (None, None) => String::new(),
    };
    let status = match (why.status.as_str(), why.id) {
        ("no_task", _) => "has no task".to_owned(),
        (status, Some(id)) if why.item.is_some() => format!("has task #{id}, which is {status}"),
        (status, _) => format!("is {status}"),
    };
    line(format!("{what} {status}"));
    for reason in &why.reasons {
        let indent = reason.code.len() + 4;
        let message = wrapped(&reason.message, indent);
        line(format!("  {}: {message}", reason.code));
    }
    if let Some(environment) = &why.environment {
        line("");
        line(match why.is_worked_on {
            true => "it is worked on with",
            false => "it would be worked on with",
        });
        print_environment(environment);
    }
}

fn print_environment(environment: &Environment) {
    let Environment {
        agent,
        model,
        sandbox,
        image,
        network,
        allowed_domains,
        limits,
        checks,
        notes,
    } = environment;
    fact("agent", &format!("{agent}, model {model}"));
    let sandbox = match (sandbox.as_str(), image) {
        ("docker", Some(image)) => format!("a Docker container of {image}"),
        ("local", _) => "the local jail".to_owned(),
        (other, _) => other.to_owned(),
    };
    fact("sandbox", &sandbox);
    let network = match network.as_str() {
        "none" => "none but its repository".to_owned(),
        "listed" if allowed_domains.is_empty() => {
            "none but its repository (no host is listed)".to_owned()
        }
        "listed" => format!("its repository, and {}", allowed_domains.join(", ")),
        _ => "its repository, and all public hosts".to_owned(),
    };
    fact("network", &network);
    fact("limits", &of_sandbox(limits));
    fact("", &of_agent(limits));
    if !checks.is_empty() {
        fact(
            "checks",
            &format!("{}, beside the project's own", checks.join(", ")),
        );
    }
    for note in notes {
        fact("note", note);
    }
}

fn fact(name: &str, value: &str) {
    line(format!("  {name:<8} {}", wrapped(&clean(value), INDENT)).trim_end());
}

fn of_sandbox(limits: &EnvironmentLimits) -> String {
    format!(
        "{} CPUs, {} of memory, {} of disk, {} processes, {} for a command",
        limits.cpus,
        amount(limits.memory),
        amount(limits.disk),
        limits.processes,
        time(limits.command_seconds)
    )
}

fn of_agent(limits: &EnvironmentLimits) -> String {
    let mut parts = Vec::new();
    parts.extend(limits.max_steps.map(|it| format!("{it} steps")));
    parts.extend(limits.max_tokens.map(|it| format!("{it} tokens")));
    parts.extend(limits.max_cost_usd.map(|it| format!("${it:.2}")));
    parts.extend(limits.max_minutes.map(|it| time(it * 60)));
    parts.extend(
        limits
            .max_rounds
            .map(|it| format!("{it} rounds of work and checks")),
    );
    parts.join(", ")
}

/// `30 min`.
fn time(seconds: u64) -> String {
    match (seconds / 3600, seconds % 3600 / 60, seconds % 60) {
        (0, minutes, 0) if minutes > 0 => format!("{minutes} min"),
        (hours, 0, 0) if hours > 0 => format!("{hours} h"),
        (hours, minutes, 0) if hours > 0 => format!("{hours} h {minutes} min"),
        _ => format!("{seconds} s"),
    }
}
