//! Where the configuration is read from. Only [`Sources::from_process`] reads the process's environment;
//! tests pass their own.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value as Json;

use super::check::{self, Kind};
use super::environment::{ENVIRONMENT, MODEL_KEY, TOKENS};
use super::fault::SettingFault;
use super::schema::{Config, Provider};
use super::secret_files;
use super::tree::{self, ConfigPlace, Node, Value};
use super::variables;

/// The largest file that is read. A configuration has a few kilobytes.
const LARGEST_FILE: u64 = 1 << 20;

/// File, environment and flags.
#[derive(Clone)]
pub struct Sources {
    file: File,
    env: BTreeMap<String, String>,
    flags: Vec<(String, String, Json)>,
}

/// Whether `./config.yaml` is one of the usual places.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WorkingFolder {
    Searched,
    LeftOut,
}

#[derive(Clone)]
enum File {
    /// The first of the usual places that exists, else none.
    Search(WorkingFolder),
    /// This one, which has to exist.
    Path(PathBuf),
    /// A text under a name.
    Text(Arc<str>, String),
}

impl Sources {
    /// The process's environment, and `path` or the first of the usual places that exists:
    /// `./config.yaml`, `$XDG_CONFIG_HOME/agentmine/config.yaml`, `~/.config/agentmine/config.yaml`. No
    /// file is needed, since every key has a default.
    #[must_use]
    pub fn from_process(path: Option<PathBuf>) -> Self {
        // None of our variables is anything but UTF-8.
        let env = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            file: path.map_or(File::Search(WorkingFolder::Searched), File::Path),
            env,
            flags: Vec::new(),
        }
    }

    /// Leaves `./config.yaml` out of the usual places. For a program that is started inside repositories: a
    /// file there could send the API key to another host.
    #[must_use]
    pub fn without_working_folder(mut self) -> Self {
        if matches!(self.file, File::Search(_)) {
            self.file = File::Search(WorkingFolder::LeftOut);
        }
        self
    }

    /// A text instead of a file, with an empty environment.
    pub fn from_text(name: &str, text: impl Into<String>) -> Self {
        Self {
            file: File::Text(name.into(), text.into()),
            env: BTreeMap::new(),
            flags: Vec::new(),
        }
    }

    /// Replaces the environment.
    #[must_use]
    pub fn with_env<K: Into<String>, V: Into<String>>(
        mut self,
        env: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.env = env.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        self
    }

    /// Sets a key such as `store.url` from a flag of the command line such as `--store-url`. A string is
    /// parsed as the type of the key. For the planned command line, whose flags override the file and are
    /// shown as origins by `config show --origin`.
    #[must_use]
    pub fn with_flag(mut self, flag: &str, key: &str, value: impl Into<Json>) -> Self {
        self.flags
            .push((flag.to_owned(), key.to_owned(), value.into()));
        self
    }

    /// All sources as one tree.
    pub(super) fn read(&self, schema: &Json, faults: &mut Vec<SettingFault>) -> Node {
        let mut complete = self.clone();
        secret_files::read(&mut complete.env, faults);
        complete.tree(schema, faults)
    }

    fn tree(&self, schema: &Json, faults: &mut Vec<SettingFault>) -> Node {
        let mut tree = self
            .file(faults)
            .unwrap_or_else(|| Node::empty(ConfigPlace::Default));
        for (name, key) in ENVIRONMENT {
            if let Some(text) = self.env(name) {
                tree.set(key, from_text(schema, key, text, ConfigPlace::Env(name)));
            }
        }
        for (flag, key, value) in &self.flags {
            let place = ConfigPlace::Flag(flag.clone());
            let node = match value {
                Json::String(text) => from_text(schema, key, text, place),
                other => from_json(other, &place),
            };
            tree.set(key, node);
        }
        self.key(&mut tree, schema);
        self.tokens(&mut tree);
        variables::expand(&mut tree, |name| self.env(name), faults);
        tree
    }

    /// Lets the secrets that came from files follow these.
    pub(super) fn follow_files(&self, config: &mut Config) {
        secret_files::follow(&self.env, config);
        secret_files::follow_named(&self.env, config);
    }

    /// The names of the variables that are set.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        let set = self.env.iter().filter(|(_, value)| !value.is_empty());
        set.map(|(name, _)| name.as_str())
    }

    /// What is in the file, if it can be read.
    pub(super) fn file_text(&self) -> Option<String> {
        match &self.file {
            File::Text(_, text) => Some(text.clone()),
            File::Path(_) | File::Search(_) => read_once(&self.used_file()?).ok(),
        }
    }

    /// The home folder.
    pub(super) fn home(&self) -> Option<&str> {
        self.env("HOME")
    }

    /// The folder of the user's configuration, if it is not the usual one.
    pub(super) fn config_home(&self) -> Option<&str> {
        self.env("XDG_CONFIG_HOME")
    }

    /// The key of the model API. One provider's key is never sent to another.
    fn key(&self, tree: &mut Node, schema: &Json) {
        let provider = tree.get("model").and_then(|model| model.get("provider"));
        let provider = match provider.map(|node| &node.value) {
            Some(Value::Text(name)) if name == "anthropic" => Provider::Anthropic,
            _ => Provider::OpenAi,
        };
        let name = provider.key_variable();
        let is_by_flag = self.flags.iter().any(|(_, key, _)| key == MODEL_KEY);
        if let (false, Some(text)) = (is_by_flag, self.env(name)) {
            let node = from_text(schema, MODEL_KEY, text, ConfigPlace::Env(name));
            tree.set(MODEL_KEY, node);
        }
    }

    fn tokens(&self, tree: &mut Node) {
        for (name, section, key) in TOKENS {
            let there = section
                .split('.')
                .try_fold(&*tree, |node, key| node.get(key));
            let wanted = there.is_some_and(|node| !matches!(node.value, Value::Null));
            let by_flag =
                |(_, flag, _): &(String, String, Json)| *flag == format!("{section}.{key}");
            if let (true, Some(text)) = (wanted && !self.flags.iter().any(by_flag), self.env(name))
            {
                // A line break at the end came with `echo` or from a file, and is in no token.
                let value = Value::Text(text.trim().to_owned());
                let place = ConfigPlace::Env(name);
                tree.set(&format!("{section}.{key}"), Node { place, value });
            }
        }
    }

    fn env(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    }

    fn file(&self, faults: &mut Vec<SettingFault>) -> Option<Node> {
        let (name, text) = match &self.file {
            File::Text(name, text) => (name.clone(), text.clone()),
            File::Path(path) => (shown(path), read_file(path, faults)?),
            File::Search(_) => {
                let path = self.used_file()?;
                (shown(&path), read_file(&path, faults)?)
            }
        };
        match tree::parse(&name, &text) {
            Ok(node) => Some(node),
            Err((place, message)) => {
                let seen = message
                    .split(" at line")
                    .next()
                    .unwrap_or(&message)
                    .to_owned();
                faults.push(SettingFault::new(&place, "", seen, "valid YAML"));
                None
            }
        }
    }

    /// The file that is read, if there is one.
    #[must_use]
    pub fn used_file(&self) -> Option<PathBuf> {
        match &self.file {
            File::Text(..) => None,
            File::Path(path) => Some(path.clone()),
            File::Search(working_folder) => {
                let places = self.usual_places(*working_folder);
                // What is there and cannot be read is a fault, and no reason to read another one.
                let is_there = |path: &PathBuf| match path.symlink_metadata() {
                    Ok(_) => true,
                    Err(error) => {
                        !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                    }
                };
                places.into_iter().find(is_there)
            }
        }
    }

    /// Says of a file that was only found in the working folder, and has a section that is not known, that it may be another
    /// program's.
    pub(super) fn explain(&self, faults: &mut [SettingFault]) {
        let is_found = matches!(self.file, File::Search(_))
            && self.used_file().is_some_and(|file| file.is_relative());
        let is_section = |fault: &&mut SettingFault| {
            fault.line().is_some() && fault.key.is_empty() && fault.seen.starts_with("unknown key")
        };
        let section = faults.iter_mut().rfind(is_section);
        if let Some(section) = section.filter(|_| is_found) {
            section.hint.get_or_insert_with(|| {
                "if this file, found in the current folder, is another program's, name AgentMine's with --config".into()
            });
        }
    }

    fn usual_places(&self, working_folder: WorkingFolder) -> Vec<PathBuf> {
        let under = |base: &str, rest: &str| self.env(base).map(|base| Path::new(base).join(rest));
        [
            (working_folder == WorkingFolder::Searched).then(|| PathBuf::from("config.yaml")),
            under("XDG_CONFIG_HOME", "agentmine/config.yaml"),
            under("HOME", ".config/agentmine/config.yaml"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The environment, the text and the flags hold secrets.
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

fn shown(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}

fn read_file(path: &Path, faults: &mut Vec<SettingFault>) -> Option<String> {
    let place = ConfigPlace::File {
        name: shown(path),
        line: 0,
        column: 0,
    };
    let mut fail = |seen: String, hint: &str| {
        faults.push(SettingFault::new(&place, "", seen, "a readable YAML file").hint(hint));
        None
    };
    match std::fs::metadata(path) {
        Ok(meta) if meta.len() > LARGEST_FILE => {
            return fail(format!("{} bytes", meta.len()), "is this the right file?");
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return fail(
                "no such file".into(),
                "see deploy/config.yaml for an example",
            );
        }
        Err(error) => return fail(error.to_string(), "check its permissions"),
    }
    match read_once(path) {
        Ok(text) => Some(text),
        Err(error) => fail(error.to_string(), "check that it is readable and UTF-8"),
    }
}

/// What is in a file. A pipe has it once (`--config <(sops -d config.yaml)`), so that is kept for the other times.
pub(super) fn read_once(path: &Path) -> std::io::Result<String> {
    static PIPES: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());
    if !std::fs::metadata(path)?.file_type().is_fifo() {
        return std::fs::read_to_string(path);
    }
    let mut pipes = PIPES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = pipes.get(path) {
        return Ok(text.clone());
    }
    let mut text = String::new();
    let pipe = std::fs::File::open(path)?;
    pipe.take(LARGEST_FILE).read_to_string(&mut text)?;
    pipes.insert(path.to_owned(), text.clone());
    Ok(text)
}

/// A string from the environment or a flag, parsed as the type of its key. What cannot be parsed stays a
/// string, and the check of the tree reports it.
fn from_text(schema: &Json, key: &str, text: &str, place: ConfigPlace) -> Node {
    let text = text.trim();
    let value = match check::kind_of(schema, key) {
        Some(Kind::Bool) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(Value::Bool(true)),
            "false" | "0" | "no" | "off" => Some(Value::Bool(false)),
            _ => None,
        },
        Some(Kind::Int) => text.parse().ok().map(Value::Int),
        Some(Kind::Number) => text.parse().ok().map(Value::Float),
        Some(Kind::List) => {
            let item = |text: &str| Node {
                place: place.clone(),
                value: Value::Text(text.trim().to_owned()),
            };
            Some(Value::List(text.split(',').map(item).collect()))
        }
        Some(Kind::Text | Kind::Map) | None => None,
    };
    let value = value.unwrap_or_else(|| Value::Text(text.to_owned()));
    Node { place, value }
}

fn from_json(json: &Json, place: &ConfigPlace) -> Node {
    let value = match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i128() {
            Some(whole) => Value::Int(whole),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => {
            Value::List(items.iter().map(|item| from_json(item, place)).collect())
        }
        Json::Object(entries) => Value::Map(
            entries
                .iter()
                .map(|(key, value)| tree::ConfigEntry {
                    key: key.clone(),
                    place: place.clone(),
                    node: from_json(value, place),
                })
                .collect(),
        ),
    };
    Node {
        place: place.clone(),
        value,
    }
}
