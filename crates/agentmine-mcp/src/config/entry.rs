//! One entry of `mcpServers`.
//!
//! Its keys and their types are checked against the schema below by the code that checks `config.yaml`. What
//! other clients write is accepted if its meaning is clear, and else rejected with a hint. Values of `env` and
//! `headers` are secrets: no fault shows one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use agentmine_runtime::config::tree::{ConfigEntry, Node, Value};
use agentmine_runtime::config::{Secret, SettingFault, check, nearest};
use serde_json::{Value as Json, json};
use url::Url;

use super::expand::{Refused, Variables, expand};
use super::faults::{Faults, line_of, shown};
use super::server::{Capabilities, Origin, Owner, ServerConfig, ServerPlace, Transport};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// A day, in seconds.
const MAX_TIMEOUT: f64 = 86_400.0;
const MAX_RESTARTS: u32 = 100;
const CAPABILITIES: [&str; 3] = ["roots", "sampling", "logging"];

/// What to write instead of a key of other clients that has no clear meaning here.
fn elsewhere(key: &str) -> Option<&'static str> {
    Some(match key {
        "cwd" => {
            "a server starts in the project's folder; for another one: \"command\": [\"sh\", \"-c\", \"cd DIR && exec PROGRAM\"]"
        }
        "alwaysAllow" | "autoApprove" | "trust" => {
            "there is no approval of single calls to skip; remove it"
        }
        "timeout" => "clients differ on its unit; write `timeoutSeconds`",
        "envFile" => "name each variable in `env`, as \"NAME\": \"${NAME}\"",
        "serverUrl" | "httpUrl" => "write `url`",
        "auth" | "oauth" => {
            "send a token with \"headers\": {\"Authorization\": \"Bearer ${TOKEN}\"}"
        }
        "requestInit" => "write `headers`",
        "disabledTools" | "enabledTools" | "includeTools" | "excludeTools" | "allowedTools" => {
            "all tools of a server are offered; remove it"
        }
        _ => return None,
    })
}

/// The keys of an entry. Those without a type are checked separately.
fn schema() -> Json {
    let secrets = json!({"type": "object", "additionalProperties": {"$ref": "#/$defs/Secret"}});
    let flag = json!({"type": "boolean"});
    let text = json!({"type": "string"});
    json!({
        "$defs": {"Secret": text},
        "type": "object",
        "properties": {
            "command": {},
            "args": {"type": "array", "items": text},
            "env": secrets,
            "enabled": flag,
            "disabled": flag,
            "capabilities": {
                "type": "object",
                "properties": {"roots": flag, "sampling": flag, "logging": flag},
            },
            "timeoutSeconds": {},
            "maxRestarts": {"type": "integer", "minimum": 0, "maximum": MAX_RESTARTS},
            "sandbox": flag,
            "url": text,
            "headers": secrets,
            "type": text,
            "transport": text,
        },
    })
}

/// The file of an entry.
pub(super) struct Scope<'a> {
    pub(super) file: &'a Path,
    pub(super) owner: Owner,
    /// The operator's environment variables.
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

/// Reads one entry; `None` if it has a fault.
pub(super) fn read(
    scope: &Scope<'_>,
    entry: &ConfigEntry,
    faults: &mut Faults<'_>,
) -> Option<ServerConfig> {
    let mut reader = Reader {
        scope,
        name: &entry.key,
        node: &entry.node,
        fields: Json::Null,
        faults,
        is_good: true,
    };
    let line = line_of(&entry.place).unwrap_or_default();
    reader.check();
    let enabled = reader.enabled();
    let server = ServerConfig {
        name: entry.key.clone(),
        origin: Origin {
            file: scope.file.to_owned(),
            line,
            owner: scope.owner,
        },
        enabled,
        capabilities: reader.capabilities(),
        timeout: reader.timeout(),
        max_restarts: reader.fields["maxRestarts"]
            .as_u64()
            .and_then(|count| u32::try_from(count).ok()),
        transport: reader.transport(enabled)?,
    };
    reader.is_good.then_some(server)
}

struct Reader<'a, 'f> {
    scope: &'a Scope<'a>,
    name: &'a str,
    node: &'a Node,
    /// The fields that fit the schema.
    fields: Json,
    faults: &'a mut Faults<'f>,
    is_good: bool,
}

impl Reader<'_, '_> {
    /// Leaves the entry out for a fault of this field.
    fn fault(&mut self, field: &str, detail: impl Into<String>) {
        let line = line_of(&self.node.place_of(field));
        self.fault_at(line, field, detail);
    }

    fn fault_at(&mut self, line: Option<usize>, field: &str, detail: impl Into<String>) {
        self.is_good = false;
        let (field, name) = (self.field(field), self.name);
        self.faults.push(line, &field, detail, Some(name));
    }

    /// Reports a fault that invalidates only its field.
    fn remark(&mut self, field: &str, detail: impl Into<String>) {
        let line = line_of(&self.node.place_of(field));
        let field = self.field(field);
        self.faults.push(line, &field, detail, None);
    }

