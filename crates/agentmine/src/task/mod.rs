//! `agentmine task`: makes, lists, shows and changes tasks.

mod print;
mod why;

use std::io::Read as _;
use std::path::PathBuf;

use agentmine_control::find_task;
use agentmine_control::tasks::{self, TaskCreate, TaskList, TaskRequest, TaskUpdate, TaskWhy};
use agentmine_control::view::{TaskDetails, TaskView};
use agentmine_runtime::exit::Exit;
use agentmine_store::Store;
use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::control::{failure as failed, listed};
use crate::embedded::{Here, open_here};
use crate::print::{Json, line, one_line};
use print::{next_step, print_details, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List tasks, newest first
    List {
        /// Only tasks with this status: open, in_progress, done, failed or cancelled
        #[arg(long)]
        status: Option<String>,
        /// Only tasks that are assigned to this name
        #[arg(long, value_name = "NAME")]
        assignee: Option<String>,
        /// Maximum number of tasks; 0 lists all
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
        #[command(flatten)]
        json: Json,
    },
    /// Show one task with its sessions
    Show {
        /// The task's number or UUID
        task: String,
        #[command(flatten)]
        json: Json,
    },
    /// Create a task for a client (`worker run`), a person, or, with --repository, the fleet
    Add {
        /// The title
        title: String,
        /// A repository that the fleet scans, as owner/name or by its address: the fleet works on the task as on an issue
        #[arg(long, value_name = "REPOSITORY")]
        repository: Option<String>,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        json: Json,
    },
    /// Change a task
    Update {
        /// The task's number or UUID
        task: String,
        /// The title
        #[arg(long)]
        title: Option<String>,
        /// The status of a task that a person created: open, in_progress, done, failed or cancelled
        #[arg(long)]
        status: Option<String>,
        /// The version that you saw; the change is refused if somebody else has changed the task since
        #[arg(long, value_name = "N")]
        version: Option<i64>,
        #[command(flatten)]
        fields: Fields,
        #[command(flatten)]
        json: Json,
    },
    /// End a task for good
    #[command(visible_alias = "stop")]
    Cancel(Request),
    /// Pause a task until it is resumed
    Pause(Request),
    /// Queue a paused task again
    Resume(Request),
    /// Start an ended task again, or one that waits for a delay at once
    Retry(Request),
    /// Show why a task is or is not being worked on, or why an item's request does not start work
    Why {
        /// The task's number or UUID, or the item, e.g. `acme/app#7` or its address
        task: String,
        #[command(flatten)]
        json: Json,
    },
}

/// What a person can say of a task.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Fields {
    /// What to do, in Markdown (`-`: from stdin)
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// low, medium, high or critical
    #[arg(long)]
    priority: Option<String>,
    /// task, feature, bug or refactor
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// The name of the person or client who works on it
    #[arg(long, value_name = "NAME")]
    assignee: Option<String>,
    /// ai or human; no worker takes a task of a human
    #[arg(long, value_name = "TYPE")]
    assignee_type: Option<String>,
    /// The agent that works on it, one of `agentmine agent list`
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// A task that must be done first; can be repeated, `none` removes all
    #[arg(long, value_name = "TASK")]
    depends_on: Vec<String>,
    /// A pattern of files that it may change, e.g. `src/store` or `docs/**/*.md`; can be repeated, `none` removes all
    #[arg(long, value_name = "PATTERN")]
    write_scope: Vec<String>,
}

/// A request about a task.
#[derive(Debug, clap::Args)]
pub(crate) struct Request {
    /// The task's number or UUID
    task: String,
    /// The reason, shown to people
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    json: Json,
}

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, command: TaskCommand) -> Result<Exit> {
    let Here {
        store,
        place,
        fleet,
    } = open_here(file).await?;
    let store = store.as_ref();
    match command {
        TaskCommand::List {
            status,
            assignee,
            limit,
            json,
        } => {
            let tasks = list(store, status, assignee, limit).await?;
            json.print(&tasks, |tasks| print_list(tasks))
        }
        TaskCommand::Show { task, json } => {
            let number = number(store, &task).await?;
            let details = tasks::get(store, number).await.map_err(failed)?;
            json.print(&details, print_details)
        }
        TaskCommand::Add {
            title,
            repository,
            fields,
            json,
        } => {
            let args = TaskCreate {
                repository,
                ..fields.create(store, title).await?
            };
            let made = tasks::create(store, &fleet, &place, args).await;
            fleet.close().await;
            json.print(&made.map_err(failed)?, |made| {
                line(format!("task #{} is open", made.task.id));
                next_step(&made.task);
            })
        }
        TaskCommand::Update {
            task,
            title,
            status,
            version,
            fields,
            json,
        } => {
            let number = number(store, &task).await?;
            let mut update = fields.update(store, number).await?;
            update.title = title;
            update.status = status;
            update.version = version;
            let after = tasks::update(store, &place, &update)
                .await
                .map_err(failed)?;
            json.print(&after, |after| {
                let TaskView { id, version, .. } = &after.task;
                line(format!("task #{id} is changed; its version is {version}"));
            })
        }
        TaskCommand::Cancel(request) => {
            let (args, json) = request.args(store).await?;
            let after = tasks::cancel(store, &args).await.map_err(failed)?;
            json.print(&after, |after| requested(after, "will be stopped"))
        }
        TaskCommand::Pause(request) => {
            let (args, json) = request.args(store).await?;
            let after = tasks::pause(store, &args).await.map_err(failed)?;
            json.print(&after, |after| requested(after, "will be paused"))
        }
        TaskCommand::Resume(request) => {
            let (args, json) = request.args(store).await?;
            let after = tasks::resume(store, &args).await.map_err(failed)?;
            json.print(&after, |after| requested(after, "is queued again"))
        }
        TaskCommand::Retry(request) => {
            let (args, json) = request.args(store).await?;
            let after = tasks::retry(store, &args).await.map_err(failed)?;
            json.print(&after, |after| match after.task.id == args.task_id {
                true => requested(after, "is open again"),
                false => line(format!(
                    "task #{} is the new attempt at {}",
                    after.task.id,
                    match &after.task.item {
                        Some(item) => one_line(item, 120),
                        None => format!("task #{}", args.task_id),
                    }
                )),
            })
        }
        TaskCommand::Why { task, json } => {
            // A number may be written as `#7`.
            let args = match task.trim_start_matches('#').contains(['#', '!', '/']) {
                true => TaskWhy {
                    item: Some(task),
                    ..TaskWhy::default()
                },
                false => TaskWhy {
                    task_id: Some(number(store, &task).await?),
                    ..TaskWhy::default()
                },
            };
            let why = tasks::why(store, &fleet, &place, &args).await;
            fleet.close().await;
            json.print(&why.map_err(failed)?, why::print)
        }
    }
}

