use insta::assert_snapshot;

use std::path::Path;

use super::*;

const NOTHING: [(&str, &str); 0] = [];

fn yaml(text: &str) -> Sources {
    Sources::from_text("config.yaml", text)
}

fn faults(sources: &Sources) -> String {
    load(sources).unwrap_err().to_string()
}

#[test]
fn without_any_source_the_defaults_apply() {
    let config = load(&yaml("")).unwrap();
    assert_eq!(
        config.command_executor.docker.base_image,
        "coding-agent-executor:latest"
    );
    assert_eq!(config.command_executor.docker.resources.cpu_limit, 2.0);
    assert_eq!(config.command_executor.execution.timeout_seconds, 1800);
    assert!(!config.command_executor.enabled);
    assert!(config.text_editor_mcp.enabled);
    assert_eq!(config.labels.request, "coding agent");
    load(&yaml("# only a comment\n")).unwrap();
    load(&yaml("trackers:\nlabels:\n")).unwrap();
}

#[test]
fn the_file_of_the_specification_is_read() {
    let config = load(&yaml(
        r#"
command_executor:
  enabled: true
  mcp_server:
    name: "command-executor"
    command: ["npx", "@sunwood-ai-labs/command-executor-mcp-server"]
  docker:
    base_image: "coding-agent-executor:latest"
    resources: { cpu_limit: 2, memory_limit: "4g", disk_limit: "10g" }
    network: { external_access: true, whitelist_mode: false, allowed_domains: [] }
  clone: { shallow: true, depth: 1, auto_install_deps: true }
  execution: { timeout_seconds: 1800, max_output_size: 1048576 }
  cleanup: { interval_hours: 24, stale_threshold_hours: 24 }
text_editor_mcp:
  enabled: true
  mcp_server:
    command: ["my-editor"]
"#,
    ))
    .unwrap();
    assert!(config.command_executor.enabled);
    // A section may omit the name of its server.
    assert_eq!(config.text_editor_mcp.mcp_server.name, "text-editor");
    assert_eq!(config.text_editor_mcp.mcp_server.command, ["my-editor"]);
}

