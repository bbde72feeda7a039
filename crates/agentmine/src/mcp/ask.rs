//! Asks the user at the terminal the questions of servers.
//!
//! A question is a server's text and may be false: it is shown with the server's name and without control
//! characters, and nothing is sent without the user's consent.

use std::fs::File;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};

use agentmine_mcp::{Answer, Elicitation, Question};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, oneshot};

use crate::print::{note, one_line};

/// Fields of a form that the user is asked for.
const MOST_FIELDS: usize = 30;

/// The user at the terminal.
pub(super) struct Terminal {
    /// One question at a time.
    turn: Mutex<()>,
}

impl Terminal {
    /// `None` if stdin or stderr is not a terminal.
    pub(super) fn open() -> Option<Self> {
        let person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        person.then(|| Self {
            turn: Mutex::new(()),
        })
    }
}

#[async_trait]
impl Elicitation for Terminal {
    async fn ask(&self, server: &str, question: Question) -> Answer {
        let _turn = self.turn.lock().await;
        let server = server.to_owned();
        let (sender, answer) = oneshot::channel();
        // A read of the terminal cannot be cancelled, so it has its own thread, which the program does not wait
        // for at its end.
        let asking = std::thread::Builder::new().spawn(move || {
            let answer = match File::open("/dev/tty") {
                Ok(terminal) => {
                    let mut lines = BufReader::new(terminal).lines();
                    put(&server, &question, &mut || lines.next()?.ok())
                }
                Err(_) => Answer::Decline,
            };
            let _ = sender.send(answer);
        });
        match asking {
            Ok(_) => answer.await.unwrap_or(Answer::Cancel),
            Err(_) => Answer::Decline,
        }
    }
}

/// Asks one question. `read` gives a line, `None` at the end of input.
fn put(server: &str, question: &Question, read: &mut dyn FnMut() -> Option<String>) -> Answer {
    note("");
    match question {
        Question::Url { message, url } => {
            note(format!(
                "MCP server '{server}' asks you to visit a page: {}",
                one_line(message, 500)
            ));
            note(format!("  {}", one_line(url, 500)));
            note("It is not opened for you. Check the host before you visit it.");
            match yes("agree?", read) {
                Some(true) => Answer::Accept(json!({})),
                Some(false) => Answer::Decline,
                None => Answer::Cancel,
            }
        }
        Question::Form { message, schema } => {
            note(format!(
                "MCP server '{server}' asks: {}",
                one_line(message, 500)
            ));
            match yes("Answer it? The server receives what you type.", read) {
                Some(true) => form(schema, read),
                Some(false) => Answer::Decline,
                None => Answer::Cancel,
            }
        }
    }
}

