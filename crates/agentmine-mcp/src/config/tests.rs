use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::load::MAX_SERVERS;
use super::*;
use crate::ConfigFault;

fn env(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cret-token".into()),
        "NEWLINE" => Some("a\nb".into()),
        _ => None,
    }
}

/// Both files from texts; the user's is a real one.
fn both(user: Option<&str>, project: Option<&str>) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(PROJECT_FILE);
    if let Some(text) = user {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let project = project.map(|text| RepositoryFile {
        shown: PathBuf::from(PROJECT_FILE),
        text: text.to_owned(),
    });
    load(Some(&file), project.as_ref(), &env)
}

fn user(text: &str) -> Loaded {
    both(Some(text), None)
}

fn project(text: &str) -> Loaded {
    both(None, Some(text))
}

/// One entry named `a` of the user's file, on line 2.
fn entry(body: &str) -> Loaded {
    user(&format!("{{\"mcpServers\": {{\n\"a\": {body}\n}}}}"))
}

/// Line, field and words of each fault.
fn reported(loaded: &Loaded) -> Vec<String> {
    let line = |fault: &ConfigFault| fault.line.map_or(String::new(), |line| line.to_string());
    loaded
        .faults
        .iter()
        .map(|fault| format!("{}: {}: {}", line(fault), fault.field, fault.detail))
        .collect()
}

fn stdio(server: &ServerConfig) -> (&[String], BTreeMap<&str, &str>, ServerPlace) {
    match &server.transport {
        Transport::Stdio {
            command,
            env,
            place,
        } => {
            let env = env.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
            (command, env, *place)
        }
        Transport::Http { .. } => panic!("not stdio"),
    }
}

#[test]
fn the_examples_of_the_specification_are_read() {
    let global = r#"{"mcpServers": {
        "memory": {"command": ["npx", "-y", "@modelcontextprotocol/server-memory"]},
        "github": {
            "command": ["npx", "-y", "@modelcontextprotocol/server-github"],
            "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_YourGlobalGitHubToken..."},
            "enabled": false
        }}}"#;
    let local = r#"{"mcpServers": {
        "filesystem": {
            "command": ["npx", "-y", "@modelcontextprotocol/server-filesystem", "./project-files"],
            "capabilities": {"roots": true}
        },
        "github": {
            "command": ["npx", "-y", "@modelcontextprotocol/server-github"],
            "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_YourProjectSpecificToken..."},
            "enabled": true
        },
        "my-custom-tool": {"command": ["python", "./scripts/my_mcp_tool.py"], "env": {"PROJECT_API_KEY": "abc123xyz"}}
    }}"#;
    let loaded = both(Some(global), Some(local));
    assert_eq!(reported(&loaded), Vec::<String>::new());
    let names: Vec<&str> = loaded.servers.keys().map(String::as_str).collect();
    assert_eq!(names, ["filesystem", "github", "memory", "my-custom-tool"]);
    let github = &loaded.servers["github"];
    assert!(github.enabled);
    assert_eq!(github.origin.owner, Owner::Repository);
    assert_eq!(github.origin.line, 6);
    assert_eq!(stdio(github).2, ServerPlace::Sandbox);
    assert_eq!(
        stdio(github).1["GITHUB_PERSONAL_ACCESS_TOKEN"],
        "ghp_YourProjectSpecificToken..."
    );
    let memory = &loaded.servers["memory"];
    assert_eq!(stdio(memory).2, ServerPlace::Worker);
    assert_eq!(memory.timeout, Duration::from_secs(30));
    assert_eq!(memory.capabilities, Capabilities::default());
    assert!(loaded.servers["filesystem"].capabilities.roots);
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn a_servers_name_may_have_what_other_clients_files_have() {
    let named = |name: &str| {
        user(&format!(
            "{{\"mcpServers\": {{{name:?}: {{\"command\": [\"x\"]}}}}}}"
        ))
    };
    // The first is in an example of spec 002 §3.2.
    for name in ["web_search", "my-local-tool", "MCP_DOCKER", "a", "7"] {
        let loaded = named(name);
        assert_eq!(reported(&loaded), Vec::<String>::new());
        assert!(loaded.servers.contains_key(name), "{name}");
    }
    // `mcp__a__b__c` would be a tool of `a` or of `a__b`.
    for name in [
        "",
        "a__b",
        "_a",
        "a_",
        "a.b",
        "a:b",
        "a b",
        "\u{e9}",
        "a".repeat(25).as_str(),
    ] {
        let loaded = named(name);
        assert!(loaded.servers.is_empty(), "{name}");
        assert!(
            reported(&loaded)[0].contains("is not a server's name"),
            "{name}"
        );
    }
}

