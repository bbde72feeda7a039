//! The list of secrets that a configuration holds, for redaction.
//!
//! Guaranteed: every section that can hold a secret is destructured in full, so a new field does not
//! compile until somebody decides here whether it is one. A test also fills every [`Secret`] of the
//! JSON Schema with its own value and looks for all of them in the list.
//!
//! A URL is listed as a whole only if it carries credentials: `inproc:` and `sqlite:PATH` are no
//! secrets and would be cut out of ordinary text. A password that equals its user name
//! (`guest:guest`) is omitted for the same reason; it protects nothing.

use super::executor::{CommandExecutor, Docker, Network, RegistryCredential};
use super::schema::{Config, ModelConfig, QueueConfig, StoreConfig};
use super::secret::Secret;
use super::secret_texts::SecretTexts;
use super::trackers::{GitHub, GitHubApp, GitLab, MoreTrackers, Trackers};

impl Config {
    /// Every secret of this configuration, longest first, since one may contain another. None is
    /// blank, and none is listed twice.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let Self {
            trackers,
            labels: _,
            capacity: _,
            producer: _,
            consumer: _,
            rounds: _,
            issue_to_mr_conversion: _,
            queue:
                QueueConfig {
                    url: queue_url,
                    prefix: _,
                    retry_seconds: _,
                },
            store:
                StoreConfig {
                    url: store_url,
                    max_connections: _,
                    migrations: _,
                    retention: _,
                },
            model,
            agent: _,
            memory: _,
            command_executor,
            text_editor_mcp: _,
            // The servers' own secrets are in `mcp_config.json`, which this section only names.
            mcp: _,
            http: _,
            log: _,
            traces: _,
        } = self;
        let mut found = SecretTexts::default();
        found.url(queue_url.expose());
        found.url(store_url.expose());
        found.trackers(trackers);
        found.model(model);
        found.executor(command_executor);
        found.into_list().into_iter().map(Secret::new).collect()
    }
}

impl SecretTexts {
    fn trackers(&mut self, trackers: &Trackers) {
        let Trackers {
            github,
            gitlab,
            local: _,
            more,
        } = trackers;
        let MoreTrackers {
            github: githubs,
            gitlab: gitlabs,
        } = more;
        let githubs = github.iter().chain(githubs.values());
        githubs.for_each(|github| self.github(github));
        let gitlabs = gitlab.iter().chain(gitlabs.values());
        gitlabs.for_each(|gitlab| self.gitlab(gitlab));
    }

    fn github(&mut self, github: &GitHub) {
        let GitHub {
            api_url,
            token,
            app,
            ca_file: _,
            webhook_secret,
            former_logins: _,
            repositories: _,
            organizations: _,
            discovery_seconds: _,
            query: _,
            who_may_start: _,
            dashboard_issue: _,
        } = github;
        self.url(api_url.as_str());
        webhook_secret.iter().for_each(|it| self.text(it.expose()));
        token.iter().for_each(|token| self.text(token.expose()));
        if let Some(GitHubApp {
            id: _,
            key_file: _,
            key,
            installation: _,
        }) = app
        {
            key.iter().for_each(|key| self.text(key.expose()));
        }
    }

    fn gitlab(&mut self, gitlab: &GitLab) {
        let GitLab {
            api_url,
            token,
            ca_file: _,
            webhook_signing_token,
            webhook_secret_token,
            former_logins: _,
            projects: _,
            groups: _,
            who_may_start: _,
            dashboard_issue: _,
        } = gitlab;
        let webhooks = [webhook_signing_token, webhook_secret_token];
        let webhooks = webhooks.into_iter().flatten();
        webhooks.for_each(|it| self.text(it.expose()));
        self.url(api_url.as_str());
        token.iter().for_each(|token| self.text(token.expose()));
    }

    fn model(&mut self, model: &ModelConfig) {
        let ModelConfig {
            provider: _,
            base_url,
            api_key,
            name: _,
            recording: _,
            stream: _,
            temperature: _,
            max_output_tokens: _,
            connect_timeout_seconds: _,
            first_byte_timeout_seconds: _,
            idle_timeout_seconds: _,
            max_tries: _,
            retry_seconds: _,
            unreached_seconds: _,
            waiting_notice_seconds: _,
            input_price: _,
            cached_input_price: _,
            cache_write_price: _,
            output_price: _,
            more_prices: _,
            headers,
            extra_body: _,
        } = model;
        self.url(base_url.as_str());
        api_key.iter().for_each(|key| self.text(key.expose()));
        for value in headers.values() {
            self.header(value.expose());
        }
    }

    fn executor(&mut self, executor: &CommandExecutor) {
        let CommandExecutor {
            enabled: _,
            mcp_server: _,
            backend: _,
            docker,
            local: _,
            clone: _,
            execution: _,
            cleanup: _,
        } = executor;
        let Docker {
            host,
            cert_path: _,
            ssh_config: _,
            accept_plain_tcp: _,
            base_image: _,
            allowed_images: _,
            runtime: _,
            user: _,
            pids_limit: _,
            api_timeout_seconds: _,
            resources: _,
            network,
        } = docker;
        host.iter().for_each(|host| self.url(host));
        self.network(network);
    }

