//! The scripted model's replies: scenarios, chosen by a marker in the task's text, and answers, chosen
//! by the number of replies in the conversation. There is no state between requests, so any number of
//! tasks can run at once, and a resumed one continues at the right place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use serde_json::{Value, json};

/// The wire name of the command tool.
const COMMAND_TOOL: &str = "command-executor_execute_command";
/// The wire name of the text editor.
const EDITOR_TOOL: &str = "text_editor";

/// A request as the script sees it.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Number of the model's replies in the conversation.
    pub number: usize,
    /// The conversation, as received.
    pub messages: Vec<Value>,
}

impl Turn {
    /// Reads a request's body.
    #[must_use]
    pub fn read(body: &Value) -> Self {
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let number = messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .count();
        Self { number, messages }
    }

    /// The first message of the user: the task.
    #[must_use]
    pub fn task(&self) -> &str {
        self.messages
            .iter()
            .find(|message| message["role"] == "user")
            .map_or("", text)
    }

    /// The newest message, e.g. a tool's result.
    #[must_use]
    pub fn last(&self) -> &str {
        self.messages.last().map_or("", text)
    }

    /// The match of `pattern`'s first group, in the first message that matches.
    #[must_use]
    pub fn find(&self, pattern: &Regex) -> Option<String> {
        let found = self
            .messages
            .iter()
            .find_map(|message| pattern.captures(text(message)))?;
        Some(found.get(1).or_else(|| found.get(0))?.as_str().to_owned())
    }
}

fn text(message: &Value) -> &str {
    message["content"]
        .as_str()
        .or_else(|| message["content"][0]["text"].as_str())
        .unwrap_or_default()
}

/// A call that the model requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool's wire name.
    pub name: String,
    /// Its arguments.
    pub arguments: Value,
}

/// What goes wrong instead of, or in the middle of, an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// This status, with `Retry-After` in seconds.
    Status(u16, Option<u64>),
    /// This answer of a real server, word for word.
    Refusal(Refusal),
    /// Half of the answer, then this error as the data of an event. Without a stream, the error alone
    /// with status 200.
    Event(&'static str),
    /// No answer; the connection stays open.
    Hang,
    /// A stream of comments that does not end.
    Comments,
    /// The answer is delayed by this time.
    Delay(Duration),
    /// Half of the answer, then nothing; the connection stays open.
    Stall,
    /// Half of the answer, and then the connection breaks.
    BreakOff,
    /// The connection breaks before the answer.
    Drop,
    /// The arguments of each call are truncated, so that they are not valid JSON.
    BrokenArguments,
}

/// An answer that is not a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its status.
    pub status: u16,
    /// Its headers, the content type among them.
    pub headers: Vec<(&'static str, String)>,
    /// Its body.
    pub body: String,
}

/// One reply of the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Its text. `{name}` is replaced with the value found in the conversation.
    pub text: String,
    /// Its calls; strings in their arguments are templates too.
    pub calls: Vec<Call>,
    /// Overrides the `finish_reason`, which otherwise follows from the calls.
    pub finish: Option<String>,
    /// What goes wrong with it, on every request.
    pub fault: Option<Fault>,
}

impl Answer {
    /// Appends the text and the calls of another answer.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.text.push_str(&other.text);
        self.calls.extend(other.calls);
        self.finish = self.finish.or(other.finish);
        self.fault = self.fault.or(other.fault);
        self
    }

    /// Makes this answer fail each time. For temporary faults, see [`Scenario::fault_at`].
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// This answer with another `finish_reason`, e.g. `length`.
    #[must_use]
    pub fn finish(mut self, reason: &str) -> Self {
        self.finish = Some(reason.to_owned());
        self
    }
}

/// An answer with text only.
#[must_use]
pub fn say(text: &str) -> Answer {
    Answer {
        text: text.to_owned(),
        ..Answer::default()
    }
}

/// An answer with one call.
#[must_use]
pub fn call(name: &str, arguments: Value) -> Answer {
    Answer {
        calls: vec![Call {
            name: name.to_owned(),
            arguments,
        }],
        ..Answer::default()
    }
}

/// A shell line.
#[must_use]
pub fn shell(command: &str) -> Answer {
    call(COMMAND_TOOL, json!({ "command": command }))
}

/// The editor's `view`.
#[must_use]
pub fn edit_view(path: &str) -> Answer {
    call(
        EDITOR_TOOL,
        json!({ "command": "view", "path": in_project(path) }),
    )
}

/// The editor's `create`.
#[must_use]
pub fn edit_create(path: &str, text: &str) -> Answer {
    call(
        EDITOR_TOOL,
        json!({ "command": "create", "path": in_project(path), "file_text": text }),
    )
}

/// The editor's `str_replace`.
#[must_use]
pub fn edit_replace(path: &str, old: &str, new: &str) -> Answer {
    call(
        EDITOR_TOOL,
        json!({ "command": "str_replace", "path": in_project(path), "old_str": old, "new_str": new }),
    )
}

/// Adds, commits and pushes everything.
#[must_use]
pub fn commit_and_push(message: &str) -> Answer {
    let quoted = message.replace('\'', r"'\''");
    shell(&format!(
        "git add -A && git commit -q -m '{quoted}' && git push origin HEAD:refs/heads/{{branch}}"
    ))
}

/// Relative paths are relative to the project's folder, wherever it is in the sandbox.
fn in_project(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{{project}}/{path}"),
    }
}

type Chooser = Arc<dyn Fn(&Turn) -> Answer + Send + Sync>;

