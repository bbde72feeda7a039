//! A tool's `inputSchema` as model APIs accept it.
//!
//! A model API refuses a whole request for one schema it does not like, so one odd tool would take
//! the session with it. What is known to be refused by OpenAI's, Anthropic's or Gemini's is put in a
//! form that all take; the meaning is kept where a form for it exists, told in the description where
//! only words can tell it, and made wider, never narrower, where neither can. The server still judges
//! the arguments by its own schema. The rules, each with its reason:
//!
//! 1. The root is an object with `type: "object"` and `properties`: all three refuse another. `allOf`
//!    at the root is merged; `anyOf` and `oneOf` there (refused by OpenAI's and Anthropic's) are
//!    opened: all properties of all branches, required what every branch requires; what each branch
//!    requires besides is told in the description.
//! 2. Properties of the root are named `[a-zA-Z0-9_.-]{1,64}` (Anthropic's). Another one is dropped
//!    if optional; required, it leaves out the tool.
//! 3. `$ref` is put in its place, `$schema`, `$id`, `$defs` and the like go (Gemini's knows none of
//!    them); a recursive reference becomes an open object.
//! 4. Boolean schemas become `{}`, or no property where `false` (refused as no object).
//! 5. Only keywords that all know stay. `const` becomes `enum`, `oneOf` becomes `anyOf`, nested
//!    `allOf` is merged, what `then`, `else` and `dependentSchemas` add is optional, tuples become
//!    `items` with `anyOf`; `not`, `if`, `patternProperties`, `contains`, `propertyNames`,
//!    `unevaluated…` go.
//! 6. A list of types (refused by Gemini's) becomes `anyOf`, each type with the keywords that are its
//!    own; so does `nullable`. A type that JSON Schema does not know goes. Keywords of other types
//!    than the schema's go.
//! 7. An array has `items` (refused without by OpenAI's and Gemini's).
//! 8. `required` names only properties that are there, each once (Gemini's).
//! 9. `format` stays where it is `date-time` or a number's width; others (refused by Gemini's),
//!    exclusive bounds, `multipleOf` and `uniqueItems` are told in the description.
//!    So are the values of an `enum` that are no strings (Gemini's refuses them).
//! 10. Values of a keyword's wrong kind go: a `minLength` that is no whole number, an `enum` that is
//!     empty.
//! 11. What is nested too deep or too large leaves out the tool.

mod refs;
mod typed;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::output::head_of;

use typed::{enumerated, typed, values};

/// Bytes of a schema as JSON, before and after.
const MAX_BYTES: usize = 64 * 1024;
const MAX_DESCRIPTION: usize = 8 * 1024;
/// Branches of one `anyOf`.
const MAX_BRANCHES: usize = 50;

pub(crate) const TYPES: &[&str] = &[
    "array", "boolean", "integer", "null", "number", "object", "string",
];

type Schema = Map<String, Value>;

/// The schema in the form above; an error reads on from "its inputSchema".
pub(crate) fn clean(schema: &Value) -> Result<Value, String> {
    if !schema.is_object() {
        return Err("is no object".into());
    }
    if schema.to_string().len() > MAX_BYTES {
        return Err(format!("has more than {MAX_BYTES} bytes"));
    }
    let Value::Object(inlined) = refs::inline(schema)? else {
        return Err("is no object".into());
    };
    let mut root = opened(merged(inlined));
    let types = types(&root);
    if !types.is_empty() && !types.contains(&"object") {
        return Err(format!(
            "describes {}, and arguments are an object",
            types.join(" or ")
        ));
    }
    root.remove("nullable");
    root.remove("enum");
    root.remove("const");
    root.remove("default");
    root.insert("type".into(), "object".into());
    named(&mut root)?;
    let mut root = node(root);
    root.entry("properties").or_insert_with(|| json!({}));
    let root = Value::Object(root);
    if root.to_string().len() > MAX_BYTES {
        return Err(format!(
            "has more than {MAX_BYTES} bytes once its references are put in"
        ));
    }
    Ok(root)
}