#[test]
fn a_pause_file_has_an_absolute_path() {
    let text = "consumer:\n  pause_file: pause\n";
    assert_snapshot!(faults(&yaml(text)), @r#"
    the configuration is invalid
    config.yaml:2:15: consumer.pause_file: `pause`, expected an absolute path
    "#);
}

#[test]
fn all_faults_of_a_file_are_reported_at_once() {
    let text = r#"
labls:
  request: x
labels:
  done: coding agent
  paused: ""
consumer:
  concurrency: 0
  heartbeat_seconds: "10"
  heartbeat_loss_seconds: 90
  concurrency: 4
producer: [60]
queue:
  url: http://guest:hunter2@broker/
  prefix: a b
  retry_seconds: []
store:
  url: 12345
model:
  provider: openapi
  base_url: ftp://models.example
  name: 5
  temperature: .inf
  stream: yes
trackers:
  github:
    repositories: [acme/app, "no slash"]
  local:
    issues: here
command_executor:
  docker:
    base_image: " "
    user: 0:0
    pids_limit: -1
    allowed_images: ["*/x"]
    host: 127.0.0.1:2375
    resources:
      cpu_limit: 0
      memory_limit: 4 apples
    network:
      allowed_domains: ["preset:cargo", "https://example.com", "*.example.com"]
      allowed_private: ["10.0.0.1"]
  execution:
    timeout_seconds: -5
    max_outputsize: 3
http:
  listen: localhost
log:
  level: "agentmine=loud"
  format: xml
"#;
    assert_snapshot!(faults(&yaml(text)), @r#"
    the configuration has 34 faults
    config.yaml:2:1: unknown key `labls`, expected one of `agent`, `capacity`, `command_executor`, `consumer`, `http`, `issue_to_mr_conversion`, `labels`, `log`, `mcp`, `memory`, `model`, `producer`, `queue`, `rounds`, `store`, `text_editor_mcp`, `traces`, `trackers`
      hint: did you mean `labels`?
    config.yaml:5:9: labels.done: `coding agent`, the same as labels.request, expected a distinct name
    config.yaml:6:11: labels.paused: an empty string, expected a string that is not empty
    config.yaml:8:3: consumer.lease_seconds: the number 60, expected more than consumer.heartbeat_loss_seconds, which is 90
    config.yaml:8:16: consumer.concurrency: the number 0, expected a whole number of at least 1
    config.yaml:9:22: consumer.heartbeat_seconds: `10`, expected a whole number of at least 0
      hint: remove the quotes
    config.yaml:11:3: consumer.concurrency: a duplicate key, expected each key once
      hint: the first is at config.yaml:8:3
    config.yaml:12:11: producer: a list, expected a mapping of keys
    config.yaml:14:8: queue.url: the scheme `http`, expected `amqp://…`, `amqps://…` or `inproc:`
    config.yaml:15:11: queue.prefix: `a b`, expected letters, digits, `-`, `_` and `.`
    config.yaml:16:18: queue.retry_seconds: an empty list, expected at least one delay
    config.yaml:18:8: store.url: a value that is not shown, expected a string
      hint: put it in quotes
    config.yaml:20:13: model.provider: `openapi`, expected `openai` or `anthropic` or `replay`
      hint: did you mean `openai`?
    config.yaml:21:13: model.base_url: the scheme `ftp`, expected `https://…` or `http://…`
    config.yaml:22:9: model.name: the number 5, expected a string
      hint: put it in quotes
    config.yaml:23:16: model.temperature: the number inf, expected a number
    config.yaml:24:11: model.stream: `yes`, expected `true` or `false`
    config.yaml:27:30: trackers.github.repositories.1: `no slash`, expected `owner/name`
    config.yaml:29:5: trackers.local: an incomplete section, expected the key `repository`
    config.yaml:32:17: command_executor.docker.base_image: an empty string, expected a string that is not empty
    config.yaml:33:11: command_executor.docker.user: `0:0`, expected `UID:GID` as numbers, neither of them 0
    config.yaml:34:17: command_executor.docker.pids_limit: the number -1, expected a whole number of at least 16
    config.yaml:35:22: command_executor.docker.allowed_images.0: `*/x`, expected an image, with `*` at its end at most
    config.yaml:36:11: command_executor.docker.host: not such a URL, expected `unix://…`, `tcp://…`, `http://…` or `ssh://…`
    config.yaml:38:18: command_executor.docker.resources.cpu_limit: the number 0, expected more than 0 cores
    config.yaml:39:21: command_executor.docker.resources.memory_limit: `4 apples`, expected a size such as `512m` or `4g`
    config.yaml:41:25: command_executor.docker.network.allowed_domains.0: `preset:cargo`, expected a name such as `example.com`, `*.example.com`, or `preset:NAME`
      hint: the presets are npm, pypi, crates, go, maven, rubygems, debian
    config.yaml:41:41: command_executor.docker.network.allowed_domains.1: `https://example.com`, expected a name such as `example.com`, `*.example.com`, or `preset:NAME`
      hint: the presets are npm, pypi, crates, go, maven, rubygems, debian
    config.yaml:42:25: command_executor.docker.network.allowed_private.0: `10.0.0.1`, expected `host:port`
    config.yaml:44:22: command_executor.execution.timeout_seconds: the number -5, expected a whole number of at least 0
    config.yaml:45:5: command_executor.execution: unknown key `max_outputsize`, expected one of `allowed_commands`, `ask_commands`, `denied_commands`, `max_output_size`, `timeout_seconds`
      hint: did you mean `max_output_size`?
    config.yaml:47:11: http.listen: `localhost`, expected an address and port such as `127.0.0.1:9464`
    config.yaml:49:10: log.level: `agentmine=loud`, expected a level (`error`, `warn`, `info`, `debug`, `trace`) or directives such as `info,agentmine_queue=debug`
    config.yaml:50:11: log.format: `xml`, expected `text` or `json`
    "#);
}

#[test]
fn a_pattern_that_makes_no_branch_names_is_refused_with_its_place() {
    for (pattern, expected) in [
        (
            "{type}/{bot}",
            "`{number}` in it, by which people find the item",
        ),
        (
            "{title}-{number}",
            "the fields `{type}`, `{bot}`, `{number}` and `{description}`",
        ),
        (
            "../{number}",
            "letters, digits, `-`, `_` and `/` beside the fields",
        ),
        ("/{number}", "something between, before and after each `/`"),
    ] {
        let text = format!("agent:\n  branch_pattern: \"{pattern}\"\n");
        let shown = faults(&yaml(&text));
        let whole =
            format!("config.yaml:2:19: agent.branch_pattern: `{pattern}`, expected {expected}");
        assert!(shown.contains(&whole), "{shown}");
    }
    let fine = yaml("agent: {branch_pattern: '{type}/{bot}-{number}'}\n");
    assert!(load(&fine).unwrap().agent.branch_pattern().is_some());
}

#[test]
fn a_file_that_is_not_yaml_is_reported_with_its_place_and_without_its_text() {
    assert_snapshot!(faults(&yaml("model:\n  api_key: [hunter2\nlabels: {")), @r#"
    the configuration is invalid
    config.yaml:3:7: illegal placement of ':' indicator, expected valid YAML
    "#);
    assert_snapshot!(faults(&yaml("model:\n\tname: hunter2\n")), @r#"
    the configuration is invalid
    config.yaml:2:2: tabs disallowed within this context (block indentation), expected valid YAML
    "#);
    assert_snapshot!(faults(&yaml("- a\n")), @r#"
    the configuration is invalid
    config.yaml:1:1: a list, expected a mapping of keys
    "#);
}

#[test]
fn environment_overrides_the_file_and_flags_override_both() {
    let file = yaml("store: {url: 'sqlite:file.db'}\nmodel: {name: file}\nlog: {level: warn}\n")
        .with_env([
            ("AGENTMINE_STORE_URL", "sqlite:env.db"),
            ("AGENTMINE_MODEL_NAME", "env"),
            ("AGENTMINE_LOG", ""),
            ("COMMAND_EXECUTOR_ENABLED", "TRUE"),
            ("TEXT_EDITOR_MCP_ENABLED", "0"),
            ("EXECUTOR_BASE_IMAGE", "img"),
            ("EXECUTOR_CPU_LIMIT", "1.5"),
            ("EXECUTOR_MEMORY_LIMIT", "1g"),
            ("EXECUTOR_TIMEOUT", "60"),
            ("DOCKER_HOST", "tcp://engine:2375"),
            ("AGENTMINE_QUEUE_URL", "inproc:"),
            ("AGENTMINE_MODEL_BASE_URL", "http://127.0.0.1:11434/v1"),
            ("OPENAI_API_KEY", "key"),
            ("AGENTMINE_HTTP_LISTEN", "127.0.0.1:0"),
        ])
        .with_flag("--model", "model.name", "flag")
        .with_flag("--checks", "agent.checks", serde_json::json!(["make test"]));
    let config = load(&file).unwrap();
    assert_eq!(config.store.url.expose(), "sqlite:env.db");
    assert_eq!(config.model.name, "flag");
    assert_eq!(config.agent.checks, ["make test"]);
    assert_eq!(
        config.log.level, "warn",
        "an empty variable counts as absent"
    );
    let executor = &config.command_executor;
    assert!(executor.enabled && !config.text_editor_mcp.enabled);
    assert_eq!(executor.docker.base_image, "img");
    assert_eq!(executor.docker.resources.cpu_limit, 1.5);
    assert_eq!(executor.docker.resources.memory_limit.bytes(), 1 << 30);
    assert_eq!(executor.execution.timeout_seconds, 60);
    assert_eq!(executor.docker.host.as_deref(), Some("tcp://engine:2375"));
    assert_eq!(config.queue.url.expose(), "inproc:");
    assert_eq!(config.model.base_url.as_str(), "http://127.0.0.1:11434/v1");
    assert_eq!(config.model.api_key.unwrap().expose(), "key");
    assert_eq!(config.http.listen.as_deref(), Some("127.0.0.1:0"));
}

/// A machine may have the keys of several providers.
#[test]
fn each_provider_has_its_own_key_and_its_own_address() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "of-anthropic\n").unwrap();
    let keys = [
        ("OPENAI_API_KEY", "of-openai".to_owned()),
        ("ANTHROPIC_API_KEY_FILE", file.display().to_string()),
    ];
    for (text, key, url) in [
        ("", "of-openai", "https://api.openai.com/v1"),
        (
            "model: {provider: anthropic, name: claude}",
            "of-anthropic",
            "https://api.anthropic.com/v1",
        ),
        (
            "model: {provider: anthropic, name: claude, base_url: 'https://gateway.example/'}",
            "of-anthropic",
            "https://gateway.example/",
        ),
    ] {
        let config = load(&yaml(text).with_env(keys.clone())).unwrap();
        assert_eq!(config.model.api_key.unwrap().expose(), key, "{text}");
        assert_eq!(config.model.base_url.as_str(), url, "{text}");
    }
    let env = [("OPENAI_API_KEY", "of-openai")];
    let anthropic = yaml("model: {provider: anthropic, name: claude}").with_env(env);
    assert!(load(&anthropic).unwrap().model.api_key.is_none());
    let settings = effective(&anthropic).unwrap();
    let address = settings.iter().find(|it| it.key == "model.base_url");
    let shown = SettingValue::Shown("https://api.anthropic.com/v1".into());
    assert_eq!(address.unwrap().value, shown);
}

#[test]
fn an_address_of_openai_beside_another_provider_is_a_fault_and_is_not_replaced() {
    let model = |address: &str| format!("model: {{provider: anthropic, name: claude{address}}}");
    for address in ["https://api.openai.com/v1", "https://api.openai.com/v1/"] {
        let text = faults(&yaml(&model(&format!(", base_url: '{address}'"))));
        let seen = "model.base_url: `api.openai.com` with `provider: anthropic`";
        assert!(text.contains(seen), "{text}");
        let env = [("AGENTMINE_MODEL_BASE_URL", address)];
        let text = faults(&yaml(&model("")).with_env(env));
        assert!(
            text.contains("environment variable AGENTMINE_MODEL_BASE_URL: "),
            "{text}"
        );
        let openai = yaml(&format!("model: {{base_url: '{address}'}}"));
        assert_eq!(load(&openai).unwrap().model.base_url.as_str(), address);
    }
    load(&yaml(&model(""))).unwrap();
}

#[test]
fn what_has_no_fault_can_be_looked_at_and_a_fault_says_of_what_it_may_be_the_cause() {
    let text = "
trackers: {github: {token: '${ABSENT}', repositories: [a/b]}}
store: {url: 'mysql://h/x'}
";
    let faulty = load_despite_faults(&yaml(text)).unwrap_err();
    let rest = faulty.rest.unwrap();
    assert_eq!(rest.trackers.github.unwrap().repositories, ["a/b"]);
    let [variable, url] = faulty.errors.faults() else {
        panic!("{}", faulty.errors);
    };
    assert!(!variable.may_cause_faults_of("trackers.github"));
    for (section, expected) in [
        ("store.url", true),
        ("store", true),
        ("store.url.more", true),
        ("store.ur", false),
        ("queue", false),
    ] {
        assert_eq!(url.may_cause_faults_of(section), expected, "{section}");
    }
    let broken = load_despite_faults(&yaml("store: [")).unwrap_err();
    assert!(broken.rest.is_none());
}

#[test]
fn faults_of_environment_and_flags_name_them() {
    let sources = yaml("")
        .with_env([
            ("COMMAND_EXECUTOR_ENABLED", "maybe"),
            ("EXECUTOR_CPU_LIMIT", "two"),
            ("EXECUTOR_TIMEOUT", "30m"),
            ("EXECUTOR_MEMORY_LIMIT", "lots"),
            ("AGENTMINE_STORE_URL", "mysql://root:hunter2@db/x"),
        ])
        .with_flag("--concurrency", "consumer.concurrency", "0");
    assert_snapshot!(faults(&sources), @r#"
    the configuration has 6 faults
    environment variable COMMAND_EXECUTOR_ENABLED: command_executor.enabled: `maybe`, expected `true` or `false`
    environment variable EXECUTOR_CPU_LIMIT: command_executor.docker.resources.cpu_limit: `two`, expected a number
    environment variable EXECUTOR_MEMORY_LIMIT: command_executor.docker.resources.memory_limit: `lots`, expected a size such as `512m` or `4g`
    environment variable EXECUTOR_TIMEOUT: command_executor.execution.timeout_seconds: `30m`, expected a whole number of at least 0
    environment variable AGENTMINE_STORE_URL: store.url: the scheme `mysql`, expected `postgres://…` or `sqlite:PATH`
    flag --concurrency: consumer.concurrency: the number 0, expected a whole number of at least 1
    "#);
}

#[test]
fn secrets_are_read_from_the_files_that_the_environment_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let sources = yaml("trackers: {github: {repositories: [acme/app]}}").with_env([
        (
            "AGENTMINE_STORE_URL_FILE",
            file("store", "postgres://u:hunter2@db/x\n"),
        ),
        (
            "AGENTMINE_QUEUE_URL_FILE",
            file("queue", "amqp://u:hunter3@mq/%2f\n"),
        ),
        ("OPENAI_API_KEY_FILE", file("key", "canary-key")),
        (
            "GITHUB_PERSONAL_ACCESS_TOKEN_FILE",
            file("token", "canary-token\r\n"),
        ),
    ]);
    let config = load(&sources).unwrap();
    assert_eq!(config.store.url.expose(), "postgres://u:hunter2@db/x");
    assert_eq!(config.queue.url.expose(), "amqp://u:hunter3@mq/%2f");
    assert_eq!(
        config.model.api_key.as_ref().unwrap().expose(),
        "canary-key"
    );
    let github = config.trackers.github.as_ref().unwrap();
    assert_eq!(github.token.as_ref().unwrap().expose(), "canary-token");
    let redacted: Vec<_> = config
        .secrets()
        .iter()
        .map(|it| it.expose().to_owned())
        .collect();
    assert!(
        redacted.contains(&"canary-token".to_owned()),
        "{redacted:?}"
    );
}

#[test]
fn faults_of_secret_files_name_the_variable_and_show_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("empty"), "\n").unwrap();
    let sources = yaml("").with_env([
        ("AGENTMINE_STORE_URL_FILE", at("absent")),
        ("AGENTMINE_QUEUE_URL_FILE", at("empty")),
        ("OPENAI_API_KEY_FILE", at("key")),
        ("OPENAI_API_KEY", "hunter2".to_owned()),
    ]);
    let faults = faults(&sources).replace(&at(""), "");
    assert_snapshot!(faults, @r#"
    the configuration has 3 faults
    environment variable AGENTMINE_STORE_URL_FILE: store.url: absent: No such file or directory (os error 2), expected a file with one secret
      hint: check that the secret is mounted and that this user may read it
    environment variable AGENTMINE_QUEUE_URL_FILE: queue.url: empty: an empty file, expected a file with one secret
      hint: check that the secret is mounted and that this user may read it
    environment variable OPENAI_API_KEY_FILE: model.api_key: set beside OPENAI_API_KEY, expected only one of the two
    "#);
    for (variable, key) in super::secret_files::FILES {
        let Err(faulty) = load_despite_faults(&yaml("").with_env([(variable, at("absent"))]))
        else {
            panic!("{variable} is not read");
        };
        let fault = &faulty.errors.faults()[0];
        assert!(!fault.key.is_empty(), "{key}");
    }
}

#[test]
fn only_a_database_with_other_users_is_waited_for() {
    let config = load(&yaml("store: {url: 'postgres://u@db/x', migrations: wait}")).unwrap();
    assert_eq!(config.store.migrations, Migrations::Wait);
    assert_snapshot!(faults(&yaml("store: {url: 'sqlite:file.db', migrations: wait}")), @r#"
    the configuration is invalid
    config.yaml:1:44: store.migrations: `wait`, expected `run` for a database in a file, which has no other user
    "#);
}

#[test]
fn a_token_in_the_environment_does_not_ask_for_a_tracker() {
    let env = [("GITHUB_PERSONAL_ACCESS_TOKEN", "canary")];
    let config = load(&yaml("").with_env(env)).unwrap();
    assert!(config.trackers.github.is_none());
    let file = "trackers: {github: {repositories: [acme/app], token: old}}";
    let config = load(&yaml(file).with_env(env)).unwrap();
    assert_eq!(
        config.trackers.github.unwrap().token.unwrap().expose(),
        "canary"
    );
    let flag = yaml("").with_env(env).with_flag(
        "--repository",
        "trackers.github.repositories",
        "acme/app,acme/lib",
    );
    let github = load(&flag).unwrap().trackers.github.unwrap();
    assert_eq!(github.repositories, ["acme/app", "acme/lib"]);
    assert_eq!(github.token.unwrap().expose(), "canary");
}

#[test]
fn a_line_break_at_the_end_of_a_variable_is_no_part_of_a_secret() {
    let text = "trackers:
  github: {repositories: [acme/app], webhook_secret: old}
  more: {gitlab: {intern: {api_url: 'https://b.example/api/v4/', token: '${INTERN}', groups: [acme]}}}
";
    let env = [
        ("GITHUB_PERSONAL_ACCESS_TOKEN", "canary-of-github\n"),
        ("GITHUB_WEBHOOK_SECRET", "canary-of-webhooks\r\n"),
        ("INTERN", "canary-of-intern\n"),
    ];
    let trackers = load(&yaml(text).with_env(env)).unwrap().trackers;
    let github = trackers.github.unwrap();
    assert_eq!(github.token.unwrap().expose(), "canary-of-github");
    let webhooks = github.webhook_secret.unwrap();
    assert_eq!(webhooks.expose(), "canary-of-webhooks");
    let intern = trackers.more.gitlab["intern"].token.as_ref().unwrap();
    assert_eq!(intern.expose(), "canary-of-intern");
}

#[test]
fn the_secrets_of_named_trackers_come_from_variables_or_their_files_and_are_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "canary-of-a-file\n").unwrap();
    let text = "trackers:
  github: {repositories: [acme/app]}
  more:
    github:
      enterprise: {api_url: 'https://a.example/api/v3/', token: '${GHE}', webhook_secret: '${HOOK}', repositories: [acme/app]}
    gitlab:
      intern: {api_url: 'https://b.example/api/v4/', token: '${INTERN}', groups: [acme]}
";
    let file = file.display().to_string();
    let env = [
        ("GHE", "canary-of-ghe"),
        ("HOOK", "canary-of-hook"),
        ("INTERN_FILE", file.as_str()),
        ("GITHUB_PERSONAL_ACCESS_TOKEN", "canary-of-github"),
    ];
    let config = load(&yaml(text).with_env(env)).unwrap();
    let token = |it: &Option<Secret>| it.as_ref().unwrap().expose().to_owned();
    let githubs = config.trackers.githubs();
    let tokens: Vec<_> = githubs.map(|(name, it)| (name, token(&it.token))).collect();
    let expected = [
        (None, "canary-of-github".to_owned()),
        (Some("enterprise"), "canary-of-ghe".to_owned()),
    ];
    assert_eq!(tokens, expected);
    let intern = &config.trackers.more.gitlab["intern"];
    assert_eq!(token(&intern.token), "canary-of-a-file");
    let secrets: Vec<_> = config
        .secrets()
        .iter()
        .map(|it| it.expose().to_owned())
        .collect();
    for secret in [
        "canary-of-ghe",
        "canary-of-hook",
        "canary-of-a-file",
        "canary-of-github",
    ] {
        assert!(
            secrets.contains(&secret.to_owned()),
            "{secret}: {secrets:?}"
        );
    }
    let settings = format!("{:?}", effective(&yaml(text).with_env(env)).unwrap());
    assert!(!settings.contains("canary"), "{settings}");
    let missing = faults(&yaml(text).with_env([("GHE", "x"), ("HOOK", "y")]));
    assert!(
        missing.contains("trackers.more.gitlab.intern.token: `${INTERN}`"),
        "{missing}"
    );
}

#[test]
fn a_secret_of_the_model_or_of_a_tracker_may_name_a_variable() {
    let text = "trackers:
  github: {repositories: [acme/app], token: '${BOT}', webhook_secret: '${HOOK}'}
  gitlab: {projects: [acme/app], token: '${LAB}'}
model:
  api_key: '${KEY}'
  headers: {api-key: '${GATEWAY}', x-team: plain}
";
    let env = [
        ("BOT", "canary-of-the-bot"),
        ("HOOK", "canary-of-the-hook"),
        ("LAB", "canary-of-the-lab"),
        ("KEY", "canary-of-the-key"),
        ("GATEWAY", "canary-of-the-gateway\n"),
    ];
    let config = load(&yaml(text).with_env(env)).unwrap();
    let shown = |it: &Option<Secret>| it.as_ref().unwrap().expose().to_owned();
    let github = config.trackers.github.as_ref().unwrap();
    assert_eq!(shown(&github.token), "canary-of-the-bot");
    assert_eq!(shown(&github.webhook_secret), "canary-of-the-hook");
    let gitlab = config.trackers.gitlab.as_ref().unwrap();
    assert_eq!(shown(&gitlab.token), "canary-of-the-lab");
    assert_eq!(shown(&config.model.api_key), "canary-of-the-key");
    let headers = &config.model.headers;
    assert_eq!(headers["api-key"].expose(), "canary-of-the-gateway");
    assert_eq!(headers["x-team"].expose(), "plain");
    let standard = [("GITHUB_PERSONAL_ACCESS_TOKEN", "canary-of-the-variable")];
    let config = load(&yaml(text).with_env(env.into_iter().chain(standard))).unwrap();
    assert_eq!(
        shown(&config.trackers.github.unwrap().token),
        "canary-of-the-variable"
    );
    let found = faults(&yaml(text).with_env(env.into_iter().skip(4)));
    for missing in [
        "trackers.github.token: `${BOT}`",
        "trackers.github.webhook_secret: `${HOOK}`",
        "trackers.gitlab.token: `${LAB}`",
        "model.api_key: `${KEY}`",
    ] {
        assert!(found.contains(missing), "{missing}: {found}");
    }
    assert!(found.contains("4 faults"), "{found}");
}

#[test]
fn the_faults_of_named_trackers_name_their_places() {
    let text = "trackers:
  github: {repositories: [acme/app]}
  gitlab: {groups: [acme]}
  more:
    github:
      same: {repositories: [acme/other]}
      a b: {api_url: 'https://a.example/api/v3/', repositories: [plain]}
    gitlab:
      one: {api_url: 'https://GitLab.com/api/v4', groups: [other]}
      empty: {api_url: 'https://c.example/api/v4/', projects: []}
    gitea: {}
";
    assert_snapshot!(faults(&yaml(text)), @r"
    the configuration has 6 faults
    config.yaml:6:13: trackers.more.github.same.api_url: the same server as trackers.github, expected a distinct server
    config.yaml:7:12: trackers.more.github.a b: `a b`, expected a name of letters, digits, `-` and `_`
    config.yaml:7:66: trackers.more.github.a b.repositories.0: `plain`, expected `owner/name`
    config.yaml:9:22: trackers.more.gitlab.one.api_url: the same server as trackers.gitlab, expected a distinct server
    config.yaml:10:14: trackers.more.gitlab.empty: no project, expected something to scan
      hint: set `projects: [group/project]`, or `groups: [group]`
    config.yaml:11:5: trackers.more: unknown key `gitea`, expected one of `github`, `gitlab`
      hint: did you mean `gitlab`?
    ");
    let alone = yaml("trackers: {more: {github: {x: {repositories: [a/b]}}}}");
    let trackers = load(&alone).unwrap().trackers;
    assert!(trackers.require_one().is_ok());
}

#[test]
fn the_faults_of_organizations_name_their_places() {
    let text = "trackers:
  github:
    organizations: [acme, acme/app, '', 'a b', -x]
";
    assert_snapshot!(faults(&yaml(text)), @r"
    the configuration has 4 faults
    config.yaml:3:27: trackers.github.organizations.1: `acme/app`, expected the name of an organization, without `/`
    config.yaml:3:37: trackers.github.organizations.2: ``, expected the name of an organization, without `/`
    config.yaml:3:41: trackers.github.organizations.3: `a b`, expected the name of an organization, without `/`
    config.yaml:3:48: trackers.github.organizations.4: `-x`, expected the name of an organization, without `/`
    ");
    let fine = yaml("trackers: {github: {organizations: [acme], discovery_seconds: 60}}");
    let github = load(&fine).unwrap().trackers.github.unwrap();
    assert_eq!(
        (github.organizations.len(), github.discovery_seconds),
        (1, 60)
    );
    assert_snapshot!(faults(&yaml("trackers: {github: {}}")), @r"
    the configuration is invalid
    config.yaml:1:20: trackers.github: no repository, expected something to scan
      hint: set `repositories: [owner/name]` or `organizations: [NAME]`
    ");
}

#[test]
fn the_page_of_a_github_server_is_no_api() {
    let of = |api: &str| {
        yaml(&format!(
            "trackers: {{github: {{api_url: '{api}', repositories: [a/b]}}}}"
        ))
    };
    for (page, hint) in [
        ("https://github.example.com", "`https://HOST/api/v3/`"),
        ("https://github.com/", "remove it"),
    ] {
        let shown = faults(&of(page));
        assert!(
            shown.contains("without a path, expected the address of the API"),
            "{shown}"
        );
        assert!(shown.contains(hint), "{shown}");
        assert!(shown.contains("the configuration is invalid"), "{shown}");
    }
    for api in [
        "https://github.example.com/api/v3",
        "https://api.github.com",
        "http://127.0.0.1:8930/",
    ] {
        load(&of(api)).unwrap();
    }
}

#[test]
fn the_api_of_ghe_com_is_at_its_own_host() {
    let of = |api: &str| {
        yaml(&format!(
            "trackers: {{github: {{api_url: '{api}', repositories: [a/b]}}}}"
        ))
    };
    for page in ["https://octo.ghe.com/", "https://octo.ghe.com/api/v3/"] {
        let shown = faults(&of(page));
        assert!(
            shown.contains("trackers.github.api_url: the host `octo.ghe.com`"),
            "{shown}"
        );
        assert!(
            shown.contains("write `https://api.octo.ghe.com/`"),
            "{shown}"
        );
    }
    load(&of("https://api.octo.ghe.com/")).unwrap();
}

#[test]
fn the_faults_of_a_gitlab_section_name_their_places() {
    let text = "trackers:
  gitlab:
    api_url: https://gitlab.example
    ca_file: /nowhere/ca.pem
    projects: [plain, a/b/c, a/b c, /a, a/]
    groups: ['', a/b, -a]
labels: {request: 'a,b'}";
    assert_snapshot!(faults(&yaml(text)), @r"
    the configuration has 9 faults
    config.yaml:3:14: trackers.gitlab.api_url: no path, expected a path that ends with `/api/v4`
      hint: write `https://HOST/api/v4/`
    config.yaml:4:14: trackers.gitlab.ca_file: a file that cannot be read (No such file or directory (os error 2)), expected a PEM file with at least one certificate
    config.yaml:5:16: trackers.gitlab.projects.0: `plain`, expected `group/project` or `group/subgroup/project`
    config.yaml:5:30: trackers.gitlab.projects.2: `a/b c`, expected `group/project` or `group/subgroup/project`
    config.yaml:5:37: trackers.gitlab.projects.3: `/a`, expected `group/project` or `group/subgroup/project`
    config.yaml:5:41: trackers.gitlab.projects.4: `a/`, expected `group/project` or `group/subgroup/project`
    config.yaml:6:14: trackers.gitlab.groups.0: ``, expected `group` or `group/subgroup`
    config.yaml:6:23: trackers.gitlab.groups.2: `-a`, expected `group` or `group/subgroup`
    config.yaml:7:19: labels.request: `a,b`, expected a name without a comma, which GitLab refuses in a label
    ");
    assert_snapshot!(faults(&yaml("trackers: {gitlab: {}}")), @r"
    the configuration is invalid
    config.yaml:1:20: trackers.gitlab: no project, expected something to scan
      hint: set `projects: [group/project]`, or `groups: [group]`
    ");
    let scoped = "trackers: {gitlab: {projects: [a/b]}}\n\
        labels: {processing: 'agent::processing', pause: 'Agent::pause'}";
    assert_snapshot!(faults(&yaml(scoped)), @r"
    the configuration is invalid
    config.yaml:2:50: labels.pause: `Agent::pause`, with the scope of labels.processing, expected a label without a scope, or with one of its own: GitLab removes the others of a scope
    ");
    let file = tempfile::NamedTempFile::new().unwrap();
    let section = |pem: &str| {
        std::fs::write(file.path(), pem).unwrap();
        let file = file.path().display();
        yaml(&format!(
            "trackers: {{gitlab: {{groups: [a], ca_file: {file}}}}}"
        ))
    };
    assert_snapshot!(
        faults(&section("no certificate")),
        @r"
    the configuration is invalid
    config.yaml:1:43: trackers.gitlab.ca_file: a file without a certificate, expected a PEM file with at least one certificate
    "
    );
    let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert_snapshot!(
        faults(&section(damaged)),
        @r"
    the configuration is invalid
    config.yaml:1:43: trackers.gitlab.ca_file: a file with a damaged certificate, expected a PEM file with at least one certificate
    "
    );
}

#[test]
fn gitlabs_token_comes_from_its_variable() {
    let env = [("GITLAB_PERSONAL_ACCESS_TOKEN", "canary")];
    assert!(
        load(&yaml("").with_env(env))
            .unwrap()
            .trackers
            .gitlab
            .is_none()
    );
    let file = "trackers: {gitlab: {projects: [a/b/c], token: old}}";
    let gitlab = load(&yaml(file).with_env(env)).unwrap().trackers.gitlab;
    assert_eq!(gitlab.unwrap().token.unwrap().expose(), "canary");
}

#[test]
fn no_secret_is_shown_by_debug_or_by_a_fault() {
    let text = "
trackers: {github: {token: canary, repositories: [a/b]}}
queue: {url: 'amqp://u:canary@h/'}
store: {url: 'postgres://u:canary@h/db'}
model: {api_key: canary, headers: {X-Key: canary}}
";
    let config = load(&yaml(text)).unwrap();
    assert!(!format!("{config:?}").contains("canary"));
    assert!(!format!("{:?}", yaml(text)).contains("canary"));

    let wrong = "
trackers: {github: {token: [canary], api_url: 'http://u:canary@h:x/', repositories: [a/b]}}
queue: {url: canary}
store: {url: {x: canary}}
model: {api_key: {canary: canary}, base_url: 'http://u:canary@h/', headers: {X-Key: \"canary\\n\"}}
command_executor: {docker: {host: 'ftp://u:canary@h'}}
api_key: canary
";
    let reported = faults(&yaml(wrong));
    assert!(!reported.contains("canary"), "{reported}");
    assert!(
        reported.starts_with("the configuration has 9 faults"),
        "{reported}"
    );
}

#[test]
fn a_size_is_parsed_once_at_configuration_time_and_bounded() {
    let limits = |text: &str| {
        let text = format!("command_executor: {{docker: {{resources: {text}}}}}");
        let config = load(&yaml(&text)).map_err(|errors| errors.to_string())?;
        Ok::<_, String>(config.command_executor.docker.resources)
    };
    let half = limits("{memory_limit: 0.5g, disk_limit: 1.5 TiB}").unwrap();
    assert_eq!(half.memory_limit.bytes(), 512 << 20);
    assert_eq!(half.disk_limit.bytes(), 3 << 39);
    assert_snapshot!(limits("{memory_limit: 5m, disk_limit: 4x}").unwrap_err(), @"
    the configuration has 2 faults
    config.yaml:1:55: command_executor.docker.resources.memory_limit: `5m`, expected a size of at least 6m
    config.yaml:1:71: command_executor.docker.resources.disk_limit: `4x`, expected a size such as `512m` or `4g`
    ");
}

#[test]
fn aliases_and_merge_keys_work() {
    let text = "
labels: &names {request: go}
trackers: {}
model:
  name: &name m
agent: {git_user_name: *name}
";
    let config = load(&yaml(text)).unwrap();
    assert_eq!(config.agent.git_user_name, "m");
    assert_eq!(config.labels.request, "go");
}

#[test]
fn a_named_file_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.yaml");
    let reported = faults(&Sources::from_process(Some(path)).with_env(NOTHING));
    assert!(reported.contains("none.yaml: no such file"), "{reported}");
}

#[test]
fn the_usual_places_are_searched_in_order() {
    let home = tempfile::tempdir().unwrap();
    let write = |folder: &str, name: &str| {
        let folder = home.path().join(folder).join("agentmine");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("config.yaml"),
            format!("model: {{name: {name}}}"),
        )
        .unwrap();
    };
    let name = |env: &[(&str, &std::path::Path)]| {
        let env = env.iter().map(|(key, path)| (*key, path.to_str().unwrap()));
        load(&Sources::from_process(None).with_env(env))
            .unwrap()
            .model
            .name
    };
    let xdg = home.path().join("xdg");
    assert_eq!(name(&[("HOME", home.path())]), "gpt-5");
    write(".config", "home");
    assert_eq!(
        name(&[("HOME", home.path()), ("XDG_CONFIG_HOME", &xdg)]),
        "home"
    );
    write("xdg", "xdg");
    assert_eq!(
        name(&[("HOME", home.path()), ("XDG_CONFIG_HOME", &xdg)]),
        "xdg"
    );
}

#[test]
fn a_pipe_is_read_once_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let sources = || Sources::from_process(Some(pipe.clone())).with_env(NOTHING);
    std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&pipe, "model: {name: piped}").unwrap());
        assert_eq!(load(&sources()).unwrap().model.name, "piped");
    });
    assert!(sources().file_text().unwrap().contains("piped"));
    assert_eq!(load(&sources()).unwrap().model.name, "piped");
}

#[test]
fn a_file_that_cannot_be_read_is_not_passed_over() {
    let home = tempfile::tempdir().unwrap();
    let [first, second] = ["xdg", ".config"].map(|folder| {
        let folder = home.path().join(folder).join("agentmine");
        std::fs::create_dir_all(&folder).unwrap();
        folder.join("config.yaml")
    });
    std::fs::write(second, "model: {name: other}").unwrap();
    let xdg = home.path().join("xdg");
    let env = [("HOME", home.path()), ("XDG_CONFIG_HOME", &xdg)];
    let env = env.map(|(key, path)| (key, path.to_str().unwrap()));
    let sources = Sources::from_process(None).with_env(env);
    assert_eq!(load(&sources).unwrap().model.name, "other");
    // As Docker makes it where the file to be mounted does not exist.
    std::fs::create_dir(&first).unwrap();
    assert!(faults(&sources).contains("xdg/agentmine/config.yaml"));
    std::fs::remove_dir(&first).unwrap();
    std::os::unix::fs::symlink("/nonexistent/config.yaml", &first).unwrap();
    assert!(faults(&sources).contains("xdg/agentmine/config.yaml"));
}

#[test]
fn the_schema_in_docs_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.schema.json");
    let mut schema = json_schema();
    schema.sort_all_objects();
    let current = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &current).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == current,
        "docs/config.schema.json is out of date: run `UPDATE_DOCS=1 cargo test -p agentmine-runtime schema` and commit it"
    );
}

