//! No operation exists in one skin and is missing in the other, and the JSON of each command is documented.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::World;

/// The command of each tool.
const COMMANDS: [(&str, &str); 25] = [
    ("task_list", "task list"),
    ("task_get", "task show"),
    ("task_create", "task add"),
    ("task_update", "task update"),
    ("task_why", "task why"),
    ("task_cancel", "task cancel"),
    ("task_pause", "task pause"),
    ("task_resume", "task resume"),
    ("task_retry", "task retry"),
    ("worker_command", "worker run"),
    ("worker_list", "worker list"),
    ("worker_remove", "worker remove"),
    ("session_start", "session start"),
    ("session_end", "session end"),
    ("session_list", "session list"),
    ("session_get", "session show"),
    ("session_logs", "session logs"),
    ("queue_status", "queue status"),
    ("agent_list", "agent list"),
    ("agent_get", "agent show"),
    ("memory_list", "memory list"),
    ("memory_get", "memory show"),
    ("memory_add", "memory add"),
    ("memory_update", "memory update"),
    ("memory_preview", "memory preview"),
];

/// Commands on files of this machine, for people alone.
const FILES: [&str; 3] = ["agent validate", "memory export", "memory import"];

#[test]
fn each_tool_has_its_command_and_each_command_its_tool() {
    let tools: BTreeSet<String> = agentmine_control::mcp::tools()
        .iter()
        .map(|tool| tool.name().to_owned())
        .collect();
    let named: BTreeSet<String> = COMMANDS
        .iter()
        .map(|(tool, _)| (*tool).to_owned())
        .collect();
    assert_eq!(tools, named);
    let world = World::new();
    let mut commands = BTreeSet::new();
    for group in ["task", "session", "worker", "queue", "agent", "memory"] {
        let help = world.shown(&[group, "--help"], 0);
        let (_, list) = help.split_once("Commands:\n").unwrap();
        let names = list.lines().take_while(|line| !line.is_empty());
        let names = names.filter_map(|line| line.strip_prefix("  "));
        let names = names.filter(|line| !line.starts_with(' '));
        let names = names.filter_map(|line| line.split_whitespace().next());
        commands.extend(
            names
                .filter(|it| *it != "help")
                .map(|it| format!("{group} {it}")),
        );
    }
    let named = COMMANDS.iter().map(|(_, command)| *command);
    let named: BTreeSet<String> = named.chain(FILES).map(ToOwned::to_owned).collect();
    assert_eq!(commands, named);
}

/// The commands that print an array, and the field of the tool's result that it is.
const ARRAYS: [(&str, &str); 5] = [
    ("task list", "tasks"),
    ("session list", "sessions"),
    ("worker list", "workers"),
    ("agent list", "agents"),
    ("memory list", "records"),
];

/// The JSON Schema of what a call that succeeds returns: that of the tool, without what a failed call returns.
fn result_schema(tool: &agentmine_control::mcp::ToolDef) -> Value {
    let mut schema = (*tool.definition().output_schema.unwrap()).clone();
    let failure = "Why the call failed; no other field is present then.";
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    if let Some(properties) = properties
        && properties
            .get("error")
            .is_some_and(|it| it["description"] == failure)
    {
        properties.shift_remove("error");
    }
    if let Some(either) = schema.shift_remove("anyOf") {
        schema.insert("required".into(), either[0]["required"].clone());
    }
    Value::Object(schema)
}

/// What a command prints with `--json`.
fn schema_of(tool: &agentmine_control::mcp::ToolDef, command: &str) -> Value {
    let result = result_schema(tool);
    if let Some((_, field)) = ARRAYS.iter().find(|(name, _)| *name == command) {
        return result["properties"][field].clone();
    }
    match command {
        // Each line is one of the steps.
        "session logs" => result["properties"]["steps"]["items"].clone(),
        "session show" => json!({
            "type": "object",
            "required": ["session", "taskUsage", "takeover", "steps"],
            "properties": {
                "session": result,
                "taskUsage": { "type": "object" },
                "takeover": { "type": "array", "items": { "type": "string" } },
                "steps": { "type": "array", "items": { "type": "object" } },
            },
        }),
        _ => result,
    }
}

fn schemas() -> BTreeMap<&'static str, Value> {
    let tools = agentmine_control::mcp::tools();
    let of = |name: &str| tools.iter().find(|tool| tool.name() == name).unwrap();
    let schemas = COMMANDS.iter();
    schemas
        .map(|(tool, command)| (*command, schema_of(of(tool), command)))
        .collect()
}

#[test]
fn the_schema_of_each_commands_json_is_in_the_documents() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/command-line.schema.json"
    );
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "description": "What each command of agentmine prints with --json, by command.",
        "$defs": schemas(),
    });
    let current = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap_or_default() == current,
        "docs/command-line.schema.json is out of date: run `UPDATE_DOCS=1 cargo test -p agentmine-tests --test it the_schema_of_each` and commit it"
    );
}

/// The fields of a value are those of its schema: none is missing, and none is undocumented.
#[track_caller]
fn has_the_fields_of(value: &Value, schema: &Value, at: &str) {
    match value {
        Value::Array(items) => {
            for item in items {
                has_the_fields_of(item, &schema["items"], at);
            }
        }
        Value::Object(fields) => {
            let Some(known) = schema["properties"].as_object() else {
                return;
            };
            for (name, field) in fields {
                match known.get(name) {
                    Some(schema) => has_the_fields_of(field, schema, &format!("{at}.{name}")),
                    // The schema leaves room, as that of an agent does.
                    None => assert_eq!(
                        schema["additionalProperties"], true,
                        "{at}: {name} is not documented"
                    ),
                }
            }
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(
                    fields.contains_key(name.as_str().unwrap()),
                    "{at}: {name} is missing"
                );
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn listings_print_what_their_schemas_say() {
    let world = World::new();
    world.shown(&["task", "add", "One"], 0);
    world.shown(&["task", "add", "Two", "--depends-on", "1"], 0);
    world.shown(&["worker", "run", "1", "--client", "codex"], 0);
    let memory = [
        "memory",
        "add",
        "tests",
        "--category",
        "c",
        "--title",
        "t",
        "--content",
        "x",
    ];
    world.shown(&memory, 0);
    let schemas = schemas();
    for command in [
        &["task", "list"][..],
        &["task", "show", "2"],
        &["task", "why", "2"],
        &["session", "list"],
        &["session", "show", "1"],
        &["worker", "list"],
        &["queue", "status"],
        &["agent", "list"],
        &["agent", "show", "default"],
        &["memory", "list"],
        &["memory", "show", "tests"],
        &["memory", "preview"],
    ] {
        let name = command[..2].join(" ");
        has_the_fields_of(&world.json(command), &schemas[name.as_str()], &name);
    }
}
