//! What a text for GraphQL asks for, taken out of an object that has everything. As a real server, it answers nothing
//! else, and refuses what the object does not have.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the pattern is a constant")]
    Regex::new(r#"\.\.\.|"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|-?\d[\d.]*|[^\s,]"#).expect("it is valid")
});

/// One entry of a selection.
#[derive(Debug, Clone)]
pub(super) enum Selected {
    Field {
        name: String,
        shown: String,
        fields: Vec<Selected>,
    },
    /// Of objects of a type.
    On { kind: String, fields: Vec<Selected> },
    /// A fragment by its name.
    Named(String),
}

/// The operation of a text.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) fields: Vec<Selected>,
    fragments: HashMap<String, Vec<Selected>>,
}

struct Tokens<'t>(std::iter::Peekable<std::vec::IntoIter<&'t str>>);

impl<'t> Tokens<'t> {
    fn take(&mut self, expected: &str) -> bool {
        self.0.next_if_eq(&expected).is_some()
    }

    /// Skips what is in parentheses.
    fn arguments(&mut self) {
        let mut depth = 0;
        while self.0.peek() == Some(&"(") || depth > 0 {
            match self.0.next() {
                Some("(") => depth += 1,
                Some(")") => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }

    fn name(&mut self) -> Option<&'t str> {
        self.0
            .next_if(|it| it.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
    }

    fn selection(&mut self) -> Option<Vec<Selected>> {
        let mut all = Vec::new();
        if !self.take("{") {
            return Some(all);
        }
        while !self.take("}") {
            all.push(match self.take("...") {
                true if self.take("on") => Selected::On {
                    kind: self.name()?.to_owned(),
                    fields: self.selection()?,
                },
                true => Selected::Named(self.name()?.to_owned()),
                false => {
                    let first = self.name()?;
                    let name = match self.take(":") {
                        true => self.name()?,
                        false => first,
                    };
                    self.arguments();
                    Selected::Field {
                        name: name.to_owned(),
                        shown: first.to_owned(),
                        fields: self.selection()?,
                    }
                }
            });
        }
        Some(all)
    }
}

impl Operation {
    /// `None`: it cannot be read, or has no name.
    pub(super) fn read(text: &str) -> Option<Self> {
        let tokens: Vec<&str> = TOKENS.find_iter(text).map(|it| it.as_str()).collect();
        let mut tokens = Tokens(tokens.into_iter().peekable());
        let mut fragments = HashMap::new();
        let mut operation = None;
        while let Some(kind) = tokens.name() {
            let name = tokens.name()?.to_owned();
            if kind == "fragment" {
                tokens.take("on").then(|| tokens.name())?;
                fragments.insert(name, tokens.selection()?);
            } else {
                tokens.arguments();
                operation = Some((name, tokens.selection()?));
            }
        }
        let (name, fields) = operation?;
        Some(Self {
            name,
            fields,
            fragments,
        })
    }

    /// What it asks for of `all`.
    ///
    /// # Errors
    /// The message for a field that is not there.
    pub(super) fn of(&self, all: &Value) -> Result<Value, String> {
        self.select(all, &self.fields)
    }

    fn select(&self, from: &Value, fields: &[Selected]) -> Result<Value, String> {
        match from {
            Value::Array(items) => {
                let items = items.iter().map(|item| self.select(item, fields));
                Ok(Value::Array(items.collect::<Result<_, _>>()?))
            }
            Value::Object(object) if !fields.is_empty() => {
                let mut out = Map::new();
                self.take(object, fields, &mut out)?;
                Ok(Value::Object(out))
            }
            other => Ok(other.clone()),
        }
    }

    fn take(
        &self,
        object: &Map<String, Value>,
        fields: &[Selected],
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let kind = object.get("__typename").and_then(Value::as_str);
        for field in fields {
            match field {
                Selected::Field {
                    name,
                    shown,
                    fields,
                } => {
                    let kind = kind.unwrap_or("Object");
                    let missing = || format!("Field '{name}' doesn't exist on type '{kind}'");
                    let value = object.get(name).ok_or_else(missing)?;
                    out.insert(shown.clone(), self.select(value, fields)?);
                }
                Selected::On { kind: of, fields } if kind == Some(of) => {
                    self.take(object, fields, out)?;
                }
                Selected::On { .. } => {}
                Selected::Named(name) => {
                    let fields = self.fragments.get(name);
                    let fields = fields.ok_or_else(|| format!("Fragment {name} was used"))?;
                    self.take(object, fields, out)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_asked_for_is_answered() {
        let text = "fragment one on Issue {number, by: author{login,...on User{id}}}\n\
            query List($owner: String!, $states: [S!] = OPEN) { repository(owner: $owner) {\n\
            issues(first: 3, by: {field: \"a ) b\"}) { nodes { ...one ...on Pull{draft} } } } }";
        let operation = Operation::read(text).unwrap();
        assert_eq!(operation.name, "List");
        let author = json!({ "__typename": "User", "login": "mona", "id": 7, "name": "Mona" });
        let issue = json!({ "__typename": "Issue", "number": 1, "author": author, "body": "x" });
        let all = json!({ "repository": { "issues": { "nodes": [issue], "totalCount": 1 } } });
        let expected = json!({ "repository": { "issues": { "nodes": [
            { "number": 1, "by": { "login": "mona", "id": 7 } }
        ] } } });
        assert_eq!(operation.of(&all), Ok(expected));
        let less = json!({ "repository": { "issues": { "totalCount": 1 } } });
        assert!(operation.of(&less).unwrap_err().contains("'nodes'"));
    }
}
