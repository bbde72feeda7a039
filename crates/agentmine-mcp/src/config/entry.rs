//! One entry of `mcpServers`.
//!
//! What other clients write is taken where it can mean only one thing here, and refused with a hint
//! where it cannot. Values of `env` and `headers` are secrets from here on: no fault shows one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use agentmine_runtime::config::Secret;
use url::Url;

use super::expand::{Refused, Variables, expand};
use super::fields::{Faults, Fields, nearest, shown};
use super::json::{Prop, Value};
use super::{Capabilities, Origin, Owner, Place, ServerConfig, Transport};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// A day, in seconds.
const LONGEST_TIMEOUT: f64 = 86_400.0;
const MOST_RESTARTS: u32 = 100;

const KNOWN: [&str; 13] = [
    "command",
    "args",
    "env",
    "enabled",
    "disabled",
    "capabilities",
    "timeoutSeconds",
    "maxRestarts",
    "sandbox",
    "url",
    "headers",
    "type",
    "transport",
];

const APPROVAL: &str = "there is no approval of single calls to skip; remove it";
const ALL_TOOLS: &str = "all tools of a server are offered; remove it";
const TOKEN: &str = "send a token with \"headers\": {\"Authorization\": \"Bearer ${TOKEN}\"}";
const WRITE_URL: &str = "write `url`";

/// Keys that other clients know and that have no clear meaning here.
const ELSEWHERE: [(&str, &str); 16] = [
    (
        "cwd",
        "a server starts in the project's folder; for another one: \"command\": [\"sh\", \"-c\", \"cd DIR && exec PROGRAM\"]",
    ),
    ("alwaysAllow", APPROVAL),
    ("autoApprove", APPROVAL),
    ("trust", APPROVAL),
    (
        "timeout",
        "clients differ on its unit; write `timeoutSeconds`",
    ),
    (
        "envFile",
        "name each variable in `env`, as \"NAME\": \"${NAME}\"",
    ),
    ("serverUrl", WRITE_URL),
    ("httpUrl", WRITE_URL),
    ("auth", TOKEN),
    ("oauth", TOKEN),
    ("requestInit", "write `headers`"),
    ("disabledTools", ALL_TOOLS),
    ("enabledTools", ALL_TOOLS),
    ("includeTools", ALL_TOOLS),
    ("excludeTools", ALL_TOOLS),
    ("allowedTools", ALL_TOOLS),
];

/// What an entry is read under.
pub(super) struct Scope<'a> {
    /// The file as it is shown.
    pub(super) file: &'a Path,
    /// Whose it is.
    pub(super) owner: Owner,
    /// The operator's variables.
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stdio,
    Http,
}

/// Reads one entry; `None` where it has a fault.
pub(super) fn read(
    scope: &Scope<'_>,
    prop: &Prop,
    faults: &mut Faults<'_>,
) -> Option<ServerConfig> {
    let name = prop.key.as_str();
    let Value::Map(props) = &prop.node.value else {
        let detail = format!(
            "{}, expected an object such as {{\"command\": [\"npx\", \"-y\", \"PACKAGE\"]}}",
            prop.node.kind()
        );
        let field = format!("mcpServers.{name}");
        faults.push(Some(prop.node.line), &field, detail, Some(name));
        return None;
    };
    let mut entry = Entry {
        scope,
        fields: Fields::new(name, props, &KNOWN, &ELSEWHERE, faults),
        line: prop.line,
        enabled: true,
    };
    entry.enabled = entry.enabled();
    let capabilities = entry.capabilities();
    let timeout = entry.timeout();
    let max_restarts = entry.max_restarts();
    let transport = entry.transport()?;
    entry.fields.good().then(|| ServerConfig {
        name: name.to_owned(),
        origin: Origin {
            file: scope.file.to_owned(),
            line: prop.line,
            owner: scope.owner,
        },
        transport,
        enabled: entry.enabled,
        capabilities,
        timeout,
        max_restarts,
    })
}

struct Entry<'a, 'f> {
    scope: &'a Scope<'a>,
    fields: Fields<'a, 'f>,
    line: usize,
    enabled: bool,
}

impl Entry<'_, '_> {
    fn enabled(&mut self) -> bool {
        let enabled = self.fields.boolean("enabled");
        let disabled = self.fields.boolean("disabled");
        if let (Some(enabled), Some(disabled)) = (enabled, disabled)
            && enabled == disabled
        {
            let line = self.fields.get("disabled").map_or(self.line, |p| p.line);
            self.fields
                .fault(line, "disabled", "it contradicts `enabled`; remove one");
        }
        enabled.unwrap_or(!disabled.unwrap_or(false))
    }

