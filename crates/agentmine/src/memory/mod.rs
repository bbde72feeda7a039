//! `agentmine memory`: what a project's people decided, and what agents are given of it.

mod args;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentmine_control::memory::{
    self, MemoryChange, MemoryFields, MemoryQuery, NewMemory, Overwrite, ProjectMemory, Transfer,
    TransferState,
};
use agentmine_control::{ControlError, LocalProject};
use agentmine_domain::memory::limits;
use agentmine_domain::{MemoryRecord, ProjectName};
use agentmine_runtime::config::{self, Config, Sources};
use agentmine_runtime::exit::{Exit, Failure};
use agentmine_runtime::redact::Redactor;
use agentmine_store::Store;
use anyhow::{Context as _, Result};

use crate::control::{failure, redactor};
use crate::embedded::open_configured;
use crate::print::{body, cell, line, note, one_line, program, table, trimmed};
pub(crate) use args::MemoryArgs;
use args::{FieldArgs, MemoryCommand, TransferArgs};

/// The opened store and the project that a command is about.
struct Opened {
    config: Config,
    store: Arc<dyn Store>,
    /// Of this folder.
    here: LocalProject,
    /// The named one, or that of this folder.
    name: ProjectName,
    secrets: Redactor,
}

impl Opened {
    fn memory(&self) -> ProjectMemory<'_> {
        ProjectMemory {
            store: self.store.as_ref(),
            project: &self.name,
            secrets: &self.secrets,
        }
    }
}

/// Runs one of the commands.
pub(crate) async fn run(file: Option<PathBuf>, args: MemoryArgs) -> Result<Exit> {
    let MemoryArgs { project, command } = args;
    let opened = open(file, project).await?;
    match command {
        MemoryCommand::List {
            status,
            category,
            tag,
            limit,
            json,
        } => {
            let query = MemoryQuery {
                status,
                category,
                tag,
                cursor: None,
                limit,
            };
            list(&opened, &query, json).await
        }
        MemoryCommand::Add {
            id,
            category,
            title,
            fields,
            source,
            json,
        } => {
            let new = NewMemory {
                id,
                category,
                title,
                fields: read_fields(fields, false)?,
                source,
            };
            let added = memory::add(opened.memory(), new).await;
            written(added.map_err(taken)?, "added", json)
        }
        MemoryCommand::Show { id, json } => show(&opened, &id, json).await,
        MemoryCommand::Update {
            id,
            category,
            title,
            fields,
            no_tags,
            version,
            json,
        } => {
            let change = MemoryChange {
                category,
                title,
                fields: read_fields(fields, no_tags)?,
                version,
            };
            let updated = memory::update(opened.memory(), &id, change).await;
            written(updated.map_err(failure)?, "changed", json)
        }
        MemoryCommand::Preview { max_tokens, json } => preview(&opened, max_tokens, json).await,
        MemoryCommand::Export(args) => export(&opened, &args).await,
        MemoryCommand::Import(args) => import(&opened, &args).await,
    }
}

async fn open(file: Option<PathBuf>, project: Option<String>) -> Result<Opened> {
    let named = project.as_deref().map(|text| {
        ProjectName::parse(text).ok_or_else(|| {
            Failure::new(
                Exit::Validation,
                format!("--project {:?} is no project", one_line(text, 80)),
            )
            .hint("expected HOST/OWNER/NAME, such as github.com/acme/shop, or an absolute path")
        })
    });
    let named = named.transpose()?;
    let mut config = config::load(&Sources::from_process(file))?;
    let here = here().await?;
    let store = open_configured(&mut config).await?;
    Ok(Opened {
        secrets: redactor(&config),
        name: named.unwrap_or_else(|| here.name.clone()),
        config,
        store,
        here,
    })
}

/// The project that the working folder is in.
pub(crate) async fn here() -> Result<LocalProject> {
    let find = || agentmine_control::project(Path::new("."));
    let found = tokio::task::spawn_blocking(find).await?;
    found.map_err(failure)
}

