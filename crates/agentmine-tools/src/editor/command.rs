//! Parses the arguments of a call into a [`Command`].
//!
//! Models fill unused parameters with `null` and write integers as `5.0`: both are accepted. Every other
//! fault, such as a number in quotes, is an error that says what was expected.

use serde_json::{Map, Value};

use super::error::EditError;
use crate::kind::json_kind;

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    View { range: Option<Range> },
    Create { text: String },
    Replace { old: String, new: String },
    Insert { line: usize, text: String },
    Undo,
}

/// Lines to show, from 1, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: usize,
    pub(super) last: LastLine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLine {
    Number(usize),
    End,
}

/// Parses the path and the command.
pub(super) fn parse(arguments: &Map<String, Value>) -> Result<(String, Command), EditError> {
    let arguments = Arguments(arguments);
    let name = arguments.text("command")?.ok_or_else(|| {
        refuse("command is required: view, create, str_replace, insert or undo_edit")
    })?;
    let path = arguments
        .text("path")?
        .ok_or_else(|| refuse("path is required, e.g. /workspace/project/src/main.py"))?;
    if path.is_empty() || path.contains('\0') {
        return Err(refuse(
            "path is empty or contains a NUL character: give a path such as /workspace/project",
        ));
    }
    let command = match name {
        "view" => Command::View {
            range: arguments.range("view_range")?,
        },
        "create" => Command::Create {
            text: arguments
                .text("file_text")?
                .ok_or_else(|| {
                    refuse("file_text is required by create: the file's content, \"\" for an empty file")
                })?
                .to_owned(),
        },
        "str_replace" => replace(&arguments)?,
        "insert" => insert(&arguments)?,
        "undo_edit" => Command::Undo,
        other => {
            return Err(refuse(&format!(
                "unknown command {other:?}: use view, create, str_replace, insert or undo_edit"
            )));
        }
    };
    Ok((path.to_owned(), command))
}

fn replace(arguments: &Arguments<'_>) -> Result<Command, EditError> {
    let old = arguments
        .text("old_str")?
        .ok_or_else(|| refuse("old_str is required by str_replace: the exact text to replace"))?;
    if old.is_empty() {
        return Err(refuse(
            "old_str is empty and would match everywhere: give the text to replace, or use insert",
        ));
    }
    let new = arguments
        .text("new_str")?
        .ok_or_else(|| refuse("new_str is required by str_replace: give \"\" to delete old_str"))?;
    if new == old {
        return Err(refuse(
            "new_str is the same as old_str, so nothing would change: give a different new_str",
        ));
    }
    Ok(Command::Replace {
        old: old.to_owned(),
        new: new.to_owned(),
    })
}

fn insert(arguments: &Arguments<'_>) -> Result<Command, EditError> {
    let line = arguments.integer("insert_line")?.ok_or_else(|| {
        refuse("insert_line is required by insert: the line after which to insert the text, 0 for the start")
    })?;
    let line = usize::try_from(line)
        .map_err(|_| refuse(&format!("insert_line is {line}: it must be 0 or more")))?;
    let text = match (arguments.text("insert_text")?, arguments.text("new_str")?) {
        (Some(text), Some(other)) if text != other && !text.is_empty() && !other.is_empty() => {
            return Err(refuse(
                "insert_text and new_str differ: give the text to insert in only one of them",
            ));
        }
        (Some(""), Some(text)) | (Some(text), _) | (None, Some(text)) => text.to_owned(),
        (None, None) => {
            return Err(refuse("new_str is required by insert: the text to insert"));
        }
    };
    Ok(Command::Insert { line, text })
}

struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, EditError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(refuse(&format!(
                "{name} must be a string, not {}",
                json_kind(other)
            ))),
        }
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, EditError> {
        self.get(name)
            .map(|value| {
                integer(value).ok_or_else(|| {
                    let seen = json_kind(value);
                    refuse(&format!("{name} must be an integer such as 5, not {seen}"))
                })
            })
            .transpose()
    }

    fn range(&self, name: &str) -> Result<Option<Range>, EditError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let expected = || {
            refuse(&format!(
                "{name} must be [first, last]: two line numbers from 1, first not after last; \
                 -1 as last means the end of the file"
            ))
        };
        let items = match value {
            Value::Array(items) => items,
            _ => return Err(expected()),
        };
        let [first, last] = items.as_slice() else {
            return Err(expected());
        };
        let first = integer(first)
            .and_then(|first| usize::try_from(first).ok())
            .filter(|first| *first >= 1)
            .ok_or_else(expected)?;
        let last = match integer(last).ok_or_else(expected)? {
            -1 => LastLine::End,
            last => LastLine::Number(
                usize::try_from(last)
                    .ok()
                    .filter(|last| *last >= first)
                    .ok_or_else(expected)?,
            ),
        };
        Ok(Some(Range { first, last }))
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            let whole = float.fract() == 0.0 && float.abs() < 9e15;
            whole.then_some(float as i64)
        }),
        _ => None,
    }
}

fn refuse(detail: &str) -> EditError {
    EditError::Arguments(detail.to_owned())
}
