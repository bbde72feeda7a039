//! Checks of sense, on values whose types are right already.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::check::cut;
use super::fault::ConfigFault;
use super::schema::{
    Agent, Config, Consumer, GitHub, Labels, ModelConfig, Provider, QueueConfig, StoreConfig,
};
use super::tree::Node;

mod executor;
mod mcp;

/// Finds what makes no sense.
pub(super) fn validate(config: &Config, tree: &Node, faults: &mut Vec<ConfigFault>) {
    let mut rules = Rules { tree, faults };
    if let Some(github) = &config.trackers.github {
        rules.github(github);
    }
    rules.labels(&config.labels);
    rules.at_least(
        "producer.interval_seconds",
        config.producer.interval_seconds,
        1,
    );
    rules.consumer(&config.consumer);
    rules.queue(&config.queue);
    rules.store(&config.store);
    rules.model(&config.model);
    rules.agent(&config.agent);
    rules.executor(&config.command_executor);
    rules.text_editor(&config.text_editor_mcp);
    rules.mcp(&config.mcp);
    if let Some(listen) = &config.http.listen {
        rules.expect(
            "http.listen",
            listen.parse::<SocketAddr>().is_ok(),
            || shown(listen),
            "an address and port, as `127.0.0.1:9464`",
        );
    }
    rules.expect(
        "log.level",
        crate::logging::filter(&config.log.level).is_ok(),
        || shown(&config.log.level),
        "a level (`error`, `warn`, `info`, `debug`, `trace`) or directives as `info,agentmine_queue=debug`",
    );
}

struct Rules<'a> {
    tree: &'a Node,
    faults: &'a mut Vec<ConfigFault>,
}