    fn field(&self, field: &str) -> String {
        match field {
            "" => format!("mcpServers.{}", self.name),
            field => format!("mcpServers.{}.{}", self.name, shown(field)),
        }
    }

    fn has(&self, field: &str) -> bool {
        self.node.get(field).is_some()
    }

    /// Keys and types.
    fn check(&mut self) {
        let Value::Map(entries) = &self.node.value else {
            let detail =
                "not an object, expected one such as {\"command\": [\"npx\", \"-y\", \"PACKAGE\"]}";
            return self.fault("", detail);
        };
        let mut ours = Vec::new();
        for entry in entries {
            let key = entry.key.as_str();
            match elsewhere(key) {
                Some(hint) => self.fault(key, format!("not a known key: {hint}")),
                None => ours.push(self.known_capabilities(entry)),
            }
        }
        let ours = Node {
            place: self.node.place.clone(),
            value: Value::Map(ours),
        };
        let mut found: Vec<SettingFault> = Vec::new();
        self.fields = check(&schema(), &ours, &mut found);
        for fault in found {
            let hint = fault.hint.as_ref().map(|hint| format!("; {hint}"));
            let hint = hint.unwrap_or_default();
            let detail = format!("{}, expected {}{hint}", fault.seen, fault.expected);
            self.fault_at(fault.line(), &fault.key, detail);
        }
    }

    /// The entry without unknown capabilities, which another version may know.
    fn known_capabilities(&mut self, entry: &ConfigEntry) -> ConfigEntry {
        let mut entry = entry.clone();
        if let ("capabilities", Value::Map(found)) = (entry.key.as_str(), &mut entry.node.value) {
            found.retain(|capability| {
                let key = capability.key.as_str();
                let is_known = CAPABILITIES.contains(&key);
                if !is_known {
                    let hint = match nearest(key, &CAPABILITIES) {
                        Some(near) => format!("; did you mean `{near}`?"),
                        None => format!("; expected one of `{}`", CAPABILITIES.join("`, `")),
                    };
                    let field = format!("capabilities.{key}");
                    self.remark(&field, format!("unknown capability{hint}"));
                }
                is_known
            });
        }
        entry
    }

    fn enabled(&mut self) -> bool {
        let enabled = self.fields["enabled"].as_bool();
        let disabled = self.fields["disabled"].as_bool();
        if enabled.is_some() && enabled == disabled {
            self.fault("disabled", "it contradicts `enabled`; remove one");
        }
        enabled.unwrap_or(!disabled.unwrap_or(false))
    }

    fn capabilities(&self) -> Capabilities {
        let [roots, sampling, logging] =
            CAPABILITIES.map(|name| self.fields["capabilities"][name] == true);
        Capabilities {
            roots,
            sampling,
            logging,
        }
    }

    fn timeout(&mut self) -> Duration {
        let Some(node) = self.node.get("timeoutSeconds") else {
            return DEFAULT_TIMEOUT;
        };
        let seconds = match &node.value {
            Value::Int(seconds) => *seconds as f64,
            Value::Float(seconds) => *seconds,
            _ => f64::NAN,
        };
        if (0.001..=MAX_TIMEOUT).contains(&seconds) {
            return Duration::from_secs_f64(seconds);
        }
        let detail = format!("expected seconds from 0.001 to {MAX_TIMEOUT}; 30 are used");
        self.remark("timeoutSeconds", detail);
        DEFAULT_TIMEOUT
    }

    fn transport(&mut self, enabled: bool) -> Option<Transport> {
        let is_http = self.is_http("type").or(self.is_http("transport"));
        let (says_http, wants) = match (self.has("command"), self.has("url")) {
            (true, false) => (false, "`type` says HTTP, but there is a `command`"),
            (false, true) => (true, "`type` says stdio, but there is a `url`"),
            (true, true) => {
                self.fault("", "`command` and `url`, expected one of them");
                return None;
            }
            (false, false) => {
                let Value::Map(entries) = &self.node.value else {
                    return None;
                };
                // A misspelt one was reported already.
                let mut keys = entries.iter().map(|entry| entry.key.as_str());
                if !keys.any(|key| nearest(key, &["command", "url"]).is_some()) {
                    self.fault("", "neither `command` nor `url`, expected one of them");
                }
                return None;
            }
        };
        if is_http.is_some_and(|is_http| is_http != says_http) {
            self.fault("", wants);
        }
        if says_http {
            self.must_not(&["args", "env", "sandbox"], "it goes with `command`");
            self.http(enabled)
        } else {
            self.must_not(&["headers"], "it goes with `url`");
            self.stdio(enabled)
        }
    }

