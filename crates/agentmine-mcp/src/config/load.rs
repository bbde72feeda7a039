//! Reads the configured servers from the two files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use agentmine_runtime::config::nearest;
use agentmine_runtime::config::tree::{ConfigEntry, Node, Value};

use super::entry::{self, Scope};
use super::faults::{Faults, line_of, shown};
use super::json;
use super::server::{Loaded, Owner, RepositoryFile, ServerConfig};
use crate::ConfigFault;

/// The project's file, relative to the project.
pub const PROJECT_FILE: &str = ".agentmine/mcp_config.json";
/// Largest file that is read, in bytes.
pub const MAX_FILE: usize = 256 * 1024;
/// Servers of one file.
pub(super) const MAX_SERVERS: usize = 50;

/// The keys of a file. `$schema` helps editors, and is ignored.
const TOP: [&str; 2] = ["mcpServers", "$schema"];

/// The file of a project on this machine, if it has one.
///
/// # Errors
/// A file that exists and cannot be read.
pub fn project_file(project: &Path) -> Result<Option<RepositoryFile>, ConfigFault> {
    let shown = project.join(PROJECT_FILE);
    match content(&shown) {
        Ok(text) => Ok(text.map(|text| RepositoryFile { shown, text })),
        Err(detail) => Err(ConfigFault {
            file: shown,
            line: None,
            field: String::new(),
            detail,
            server: None,
        }),
    }
}

/// Whether this is `[A-Za-z0-9_-]{1,24}` without `_` at its ends and without `__`, so that no server's tools can have the
/// wire names of another one's.
fn is_server_name(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
    (1..=24).contains(&name.len())
        && name.bytes().all(good)
        && !name.starts_with('_')
        && !name.ends_with('_')
        && !name.contains("__")
}

/// Reads both files and merges them. `env` returns the variables of `${VAR}` in the user's file. If the
/// project's file cannot be parsed, the user's servers are not affected.
#[must_use]
pub fn load(
    user_file: Option<&Path>,
    repository: Option<&RepositoryFile>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Loaded {
    let user = user_file.and_then(|file| {
        let text = content(file).transpose()?;
        Some((file, Owner::Operator, text))
    });
    let repository = repository.map(|RepositoryFile { shown, text }| {
        let text = Ok(text.clone());
        (shown.as_path(), Owner::Repository, text)
    });
    let mut loaded = Loaded::default();
    for (file, owner, text) in user.into_iter().chain(repository) {
        let mut faults = Faults::new(file);
        let found = match text {
            Ok(text) => read(&text, &Scope { file, owner, env }, &mut faults),
            Err(detail) => {
                faults.push(None, "", detail, None);
                Found::default()
            }
        };
        for (name, line) in &found.left_out {
            if let Some(replaced) = loaded.servers.remove(name) {
                let detail = format!(
                    "the server of this name in {} is skipped too, because this entry was meant to replace it",
                    replaced.origin.file.display()
                );
                faults.push(*line, &format!("mcpServers.{name}"), detail, Some(name));
            }
        }
        loaded.files.push(file.to_owned());
        loaded.servers.extend(found.servers);
        loaded.faults.extend(faults.into_vec());
    }
    loaded
}

/// The text of a file, if there is one. An error is a text.
fn content(file: &Path) -> Result<Option<String>, String> {
    let words = |error: std::io::Error| format!("it cannot be read: {error}");
    match std::fs::metadata(file) {
        // Opening a pipe would block.
        Ok(meta) if !meta.is_file() => return Err("it is not a regular file".into()),
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(words(error)),
    }
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|it| it.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes))
        .map_err(words)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err("it is not UTF-8 text, or far too long".into()),
    }
}

#[derive(Default)]
struct Found {
    servers: BTreeMap<String, ServerConfig>,
    /// Names of faulty entries, with their lines.
    left_out: BTreeMap<String, Option<usize>>,
}