impl Request {
    async fn args(self, store: &dyn Store) -> Result<(TaskRequest, Json)> {
        let task_id = number(store, &self.task).await?;
        let request = TaskRequest {
            task_id,
            reason: self.reason,
        };
        Ok((request, self.json))
    }
}

impl Fields {
    async fn create(self, store: &dyn Store, title: String) -> Result<TaskCreate> {
        let update = self.update(store, 0).await?;
        Ok(TaskCreate {
            title,
            description: update.description,
            priority: update.priority,
            kind: update.kind,
            assignee: update.assignee,
            assignee_type: update.assignee_type,
            agent: update.agent,
            depends_on: update.depends_on,
            write_scope: update.write_scope,
            repository: None,
        })
    }

    async fn update(self, store: &dyn Store, task_id: i64) -> Result<TaskUpdate> {
        let mut depends_on = Vec::new();
        for task in named(self.depends_on).into_iter().flatten() {
            depends_on.push(task);
        }
        let depends_on = match depends_on.as_slice() {
            [] => None,
            [Named::None] => Some(Vec::new()),
            some => {
                let mut numbers = Vec::new();
                for task in some {
                    if let Named::Some(text) = task {
                        numbers.push(number(store, text).await?);
                    }
                }
                Some(numbers)
            }
        };
        let write_scope = named(self.write_scope).map(|some| {
            let pattern = |it| match it {
                Named::None => None,
                Named::Some(text) => Some(text),
            };
            some.into_iter().filter_map(pattern).collect()
        });
        Ok(TaskUpdate {
            task_id,
            version: None,
            title: None,
            description: self.description.map(description).transpose()?,
            status: None,
            priority: self.priority,
            kind: self.kind,
            assignee: self.assignee,
            assignee_type: self.assignee_type,
            agent: self.agent,
            depends_on,
            write_scope,
        })
    }
}

/// A value of an option that can be repeated.
enum Named {
    None,
    Some(String),
}

/// The values of an option that can be repeated; `None`: it is not given.
fn named(values: Vec<String>) -> Option<Vec<Named>> {
    if values.is_empty() {
        return None;
    }
    let value = |text: String| match text.as_str() {
        "none" => Named::None,
        _ => Named::Some(text),
    };
    Some(values.into_iter().map(value).collect())
}

fn description(text: String) -> Result<String> {
    if text != "-" {
        return Ok(text);
    }
    let mut read = String::new();
    std::io::stdin()
        .read_to_string(&mut read)
        .context("the description cannot be read from stdin")?;
    Ok(read)
}

/// The number of a task that a person named.
pub(crate) async fn number(store: &dyn Store, text: &str) -> Result<i64> {
    let task = find_task(store, text).await.map_err(failed)?;
    Ok(task.number.0)
}

async fn list(
    store: &dyn Store,
    status: Option<String>,
    assignee: Option<String>,
    limit: u32,
) -> Result<Vec<TaskView>> {
    listed(limit, async |count, cursor| {
        let args = TaskList {
            status: status.clone(),
            assignee: assignee.clone(),
            limit: Some(count),
            cursor,
        };
        let page = tasks::list(store, &args).await?;
        Ok((page.tasks, page.next_cursor))
    })
    .await
}

/// A task at work is stopped or paused by its worker, later than this.
fn requested(after: &TaskDetails, what: &str) {
    let what = match after.task.status.as_str() {
        "cancelled" => "is cancelled",
        _ => what,
    };
    line(format!("task #{} {what}", after.task.id));
}
