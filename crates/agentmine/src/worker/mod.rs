//! `agentmine worker`: starts work on tasks, and manages the work trees of external clients.

mod local;

use std::path::PathBuf;

use agentmine_control::worker::{self, WorkBy, WorkerList, WorkerPage, WorkerRemove, WorkerStart};
use agentmine_runtime::exit::Exit;
use anyhow::Result;
use clap::Subcommand;

use crate::control::{at_once, failure as failed};
use crate::embedded::{Here, open_here};
use crate::loop_args::LoopArgs;
use crate::print::{Json, cell, clean, line, note, one_line, program, table, trimmed};
use crate::task::number;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Prepare work on a task, and print the command that starts it
    ///
    /// For claude-code, codex and gemini-cli: creates a git work tree of the current folder's repository on the
    /// task's branch, and begins a session. Run the printed command, then `agentmine session end`. For agentmine, the default
    /// of a task of a tracker: queues the task for the fleet's workers. With --local, AgentMine works on the task here
    /// and now, in a sandbox on a clone of the current folder's repository.
    #[command(
        mut_arg("base_url", only_local),
        mut_arg("model", only_local),
        mut_arg("check", only_local),
        mut_arg("sandbox", only_local)
    )]
    Run {
        /// The task's number or UUID
        task: String,
        /// agentmine, claude-code, codex or gemini-cli
        #[arg(long)]
        client: Option<String>,
        /// The agent's name
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Add the client's flag that approves all actions, so that it runs without a terminal
        #[arg(long)]
        auto: bool,
        /// Work on the task here, without a fleet: `session logs --follow` in another terminal follows it
        #[arg(long, conflicts_with_all = ["client", "auto", "json"])]
        local: bool,
        #[command(flatten)]
        with: LoopArgs,
        #[command(flatten)]
        json: Json,
    },
    /// List who works on a task now, and the work trees of this repository
    List {
        /// Only workers of this client: agentmine, claude-code, codex, gemini-cli or another
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// Only workers whose session is running, or has ended
        #[arg(long)]
        status: Option<String>,
        /// Maximum number of workers, those of the newest tasks first; 0 lists as many as possible, 500
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        json: Json,
    },
    /// Remove the work tree of a task; its branch stays
    Remove {
        /// The task's number or UUID
        task: String,
        /// Remove it even if it has uncommitted changes, which are lost
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: Json,
    },
}

/// An argument of the loop in this process, which nothing else reads.
fn only_local(arg: clap::Arg) -> clap::Arg {
    arg.requires("local")
}

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, command: WorkerCommand) -> Result<Exit> {
    if let WorkerCommand::Run {
        local: true,
        task,
        agent,
        with,
        ..
    } = &command
    {
        // Boxed: it contains a whole session.
        return Box::pin(local::run(file, task, agent.clone(), with)).await;
    }
    let Here { store, place, .. } = open_here(file).await?;
    let store = store.as_ref();
    match command {
        WorkerCommand::Run {
            task,
            client,
            agent,
            auto,
            local: _,
            with: _,
            json,
        } => {
            let args = WorkerStart {
                task_id: number(store, &task).await?,
                agent,
                client,
                auto: Some(auto),
            };
            let started = worker::start(store, &place, &args).await.map_err(failed)?;
            json.print(&started, |started| {
                let task = &started.task;
                match started.by {
                    // Only the command is the result, so that `sh -c "$(agentmine worker run 3)"` works.
                    WorkBy::Client => {
                        line(clean(&started.command));
                        note(format!("task #{}: {}", task.id, one_line(&task.title, 120)));
                        let worktree = started.worktree.as_deref().unwrap_or_default();
                        note(format!("work tree {worktree}, branch {}", task.branch));
                        if let Some(session) = started.session_id {
                            let program = program();
                            note(format!(
                                "hint: after it: {program} session end {session} --exit-code $?"
                            ));
                        }
                    }
                    WorkBy::Here => {
                        line(clean(&started.command));
                        note(format!("task #{}: {}", task.id, one_line(&task.title, 120)));
                    }
                    WorkBy::Fleet => {
                        line(format!(
                            "task #{} is queued for the fleet's workers",
                            task.id
                        ));
                        note(format!("hint: {} task why {}", program(), task.id));
                    }
                }
            })
        }
        WorkerCommand::List {
            client,
            status,
            limit,
            json,
        } => {
            let args = WorkerList {
                client,
                status,
                limit: Some(at_once(limit)),
            };
            let page = worker::list(store, &place, &args).await.map_err(failed)?;
            match json.is_wanted() {
                true => json.print(&page.workers, |_| ()),
                false => {
                    print_list(&page);
                    Ok(Exit::Done)
                }
            }
        }
        WorkerCommand::Remove { task, force, json } => {
            let args = WorkerRemove {
                task_id: number(store, &task).await?,
                force: Some(force),
            };
            let removed = worker::remove(store, &place, &args).await.map_err(failed)?;
            json.print(&removed, |removed| {
                let worktree = removed.worktree.as_deref().unwrap_or_default();
                line(format!(
                    "{worktree} is removed; the branch {} stays",
                    removed.branch
                ));
            })
        }
    }
}

fn print_list(page: &WorkerPage) {
    if page.workers.is_empty() {
        return line("no workers");
    }
    let mut table = table(&["TASK", "CLIENT", "SESSION", "STATE", "BRANCH", "WORK TREE"]);
    for worker in &page.workers {
        table.add_row(vec![
            worker.task_id.to_string(),
            cell(&worker.client),
            worker
                .session_id
                .map(|it| it.to_string())
                .unwrap_or_default(),
            if worker.running { "running" } else { "ended" }.to_owned(),
            worker.branch.clone(),
            cell(worker.worktree.as_deref().unwrap_or_default()),
        ]);
    }
    line(trimmed(&table));
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::Args;

    #[test]
    fn what_only_work_here_reads_is_refused_without_it() {
        let parsed = |more: &[&str]| {
            let args = ["agentmine", "worker", "run", "1"];
            Args::try_parse_from(args.iter().chain(more).copied())
        };
        for given in [
            ["--base-url", "http://127.0.0.1/v1"],
            ["--model", "small"],
            ["--check", "true"],
            ["--sandbox", "local"],
        ] {
            let error = parsed(&given).unwrap_err();
            assert_eq!(
                error.kind(),
                clap::error::ErrorKind::MissingRequiredArgument,
                "{error}"
            );
            assert!(parsed(&[&given[..], &["--local"]].concat()).is_ok());
        }
        assert!(parsed(&[]).is_ok());
    }
}