#[test]
fn missing_files_are_skipped() {
    let loaded = both(None, None);
    assert!(loaded.servers.is_empty() && loaded.faults.is_empty() && loaded.files.is_empty());
}

#[test]
fn what_other_clients_write_is_taken_where_it_is_clear() {
    let loaded = user(
        r#"{"$schema": "x", "mcpServers": {
        "a": {"type": "stdio", "command": "npx", "args": ["-y", "pkg"], "disabled": true},
        "b": {"type": "streamable-http", "url": "https://mcp.example.org/mcp",
              "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeoutSeconds": 1.5, "maxRestarts": 0},
        "c": {"transport": "http", "url": "http://127.0.0.1:8080"},
        "d": {"command": "uvx", "sandbox": true, "env": {"T": "${env:TOKEN}", "P": "pa$$word"}}
    }}"#,
    );
    assert_eq!(reported(&loaded), Vec::<String>::new());
    assert_eq!(stdio(&loaded.servers["a"]).0, ["npx", "-y", "pkg"]);
    assert!(!loaded.servers["a"].enabled);
    let Transport::Http { url, headers } = &loaded.servers["b"].transport else {
        panic!("not HTTP")
    };
    assert_eq!(url.as_str(), "https://mcp.example.org/mcp");
    assert_eq!(headers["Authorization"].expose(), "Bearer s3cret-token");
    assert_eq!(loaded.servers["b"].timeout, Duration::from_millis(1500));
    assert_eq!(loaded.servers["b"].max_restarts, Some(0));
    let (_, env, place) = stdio(&loaded.servers["d"]);
    assert_eq!((env["T"], env["P"]), ("s3cret-token", "pa$$word"));
    assert_eq!(place, ServerPlace::Sandbox);
    assert!(!format!("{loaded:?}").contains("s3cret-token"));
}

#[test]
fn every_fault_is_reported_at_once_with_its_place() {
    let loaded = user(
        r#"{
  "mcpServers": {
    "good": {"command": ["x"]},
    "Bad Name": {"command": ["x"]},
    "github": {
      "command": ["npx",
        7],
      "comand": [],
      "env": {"A": 1, "B": "${NONE}"},
      "alwaysAllow": []
    },
    "nothing": {},
    "two": {"command": ["x"], "url": "https://x.org"},
    "line": {"command": "npx -y pkg"},
    "flag": {"command": ["x"], "enabled": "yes"},
    "sse": {"type": "sse", "url": "https://x.org/sse"},
    "text": "npx"
  }
}"#,
    );
    let reported = reported(&loaded).join("\n");
    for words in [
        "4: mcpServers.Bad Name: \"Bad Name\" is not a server's name, expected 1 to 24 letters, digits, - and _, with _ neither first, last nor doubled; for example \"bad-name\"",
        "7: mcpServers.github.command.1: not a string, expected a string",
        "8: mcpServers.github: unknown key `comand`, expected one of `args`",
        "9: mcpServers.github.env.A: a value that is not shown, expected a string; put it in quotes",
        "9: mcpServers.github.env.B: the environment variable NONE is not set; set it, or write ${NONE:-DEFAULT}",
        "10: mcpServers.github.alwaysAllow: not a known key: there is no approval",
        "12: mcpServers.nothing: neither `command` nor `url`",
        "13: mcpServers.two: `command` and `url`",
        "14: mcpServers.line.command: the program's name contains spaces; expected a list",
        "15: mcpServers.flag.enabled: `yes`, expected `true` or `false`",
        "16: mcpServers.sse.type: the old SSE transport is not supported",
        "17: mcpServers.text: not an object, expected one",
    ] {
        assert!(reported.contains(words), "{words} is not in\n{reported}");
    }
    assert_eq!(loaded.servers.keys().collect::<Vec<_>>(), ["good"]);
    assert_eq!(loaded.faults.len(), 12);
    assert_eq!(loaded.faults[1].server.as_deref(), Some("github"));
}

#[test]
fn nonsense_as_a_time_limit_leaves_the_default_and_the_server() {
    for nonsense in ["0", "-1", "\"x\"", "1e300", "null", "86401"] {
        let loaded = entry(&format!(
            "{{\"command\": [\"x\"], \"timeoutSeconds\": {nonsense}}}"
        ));
        assert_eq!(loaded.servers["a"].timeout, Duration::from_secs(30));
        assert_eq!(loaded.faults.len(), 1, "{nonsense}");
        assert_eq!(loaded.faults[0].server, None);
        assert_eq!(loaded.faults[0].field, "mcpServers.a.timeoutSeconds");
    }
}