    fn network(&mut self, network: &Network) {
        let Network {
            external_access: _,
            whitelist_mode: _,
            allowed_domains: _,
            presets: _,
            allowed_private: _,
            proxy,
            registry_credentials,
            push: _,
        } = network;
        proxy.iter().for_each(|url| self.url(url.expose()));
        for credential in registry_credentials {
            let RegistryCredential {
                host: _,
                authorization,
                token,
                paths: _,
            } = credential;
            token.iter().for_each(|token| self.text(token.expose()));
            if let Some(value) = authorization {
                self.header(value.expose());
                self.basic(value.expose());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Sources, json_schema, load};

    fn texts(config: &Config) -> Vec<String> {
        let secrets = config.secrets();
        secrets.iter().map(|s| s.expose().to_owned()).collect()
    }

    const FULL: &str = "
trackers:
  github: {token: ' token-canary ', repositories: [a/b]}
  gitlab: {token: second-token-canary, projects: [a/b/c]}
queue: {url: 'amqps://worker:queue%40canary@broker/%2f'}
store: {url: 'postgres://agent:store-canary@db/agentmine?password=query-canary&sslmode=require'}
model:
  base_url: https://gateway.example/v1?api-key=base-canary
  api_key: key-canary
  headers: {Authorization: Bearer header-canary, X-Key: plain-canary}
command_executor:
  docker:
    host: 'http://user:engine-canary@engine:2376'
    network:
      proxy: 'http://agent:proxy-canary@proxy.example:3128'
      registry_credentials:
        - {host: a.example, authorization: Basic cmVhZGVyOmJhc2ljLWNhbmFyeQ==}
        - {host: b.example, token: registry-canary}
";

    #[test]
    fn each_secret_of_a_full_configuration_is_listed() {
        let config = load(&Sources::from_text("config.yaml", FULL)).unwrap();
        insta::assert_snapshot!(texts(&config).join("\n"), @r"
        postgres://agent:store-canary@db/agentmine?password=query-canary&sslmode=require
        https://gateway.example/v1?api-key=base-canary
        http://agent:proxy-canary@proxy.example:3128/
        http://agent:proxy-canary@proxy.example:3128
        amqps://worker:queue%40canary@broker/%2f
        http://user:engine-canary@engine:2376/
        http://user:engine-canary@engine:2376
        Basic cmVhZGVyOmJhc2ljLWNhbmFyeQ==
        cmVhZGVyOmJhc2ljLWNhbmFyeQ==
        Bearer header-canary
        second-token-canary
        registry-canary
        queue%40canary
        engine-canary
        header-canary
        basic-canary
        plain-canary
        proxy-canary
        query-canary
        queue@canary
        store-canary
        token-canary
        base-canary
        key-canary
        ");
    }

    #[test]
    fn defaults_hold_no_secret() {
        assert_eq!(texts(&Config::default()), Vec::<String>::new());
        let text =
            "queue: {url: 'inproc:'}\nstore: {url: 'sqlite:/var/lib/a.db'}\nmodel: {api_key: ' '}";
        let config = load(&Sources::from_text("config.yaml", text)).unwrap();
        assert_eq!(texts(&config), Vec::<String>::new());
    }

    /// Fills each place of the schema that holds a [`Secret`], whichever section it is added to.
    #[test]
    fn no_secret_of_the_schema_is_forgotten() {
        let root = json_schema();
        let (mut section, mut filled) = (json!({}), Vec::new());
        fill(&root, &root, &mut section, &mut filled);
        assert!(filled.len() >= 5, "{filled:?}");
        let config: Config = serde_json::from_value(section).unwrap();
        let listed = texts(&config);
        for secret in filled {
            assert!(listed.contains(&secret), "{secret} is not in {listed:?}");
        }
    }

    fn fill(root: &Value, schema: &Value, section: &mut Value, filled: &mut Vec<String>) {
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (name, property) in properties {
            let mut own = Value::Null;
            value(root, property, &mut own, filled);
            if !own.is_null() {
                section[name] = own;
            }
        }
    }

    /// The numbers without which a section is refused.
    fn numbers(schema: &Value, section: &mut Value) {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            if schema["properties"][name]["type"] == "integer" {
                section[name] = Value::from(1);
            }
        }
    }

    fn value(root: &Value, schema: &Value, own: &mut Value, filled: &mut Vec<String>) {
        let choices = schema["anyOf"].as_array().into_iter().flatten();
        for choice in choices.chain([schema]) {
            let Some(name) = choice["$ref"].as_str() else {
                continue;
            };
            if name.ends_with("/Secret") {
                let secret = format!("s://u:canary-{}@h", filled.len());
                *own = Value::from(secret.as_str());
                filled.push(secret);
                return;
            }
            let section = &root["$defs"][name.rsplit('/').next().unwrap()];
            let mut inner = json!({});
            fill(root, section, &mut inner, filled);
            if inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                numbers(section, &mut inner);
                *own = inner;
            }
        }
        for (key, list) in [("additionalProperties", false), ("items", true)] {
            let mut inner = Value::Null;
            if schema[key].is_object() {
                value(root, &schema[key], &mut inner, filled);
            }
            match (inner.is_null(), list) {
                (true, _) => {}
                (false, true) => *own = json!([inner]),
                (false, false) => *own = json!({ "any": inner }),
            }
        }
    }
}
