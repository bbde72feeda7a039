//! From the two files to the servers there are.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use crate::ConfigFault;

use super::entry::{self, Scope};
use super::fields::{Faults, nearest, shown};
use super::json::{self, Node, Prop, Value};
use super::{Loaded, Owner, RepositoryFile, ServerConfig};

/// The project's file, relative to the project.
pub const PROJECT_FILE: &str = ".agentmine/mcp_config.json";
/// Largest file that is read, in bytes.
pub const MAX_FILE: usize = 256 * 1024;
/// Most servers of one file.
pub const MAX_SERVERS: usize = 50;

/// Keys beside `mcpServers` that are passed over: `$schema` helps editors.
const TOP: [&str; 2] = ["mcpServers", "$schema"];

/// The user's own file: `~/.agentmine/mcp_config.json`.
#[must_use]
pub fn user_file(home: &Path) -> PathBuf {
    home.join(PROJECT_FILE)
}

/// The file of a project on this machine; `None` where it has none.
///
/// # Errors
/// A file that is there and cannot be read.
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

/// Whether this is `[a-z0-9-]{1,24}`.
#[must_use]
pub fn is_server_name(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=24).contains(&name.len()) && name.bytes().all(good)
}

/// Reads both files and puts them together. `env` gives the variables of `${VAR}` in the user's file.
///
/// Where the project's file cannot be read at all, the user's servers stay as they are.
#[must_use]
pub fn load(
    user_file: Option<&Path>,
    repository: Option<&RepositoryFile>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Loaded {
    let mut loaded = Loaded::default();
    if let Some(file) = user_file {
        let mut faults = Faults::new(file);
        match content(file) {
            Ok(None) => {}
            Ok(Some(text)) => {
                loaded.files.push(file.to_owned());
                let owner = Owner::Operator;
                let found = read(&text, &Scope { file, owner, env }, &mut faults);
                loaded.servers = found.servers;
            }
            Err(detail) => {
                loaded.files.push(file.to_owned());
                faults.push(None, "", detail, None);
            }
        }
        loaded.faults.extend(faults.into_vec());
    }
    if let Some(RepositoryFile { shown: file, text }) = repository {
        let mut faults = Faults::new(file);
        let owner = Owner::Repository;
        let found = read(text, &Scope { file, owner, env }, &mut faults);
        for (name, line) in &found.left_out {
            if let Some(replaced) = loaded.servers.remove(name) {
                let detail = format!(
                    "the server of this name in {} is left out too, since this entry was meant to replace it",
                    replaced.origin.file.display()
                );
                faults.push(
                    Some(*line),
                    &format!("mcpServers.{name}"),
                    detail,
                    Some(name),
                );
            }
        }
        loaded.files.push(file.clone());
        loaded.servers.extend(found.servers);
        loaded.faults.extend(faults.into_vec());
    }
    loaded
}

/// The file's text, `None` where there is no file. The error is what is wrong, in words.
fn content(file: &Path) -> Result<Option<String>, String> {
    let words = |error: std::io::Error| format!("it cannot be read: {error}");
    match std::fs::metadata(file) {
        // Opening a pipe would wait for ever.
        Ok(meta) if !meta.is_file() => return Err("it is no regular file".into()),
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
        Err(_) => Err("it is no UTF-8 text, or far too long".into()),
    }
}

#[derive(Default)]
struct Found {
    servers: BTreeMap<String, ServerConfig>,
    /// Names of faulty entries, with their lines.
    left_out: Vec<(String, usize)>,
}

fn read(text: &str, scope: &Scope<'_>, faults: &mut Faults<'_>) -> Found {
    let mut found = Found::default();
    if text.len() > MAX_FILE {
        let detail = format!("it is longer than {MAX_FILE} bytes; is this the right file?");
        faults.push(None, "", detail, None);
        return found;
    }
    let root = match json::parse(text) {
        Ok(root) => root,
        Err(fault) => {
            faults.push(Some(fault.line), "", fault.detail, None);
            return found;
        }
    };
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for prop in servers(&root, faults) {
        let name = prop.key.as_str();
        let field = format!("mcpServers.{}", shown(name));
        if !is_server_name(name) {
            let detail = format!(
                "{:?} is no server's name, expected 1 to 24 of a-z, 0-9 and -{}",
                shown(name),
                suggestion(name)
            );
            faults.push(Some(prop.line), &field, detail, Some(&shown(name)));
        } else if let Some(first) = seen.get(name) {
            let detail = format!("written twice, first on line {first}; neither is used");
            faults.push(Some(prop.line), &field, detail, Some(name));
            found.servers.remove(name);
            found.left_out.push((name.to_owned(), prop.line));
        } else if seen.len() == MAX_SERVERS {
            let detail = format!("one too many, expected at most {MAX_SERVERS} servers");
            faults.push(Some(prop.line), &field, detail, Some(name));
            found.left_out.push((name.to_owned(), prop.line));
        } else {
            seen.insert(name, prop.line);
            match entry::read(scope, prop, faults) {
                Some(server) => {
                    found.servers.insert(server.name.clone(), server);
                }
                None => found.left_out.push((name.to_owned(), prop.line)),
            }
        }
    }
    found.left_out.sort();
    found.left_out.dedup_by(|a, b| a.0 == b.0);
    found
}

/// The entries of `mcpServers`.
fn servers<'a>(root: &'a Node, faults: &mut Faults<'_>) -> &'a [Prop] {
    let Value::Map(props) = &root.value else {
        let detail = format!("{}, expected {{\"mcpServers\": {{…}}}}", root.kind());
        faults.push(Some(root.line), "", detail, None);
        return &[];
    };
    let mut servers: Option<&'a Prop> = None;
    let mut other = false;
    for prop in props {
        match (prop.key.as_str(), servers) {
            ("mcpServers", None) => servers = Some(prop),
            ("mcpServers", Some(first)) => {
                let detail = format!(
                    "written twice, first on line {}; the first is used",
                    first.line
                );
                faults.push(Some(prop.line), "mcpServers", detail, None);
            }
            ("$schema", _) => {}
            (key, _) => {
                other = true;
                let hint = match key {
                    "servers" | "mcp" => {
                        "; other clients call it so, expected `mcpServers`".to_owned()
                    }
                    "inputs" => "; nothing is asked for here: use ${VAR} in `env`".to_owned(),
                    key => nearest(key, &TOP),
                };
                let detail = format!("unknown key, passed over{hint}");
                faults.push(Some(prop.line), &shown(key), detail, None);
            }
        }
    }
    match servers.map(|prop| (&prop.node, &prop.node.value)) {
        Some((_, Value::Map(entries))) => entries,
        Some((node, _)) => {
            let detail = format!("{}, expected an object of servers", node.kind());
            faults.push(Some(node.line), "mcpServers", detail, None);
            &[]
        }
        None => {
            if !other {
                let detail = "there is no `mcpServers`; expected {\"mcpServers\": {…}}";
                faults.push(Some(root.line), "", detail, None);
            }
            &[]
        }
    }
}

/// The nearest good name, where there is one.
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