/// Rule 2.
fn named(root: &mut Schema) -> Result<(), String> {
    let required = strings(root.get("required"));
    let Some(Value::Object(properties)) = root.get_mut("properties") else {
        return Ok(());
    };
    let allowed = |name: &String| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(plain)
    };
    let odd = |name: &&String| !allowed(name) && required.contains(name);
    if let Some(name) = properties.keys().find(odd) {
        let name = head_of(name, 80);
        return Err(format!("requires {name:?}, a name that model APIs refuse"));
    }
    properties.retain(|name, _| allowed(name));
    Ok(())
}

/// Rule 1: a root's branches as one object.
fn opened(mut root: Schema) -> Schema {
    for (keyword, key) in [("anyOf", "at least one"), ("oneOf", "exactly one")] {
        let Some(Value::Array(branches)) = root.remove(keyword) else {
            continue;
        };
        let mut each: Vec<Vec<String>> = Vec::new();
        for branch in branches {
            let Value::Object(branch) = branch else {
                each.push(Vec::new());
                continue;
            };
            let mut branch = opened(merged(branch));
            each.push(strings(branch.remove("required").as_ref()));
            if let Some(Value::Object(properties)) = branch.remove("properties") {
                add_properties(&mut root, properties);
            }
        }
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for name in each.iter().flatten() {
            *counts.entry(name).or_default() += 1;
        }
        let is_everywhere = |name: &&String| counts.get(name.as_str()) == Some(&each.len());
        let rest: Vec<Vec<&str>> = each
            .iter()
            .map(|names| {
                let names = names.iter().filter(|name| !is_everywhere(name));
                names.map(String::as_str).collect()
            })
            .collect();
        if rest.len() > 1 && rest.iter().all(|names| !names.is_empty()) {
            let sets: Vec<String> = rest.iter().map(|names| names.join(" with ")).collect();
            let sets = format!("({key} of these is required: {})", sets.join("; "));
            let words = root.get("description").and_then(Value::as_str);
            let words = format!("{} {sets}", words.unwrap_or_default());
            let words = head_of(words.trim_start(), MAX_DESCRIPTION);
            root.insert("description".into(), words.into());
        }
        let everywhere = each.iter().flatten().filter(is_everywhere).cloned();
        let everywhere: Vec<String> = everywhere.collect();
        require(&mut root, everywhere);
    }
    root
}

/// Rule 5: what holds beside a schema, in it.
fn merged(mut schema: Schema) -> Schema {
    if let Some(Value::Array(parts)) = schema.remove("allOf") {
        let mut required = Vec::new();
        for part in parts {
            let Value::Object(part) = part else {
                continue;
            };
            for (key, value) in merged(part) {
                match (key.as_str(), value) {
                    ("properties", Value::Object(more)) => add_properties(&mut schema, more),
                    ("required", more) => required.extend(strings(Some(&more))),
                    (_, value) => {
                        schema.entry(key).or_insert(value);
                    }
                }
            }
        }
        if !required.is_empty() {
            require(&mut schema, required);
        }
    }
    let mut sometimes: Vec<Value> = ["then", "else"]
        .into_iter()
        .filter_map(|key| schema.remove(key))
        .collect();
    if let Some(Value::Object(dependent)) = schema.remove("dependentSchemas") {
        sometimes.extend(dependent.into_iter().map(|(_, part)| part));
    }
    for part in sometimes {
        if let Value::Object(part) = part
            && let Some(Value::Object(more)) = merged(part).remove("properties")
        {
            add_properties(&mut schema, more);
        }
    }
    schema
}

fn add_properties(schema: &mut Schema, more: Schema) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if !properties.is_object() {
        *properties = json!({});
    }
    if let Value::Object(properties) = properties {
        for (name, property) in more {
            properties.entry(name).or_insert(property);
        }
    }
}

fn require(schema: &mut Schema, more: Vec<String>) {
    let mut required = strings(schema.get("required"));
    required.extend(more);
    schema.insert("required".into(), required.into());
}