    /// `type`, which other clients also call `transport`.
    fn is_http(&mut self, key: &str) -> Option<bool> {
        let detail = match self.fields[key].as_str()? {
            "stdio" => return Some(false),
            "http" | "streamable-http" | "streamableHttp" | "streamable_http" => return Some(true),
            "sse" => {
                "the old SSE transport is not supported; expected `streamable-http`, which most servers offer under another path, such as /mcp".to_owned()
            }
            other => format!("{:?}, expected `stdio` or `http`", shown(other)),
        };
        self.fault(key, detail);
        None
    }

    fn must_not(&mut self, keys: &[&str], why: &str) {
        for key in keys {
            if self.has(key) {
                self.fault(key, why);
            }
        }
    }

    fn stdio(&mut self, enabled: bool) -> Option<Transport> {
        let command = self.command();
        let mut env = BTreeMap::new();
        for (name, text) in self.texts("env") {
            let field = format!("env.{name}");
            if name.is_empty() || name.contains(['=', '\0']) {
                self.fault(&field, "expected the name of a variable");
            } else if text.contains('\0') {
                self.fault(&field, "it contains a NUL");
            } else if let Some(value) = self.value(&field, &text, enabled) {
                env.insert(name, value);
            }
        }
        let place = match self.scope.owner {
            Owner::Operator if self.fields["sandbox"] != true => ServerPlace::Worker,
            Owner::Operator | Owner::Repository => ServerPlace::Sandbox,
        };
        Some(Transport::Stdio {
            command: command?,
            env,
            place,
        })
    }

    /// A list, or the program as a text and `args`.
    fn command(&mut self) -> Option<Vec<String>> {
        let command: Vec<String> = match &self.node.get("command")?.value {
            Value::List(_) if self.has("args") => {
                let detail = "it goes with a `command` that is a string; put both into one list";
                self.fault("args", detail);
                return None;
            }
            Value::List(items) => {
                let mut command = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    match &item.value {
                        Value::Text(text) => command.push(text.clone()),
                        _ => {
                            let field = format!("command.{index}");
                            self.fault(&field, "not a string, expected a string");
                        }
                    }
                }
                command
            }
            Value::Text(text) if text.trim().contains(char::is_whitespace) && !self.has("args") => {
                let detail = "the program's name contains spaces; expected a list: [\"PROGRAM\", \"ARGUMENT\"]";
                self.fault("command", detail);
                return None;
            }
            Value::Text(text) => {
                let args = self.fields["args"].as_array().into_iter().flatten();
                let args = args.filter_map(Json::as_str).map(str::to_owned);
                std::iter::once(text.clone()).chain(args).collect()
            }
            _ => {
                let detail = "neither a list nor a string, expected a list of strings";
                self.fault("command", detail);
                return None;
            }
        };
        let is_blank = |program: &String| program.trim().is_empty();
        let detail = if command.first().is_none_or(is_blank) {
            "it is empty, expected a program and its arguments"
        } else if command.iter().any(|part| part.contains('\0')) {
            "it contains a NUL"
        } else {
            return Some(command);
        };
        self.fault("command", detail);
        None
    }

    fn http(&mut self, enabled: bool) -> Option<Transport> {
        if self.scope.owner == Owner::Repository {
            let detail = "a repository's servers run in the sandbox only; expected `command`";
            self.fault("url", detail);
            return None;
        }
        let url = match Url::parse(self.fields["url"].as_str()?) {
            Ok(url) => url,
            Err(error) => {
                self.fault("url", format!("not a URL: {error}"));
                return None;
            }
        };
        if !matches!(url.scheme(), "http" | "https") {
            self.fault("url", "expected http:// or https://");
        } else if url.password().is_some() || !url.username().is_empty() {
            self.fault("url", "it contains a user or password; use `headers`");
        } else if url.as_str().contains("$%7B") || url.as_str().contains("${") {
            self.fault("url", "variables are replaced in `env` and `headers` only");
        }
        let mut headers = BTreeMap::new();
        for (name, text) in self.texts("headers") {
            let field = format!("headers.{name}");
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || !name.bytes().all(token) {
                self.fault(&field, "expected the name of an HTTP header");
            } else if let Some(value) = self.value(&field, &text, enabled) {
                if value.expose().chars().any(|c| c.is_control() && c != '\t') {
                    let detail = "its value contains a line break or another control character";
                    self.fault(&field, detail);
                } else {
                    headers.insert(name, value);
                }
            }
        }
        Some(Transport::Http { url, headers })
    }

    /// The texts of an object.
    fn texts(&self, key: &str) -> Vec<(String, String)> {
        let entries = self.fields[key].as_object().into_iter().flatten();
        entries
            .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())))
            .collect()
    }

    /// A value with its variables replaced. A disabled server may lack variables.
    fn value(&mut self, field: &str, text: &str, enabled: bool) -> Option<Secret> {
        let variables = match self.scope.owner {
            Owner::Operator => Variables::From(self.scope.env),
            Owner::Repository => Variables::Forbidden,
        };
        match expand(text, variables) {
            Ok(value) => return Some(value),
            Err(Refused::Missing(_)) if !enabled => {}
            Err(refused) => self.fault(field, refused.to_string()),
        }
        None
    }
}
