use proptest::prelude::*;
use serde_json::Map;

use super::*;

#[test]
fn properties_keep_the_order_in_which_they_are_declared() {
    let schema: Value = serde_json::from_str(
        r##"{
            "$defs": {"point": {"type": "object", "properties": {"y": {}, "x": {}}}},
            "nullable": true,
            "type": "object",
            "anyOf": [{"properties": {"old": {"type": "string"}}}, {"properties": {"mode": {"type": "string"}}}],
            "properties": {"path": {"type": "string"}, "at": {"$ref": "#/$defs/point"}, "bad name": {}, "new": {"type": "string"}},
            "required": ["path"]
        }"##,
    )
    .unwrap();
    let cleaned = clean(&schema).unwrap();
    let keys = |schema: &Value| -> Vec<String> {
        schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    assert_eq!(keys(&cleaned), ["path", "at", "new", "old", "mode"]);
    assert_eq!(keys(&cleaned["properties"]["at"]), ["y", "x"]);
}

/// What model APIs accept, by the rules above.
fn check(schema: &Value, root: bool) -> Result<(), String> {
    const KNOWN: &[&str] = &[
        "additionalProperties",
        "anyOf",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    ];
    let map = schema
        .as_object()
        .ok_or_else(|| format!("not an object: {schema}"))?;
    let wrong = |what: &str| Err(format!("{what}: {schema}"));
    if let Some(key) = map.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        return wrong(key);
    }
    let one = map.get("type");
    if one.is_some_and(|one| !one.as_str().is_some_and(|one| TYPES.contains(&one))) {
        return wrong("type");
    }
    let of = |wanted: &[&str]| {
        one.and_then(Value::as_str)
            .is_some_and(|one| wanted.contains(&one))
    };
    for (keys, types) in [
        (
            [
                "properties",
                "required",
                "additionalProperties",
                "maxProperties",
            ],
            &["object"][..],
        ),
        (["items", "minItems", "maxItems", "items"], &["array"]),
        (
            ["pattern", "minLength", "maxLength", "pattern"],
            &["string"],
        ),
        (
            ["minimum", "maximum", "minimum", "maximum"],
            &["number", "integer"],
        ),
    ] {
        if keys.iter().any(|key| map.contains_key(*key)) && !of(types) {
            return wrong("keyword of another type");
        }
    }
    if root && (!of(&["object"]) || !map.contains_key("properties") || map.contains_key("anyOf")) {
        return wrong("root");
    }
    if of(&["array"]) && !map.contains_key("items") {
        return wrong("array without items");
    }
    if let Some(properties) = map.get("properties") {
        let properties = properties.as_object().ok_or("properties")?;
        for (name, property) in properties {
            if root && !(1..=64).contains(&name.len()) {
                return wrong("name");
            }
            check(property, false)?;
        }
        let mut seen = Vec::new();
        for name in map
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let name = name.as_str().ok_or("required")?;
            if !properties.contains_key(name) || seen.contains(&name) {
                return wrong("required");
            }
            seen.push(name);
        }
    }
    for key in ["items", "additionalProperties"] {
        match map.get(key) {
            None | Some(Value::Bool(_)) if key != "items" => {}
            None => {}
            Some(inner) => check(inner, false)?,
        }
    }
    if let Some(branches) = map.get("anyOf") {
        let branches = branches.as_array().ok_or("anyOf")?;
        if branches.len() < 2 {
            return wrong("anyOf");
        }
        for branch in branches {
            check(branch, false)?;
        }
    }
    if map
        .get("enum")
        .is_some_and(|it| it.as_array().is_none_or(Vec::is_empty))
    {
        return wrong("enum");
    }
    for key in ["title", "description", "pattern", "format"] {
        if map.get(key).is_some_and(|it| !it.is_string()) {
            return wrong(key);
        }
    }
    Ok(())
}

fn cleaned(schema: Value) -> Value {
    let clean = clean(&schema).unwrap_or_else(|why| panic!("{schema} {why}"));
    check(&clean, true).unwrap();
    assert_eq!(
        super::clean(&clean).as_ref(),
        Ok(&clean),
        "not the same again"
    );
    clean
}

fn property(schema: Value) -> Value {
    cleaned(json!({"type": "object", "properties": {"p": schema}}))["properties"]["p"].clone()
}

