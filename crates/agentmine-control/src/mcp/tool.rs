//! A tool: its definition, and the call of its operation.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::context::Context;
use crate::ControlError;

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    Reads,
    /// It adds something.
    Adds,
    /// It changes something, and the same call again changes no more.
    Sets,
    /// It ends or removes something.
    Ends,
}

type Call =
    dyn Fn(Arc<Context>, Value) -> BoxFuture<'static, Result<Value, ControlError>> + Send + Sync;

/// A tool.
pub struct ToolDef {
    definition: Tool,
    call: Box<Call>,
}

impl ToolDef {
    /// The tool over this operation.
    pub(super) fn new<A, R>(
        name: &'static str,
        title: &str,
        description: &'static str,
        effect: Effect,
        operation: fn(Arc<Context>, A) -> BoxFuture<'static, Result<R, ControlError>>,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        R: Serialize + JsonSchema + 'static,
    {
        let annotations = ToolAnnotations::with_title(title)
            .read_only(effect == Effect::Reads)
            .destructive(effect == Effect::Ends)
            .idempotent(matches!(effect, Effect::Reads | Effect::Sets))
            .open_world(false);
        let mut input = schema::<A>(Side::Input);
        input
            .entry("properties")
            .or_insert_with(|| Value::Object(JsonObject::new()));
        let definition = Tool::new(name, Cow::Borrowed(description), Arc::new(input))
            .with_title(title)
            .with_raw_output_schema(Arc::new(schema::<R>(Side::Output)))
            .with_annotations(annotations);
        let call =
            move |context, mut arguments| -> BoxFuture<'static, Result<Value, ControlError>> {
                whole_numbers(&mut arguments);
                let arguments: Result<A, _> = serde_json::from_value(arguments);
                match arguments {
                    Ok(arguments) => {
                        let result = operation(context, arguments);
                        Box::pin(async move { to_value(&result.await?) })
                    }
                    Err(error) => {
                        let hint = "the tool's input schema lists its parameters";
                        let error = ControlError::Validation(error.to_string()).hint(hint);
                        Box::pin(std::future::ready(Err(error)))
                    }
                }
            };
        Self {
            definition,
            call: Box::new(call),
        }
    }

    /// The tool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The definition, as clients get it. Its output schema is that of a failed call too.
    #[must_use]
    pub fn definition(&self) -> Tool {
        self.definition.clone()
    }

    pub(super) fn call(
        &self,
        context: Arc<Context>,
        arguments: JsonObject,
    ) -> BoxFuture<'static, Result<Value, ControlError>> {
        (self.call)(context, Value::Object(arguments))
    }
}

/// To JSON Schema `3.0` is an integer, and some clients write all their numbers so.
fn whole_numbers(arguments: &mut Value) {
    match arguments {
        Value::Number(number) => {
            let whole = number
                .as_f64()
                .filter(|it| it.fract() == 0.0 && it.abs() < 9e15);
            if let (true, Some(whole)) = (number.is_f64(), whole) {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "it is whole, and within the limits of an i64"
                )]
                let whole = whole as i64;
                *arguments = whole.into();
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

pub(super) fn to_value(result: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(result)
        .map_err(|error| ControlError::Store(agentmine_store::StoreError::Fault(error.to_string())))
}

/// Whether a schema describes what goes in or what comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Input,
    Output,
}

fn schema<T: JsonSchema>(side: Side) -> JsonObject {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    let generator = match side {
        Side::Input => SchemaGenerator::new(settings.for_deserialize()),
        Side::Output => SchemaGenerator::new(settings.for_serialize()),
    };
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        for key in ["$schema", "title", "description"] {
            root.remove(key);
        }
        root.entry("type").or_insert_with(|| "object".into());
        match side {
            Side::Input => simplify(root),
            Side::Output => allow_error(root),
        }
    }
    remove_formats(&mut schema);
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

/// Clients check the structured content of a failed call too, which has its error instead of the result.
fn allow_error(root: &mut JsonObject) {
    let error = json!({
        "type": "object",
        "description": "Why the call failed; no other field is present then.",
        "properties": {
            "code": { "type": "integer", "description": "The code." },
            "name": { "type": "string", "description": "The name of the code." },
            "message": { "type": "string", "description": "What was seen, and what was expected." },
            "hint": { "type": ["string", "null"], "description": "The next action." },
        },
    });
    let properties = root.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.entry("error").or_insert(error);
    }
    if let Some(required) = root.remove("required") {
        let either = json!([{ "required": required }, { "required": ["error"] }]);
        root.insert("anyOf".into(), either);
    }
}

/// The names of Rust's integers are no formats of JSON Schema, and clients warn of each.
fn remove_formats(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("format").is_some_and(Value::is_string) {
                object.remove("format");
            }
            object.values_mut().for_each(remove_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_formats),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A parameter that is not given is omitted: clients need not know that `null` is accepted too, and many models do
/// badly with unions.
fn simplify(root: &mut JsonObject) {
    let properties = root.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(JsonObject::values_mut) {
        let Some(property) = property.as_object_mut() else {
            continue;
        };
        if let Some(Value::Array(types)) = property.get_mut("type") {
            types.retain(|it| it != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                property.insert("type".into(), only);
            }
        }
    }
}