async fn list(opened: &Opened, query: &MemoryQuery, json: bool) -> Result<Exit> {
    let found = memory::list(opened.memory(), query)
        .await
        .map_err(failure)?;
    if json {
        line(serde_json::to_string_pretty(&found.records)?);
        return Ok(Exit::Done);
    }
    if found.records.is_empty() {
        line(format!("no records in the memory of {}", found.project));
        return Ok(Exit::Done);
    }
    let mut table = table(&[
        "ID",
        "STATUS",
        "CATEGORY",
        "TITLE",
        "CONFIDENCE",
        "SOURCE",
        "VERSION",
        "UPDATED",
    ]);
    for MemoryRecord {
        entry,
        version,
        updated_at,
        ..
    } in &found.records
    {
        table.add_row(vec![
            entry.id.to_string(),
            entry.status.to_string(),
            cell(&entry.category),
            cell(&entry.title),
            entry.confidence.to_string(),
            entry.source.to_string(),
            version.to_string(),
            updated_at.format("%Y-%m-%d %H:%M").to_string(),
        ]);
    }
    line(trimmed(&table));
    if found.next_cursor.is_some() {
        note("there are more; --limit 0 lists all");
    }
    Ok(Exit::Done)
}

async fn show(opened: &Opened, id: &str, json: bool) -> Result<Exit> {
    let record = memory::get(opened.memory(), id).await.map_err(failure)?;
    if json {
        line(serde_json::to_string_pretty(&record)?);
        return Ok(Exit::Done);
    }
    let MemoryRecord {
        entry,
        version,
        created_at: _,
        updated_at,
    } = &record;
    line(format!("{}  {}", entry.id, one_line(&entry.title, 200)));
    line(format!("category    {}", one_line(&entry.category, 40)));
    line(format!("status      {}", entry.status));
    line(format!(
        "confidence  {}, by a {}",
        entry.confidence, entry.source
    ));
    if !entry.tags.is_empty() {
        line(format!("tags        {}", cell(&entry.tags.join(", "))));
    }
    if let Some(at) = entry.expires_at {
        line(format!("expires     {}", at.format("%Y-%m-%d %H:%M UTC")));
    }
    line(format!(
        "version     {version}, of {}",
        updated_at.format("%Y-%m-%d %H:%M UTC")
    ));
    for part in [&entry.summary, &entry.content] {
        if !part.trim().is_empty() {
            line("");
            body(part.trim_end());
        }
    }
    Ok(Exit::Done)
}

fn written(record: MemoryRecord, what: &str, json: bool) -> Result<Exit> {
    if json {
        line(serde_json::to_string_pretty(&record)?);
        return Ok(Exit::Done);
    }
    let MemoryRecord { entry, version, .. } = record;
    line(format!(
        "record {} {what}: {} (version {version})",
        entry.id, entry.status
    ));
    Ok(Exit::Done)
}

async fn preview(opened: &Opened, max_tokens: Option<u64>, json: bool) -> Result<Exit> {
    let configured = opened.config.memory.limit();
    let limit = max_tokens.unwrap_or(configured);
    let preview = memory::preview(opened.memory(), limit).await;
    let preview = preview.map_err(failure)?;
    if json {
        line(serde_json::to_string_pretty(&preview)?);
        return Ok(Exit::Done);
    }
    let given = preview.given;
    if max_tokens.is_none() && !opened.config.memory.enabled {
        note("memory.enabled is false, so agents are given nothing");
    }
    if given.records.is_empty() {
        line(format!("no records in the memory of {}", preview.project));
        return Ok(Exit::Done);
    }
    let mut table = table(&["ID", "GIVEN", "TOKENS", "VERSION", "TITLE", "WHY"]);
    for choice in &given.records {
        table.add_row(vec![
            choice.id.clone(),
            choice.given.as_str().to_owned(),
            choice.tokens.to_string(),
            choice.version.to_string(),
            cell(&choice.title),
            cell(&choice.explanation),
        ]);
    }
    line(trimmed(&table));
    line("");
    line(format!(
        "about {} of {} tokens. An agent is given:",
        given.tokens, given.max_tokens
    ));
    match given.text.is_empty() {
        true => line("nothing"),
        false => body(given.text.trim_end_matches('\n')),
    }
    Ok(Exit::Done)
}