    fn capabilities(&mut self) -> Capabilities {
        let mut known = Capabilities::default();
        for prop in self.fields.object("capabilities") {
            let field = format!("capabilities.{}", prop.key);
            let place = match prop.key.as_str() {
                "roots" => &mut known.roots,
                "sampling" => &mut known.sampling,
                "logging" => &mut known.logging,
                other => {
                    let hint = nearest(other, &["roots", "sampling", "logging"]);
                    let detail = format!("unknown capability, which is not offered{hint}");
                    self.fields.remark(prop.line, &field, detail);
                    continue;
                }
            };
            match prop.node.value {
                Value::Bool(value) => *place = value,
                _ => {
                    let detail = format!("{}, expected `true` or `false`", prop.node.kind());
                    self.fields.fault(prop.node.line, &field, detail);
                }
            }
        }
        known
    }

    /// Nonsense is told, and the default holds (spec 002 §2.2).
    fn timeout(&mut self) -> Duration {
        let Some(prop) = self.fields.get("timeoutSeconds") else {
            return DEFAULT_TIMEOUT;
        };
        let seconds = match &prop.node.value {
            Value::Number(text) => text.parse::<f64>().ok(),
            _ => None,
        };
        match seconds.filter(|s| (0.001..=LONGEST_TIMEOUT).contains(s)) {
            Some(seconds) => Duration::from_secs_f64(seconds),
            None => {
                let seen = match &prop.node.value {
                    Value::Number(text) => shown(text),
                    _ => prop.node.kind().to_owned(),
                };
                let detail = format!(
                    "{seen}, expected seconds from 0.001 to {LONGEST_TIMEOUT}; 30 are used"
                );
                self.fields.remark(prop.node.line, "timeoutSeconds", detail);
                DEFAULT_TIMEOUT
            }
        }
    }

    fn max_restarts(&mut self) -> Option<u32> {
        let prop = self.fields.get("maxRestarts")?;
        let count = match &prop.node.value {
            Value::Number(text) => text.parse().ok().filter(|count| *count <= MOST_RESTARTS),
            _ => None,
        };
        if count.is_none() {
            let detail = format!("expected a whole number from 0 to {MOST_RESTARTS}");
            self.fields.fault(prop.node.line, "maxRestarts", detail);
        }
        count
    }

    fn transport(&mut self) -> Option<Transport> {
        let asked = self.kind("type").or(self.kind("transport"));
        let command = self.fields.get("command").is_some();
        let url = self.fields.get("url").is_some();
        let kind = match (command, url) {
            (true, false) => Kind::Stdio,
            (false, true) => Kind::Http,
            (true, true) => {
                let detail = "`command` and `url`, expected one of them";
                self.fields.fault(self.line, "", detail);
                return None;
            }
            (false, false) if self.fields.meant("command") || self.fields.meant("url") => {
                return None;
            }
            (false, false) => {
                let detail = "neither `command` nor `url`, expected one of them";
                self.fields.fault(self.line, "", detail);
                return None;
            }
        };
        if asked.is_some_and(|asked| asked != kind) {
            let detail = match kind {
                Kind::Stdio => "`type` says HTTP, but there is a `command`",
                Kind::Http => "`type` says stdio, but there is a `url`",
            };
            self.fields.fault(self.line, "", detail);
        }
        match kind {
            Kind::Stdio => self.stdio(),
            Kind::Http => self.http(),
        }
    }

    /// `type`, which other clients also call `transport`.
    fn kind(&mut self, key: &str) -> Option<Kind> {
        let text = self.fields.text(key)?;
        let line = self.fields.get(key).map_or(self.line, |p| p.node.line);
        match text {
            "stdio" => return Some(Kind::Stdio),
            "http" | "streamable-http" | "streamableHttp" | "streamable_http" => {
                return Some(Kind::Http);
            }
            "sse" => self.fields.fault(
                line,
                key,
                "the old SSE transport is not spoken; expected `streamable-http`, which most servers offer under another path, such as /mcp",
            ),
            other => {
                let detail = format!("{:?}, expected `stdio` or `http`", shown(other));
                self.fields.fault(line, key, detail);
            }
        }
        None
    }

    fn stdio(&mut self) -> Option<Transport> {
        let command = self.command();
        self.must_not("headers", "it goes with `url`");
        let mut env = BTreeMap::new();
        for (prop, text) in self.fields.text_map("env") {
            let field = format!("env.{}", prop.key);
            if prop.key.is_empty() || prop.key.contains(['=', '\0']) {
                let detail = "expected the name of a variable";
                self.fields.fault(prop.line, &field, detail);
            } else if text.contains('\0') {
                self.fields.fault(prop.line, &field, "it has a NUL in it");
            } else if let Some(value) = self.value(prop.node.line, &field, text) {
                env.insert(prop.key.clone(), value);
            }
        }
        let sandbox = self.fields.boolean("sandbox").unwrap_or(false);
        let place = match (self.scope.owner, sandbox) {
            (Owner::Repository, _) | (Owner::Operator, true) => Place::Sandbox,
            (Owner::Operator, false) => Place::Worker,
        };
        Some(Transport::Stdio {
            command: command?,
            env,
            place,
        })
    }