impl Rules<'_> {
    /// Tells a fault unless `fine`.
    fn expect(&mut self, key: &str, fine: bool, seen: impl FnOnce() -> String, expected: &str) {
        if !fine {
            self.fault(key, seen(), expected);
        }
    }

    fn fault(&mut self, key: &str, seen: impl Into<String>, expected: &str) -> &mut ConfigFault {
        let at = self.faults.len();
        let place = self.tree.place_of(key);
        self.faults
            .push(ConfigFault::new(&place, key, seen, expected));
        &mut self.faults[at]
    }

    fn at_least<N>(&mut self, key: &str, value: N, least: u32)
    where
        N: PartialOrd + From<u32> + std::fmt::Display + Copy,
    {
        let seen = || format!("the number {value}");
        let expected = format!("a whole number of at least {least}");
        self.expect(key, value >= N::from(least), seen, &expected);
    }

    fn not_blank(&mut self, key: &str, text: &str) {
        self.expect(
            key,
            !text.trim().is_empty(),
            || "an empty text".into(),
            "a text",
        );
    }

    fn github(&mut self, github: &GitHub) {
        self.http_url(
            "trackers.github.api_url",
            &github.api_url,
            "put the token into trackers.github.token",
        );
        for (at, name) in github.repositories.iter().enumerate() {
            let fine = name.split_once('/').is_some_and(|(owner, name)| {
                let part = |part: &str| {
                    !part.is_empty()
                        && part
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                };
                part(owner) && part(name)
            });
            let key = format!("trackers.github.repositories.{at}");
            self.expect(&key, fine, || shown(name), "`owner/name`");
        }
        let query = github.query.as_deref().unwrap_or_default().trim();
        if github.repositories.is_empty() && query.is_empty() {
            self.fault("trackers.github", "no repository", "something to scan")
                .hint = Some("set `repositories: [owner/name]`, or `query: org:NAME`".into());
        }
    }

    fn labels(&mut self, labels: &Labels) {
        let Labels {
            request,
            processing,
            done,
            paused,
            stopped,
            failed,
        } = labels;
        let all = [
            ("request", request),
            ("processing", processing),
            ("done", done),
            ("paused", paused),
            ("stopped", stopped),
            ("failed", failed),
        ];
        // Trackers compare label names without regard to case.
        let mut first: BTreeMap<String, &str> = BTreeMap::new();
        for (key, name) in all {
            let path = format!("labels.{key}");
            self.not_blank(&path, name);
            if let Some(other) = first.insert(name.trim().to_lowercase(), key) {
                let seen = format!("{}, the same as labels.{other}", shown(name));
                self.expect(&path, name.trim().is_empty(), || seen, "a name of its own");
            }
        }
    }

    fn consumer(&mut self, consumer: &Consumer) {
        let Consumer {
            concurrency,
            max_attempts,
            lease_seconds,
            heartbeat_seconds,
            heartbeat_loss_seconds,
            sweep_seconds,
            wakeup_after_seconds,
            drain_seconds: _,
        } = *consumer;
        self.at_least(
            "consumer.concurrency",
            u64::try_from(concurrency).unwrap_or(u64::MAX),
            1,
        );
        self.at_least("consumer.max_attempts", max_attempts, 1);
        self.at_least("consumer.heartbeat_seconds", heartbeat_seconds, 1);
        self.at_least("consumer.sweep_seconds", sweep_seconds, 1);
        self.at_least("consumer.wakeup_after_seconds", wakeup_after_seconds, 1);
        // A worker must stop by itself before another may take its task.
        self.expect(
            "consumer.heartbeat_loss_seconds",
            heartbeat_seconds < heartbeat_loss_seconds,
            || format!("the number {heartbeat_loss_seconds}"),
            &format!("more than consumer.heartbeat_seconds, which is {heartbeat_seconds}"),
        );
        self.expect(
            "consumer.lease_seconds",
            heartbeat_loss_seconds < lease_seconds,
            || format!("the number {lease_seconds}"),
            &format!(
                "more than consumer.heartbeat_loss_seconds, which is {heartbeat_loss_seconds}"
            ),
        );
    }

    fn queue(&mut self, queue: &QueueConfig) {
        let url = queue.url.expose();
        let fine = url.starts_with("inproc:")
            || scheme_of(url).is_some_and(|s| s == "amqp" || s == "amqps");
        self.expect(
            "queue.url",
            fine,
            || scheme_seen(url),
            "`amqp://…`, `amqps://…` or `inproc:`",
        );
        let fine = !queue.prefix.is_empty()
            && queue.prefix.len() <= 100
            && queue
                .prefix
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        self.expect(
            "queue.prefix",
            fine,
            || shown(&queue.prefix),
            "letters, digits, `-`, `_` and `.`",
        );
        let seen = || "an empty list".into();
        self.expect(
            "queue.retry_seconds",
            !queue.retry_seconds.is_empty(),
            seen,
            "at least one delay",
        );
        for (at, seconds) in queue.retry_seconds.iter().enumerate() {
            self.at_least(&format!("queue.retry_seconds.{at}"), *seconds, 1);
        }
    }

    fn store(&mut self, store: &StoreConfig) {
        let url = store.url.expose();
        let fine = url
            .strip_prefix("sqlite:")
            .is_some_and(|path| !path.is_empty())
            || scheme_of(url).is_some_and(|s| s == "postgres" || s == "postgresql");
        self.expect(
            "store.url",
            fine,
            || scheme_seen(url),
            "`postgres://…` or `sqlite:PATH`",
        );
        self.at_least("store.max_connections", store.max_connections, 1);
    }

    fn model(&mut self, model: &ModelConfig) {
        self.http_url(
            "model.base_url",
            &model.base_url,
            "put the key into model.api_key",
        );
        self.not_blank("model.name", &model.name);
        if model.provider == Provider::Replay && model.recording.is_none() {
            self.fault(
                "model",
                "`provider: replay` without a recording",
                "the key `recording`, a file",
            );
        }
        self.at_least(
            "model.connect_timeout_seconds",
            model.connect_timeout_seconds,
            1,
        );
        self.at_least(
            "model.first_byte_timeout_seconds",
            model.first_byte_timeout_seconds,
            1,
        );
        self.at_least("model.idle_timeout_seconds", model.idle_timeout_seconds, 1);
        self.at_least("model.max_tries", model.max_tries, 1);
        self.at_least(
            "model.max_output_tokens",
            model.max_output_tokens.unwrap_or(1),
            1,
        );
        if let Some(temperature) = model.temperature {
            let seen = || format!("the number {temperature}");
            self.expect(
                "model.temperature",
                (0.0..=2.0).contains(&temperature),
                seen,
                "a number from 0 to 2",
            );
        }
        let prices = [
            ("model.input_price", model.input_price),
            ("model.cached_input_price", model.cached_input_price),
            ("model.output_price", model.output_price),
        ];
        for (key, price) in prices {
            self.expect(
                key,
                price >= 0.0,
                || format!("the number {price}"),
                "a price of at least 0",
            );
        }
        for (name, value) in &model.headers {
            let key = format!("model.headers.{name}");
            let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            let fine = !name.is_empty() && name.chars().all(token);
            self.expect(&key, fine, || shown(name), "the name of an HTTP header");
            let fine = !value.expose().chars().any(char::is_control);
            self.expect(
                &key,
                fine,
                || "a control character".into(),
                "a value on one line",
            );
        }
    }

    fn agent(&mut self, agent: &Agent) {
        self.at_least("agent.max_steps", agent.max_steps, 1);
        self.at_least("agent.max_tokens", agent.max_tokens.unwrap_or(1), 1);
        self.at_least("agent.max_minutes", agent.max_minutes, 1);
        self.at_least("agent.max_rounds", agent.max_rounds, 1);
        self.at_least(
            "agent.check_timeout_seconds",
            agent.check_timeout_seconds,
            1,
        );
        if let Some(cost) = agent.max_cost_usd {
            self.expect(
                "agent.max_cost_usd",
                cost > 0.0,
                || format!("the number {cost}"),
                "more than 0",
            );
        }
        for (at, command) in agent.checks.iter().enumerate() {
            self.not_blank(&format!("agent.checks.{at}"), command);
        }
        for (key, text) in [
            ("agent.git_user_name", &agent.git_user_name),
            ("agent.git_user_email", &agent.git_user_email),
        ] {
            let fine = !text.trim().is_empty()
                && !text.contains(|c: char| c.is_control() || "<>".contains(c));
            self.expect(
                key,
                fine,
                || shown(text),
                "a text on one line without `<` and `>`",
            );
        }
    }

    /// A base URL of an API. A password in it would end up in logs.
    fn http_url(&mut self, key: &str, url: &url::Url, instead: &str) {
        let fine = matches!(url.scheme(), "http" | "https") && url.has_host();
        self.expect(
            key,
            fine,
            || format!("the scheme `{}`", cut(url.scheme())),
            "`https://…` or `http://…`",
        );
        if !url.username().is_empty() || url.password().is_some() {
            self.fault(key, "a user or password in the URL", "a URL without them")
                .hint = Some(instead.into());
        }
    }
}

fn shown(text: &str) -> String {
    format!("`{}`", cut(text))
}

fn scheme_of(url: &str) -> Option<&str> {
    url.split_once("://")
        .filter(|(_, rest)| !rest.is_empty())
        .map(|(scheme, _)| scheme)
}

/// What can be told of a URL that may hold a password.
fn scheme_seen(url: &str) -> String {
    match scheme_of(url) {
        Some(scheme)
            if scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '+') =>
        {
            format!("the scheme `{}`", cut(scheme))
        }
        _ => "a text that is no such URL".into(),
    }
}