fn yes(words: &str, read: &mut dyn FnMut() -> Option<String>) -> Option<bool> {
    prompt(&format!("{words} [y/N] "));
    let line = read()?;
    Some(matches!(
        line.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

fn prompt(words: &str) {
    let mut stderr = std::io::stderr();
    let _ = stderr.write_all(words.as_bytes());
    let _ = stderr.flush();
}

fn form(schema: &Value, read: &mut dyn FnMut() -> Option<String>) -> Answer {
    let none = Map::new();
    let fields = schema["properties"].as_object().unwrap_or(&none);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut content = Map::new();
    for (name, field) in fields.iter().take(MOST_FIELDS) {
        let must = required.contains(&name.as_str());
        loop {
            prompt(&label(name, field, must));
            let Some(line) = read() else {
                return Answer::Cancel;
            };
            match value(line.trim(), field, must) {
                Ok(Some(value)) => {
                    content.insert(name.clone(), value);
                    break;
                }
                Ok(None) => break,
                Err(expected) => note(format!("  expected {expected}")),
            }
        }
    }
    match yes("send this?", read) {
        Some(true) => Answer::Accept(Value::Object(content)),
        Some(false) => Answer::Decline,
        None => Answer::Cancel,
    }
}

fn label(name: &str, field: &Value, must: bool) -> String {
    let title = field["title"].as_str().unwrap_or(name);
    let mut label = format!("  {}", one_line(title, 80));
    if let Some(description) = field["description"].as_str() {
        label.push_str(&format!(" ({})", one_line(description, 200)));
    }
    let choices = choices(field);
    if !choices.is_empty() {
        label.push_str(&format!(" [{}]", one_line(&choices.join(" | "), 300)));
    } else if field["type"] == "boolean" {
        label.push_str(" [true | false]");
    }
    match &field["default"] {
        Value::Null if must => {}
        Value::Null => label.push_str(", may be left empty"),
        default => label.push_str(&format!(", empty: {}", one_line(&default.to_string(), 80))),
    }
    label + ": "
}

/// The texts of an enum, in either of the protocol's two forms.
fn choices(field: &Value) -> Vec<&str> {
    let plain = field["enum"].as_array().into_iter().flatten();
    let titled = field["oneOf"].as_array().into_iter().flatten();
    plain
        .filter_map(Value::as_str)
        .chain(titled.filter_map(|choice| choice["const"].as_str()))
        .collect()
}

/// The value of a line for a field. `Ok(None)` leaves it out; the error is what was expected.
fn value(line: &str, field: &Value, must: bool) -> Result<Option<Value>, String> {
    if line.is_empty() {
        return match &field["default"] {
            Value::Null if must => Err("a value".into()),
            Value::Null => Ok(None),
            default => Ok(Some(default.clone())),
        };
    }
    let choices = choices(field);
    if !choices.is_empty() {
        return match choices.contains(&line) {
            true => Ok(Some(line.into())),
            false => Err(format!("one of {}", one_line(&choices.join(", "), 300))),
        };
    }
    let value = match field["type"].as_str() {
        Some("boolean") => match line.to_ascii_lowercase().as_str() {
            "true" | "y" | "yes" => Value::Bool(true),
            "false" | "n" | "no" => Value::Bool(false),
            _ => return Err("true or false".into()),
        },
        Some("integer") => line
            .parse::<i64>()
            .map(Value::from)
            .map_err(|_| "a whole number")?,
        Some("number") => match line.parse::<f64>().map(serde_json::Number::from_f64) {
            Ok(Some(number)) => Value::Number(number),
            _ => return Err("a number".into()),
        },
        Some("array") => line.split(',').map(str::trim).collect(),
        _ => line.into(),
    };
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(question: &Question, lines: &[&str]) -> Answer {
        let mut lines = lines.iter().map(|line| (*line).to_owned());
        put("a", question, &mut || lines.next())
    }

    fn form_of(properties: Value, required: Value) -> Question {
        Question::Form {
            message: "who?".into(),
            schema: json!({"type": "object", "properties": properties, "required": required}),
        }
    }

    #[test]
    fn a_form_is_filled_in_and_sent_after_two_yeses() {
        let form = form_of(
            json!({
                "age": {"type": "integer"},
                "kind": {"type": "string", "enum": ["x", "y"]},
                "note": {"type": "string"},
                "ok": {"type": "boolean", "default": true},
            }),
            json!(["age"]),
        );
        let lines = ["y", "", "seven", "7", "z", "x", "", "", "y"];
        let sent = json!({"age": 7, "kind": "x", "ok": true});
        assert_eq!(answer(&form, &lines), Answer::Accept(sent));
        assert_eq!(
            answer(&form, &["y", "7", "x", "", "", "n"]),
            Answer::Decline
        );
    }

    #[test]
    fn nothing_is_sent_without_a_yes() {
        let form = form_of(json!({"a": {"type": "string"}}), json!([]));
        assert_eq!(answer(&form, &["n"]), Answer::Decline);
        assert_eq!(answer(&form, &[""]), Answer::Decline);
        assert_eq!(answer(&form, &[]), Answer::Cancel);
        assert_eq!(answer(&form, &["y", "x"]), Answer::Cancel);
        let page = Question::Url {
            message: "m".into(),
            url: "https://x.org".into(),
        };
        assert_eq!(answer(&page, &["no"]), Answer::Decline);
        assert_eq!(answer(&page, &["y"]), Answer::Accept(json!({})));
    }

    #[test]
    fn a_schema_that_is_none_is_an_empty_form() {
        let form = Question::Form {
            message: String::new(),
            schema: json!([1]),
        };
        assert_eq!(answer(&form, &["y", "y"]), Answer::Accept(json!({})));
    }
}