/// One schema, whose references are put in.
fn node(schema: Schema) -> Schema {
    let schema = merged(schema);
    let mut out = Schema::new();
    let mut notes = Vec::new();
    let branches = branches(&schema);
    let types = types(&schema);
    match (types.as_slice(), branches.len()) {
        (_, 1) => {
            let only = branches.into_iter().next().unwrap_or_default();
            if let [one] = types.as_slice() {
                typed(&schema, one, &mut out, &mut notes);
            }
            for (key, value) in only {
                out.entry(key).or_insert(value);
            }
        }
        ([one], count) => {
            typed(&schema, one, &mut out, &mut notes);
            if count > 0 {
                out.insert("anyOf".into(), branches_value(branches));
            }
        }
        ([], 0) => enumerated(&schema, None, &mut out, &mut notes),
        (_, count) if count > 0 => {
            enumerated(&schema, None, &mut out, &mut notes);
            out.insert("anyOf".into(), branches_value(branches));
        }
        (several, _) => {
            let each = several.iter().map(|one| {
                let mut branch = Schema::new();
                let mut notes = Vec::new();
                typed(&schema, one, &mut branch, &mut notes);
                described(&mut branch, "", &notes);
                Value::Object(branch)
            });
            out.insert("anyOf".into(), each.collect());
        }
    }
    if let Some(title @ Value::String(_)) = schema.get("title") {
        out.insert("title".into(), title.clone());
    }
    if let Some(default) = schema.get("default") {
        out.insert("default".into(), default.clone());
    }
    let own = schema.get("description").and_then(Value::as_str);
    let words = own.map(str::to_owned).or_else(|| {
        let inherited = out.get("description").and_then(Value::as_str);
        inherited.map(str::to_owned)
    });
    described(&mut out, words.as_deref().unwrap_or_default(), &notes);
    out
}

/// The branches that say something; none if one of them allows everything.
fn branches(schema: &Schema) -> Vec<Schema> {
    let listed = schema.get("anyOf").or_else(|| schema.get("oneOf"));
    let Some(Value::Array(listed)) = listed else {
        return Vec::new();
    };
    let mut branches: Vec<Schema> = Vec::new();
    for branch in listed.iter().take(MAX_BRANCHES) {
        let branch = match branch {
            Value::Bool(false) => continue,
            Value::Object(branch) => node(branch.clone()),
            _ => Schema::new(),
        };
        if branch.is_empty() {
            return Vec::new();
        }
        if !branches.contains(&branch) {
            branches.push(branch);
        }
    }
    if listed.len() > MAX_BRANCHES {
        return Vec::new();
    }
    branches
}

fn branches_value(branches: Vec<Schema>) -> Value {
    branches.into_iter().map(Value::Object).collect()
}

/// The types that a schema allows, told or plain from its keywords. Empty: all.
fn types(schema: &Schema) -> Vec<&'static str> {
    let known = |name: &Value| {
        let name = name.as_str()?.to_ascii_lowercase();
        TYPES.iter().copied().find(|known| *known == name)
    };
    let mut types: Vec<&'static str> = match schema.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(known).collect(),
        Some(name) => known(name).into_iter().collect(),
        None => Vec::new(),
    };
    if types.is_empty() {
        let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
        let values = values(schema);
        if has(&["properties", "required"]) {
            types.push("object");
        } else if has(&["items", "prefixItems"]) {
            types.push("array");
        } else if !values.is_empty() {
            let all = |is: fn(&Value) -> bool| values.iter().all(is);
            if all(Value::is_string) {
                types.push("string");
            } else if all(Value::is_boolean) {
                types.push("boolean");
            } else if all(|it| it.is_i64() || it.is_u64()) {
                types.push("integer");
            } else if all(Value::is_number) {
                types.push("number");
            }
        }
    }
    if !types.is_empty() && schema.get("nullable") == Some(&Value::Bool(true)) {
        types.push("null");
    }
    // A number may be whole.
    if types.contains(&"number") {
        types.retain(|name| *name != "integer");
    }
    let mut seen = Vec::new();
    types.retain(|name| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    types
}

fn described(out: &mut Schema, words: &str, notes: &[String]) {
    let notes = notes.iter().map(|note| format!("({note})"));
    let all = std::iter::once(words.to_owned()).filter(|it| !it.is_empty());
    let all: Vec<String> = all.chain(notes).collect();
    if !all.is_empty() {
        let all = all.join(" ");
        out.insert("description".into(), head_of(&all, MAX_DESCRIPTION).into());
    }
}

/// The strings of a list, each once.
fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let mut seen = HashSet::new();
    list.filter_map(Value::as_str)
        .filter(|text| seen.insert(*text))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests;