async fn export(opened: &Opened, args: &TransferArgs) -> Result<Exit> {
    let exported = memory::export(opened.memory(), &opened.here.top, overwrite(args)).await;
    let exported = exported.map_err(failure)?;
    transferred(
        &exported.files,
        args,
        "the file was changed too; import it first, or",
    )
}

async fn import(opened: &Opened, args: &TransferArgs) -> Result<Exit> {
    let imported = memory::import(opened.memory(), &opened.here.top, overwrite(args)).await;
    let imported = imported.map_err(failure)?;
    transferred(
        &imported.files,
        args,
        "the record is another than the file was made from; export it first, or",
    )
}

fn overwrite(args: &TransferArgs) -> Overwrite {
    match args.overwrite {
        true => Overwrite::Yes,
        false => Overwrite::No,
    }
}

fn transferred(files: &[Transfer], args: &TransferArgs, conflict: &str) -> Result<Exit> {
    if args.json {
        line(serde_json::to_string_pretty(files)?);
    } else if files.is_empty() {
        line("nothing to do");
    } else {
        let mut table = table(&["FILE", "RESULT", "STATUS", "VERSION"]);
        for file in files {
            table.add_row(vec![
                cell(&file.file),
                state(file.state).to_owned(),
                file.status.to_string(),
                file.version.to_string(),
            ]);
        }
        line(trimmed(&table));
    }
    let in_conflict = |file: &&Transfer| file.state == TransferState::Conflict;
    let ids: Vec<&str> = files
        .iter()
        .filter(in_conflict)
        .map(|file| file.id.as_str())
        .collect();
    if ids.is_empty() {
        return Ok(Exit::Done);
    }
    let ids = ids.join(", ");
    Err(Failure::new(
        Exit::WrongState,
        format!("in conflict, and left as they are: {ids}"),
    )
    .hint(format!("{conflict} use --overwrite"))
    .into())
}

fn state(state: TransferState) -> &'static str {
    match state {
        TransferState::Added => "added",
        TransferState::Updated => "updated",
        TransferState::Unchanged => "unchanged",
        TransferState::Conflict => "conflict",
    }
}

fn read_fields(args: FieldArgs, no_tags: bool) -> Result<MemoryFields> {
    let FieldArgs {
        summary,
        content,
        file,
        status,
        tag,
        confidence,
        expires,
    } = args;
    let content = match file {
        None => content,
        Some(file) => Some(text_of(&file)?),
    };
    Ok(MemoryFields {
        summary,
        content,
        status,
        tags: (no_tags || !tag.is_empty()).then_some(tag),
        confidence,
        expires,
    })
}

/// The text of a file, or of the standard input; little more than a record may have.
fn text_of(file: &Path) -> Result<String> {
    let most = limits::CONTENT as u64 + 1;
    let shown = file.display();
    let mut bytes = Vec::new();
    let reading = match file.to_str() {
        Some("-") => std::io::stdin().take(most).read_to_end(&mut bytes),
        Some(_) | None => {
            let opened = std::fs::File::open(file).map_err(|error| {
                Failure::new(Exit::NotFound, format!("{shown} cannot be opened")).because(error)
            })?;
            opened.take(most).read_to_end(&mut bytes)
        }
    };
    reading.with_context(|| format!("{shown} cannot be read"))?;
    if bytes.len() as u64 == most {
        let most = limits::CONTENT;
        let what = format!("{shown} is larger than {most} bytes");
        return Err(Failure::new(Exit::Validation, what).into());
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(Exit::Validation, format!("{shown} is not UTF-8 text")).into())
}

fn taken(error: ControlError) -> anyhow::Error {
    match error {
        ControlError::InvalidStatus(what) => Failure::new(Exit::WrongState, what)
            .hint(format!("change it with `{} memory update`", program()))
            .into(),
        other => failure(other),
    }
}