#[test]
fn a_capability_of_another_time_is_reported_and_leaves_the_server() {
    let loaded = entry(r#"{"command": ["x"], "capabilities": {"root": true, "logging": true}}"#);
    assert!(loaded.servers["a"].capabilities.logging);
    assert!(!loaded.servers["a"].capabilities.roots);
    assert!(reported(&loaded)[0].contains("did you mean `roots`?"));
    let loaded = entry(r#"{"command": ["x"], "capabilities": {"roots": 1}}"#);
    assert!(loaded.servers.is_empty());
}

#[test]
fn duplicate_keys_are_reported() {
    let loaded = user(
        "{\"mcpServers\": {\n\"a\": {\"command\": [\"x\"]},\n\"a\": {\"command\": [\"y\"]},\n\"b\": {\"command\": [\"x\"], \"command\": [\"y\"]}}}",
    );
    assert!(loaded.servers.is_empty());
    let reported = reported(&loaded);
    assert!(reported[0].contains("3: mcpServers.a: written twice, first on line 2"));
    assert!(
        reported[1].contains("4: mcpServers.b.command: ")
            && reported[1].contains("the first is at")
    );
}

#[test]
fn a_repository_cannot_leave_the_sandbox() {
    let loaded = project(
        r#"{"mcpServers": {
        "a": {"command": ["x"], "sandbox": false, "env": {"K": "literal $HOME"}},
        "b": {"url": "https://evil.example.org"},
        "c": {"command": ["x"], "env": {"K": "${TOKEN}"}},
        "d": {"command": ["x"], "env": {"K": "${TOKEN:-x}"}}
    }}"#,
    );
    let (_, env, place) = stdio(&loaded.servers["a"]);
    assert_eq!(place, ServerPlace::Sandbox);
    assert_eq!(env["K"], "literal $HOME");
    assert_eq!(loaded.servers.len(), 1);
    let reported = reported(&loaded).join("\n");
    assert!(reported.contains("mcpServers.b.url: a repository's servers run in the sandbox only"));
    assert!(reported.contains("mcpServers.c.env.K: a repository's file gets no variable"));
    assert!(reported.contains("mcpServers.d.env.K: a repository's file gets no variable"));
}

