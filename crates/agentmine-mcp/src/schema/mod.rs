//! A tool's `inputSchema` in the form that model APIs accept.
//!
//! A model API rejects a whole request for one schema that it does not accept, so one odd tool would end
//! the session. Everything that the APIs of OpenAI, Anthropic or Gemini are known to reject is rewritten in
//! a form that all three accept. The meaning is kept where such a form exists, or else described in words,
//! or else widened, never narrowed. The server still validates the arguments by its own schema. The rules:
//!
//! 1. The root has `type: "object"` and `properties` (all three). `allOf` of the root is merged. `anyOf` and
//!    `oneOf` (rejected by OpenAI and Anthropic) are merged too: the properties of all branches, each with
//!    what any branch allows, required what every branch requires. What single branches require is added to
//!    the description.
//! 2. Properties of the root have names of `[a-zA-Z0-9_.-]{1,64}` (Anthropic). Others are dropped if they
//!    are optional; a required one drops the tool.
//! 3. `$ref` is resolved, and `$schema`, `$id`, `$defs` and the like are dropped (unknown to Gemini); a
//!    recursive reference becomes an open object.
//! 4. Boolean schemas become `{}`, or no property if `false` (they are not objects).
//! 5. Only keywords that all three know are kept. `const` becomes `enum`, `oneOf` becomes `anyOf`, nested
//!    `allOf` is merged, properties in `then`, `else` and `dependentSchemas` become optional, tuples become
//!    `items` with `anyOf`; `not`, `if`, `patternProperties`, `contains`, `propertyNames` and
//!    `unevaluated…` are dropped.
//! 6. A list of types (rejected by Gemini) becomes `anyOf` with each type and its keywords; so does
//!    `nullable`. Unknown types are dropped, and so are keywords of other types than the schema's.
//! 7. An array has `items` (OpenAI, Gemini).
//! 8. `required` names only existing properties, each once (Gemini).
//! 9. `format` is kept if it is `date-time` or the width of a number. Other formats (rejected by Gemini),
//!    exclusive bounds, `multipleOf`, `uniqueItems` and values of an `enum` that are not strings (rejected
//!    by Gemini) are added to the description.
//! 10. Invalid values of keywords are dropped: a `minLength` that is not an integer, an empty `enum`.
//! 11. Properties keep the order in which the server declares them: servers that constrain a reply by grammar
//!     let the model write its arguments in this order only.
//! 12. A schema that is nested too deeply or too large drops the tool.

mod inline;
mod node;
mod value;

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::text::head_of;

use inline::{inline, merge, merge_any};
use node::{MAX_DESCRIPTION, Schema, node, strings};

pub(crate) use value::{TYPES, is_of, kind};

/// Bytes of a schema as JSON, before and after.
const MAX_BYTES: usize = 64 * 1024;

/// The schema in the form above. An error continues "its inputSchema".
pub(crate) fn clean(schema: &Value) -> Result<Value, String> {
    if !schema.is_object() {
        return Err("is not an object".into());
    }
    if schema.to_string().len() > MAX_BYTES {
        return Err(format!("has more than {MAX_BYTES} bytes"));
    }
    let Value::Object(inlined) = inline(schema)? else {
        return Err("is not an object".into());
    };
    let mut root = opened(inlined);
    let types = node::types(&root);
    if !types.is_empty() && !types.contains(&"object") {
        let types = types.join(" or ");
        return Err(format!("describes {types}, but arguments are an object"));
    }
    for key in ["nullable", "enum", "default"] {
        root.shift_remove(key);
    }
    root.insert("type".into(), "object".into());
    root.entry("properties").or_insert_with(|| json!({}));
    check_names(&mut root)?;
    let root = Value::Object(node(&root));
    if root.to_string().len() > MAX_BYTES {
        return Err(format!(
            "has more than {MAX_BYTES} bytes with its references resolved"
        ));
    }
    Ok(root)
}

/// Rule 2.
fn check_names(root: &mut Schema) -> Result<(), String> {
    let required = strings(root.get("required"));
    let Some(Value::Object(properties)) = root.get_mut("properties") else {
        return Ok(());
    };
    let is_allowed = |name: &String| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(plain)
    };
    let is_lost = |name: &&String| !is_allowed(name) && required.contains(name);
    if let Some(name) = properties.keys().find(is_lost) {
        let name = head_of(name, 80);
        return Err(format!("requires {name:?}, a name that model APIs reject"));
    }
    properties.retain(|name, _| is_allowed(name));
    Ok(())
}

/// Rule 1: the root with its branches merged into it.
fn opened(mut root: Schema) -> Schema {
    for (keyword, count) in [("anyOf", "at least one"), ("oneOf", "exactly one")] {
        let Some(Value::Array(branches)) = root.shift_remove(keyword) else {
            continue;
        };
        let (mut required, mut parts) = (Vec::new(), Vec::new());
        for branch in branches {
            let Value::Object(branch) = branch else {
                required.push(Vec::new());
                continue;
            };
            let branch = opened(branch);
            required.push(strings(branch.get("required")));
            parts.push(branch);
        }
        merge_any(&mut root, parts);
        require(&mut root, &required, count);
    }
    root
}

/// Requires what all branches require, and describes what the others do.
fn require(root: &mut Schema, branches: &[Vec<String>], count: &str) {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for name in branches.iter().flatten() {
        *counts.entry(name).or_default() += 1;
    }
    let is_common = |name: &&str| counts.get(name) == Some(&branches.len());
    let each = branches
        .iter()
        .map(|names| names.iter().map(String::as_str).partition(is_common));
    let (common, others): (Vec<Vec<&str>>, Vec<Vec<&str>>) = each.unzip();
    if others.len() > 1 && others.iter().all(|names| !names.is_empty()) {
        let others: Vec<String> = others.iter().map(|names| names.join(" with ")).collect();
        let own = root.get("description").and_then(Value::as_str);
        let words = format!(
            "{} ({count} of these is required: {})",
            own.unwrap_or_default(),
            others.join("; ")
        );
        let words = head_of(words.trim_start(), MAX_DESCRIPTION);
        root.insert("description".into(), words.into());
    }
    merge(root, json!({ "required": common.first() }));
}

#[cfg(test)]
mod tests;