#[test]
fn plain_schema_stays_as_it_is() {
    let plain = json!({"type": "object", "properties": {
        "path": {"type": "string", "description": "Where.", "minLength": 1, "pattern": "^/"},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 5},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "env": {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
    }, "required": ["path"], "additionalProperties": false});
    assert_eq!(cleaned(plain.clone()), plain);
}

#[test]
fn root_is_made_an_object_with_properties() {
    let empty = json!({"type": "object", "properties": {}});
    for root in [
        json!({}),
        json!({"type": "object"}),
        json!({"type": ["object", "null"]}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "OBJECT"}),
    ] {
        assert_eq!(cleaned(root), empty);
    }
    for root in [
        json!(true),
        json!("object"),
        json!(null),
        json!([]),
        json!({"type": "string"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}}),
    ] {
        assert!(clean(&root).is_err(), "{root}");
    }
}

#[test]
fn branches_of_the_root_are_opened() {
    let schema = cleaned(json!({"type": "object",
        "properties": {"a": {"type": "string"}}, "required": ["a"],
        "oneOf": [
            {"properties": {"b": {"type": "string"}, "c": {"type": "string"}}, "required": ["b", "c"]},
            {"properties": {"b": {"type": "number"}, "d": {}}, "required": ["b"]},
        ],
        "allOf": [{"properties": {"e": {"type": "boolean"}}, "required": ["e"]}],
    }));
    assert_eq!(
        schema["properties"]["b"],
        json!({"anyOf": [{"type": "string"}, {"type": "number"}]})
    );
    let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["a", "e", "b", "c", "d"]);
    assert_eq!(schema["required"], json!(["a", "e", "b"]));
    // "One of them is required" has no form, only words.
    let either = cleaned(json!({"type": "object", "properties": {"a": {}, "b": {}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}));
    assert_eq!(
        either,
        json!({"type": "object", "properties": {"a": {}, "b": {}},
            "description": "(at least one of these is required: a; b)"})
    );
    let either = cleaned(
        json!({"description": "D.", "properties": {"a": {}, "b": {}, "c": {}},
        "oneOf": [{"required": ["a", "c"]}, {"required": ["b", "c", "d"]}]}),
    );
    assert_eq!(
        (&either["description"], &either["required"]),
        (
            &json!("D. (exactly one of these is required: a; b with d)"),
            &json!(["c"])
        )
    );
}

#[test]
fn property_of_several_branches_allows_what_any_of_them_allows() {
    let branch = |action: &str, own: &str| {
        json!({"type": "object", "properties": {
            "action": {"type": "string", "const": action},
            "target": {"type": "string", "description": action},
            own: {"type": "string"},
        }, "required": ["action", own]})
    };
    for keyword in ["anyOf", "oneOf"] {
        let schema = cleaned(json!({"type": "object",
            keyword: [branch("create", "title"), branch("delete", "id"), branch("delete", "id")]}));
        let properties = &schema["properties"];
        assert_eq!(
            properties["action"],
            json!({"type": "string", "enum": ["create", "delete"]})
        );
        assert_eq!(
            properties["target"],
            json!({"type": "string", "description": "create"})
        );
        assert_eq!(schema["required"], json!(["action"]));
    }
    let when = |action: &str, payload: Value| {
        json!({"if": {"properties": {"action": {"const": action}}},
            "then": {"properties": {"action": {"const": action}, "payload": payload}}})
    };
    let schema = cleaned(
        json!({"properties": {"action": {"type": "string"}}, "allOf": [
        when("create", json!({"type": "string"})), when("count", json!({"type": "integer"}))]}),
    );
    assert_eq!(
        schema["properties"],
        json!({"action": {"type": "string"},
            "payload": {"anyOf": [{"type": "string"}, {"type": "integer"}]}})
    );
    // What a part with a condition requires itself is required.
    let part = json!({"properties": {"path": {"type": "string"}}, "required": ["path"],
        "if": {"required": ["line"]}, "then": {"properties": {"line": {"type": "integer"}}}});
    assert_eq!(
        cleaned(json!({"allOf": [part]}))["required"],
        json!(["path"])
    );
}