    fn command(&mut self) -> Option<Vec<String>> {
        let prop = self.fields.get("command")?;
        let args = self.fields.get("args").map(|p| p.line);
        let command = match (&prop.node.value, args) {
            (Value::List(_), Some(line)) => {
                let detail = "it goes with a `command` that is a text; put both into one list";
                self.fields.fault(line, "args", detail);
                return None;
            }
            (Value::List(_), None) => self.fields.texts("command")?,
            (Value::Text(text), None) if text.trim().contains(char::is_whitespace) => {
                let detail = "the program's name has spaces in it; expected a list: [\"PROGRAM\", \"ARGUMENT\"]";
                self.fields.fault(prop.node.line, "command", detail);
                return None;
            }
            (Value::Text(text), _) => {
                let mut command = vec![text.clone()];
                if args.is_some() {
                    command.extend(self.fields.texts("args")?);
                }
                command
            }
            _ => {
                let detail = format!("{}, expected a list of texts", prop.node.kind());
                self.fields.fault(prop.node.line, "command", detail);
                return None;
            }
        };
        if command
            .first()
            .is_none_or(|program| program.trim().is_empty())
        {
            let detail = "it is empty, expected a program and its arguments";
            self.fields.fault(prop.node.line, "command", detail);
            return None;
        }
        if command.iter().any(|part| part.contains('\0')) {
            self.fields
                .fault(prop.node.line, "command", "it has a NUL in it");
            return None;
        }
        Some(command)
    }

    fn http(&mut self) -> Option<Transport> {
        for key in ["args", "env", "sandbox"] {
            self.must_not(key, "it goes with `command`");
        }
        let prop = self.fields.get("url")?;
        let line = prop.node.line;
        if self.scope.owner == Owner::Repository {
            let detail = "a repository's servers run in the sandbox only; expected `command`";
            self.fields.fault(line, "url", detail);
            return None;
        }
        let url = match Url::parse(self.fields.text("url")?) {
            Ok(url) => url,
            Err(error) => {
                self.fields.fault(line, "url", format!("no URL: {error}"));
                return None;
            }
        };
        let fault = if !matches!(url.scheme(), "http" | "https") {
            Some("expected http:// or https://")
        } else if url.password().is_some() || !url.username().is_empty() {
            Some("it has a user or password in it; use `headers`")
        } else if url.as_str().contains("$%7B") || url.as_str().contains("${") {
            Some("variables are put into `env` and `headers` only")
        } else {
            None
        };
        if let Some(fault) = fault {
            self.fields.fault(line, "url", fault);
        }
        let headers = self.headers();
        Some(Transport::Http { url, headers })
    }

    fn headers(&mut self) -> BTreeMap<String, Secret> {
        let mut headers = BTreeMap::new();
        for (prop, text) in self.fields.text_map("headers") {
            let field = format!("headers.{}", prop.key);
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if prop.key.is_empty() || !prop.key.bytes().all(token) {
                self.fields
                    .fault(prop.line, &field, "expected the name of an HTTP header");
                continue;
            }
            let Some(value) = self.value(prop.node.line, &field, text) else {
                continue;
            };
            if value.expose().chars().any(|c| c.is_control() && c != '\t') {
                let detail = "its value has a line break or another control character in it";
                self.fields.fault(prop.node.line, &field, detail);
                continue;
            }
            headers.insert(prop.key.clone(), value);
        }
        headers
    }

    fn must_not(&mut self, key: &str, why: &str) {
        if let Some(prop) = self.fields.get(key) {
            self.fields.fault(prop.line, key, why);
        }
    }

    /// A value with its variables put in. A server that is not to be started misses none.
    fn value(&mut self, line: usize, field: &str, text: &str) -> Option<Secret> {
        let variables = match self.scope.owner {
            Owner::Operator => Variables::From(self.scope.env),
            Owner::Repository => Variables::Forbidden,
        };
        let detail = match expand(text, variables) {
            Ok(value) => return Some(value),
            Err(Refused::Missing(_)) if !self.enabled => return None,
            Err(Refused::Missing(name)) => format!(
                "the environment variable {name} is not set; set it, or write ${{{name}:-DEFAULT}}"
            ),
            Err(Refused::Open) => "`${` without `}`; `$${` is a `${` as such".to_owned(),
            Err(Refused::Name) => "between `${` and `}` is no variable's name".to_owned(),
            Err(Refused::Forbidden) => {
                "a repository's file gets no variable of this machine; `$${` is a `${` as such"
                    .to_owned()
            }
        };
        self.fields.fault(line, field, detail);
        None
    }
}