#[test]
fn the_example_in_deploy_is_valid() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/config.yaml");
    let config = load(&Sources::from_process(Some(path.into())).with_env(NOTHING)).unwrap();
    assert_eq!(config.trackers.github.unwrap().repositories.len(), 1);
}

#[test]
fn the_operators_mcp_file_is_in_the_home_folder_unless_another_is_named() {
    let load = |text: &str, env: &[(&str, &str)]| {
        let env: Vec<_> = [("HOME", "/home/op")].iter().chain(env).copied().collect();
        load(&Sources::from_text("config.yaml", text).with_env(env)).unwrap()
    };
    let file = |config: &Config| config.mcp.config_file.clone().unwrap();
    let config = load("", &[]);
    assert_eq!(
        file(&config),
        Path::new("/home/op/.agentmine/mcp_config.json")
    );
    assert!(config.mcp.enabled && config.mcp.repository_servers);
    let config = load("mcp: {config_file: ~/mcp.json}", &[]);
    assert_eq!(file(&config), Path::new("/home/op/mcp.json"));
    let config = load(
        "mcp: {config_file: /etc/mcp.json}",
        &[
            ("AGENTMINE_MCP_CONFIG", "/run/mcp.json"),
            ("AGENTMINE_MCP_ENABLED", "no"),
            ("AGENTMINE_MCP_REPOSITORY_SERVERS", "0"),
        ],
    );
    assert_eq!(file(&config), Path::new("/run/mcp.json"));
    assert!(!config.mcp.enabled && !config.mcp.repository_servers);
}

