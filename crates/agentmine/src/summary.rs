//! The end of a run: the result of each task.

use std::path::Path;
use std::time::Duration;

use agentmine_domain::{EndState, Task, TaskState, Usage};
use console::style;

use crate::embedded::Unfinished;
use crate::git;
use crate::live::{Ending, count};
use crate::print::{clean, line, one_line, word};

/// Prints what became of one task, and where to look next. `program` is how to call this program for the store of the task.
pub(crate) async fn print(
    repository: &Path,
    ending: &Ending,
    unfinished: Unfinished,
    program: &str,
) {
    let task = &ending.task;
    line("");
    let used = used(&ending.usage, ending.took);
    match (ending.end, &ending.reason) {
        (Some(EndState::Done), None) => line(format!("Done: task #{} in {used}", task.number)),
        (Some(EndState::Done), Some(reason)) => line(format!(
            "Partial result of task #{} in {used}\n{}",
            task.number,
            clean(reason).trim_end()
        )),
        (Some(EndState::Failed), reason) => line(format!(
            "Failed: task #{} after {used}\n{}",
            task.number,
            clean(reason.as_deref().unwrap_or(""))
        )),
        (Some(EndState::Stopped), reason) => line(format!(
            "Stopped: task #{}: {}",
            task.number,
            clean(reason.as_deref().unwrap_or(""))
        )),
        (None, reason) => line(format!(
            "Not finished: task #{}: {}\n{}",
            task.number,
            clean(reason.as_deref().unwrap_or("")),
            next(task, unfinished, program)
        )),
    }
    if let Some(facts) = &ending.facts
        && let Some(head) = &facts.head
    {
        line("");
        diff(repository, &facts.base, head).await;
        line("");
        line(format!("branch       {}", task.branch()));
        if let Some(url) = &task.pull_request_url {
            line(format!("result       {}", one_line(url, 200)));
        }
        for text in review_first(&facts.protected) {
            line(text);
        }
        for command in commands(repository, &task.branch(), &facts.base, head).await {
            line(command);
        }
    }
    line(format!(
        "transcript   {program} session show {}",
        ending.session
    ));
}

/// What a session took. The cost is known only if the model has prices.
fn used(usage: &Usage, took: Duration) -> String {
    let cost = usage
        .cost()
        .map_or_else(String::new, |it| format!(", {it}"));
    format!(
        "{:.1} s, {}, {} tokens in, {} out{cost}",
        took.as_secs_f64(),
        usage.calls(),
        count(usage.input_tokens),
        count(usage.output_tokens)
    )
}

/// How to continue with a task that did not end. Only a fleet has a producer that continues a paused one.
fn next(task: &Task, unfinished: Unfinished, program: &str) -> String {
    match (unfinished, task.state) {
        (Unfinished::Continued, TaskState::Paused) => format!(
            "The work so far is kept. hint: {program} task resume {}, then run the same command again",
            task.number
        ),
        (
            Unfinished::Continued | Unfinished::Abandoned,
            TaskState::Paused | TaskState::Queued | TaskState::Leased(_) | TaskState::Ended(_),
        ) => unfinished.hint().to_owned(),
    }
}

/// The changed files that control more than the program, of the form `WHAT: PATH`, as in the text of a pull request.
fn review_first(files: &[String]) -> Vec<String> {
    const SHOWN: usize = 5;
    let mut names: Vec<String> = files
        .iter()
        .take(SHOWN)
        .map(|file| match file.split_once(": ") {
            Some((controls, path)) => {
                format!("{} ({})", one_line(path, 120), one_line(controls, 80))
            }
            None => one_line(file, 120),
        })
        .collect();
    if files.len() > SHOWN {
        names.push(format!("… and {} more", files.len() - SHOWN));
    }
    let labels = std::iter::once("review first").chain(std::iter::repeat(""));
    let lines = labels.zip(names);
    lines
        .map(|(label, name)| format!("{label:<12} {name}"))
        .collect()
}

/// The commands that show the work and merge it. A bare repository has no work tree to merge in.
async fn commands(repository: &Path, branch: &str, base: &str, head: &str) -> Vec<String> {
    let folder = word(&repository.display().to_string());
    let review = format!("review       git -C {folder} diff {base:.12} {head:.12}");
    let merge = format!("merge        git -C {folder} merge {branch}");
    match git::has_work_tree(repository).await {
        true => vec![review, merge],
        false => vec![review],
    }
}

/// Prints the difference in git's colours, at most 200 lines of it.
async fn diff(repository: &Path, base: &str, head: &str) {
    const MAX_LINES: usize = 200;
    let args = [
        "diff",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        base,
        head,
        "--",
    ];
    let Some(output) = git::output(repository, &args).await else {
        return;
    };
    let text = clean(&String::from_utf8_lossy(&output.stdout));
    let lines: Vec<&str> = text.lines().collect();
    for text in lines.iter().take(MAX_LINES) {
        let styled = match text.as_bytes().first() {
            Some(b'+') => style(text).green(),
            Some(b'-') => style(text).red(),
            Some(b'@') => style(text).cyan(),
            _ => style(text),
        };
        line(styled.to_string());
    }
    if lines.len() > MAX_LINES {
        line(format!("… and {} more lines", lines.len() - MAX_LINES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_shown_where_the_model_has_prices() {
        let usage = |cost_micros| Usage {
            model_calls: 4,
            tool_calls: 5,
            input_tokens: 700,
            output_tokens: 30,
            cost_micros,
            ..Usage::default()
        };
        let took = Duration::from_millis(3_200);
        let tokens = "3.2 s, 4 model calls, 5 tool calls, 700 tokens in, 30 out";
        assert_eq!(used(&usage(0), took), tokens);
        assert_eq!(used(&usage(130_000), took), format!("{tokens}, $0.13"));
    }

    #[test]
    fn files_that_control_more_than_the_program_are_named() {
        let files = |count: usize| -> Vec<String> {
            (0..count)
                .map(|n| format!("CI: .ci/{n}.yml\u{1b}[2J"))
                .collect()
        };
        assert!(review_first(&[]).is_empty());
        assert_eq!(
            review_first(&files(2)),
            [
                "review first .ci/0.yml\u{fffd}[2J (CI)",
                "             .ci/1.yml\u{fffd}[2J (CI)"
            ]
        );
        assert_eq!(
            review_first(&files(7)).last().map(String::as_str),
            Some("             … and 2 more")
        );
    }

    #[tokio::test]
    async fn nothing_is_merged_in_a_bare_repository() {
        for (kind, shown) in [(None, 2), (Some("--bare"), 1)] {
            let folder = tempfile::tempdir().unwrap();
            let mut init = std::process::Command::new("git");
            init.args(["init", "--quiet"]).args(kind);
            assert!(init.arg(folder.path()).status().unwrap().success());
            let commands = commands(folder.path(), "agentmine/issue-1-x", "aa", "bb").await;
            assert_eq!(commands.len(), shown, "{commands:?}");
            assert!(commands[0].ends_with(" diff aa bb"), "{commands:?}");
        }
    }
}