/// One kind of task and what the model does about it.
#[derive(Clone)]
pub struct Scenario {
    pub(crate) name: String,
    markers: Vec<String>,
    finders: BTreeMap<String, Vec<Regex>>,
    choose: Chooser,
    /// (turn, fault, how often).
    pub(crate) faults: Vec<(usize, Fault, usize)>,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("name", &self.name)
            .field("markers", &self.markers)
            .finish_non_exhaustive()
    }
}

impl Scenario {
    /// A scenario that matches every task and finishes at once.
    ///
    /// # Panics
    /// Never: the built-in patterns are valid.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let scenario = Self {
            name: name.to_owned(),
            markers: Vec::new(),
            finders: BTreeMap::new(),
            choose: Arc::new(|_| say("Done.")),
            faults: Vec::new(),
        };
        scenario
            .find("branch", r"[Ww]ork on the branch `([^`]+)`")
            .find("branch", r"git push (?:-u )?origin ([\w./-]+)")
            .find("project", r"(/[\w.~/-]*/project)\b")
            .find("number", r"#(\d+) of ")
    }

    /// Matches only tasks whose text contains `marker`. If called repeatedly, all markers must match.
    #[must_use]
    pub fn when(mut self, marker: &str) -> Self {
        self.markers.push(marker.to_owned());
        self
    }

    /// Computes each reply with a function.
    #[must_use]
    pub fn reply(mut self, choose: impl Fn(&Turn) -> Answer + Send + Sync + 'static) -> Self {
        self.choose = Arc::new(choose);
        self
    }

    /// Gives these replies in order, and then "Done.".
    #[must_use]
    pub fn replies(self, answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers: Vec<_> = answers.into_iter().collect();
        self.reply(move |turn| {
            answers
                .get(turn.number)
                .cloned()
                .unwrap_or_else(|| say("Done."))
        })
    }

    /// Defines `{name}` as the first group of `pattern`'s first match. If called again with the same name,
    /// the patterns are tried in order. `{branch}`, `{project}` and `{number}` are predefined.
    ///
    /// # Panics
    /// If the pattern is invalid.
    #[must_use]
    pub fn find(mut self, name: &str, pattern: &str) -> Self {
        let pattern = Regex::new(pattern)
            .unwrap_or_else(|error| panic!("the pattern of {{{name}}} is invalid: {error}"));
        self.finders
            .entry(name.to_owned())
            .or_default()
            .push(pattern);
        self
    }

    /// Makes the first `times` requests of each conversation at `turn` fail.
    #[must_use]
    pub fn fault_at(mut self, turn: usize, fault: Fault, times: usize) -> Self {
        self.faults.push((turn, fault, times));
        self
    }

    pub(crate) fn matches(&self, turn: &Turn) -> bool {
        let task = turn.task();
        self.markers.iter().all(|marker| task.contains(marker))
    }

    /// The answer, templates filled in.
    pub(crate) fn answer(&self, turn: &Turn) -> Answer {
        let mut answer = (self.choose)(turn);
        let mut values: BTreeMap<&str, String> = BTreeMap::new();
        for (name, patterns) in &self.finders {
            if let Some(value) = patterns.iter().find_map(|pattern| turn.find(pattern)) {
                values.insert(name, value);
            }
        }
        values
            .entry("project")
            .or_insert_with(|| "/workspace/project".to_owned());
        answer.text = fill(&answer.text, &values);
        for call in &mut answer.calls {
            fill_value(&mut call.arguments, &values);
        }
        answer
    }
}

fn fill_value(value: &mut Value, values: &BTreeMap<&str, String>) {
    match value {
        Value::String(text) => *text = fill(text, values),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_value(item, values)),
        Value::Object(map) => map.values_mut().for_each(|item| fill_value(item, values)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces known names; other braces, such as a shell function's, stay as they are.
fn fill(text: &str, values: &BTreeMap<&str, String>) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

/// All scenarios of the model.
#[derive(Debug, Clone, Default)]
pub struct Script {
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) faults: Vec<(Fault, usize)>,
    pub(crate) key: Option<String>,
    pub(crate) grammar: Grammar,
    pub(crate) thinks: bool,
}

/// Whether the server constrains the arguments of a call by the tool's schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Grammar {
    /// The model writes what it wants.
    #[default]
    Free,
    /// The model writes the properties of a tool's schema in the order of the schema, the required ones
    /// first. What comes earlier than what it has written already, it can no longer write.
    Enforced,
}

impl Script {
    /// Without scenarios: every request is refused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a scenario. The first that matches is used.
    #[must_use]
    pub fn scenario(mut self, scenario: Scenario) -> Self {
        self.scenarios.push(scenario);
        self
    }

    /// Makes the first `times` requests fail, whatever their conversation.
    #[must_use]
    pub fn fault_first(mut self, fault: Fault, times: usize) -> Self {
        self.faults.push((fault, times));
        self
    }

    /// Constrains the arguments of calls, as llama.cpp's server does.
    #[must_use]
    pub fn grammar(mut self, grammar: Grammar) -> Self {
        self.grammar = grammar;
        self
    }

    /// Thinks in each reply, signs each call, and refuses a conversation without either, as DeepSeek and Gemini do.
    #[must_use]
    pub fn thinking(mut self) -> Self {
        self.thinks = true;
        self
    }

    /// Refuses requests without this key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }
}

impl From<Scenario> for Script {
    fn from(scenario: Scenario) -> Self {
        Self::new().scenario(scenario)
    }
}