#[test]
fn values_that_are_not_strings_are_described() {
    for (schema, expected) in [
        (
            json!({"enum": [1, 2]}),
            json!({"type": "integer", "description": "(one of: 1, 2)"}),
        ),
        (
            json!({"type": "number", "enum": [1, 2.5], "description": "How much."}),
            json!({"type": "number", "description": "How much. (one of: 1, 2.5)"}),
        ),
        (
            json!({"const": true}),
            json!({"type": "boolean", "description": "(one of: true)"}),
        ),
        (
            json!({"enum": ["a", 1]}),
            json!({"description": "(one of: \"a\", 1)"}),
        ),
    ] {
        assert_eq!(property(schema), expected);
    }
}

#[test]
fn very_many_required_names_take_no_time() {
    let names = |from: usize| {
        (from..from + 60)
            .map(|it| format!("{it:x}"))
            .collect::<Vec<_>>()
    };
    let parts: Vec<Value> = (0..140)
        .map(|it| json!({"required": names(it * 60)}))
        .collect();
    let began = std::time::Instant::now();
    super::clean(&json!({"properties": {}, "allOf": parts})).unwrap();
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
}

#[test]
fn names_that_an_api_rejects_are_dropped_or_leave_out_the_tool() {
    let schema = json!({"properties": {"a b": {}, "ok": {}, "é": {}, "": {}}});
    let clean_one = cleaned(schema.clone());
    assert_eq!(clean_one["properties"], json!({"ok": {}}));
    let mut schema = schema;
    schema["required"] = json!(["a b"]);
    assert!(clean(&schema).unwrap_err().contains("\"a b\""));
}

#[test]
fn references_are_resolved() {
    let schema = cleaned(json!({
        "$defs": {"word": {"type": "string", "description": "A word."}, "a/b~c": {"type": "number"}},
        "definitions": {"old": {"type": "boolean"}},
        "properties": {
            "a": {"$ref": "#/$defs/word"},
            "b": {"$ref": "#/$defs/word", "description": "Its own."},
            "c": {"$ref": "#/definitions/old"},
            "d": {"$ref": "#/$defs/a~1b~0c"},
            "e": {"$ref": "#/$defs/a~1b%7E0c"},
            "f": {"$ref": "https://example.com/schema.json"},
            "g": {"$ref": "#/nowhere"},
            "h": {"$ref": 5},
        },
    }));
    assert_eq!(
        schema["properties"],
        json!({
            "a": {"type": "string", "description": "A word."},
            "b": {"type": "string", "description": "Its own."},
            "c": {"type": "boolean"}, "d": {"type": "number"}, "e": {"type": "number"},
            "f": {}, "g": {}, "h": {},
        })
    );
}

#[test]
fn recursive_reference_becomes_an_open_object() {
    let schema = cleaned(json!({
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "properties": {"first": {"$ref": "#/$defs/node"}, "self": {"$ref": "#"}},
    }));
    assert_eq!(
        schema["properties"]["first"]["properties"]["next"],
        json!({"type": "object"})
    );
    assert_eq!(
        cleaned(json!({"$ref": "#"})),
        json!({"type": "object", "properties": {}})
    );
}

#[test]
fn reference_bomb_leaves_out_the_tool() {
    let mut defs = Map::new();
    for number in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        defs.insert(
            format!("d{number}"),
            json!({"properties": {"a": next, "b": next}}),
        );
    }
    let bomb = json!({"$defs": defs, "properties": {"x": {"$ref": "#/$defs/d0"}}});
    let why = clean(&bomb).unwrap_err();
    assert!(why.contains("deep") || why.contains("parts"), "{why}");
    let word = "x".repeat(30_000);
    let many: Map<_, _> = (0..100)
        .map(|n| (format!("p{n}"), json!({"$ref": "#/$defs/w"})))
        .collect();
    let heavy = json!({"$defs": {"w": {"description": word}}, "properties": many});
    assert!(clean(&heavy).unwrap_err().contains("bytes"));
}

#[test]
fn deep_or_large_schema_leaves_out_the_tool() {
    let mut deep = json!({"type": "string"});
    for _ in 0..40 {
        deep = json!({"type": "array", "items": deep});
    }
    assert!(
        clean(&json!({"properties": {"a": deep}}))
            .unwrap_err()
            .contains("deep")
    );
    let large = json!({"properties": {"a": {"description": "x".repeat(70_000)}}});
    assert!(clean(&large).unwrap_err().contains("bytes"));
}

