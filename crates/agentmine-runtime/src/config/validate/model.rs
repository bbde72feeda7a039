//! The rules of `model` and `agent`.

use url::Url;

use super::rules::{Rules, of_http_url, shown};
use crate::config::branch::{BranchPattern, InvalidBranchPattern};
use crate::config::fault::SettingFault;
use crate::config::schema::{Agent, ModelConfig, ModelPrices, Provider};
use crate::config::tree::{ConfigPlace, Value};

/// The members of a request's body that `model.extra_body` cannot replace.
const OF_REQUEST: [&str; 9] = [
    "model",
    "system",
    "messages",
    "tools",
    "stream",
    "stream_options",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
];

const BASE_URL: &str = "model.base_url";

impl ModelConfig {
    /// The faults of an address for this model that was written at `place`, in the configuration or in a flag.
    #[must_use]
    pub fn faults_of_address(&self, url: &Url, place: &ConfigPlace) -> Vec<SettingFault> {
        let instead = "put the key into model.api_key";
        let mut faults = of_http_url(place, BASE_URL, url, instead);
        let host = url.host_str().unwrap_or_default();
        let of_openai = Provider::OpenAi.base_url();
        let of_openai = of_openai.host_str().unwrap_or_default();
        // Its regions have hosts below this one.
        let is_openai = host == of_openai || host.ends_with(&format!(".{of_openai}"));
        // It does not have this API, and must not receive another provider's key.
        if is_openai && self.provider == Provider::Anthropic {
            let seen = format!("{} with `provider: anthropic`", shown(host));
            let expected = "an API that implements Anthropic Messages";
            let fault = SettingFault::new(place, BASE_URL, seen, expected);
            faults.push(fault.hint(
                "remove it: the default is Anthropic's own address; or remove `provider: anthropic`",
            ));
        }
        faults
    }
}

impl Rules<'_> {
    pub(super) fn model(&mut self, model: &ModelConfig) {
        // As it was written: the default depends on the provider.
        let written = self.tree.get("model").and_then(|it| it.get("base_url"));
        let written = written.and_then(|node| match &node.value {
            Value::Text(text) => Url::parse(text).ok(),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Map(_) => None,
        });
        let url = written.as_ref().unwrap_or(&model.base_url);
        let place = self.tree.place_of(BASE_URL);
        self.faults.extend(model.faults_of_address(url, &place));
        self.not_blank("model.name", &model.name);
        if model.provider == Provider::Anthropic && model.name == ModelConfig::default().name {
            let seen = format!("`{}`, the default", model.name);
            self.fault(
                "model.name",
                seen,
                "a Claude model, such as `claude-sonnet-4-5`",
            );
        }
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
            "model.waiting_notice_seconds",
            model.waiting_notice_seconds,
            1,
        );
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
        let ModelConfig {
            input_price,
            cached_input_price,
            cache_write_price,
            output_price,
            ..
        } = *model;
        let own = ModelPrices {
            input_price,
            cached_input_price,
            cache_write_price,
            output_price,
        };
        let more = model.more_prices.iter();
        let more = more.map(|(name, prices)| (format!("model.more_prices.{name}"), *prices));
        let all = std::iter::once(("model".to_owned(), own)).chain(more);
        let prices = all.flat_map(|(section, prices)| {
            [
                ("input_price", prices.input_price),
                (
                    "cached_input_price",
                    prices.cached_input_price.unwrap_or(0.0),
                ),
                ("cache_write_price", prices.cache_write_price.unwrap_or(0.0)),
                ("output_price", prices.output_price),
            ]
            .map(|(key, price)| (format!("{section}.{key}"), price))
        });
        for (key, price) in prices {
            self.expect(
                &key,
                price >= 0.0,
                || format!("the number {price}"),
                "a price of at least 0",
            );
        }
        for name in model.extra_body.keys() {
            let key = format!("model.extra_body.{name}");
            self.expect(
                &key,
                !OF_REQUEST.contains(&name.as_str()),
                || "a member that AgentMine sends itself".into(),
                "another member; some have a key of their own in `model`",
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

    /// A cap on the cost never applies if everything is free of charge.
    pub(super) fn prices(&mut self, model: &ModelConfig, agent: &Agent) {
        let capped = agent.max_cost_usd.is_some();
        for (key, price) in [
            ("model.input_price", model.input_price),
            ("model.output_price", model.output_price),
        ] {
            if capped && price == 0.0 {
                self.fault(
                    "agent.max_cost_usd",
                    format!("a cap on the cost without {key}"),
                    "a price of more than 0 for it",
                )
                .hint = Some(format!(
                    "set {key} to the US dollars for a million tokens, or limit the task by agent.max_tokens"
                ));
            }
        }
    }

    pub(super) fn agent(&mut self, agent: &Agent) {
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
        if let Some(pattern) = &agent.branch_pattern
            && let Err(InvalidBranchPattern(expected)) = pattern.parse::<BranchPattern>()
        {
            self.fault("agent.branch_pattern", shown(pattern), expected);
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
}