fn read(text: &str, scope: &Scope<'_>, faults: &mut Faults<'_>) -> Found {
    let mut found = Found::default();
    if text.len() > MAX_FILE {
        let detail = format!("it is longer than {MAX_FILE} bytes; is this the right file?");
        faults.push(None, "", detail, None);
        return found;
    }
    let root = match json::parse(&scope.file.display().to_string(), text) {
        Ok(root) => root,
        Err(fault) => {
            faults.push(Some(fault.line), "", fault.detail, None);
            return found;
        }
    };
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in servers(&root, faults) {
        let (name, line) = (entry.key.as_str(), line_of(&entry.place));
        let field = format!("mcpServers.{}", shown(name));
        let detail = if !is_server_name(name) {
            let (name, suggestion) = (shown(name), suggestion(name));
            let detail = format!(
                "{name:?} is not a server's name, expected 1 to 24 letters, digits, - and _, with _ neither first, last nor doubled{suggestion}"
            );
            faults.push(line, &field, detail, Some(&name));
            continue;
        } else if let Some(first) = seen.get(name) {
            found.servers.remove(name);
            format!("written twice, first on line {first}; neither is used")
        } else if seen.len() == MAX_SERVERS {
            format!("one too many, expected at most {MAX_SERVERS} servers")
        } else {
            seen.insert(name, line.unwrap_or_default());
            match entry::read(scope, entry, faults) {
                Some(server) => drop(found.servers.insert(server.name.clone(), server)),
                None => drop(found.left_out.insert(name.to_owned(), line)),
            }
            continue;
        };
        faults.push(line, &field, detail, Some(name));
        found.left_out.insert(name.to_owned(), line);
    }
    found
}

/// The entries of `mcpServers`.
fn servers<'a>(root: &'a Node, faults: &mut Faults<'_>) -> &'a [ConfigEntry] {
    let Value::Map(entries) = &root.value else {
        let detail = "not an object, expected {\"mcpServers\": {…}}";
        faults.push(line_of(&root.place), "", detail, None);
        return &[];
    };
    let mut servers: Option<&'a ConfigEntry> = None;
    let mut unknown = false;
    for entry in entries {
        let (key, line) = (entry.key.as_str(), line_of(&entry.place));
        match (key, servers) {
            ("mcpServers", None) => servers = Some(entry),
            ("mcpServers", Some(_)) => {
                let detail = "written twice; the first is used";
                faults.push(line, "mcpServers", detail, None);
            }
            ("$schema", _) => {}
            _ => {
                unknown = true;
                let hint = match (key, nearest(key, &TOP)) {
                    ("servers" | "mcp", _) => {
                        "; other clients use it, expected `mcpServers`".to_owned()
                    }
                    ("inputs", _) => "; inputs are not supported: use ${VAR} in `env`".to_owned(),
                    (_, Some(near)) => format!("; did you mean `{near}`?"),
                    (_, None) => format!("; expected one of `{}`", TOP.join("`, `")),
                };
                let detail = format!("unknown key, ignored{hint}");
                faults.push(line, &shown(key), detail, None);
            }
        }
    }
    let (node, field, detail) = match servers.map(|entry| &entry.node) {
        Some(node) => match &node.value {
            Value::Map(entries) => return entries,
            _ => (
                node,
                "mcpServers",
                "not an object, expected an object of servers",
            ),
        },
        // Probably one of the unknown keys, which are reported.
        None if unknown => return &[],
        None => (
            root,
            "",
            "there is no `mcpServers`; expected {\"mcpServers\": {…}}",
        ),
    };
    faults.push(line_of(&node.place), field, detail, None);
    &[]
}

/// A similar name that would be accepted, if there is one.
fn suggestion(name: &str) -> String {
    let good: String = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(24)
        .collect();
    let good = good.trim_matches('-');
    match is_server_name(good) {
        true => format!("; for example {good:?}"),
        false => String::new(),
    }
}