#[test]
fn a_faulty_replacement_leaves_nothing_of_that_name() {
    let user = r#"{"mcpServers": {"a": {"command": ["x"]}, "b": {"command": ["x"]}}}"#;
    let loaded = both(
        Some(user),
        Some(r#"{"mcpServers": {"a": {"command": []}}}"#),
    );
    assert_eq!(loaded.servers.keys().collect::<Vec<_>>(), ["b"]);
    assert!(reported(&loaded).join("\n").contains("is skipped too"));
}

#[test]
fn a_project_file_that_is_no_json_leaves_the_users_servers() {
    let user = r#"{"mcpServers": {"a": {"command": ["x"]}}}"#;
    let loaded = both(Some(user), Some("{\n// mine\n}"));
    assert_eq!(loaded.servers.len(), 1);
    assert_eq!(loaded.faults[0].file, Path::new(PROJECT_FILE));
    assert_eq!(loaded.faults[0].line, Some(2));
    assert!(loaded.faults[0].detail.contains("JSON has no comments"));
}

#[test]
fn a_disabled_server_misses_no_variable() {
    let loaded = entry(r#"{"command": ["x"], "enabled": false, "env": {"A": "${NONE}"}}"#);
    assert_eq!(reported(&loaded), Vec::<String>::new());
    assert!(stdio(&loaded.servers["a"]).1.is_empty());
}

#[test]
fn urls_and_headers_are_checked() {
    for (body, words) in [
        (r#"{"url": "ftp://x.org"}"#, "expected http://"),
        (r#"{"url": "x.org/mcp"}"#, "not a URL"),
        (r#"{"url": "https://u:p4ss@x.org"}"#, "user or password"),
        (
            r#"{"url": "https://x.org/${TOKEN}"}"#,
            "`env` and `headers` only",
        ),
        (
            r#"{"url": "https://x.org", "sandbox": true}"#,
            "goes with `command`",
        ),
        (
            r#"{"url": "https://x.org", "headers": {"A B": "x"}}"#,
            "name of an HTTP header",
        ),
        (
            r#"{"url": "https://x.org", "headers": {"A": "${NEWLINE}"}}"#,
            "line break",
        ),
        (
            r#"{"url": "https://x.org", "type": "stdio"}"#,
            "`type` says stdio",
        ),
        (r#"{"command": ["x"], "headers": {}}"#, "goes with `url`"),
        (
            r#"{"command": ["x"], "args": []}"#,
            "goes with a `command` that is a string",
        ),
        (r#"{"command": [""]}"#, "it is empty"),
        (
            r#"{"command": ["x"], "env": {"A=B": "x"}}"#,
            "name of a variable",
        ),
        (
            r#"{"command": ["x"], "enabled": true, "disabled": true}"#,
            "contradicts",
        ),
        (r#"{"command": ["x"], "cwd": "/"}"#, "cd DIR"),
        (r#"{"command": ["x"], "maxRestarts": -1}"#, "whole number"),
    ] {
        let loaded = entry(body);
        let reported = reported(&loaded).join("\n");
        assert!(reported.contains(words), "{body}: {reported}");
        assert!(!reported.contains("p4ss"), "{reported}");
        assert!(loaded.servers.is_empty(), "{body}");
    }
}

#[test]
fn the_file_has_its_shape() {
    for (text, words) in [
        ("[]", "not an object, expected {\"mcpServers\""),
        ("{}", "there is no `mcpServers`"),
        ("{\"servers\": {}}", "other clients use it"),
        ("{\"mcpServer\": {}}", "did you mean `mcpServers`"),
        ("{\"mcpServers\": []}", "expected an object of servers"),
        ("", "the file is empty"),
    ] {
        let reported = reported(&user(text)).join("\n");
        assert!(reported.contains(words), "{text}: {reported}");
    }
}

#[test]
fn a_misspelt_command_is_one_fault() {
    let loaded = entry(r#"{"comand": ["x"]}"#);
    assert_eq!(reported(&loaded).len(), 1);
    assert!(reported(&loaded)[0].contains("did you mean `command`?"));
    // Elsewhere the key of another client stands for it; nothing else is missing then.
    assert_eq!(reported(&entry(r#"{"x-y": 1}"#)).len(), 2);
}

#[test]
fn hostile_sizes_are_bounded() {
    let long = format!("{{\"mcpServers\": {{}}{}}}", " ".repeat(MAX_FILE));
    assert!(reported(&user(&long))[0].contains("is this the right file?"));
    assert!(reported(&project(&long))[0].contains("is this the right file?"));
    let many: Vec<String> = (0..60)
        .map(|n| format!("\"s{n}\": {{\"command\": [\"x\"]}}"))
        .collect();
    let loaded = project(&format!("{{\"mcpServers\": {{{}}}}}", many.join(",")));
    assert_eq!(loaded.servers.len(), MAX_SERVERS);
    assert_eq!(loaded.faults.len(), 10);
    let keys: Vec<String> = (0..5000).map(|n| format!("\"k{n}\": 1")).collect();
    let loaded = project(&format!(
        "{{\"mcpServers\": {{\"a\": {{{}}}}}}}",
        keys.join(",")
    ));
    assert!(loaded.faults.len() < 110);
    assert!(loaded.faults.last().unwrap().detail.contains("more faults"));
}

#[test]
fn a_file_that_cannot_be_read_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = load(Some(folder.path()), None, &env);
    assert!(reported(&loaded)[0].contains("not a regular file"));
    let file = folder.path().join("f");
    std::fs::write(&file, b"{\"\xff\": 1}").unwrap();
    assert!(reported(&load(Some(&file), None, &env))[0].contains("UTF-8"));
}

#[test]
fn escape_sequences_of_a_repository_do_not_reach_a_message() {
    let loaded =
        project("{\"mcpServers\": {\"\\u001b[31mx\\u202e\": {}, \"a\": {\"\\u0007\": 1}}}");
    let reported = reported(&loaded).join("\n");
    assert!(
        !reported.contains(['\u{1b}', '\u{7}', '\u{202e}']),
        "{reported}"
    );
}

proptest! {
    #[test]
    fn any_text_is_loaded_without_a_panic(text in any::<String>()) {
        let _ = project(&text);
    }

    #[test]
    fn anything_like_a_file_is_loaded_and_no_secret_is_reported(
        keys in prop::collection::vec(("(command|args|env|url|headers|type|sandbox|enabled|capabilities|timeoutSeconds|x)",
            "(\"s3cret-token\"|\\[\"s3cret-token\"\\]|\\{\"A\": \"s3cret-token\\$\\{X\"\\}|\\{\"A\": 1\\}|true|null|-1)"), 0..6),
    ) {
        let body: Vec<String> = keys.iter().map(|(key, value)| format!("{key:?}: {value}")).collect();
        let loaded = entry(&format!("{{{}}}", body.join(", ")));
        let shown = reported(&loaded).join("\n").contains("s3cret-token$");
        prop_assert!(!shown);
        prop_assert_eq!(loaded.servers.contains_key("a"), !loaded.faults.iter().any(|f| f.server.is_some()));
    }
}

#[test]
fn debug_output_of_an_address_has_no_query_and_no_password() {
    let transport = Transport::Http {
        url: url::Url::parse("https://me:password@host/mcp?key=query-secret").unwrap(),
        headers: BTreeMap::new(),
    };
    let reported = format!("{transport:?}");
    assert!(
        reported.contains("https://host/mcp")
            && !reported.contains("secret")
            && !reported.contains("password"),
        "{reported}"
    );
}
