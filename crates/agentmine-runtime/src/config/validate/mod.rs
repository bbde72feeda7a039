//! Validation of values whose types are right.

mod executor;
mod mcp;
mod model;
mod push;
mod rules;
mod services;
mod trackers;

use std::net::SocketAddr;

use super::fault::SettingFault;
use super::log_filter::log_filter;
use super::schema::Config;
use super::trackers::Trackers;
use super::tree::Node;
use rules::{Rules, shown};

/// Adds the faults of a configuration's values.
pub(super) fn validate(config: &Config, tree: &Node, faults: &mut Vec<SettingFault>) {
    let mut rules = Rules { tree, faults };
    let trackers = &config.trackers;
    rules.names(trackers);
    for (name, github) in trackers.githubs() {
        rules.github(&Trackers::key("github", name), github);
    }
    for (name, gitlab) in trackers.gitlabs() {
        rules.gitlab(&Trackers::key("gitlab", name), gitlab);
    }
    if trackers.gitlabs().next().is_some() {
        rules.labels_of_gitlab(&config.labels);
    }
    rules.labels(&config.labels);
    rules.at_least(
        "producer.interval_seconds",
        config.producer.interval_seconds,
        1,
    );
    rules.webhooks(config);
    rules.capacity(&config.capacity);
    rules.consumer(&config.consumer);
    rules.at_least("rounds.max", config.rounds.max, 1);
    let settle = config.rounds.settle_seconds;
    rules.expect(
        "rounds.settle_seconds",
        settle <= 3600,
        || format!("the number {settle}"),
        "at most 3600: somebody waits for the round",
    );
    rules.queue(&config.queue);
    rules.store(&config.store);
    rules.model(&config.model);
    rules.agent(&config.agent);
    rules.prices(&config.model, &config.agent);
    rules.executor(&config.command_executor);
    rules.text_editor(&config.text_editor_mcp);
    rules.mcp(&config.mcp);
    if let Some(listen) = &config.http.listen {
        rules.expect(
            "http.listen",
            listen.parse::<SocketAddr>().is_ok(),
            || shown(listen),
            "an address and port such as `127.0.0.1:9464`",
        );
    }
    if let Some(endpoint) = &config.traces.endpoint {
        rules.http_url(
            "traces.endpoint",
            endpoint,
            "keep credentials in the collector",
        );
        rules.expect(
            "traces.endpoint",
            endpoint.scheme() != "https",
            || "the scheme `https`".into(),
            "`http://…`: a collector nearby, which forwards the traces over TLS",
        );
        rules.expect(
            "traces.endpoint",
            endpoint.query().is_none(),
            || "a query".into(),
            "a URL without one: keep credentials in the collector",
        );
    }
    rules.expect(
        "log.level",
        log_filter(&config.log.level).is_ok(),
        || shown(&config.log.level),
        "a level (`error`, `warn`, `info`, `debug`, `trace`) or directives such as `info,agentmine_queue=debug`",
    );
}