#[test]
fn types_of_a_list_become_branches() {
    assert_eq!(
        property(
            json!({"type": ["string", "null"], "minLength": 2, "minimum": 1, "enum": ["aa", null]})
        ),
        json!({"anyOf": [{"type": "string", "minLength": 2, "enum": ["aa"]}, {"type": "null"}]})
    );
    assert_eq!(
        property(json!({"type": "string", "nullable": true})),
        json!({"anyOf": [{"type": "string"}, {"type": "null"}]})
    );
    assert_eq!(
        property(json!({"type": ["integer", "number"]})),
        json!({"type": "number"})
    );
    assert_eq!(property(json!({"type": "any"})), json!({}));
    assert_eq!(
        property(json!({"type": "String"})),
        json!({"type": "string"})
    );
}

#[test]
fn unions_and_constants_keep_their_meaning() {
    assert_eq!(
        property(json!({"oneOf": [{"const": "a"}, {"type": "number", "multipleOf": 5}]})),
        json!({"anyOf": [{"type": "string", "enum": ["a"]},
            {"type": "number", "description": "(a multiple of 5)"}]})
    );
    assert_eq!(
        property(json!({"anyOf": [{"type": "string"}]})),
        json!({"type": "string"})
    );
    assert_eq!(
        property(json!({"anyOf": [{"type": "string"}, true]})),
        json!({})
    );
    assert_eq!(
        property(json!({"allOf": [{"type": "string"}, {"minLength": 1}], "description": "d"})),
        json!({"type": "string", "minLength": 1, "description": "d"})
    );
}

#[test]
fn what_has_no_form_is_described_or_dropped() {
    assert_eq!(
        property(json!({"type": "string", "format": "uri", "description": "Where."})),
        json!({"type": "string", "description": "Where. (format: uri)"})
    );
    assert_eq!(
        property(json!({"type": "integer", "exclusiveMinimum": 0, "format": "int32"})),
        json!({"type": "integer", "format": "int32", "description": "(more than 0)"})
    );
    assert_eq!(
        property(
            json!({"type": "array", "uniqueItems": true, "items": [{"type": "string"}, {"type": "number"}]})
        ),
        json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]},
            "description": "(no item twice)"})
    );
    assert_eq!(
        property(
            json!({"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": false,
            "not": {}, "if": {"properties": {"i": {}}}, "then": {"properties": {"t": {"type": "string"}}, "required": ["t"]},
            "unevaluatedProperties": false, "required": ["gone"]})
        ),
        json!({"type": "object", "properties": {"t": {"type": "string"}}})
    );
    assert_eq!(
        property(json!({"type": "string", "minLength": -1, "enum": []})),
        json!({"type": "string"})
    );
    assert_eq!(
        cleaned(json!({"properties": {"yes": true, "no": false, "odd": 5}}))["properties"],
        json!({"yes": {}, "odd": {}})
    );
}

/// Schemas as nobody should write them.
fn wild() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec!["a", "b", "a b", "type", "$ref", ""]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..9).prop_map(Value::from),
        Just(json!(1.5)),
        prop::sample::select(vec![
            "string",
            "object",
            "array",
            "null",
            "number",
            "integer",
            "Any",
            "#",
            "#/properties/a",
            "#/$defs/a",
            "date-time",
            "uri",
            "x"
        ])
        .prop_map(Value::from),
        Just(json!({})),
    ];
    let key = prop_oneof![
        4 => prop::sample::select(vec![
            "type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs",
            "enum", "const", "format", "description", "title", "default", "nullable", "prefixItems",
            "additionalProperties", "patternProperties", "not", "then", "dependentSchemas",
            "exclusiveMinimum", "minimum", "multipleOf", "uniqueItems", "minItems", "pattern",
        ]),
        1 => word,
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| {
                Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_comes_out_is_accepted_and_stays_the_same(schema in wild()) {
        if let Ok(clean) = clean(&schema) {
            prop_assert_eq!(check(&clean, true), Ok(()));
            prop_assert_eq!(super::clean(&clean), Ok(clean));
        }
    }
}