#[test]
fn a_tool_pattern_without_its_server_is_a_fault() {
    let text = "mcp: {denied_tools: ['docs:*', '*', 'search', ':x'], max_output_size: 10}";
    let errors = load(&Sources::from_text("config.yaml", text)).unwrap_err();
    let keys: Vec<&str> = errors.faults().iter().map(|f| f.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "mcp.denied_tools.2",
            "mcp.denied_tools.3",
            "mcp.max_output_size"
        ]
    );
}

#[test]
fn the_start_of_an_mcp_server_has_a_limit_that_can_be_set() {
    let limit = |text: &str| {
        let loaded = load(&Sources::from_text("config.yaml", text));
        loaded.ok().map(|config| config.mcp.start_timeout_seconds)
    };
    assert_eq!(limit(""), Some(30));
    assert_eq!(limit("mcp: {start_timeout_seconds: 600}"), Some(600));
    assert_eq!(limit("mcp: {start_timeout_seconds: 601}"), None);
    assert_eq!(limit("mcp: {start_timeout_seconds: 0}"), None);
}

#[test]
fn settings_that_would_silently_do_nothing_are_faults() {
    let faults = |text: &str, env: &[(&str, &str)]| {
        let sources = Sources::from_text("config.yaml", text);
        let sources = sources.with_env(env.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        load(&sources).err().map(|error| error.to_string())
    };
    let shown = faults("", &[("AGENTMINE_LOG", "verbose")]).unwrap();
    assert!(
        shown.contains("environment variable AGENTMINE_LOG"),
        "{shown}"
    );
    for fine in [
        "debug",
        "info,agentmine_queue=debug",
        "agentmine_queue=debug",
        "off",
    ] {
        assert_eq!(faults("", &[("AGENTMINE_LOG", fine)]), None, "{fine}");
    }
    let shown = faults("agent: {max_cost_usd: 2}\n", &[]).unwrap();
    for part in ["config.yaml:1:", "model.input_price", "model.output_price"] {
        assert!(shown.contains(part), "{shown}");
    }
    let priced = "agent: {max_cost_usd: 2}\nmodel: {input_price: 1, output_price: 4}\n";
    assert_eq!(faults(priced, &[]), None);
    let shown = faults("model: {more_prices: {small: {output_price: -1}}}\n", &[]).unwrap();
    assert!(
        shown.contains("model.more_prices.small.output_price"),
        "{shown}"
    );
    let shown = faults("", &[("DOCKER_HOST", "https://h:2376")]).unwrap();
    assert!(shown.contains("DOCKER_HOST"), "{shown}");
}

#[test]
fn the_specifications_own_text_editor_which_cannot_start_is_refused() {
    let command = |words: &str| {
        let text = format!("text_editor_mcp: {{mcp_server: {{command: {words}}}}}");
        load(&Sources::from_text("config.yaml", &text))
            .err()
            .map_or_else(Vec::new, |errors| errors.faults().to_vec())
    };
    let found = command("[npx, -y, mcp-server-text-editor]");
    assert_eq!(found.len(), 1, "{found:?}");
    let found = found[0].to_string();
    for part in [
        "text_editor_mcp.mcp_server.command",
        "npx -y mcp-server-text-editor",
        "remove `command`",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
    assert!(command("[npx, -y, another-editor]").is_empty());
    assert!(command("[mcp-server-text-editor]").is_empty());
}

#[test]
fn the_name_of_a_built_in_server_makes_a_tool_that_model_apis_accept() {
    let faults = |name: &str| {
        let text = format!("command_executor: {{mcp_server: {{name: {name}}}}}");
        load(&yaml(&text)).err().map(|error| error.to_string())
    };
    for fine in ["shell", "My_Shell-2", "x".repeat(48).as_str()] {
        assert_eq!(faults(fine), None, "{fine}");
    }
    for wrong in ["a:b", "a b", "x".repeat(49).as_str()] {
        let shown = faults(wrong).unwrap();
        for part in [
            "command_executor.mcp_server.name",
            "1 to 48 letters, digits, `-` and `_`",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

#[test]
fn credentials_of_registries_come_from_the_environment_and_their_faults_show_no_value() {
    let of = |list: &str| {
        let text = format!(
            "command_executor: {{docker: {{network: {{registry_credentials: [{list}]}}}}}}"
        );
        load(&yaml(&text).with_env([("READER", "canary"), ("BROKEN", "can\u{e4}ry")]))
    };
    let config = of("{host: a.example, token: '${READER}'}").unwrap();
    let read = &config.command_executor.docker.network.registry_credentials[0];
    assert_eq!(read.token.as_ref().unwrap().expose(), "canary");
    for (entry, key, part) in [
        ("{host: a, token: '${NONE}'}", "0.token", "`${NONE}`"),
        ("{host: a, token: '${BROKEN}'}", "0.token", "printable"),
        ("{host: a}", "registry_credentials.0", "neither"),
        (
            "{host: a, token: x, authorization: y}",
            "registry_credentials.0",
            "both",
        ),
        ("{host: 'https://a', token: x}", "0.host", "`https://a`"),
        ("{host: 'a:0', token: x}", "0.host", "`a:0`"),
        ("{token: x}", "0.host", "registry.example.com"),
        ("{host: a, token: x, paths: [npm]}", "0.paths.0", "`npm`"),
        (
            "{host: a, token: x, paths: [/a/../b]}",
            "0.paths.0",
            "`/a/../b`",
        ),
    ] {
        let found = of(entry).unwrap_err().to_string();
        assert!(
            found.contains(key) && found.contains(part),
            "{entry}: {found}"
        );
        assert!(!found.contains("can\u{e4}ry"), "{found}");
    }
}

#[test]
fn the_proxy_of_the_network_comes_from_the_environment_and_its_faults_show_no_password() {
    let of = |proxy: &str| {
        let text = format!("command_executor: {{docker: {{network: {{proxy: '{proxy}'}}}}}}");
        load(&yaml(&text).with_env([("PROXY", "http://agent:canary@proxy:3128")]))
    };
    let config = of("${PROXY}").unwrap();
    let proxy = config.command_executor.docker.network.proxy.unwrap();
    assert_eq!(proxy.expose(), "http://agent:canary@proxy:3128");
    for (proxy, seen) in [
        ("${NONE}", "`${NONE}`, an environment variable"),
        ("https://agent:canary@proxy:3128", "the scheme `https`"),
        (
            "http://agent:canary@proxy",
            "an `http://` URL of another form",
        ),
        ("agent:canary@proxy:3128", "not such a URL"),
    ] {
        let found = of(proxy).unwrap_err().to_string();
        let key = "command_executor.docker.network.proxy: ";
        assert!(found.contains(&format!("{key}{seen}")), "{proxy}: {found}");
        assert!(
            found.starts_with("the configuration is invalid\n"),
            "{found}"
        );
        assert!(!found.contains("canary"), "{found}");
    }
}
