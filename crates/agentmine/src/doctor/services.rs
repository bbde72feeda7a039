//! The checks of what is asked over a network or of an engine: trackers, database, broker, sandbox, model.

use agentmine_llm::{LlmError, Probe};
use agentmine_runtime::config::{BackendKind, Config, Migrations, Provider};
use agentmine_store::{Existing, Migrated};
use agentmine_trackers::{Access, Tracker};

use super::checks::error_text;
use super::clock::Clocks;
use super::finding::Finding;
use crate::config::one_by_one;
use crate::embedded::{self, Kind};

/// Names of models that are shown.
const SHOWN: usize = 6;
/// The hosts of Azure OpenAI, where `model.name` is a deployment and the list has the models that can be deployed.
const AZURE: [&str; 3] = [
    ".openai.azure.com",
    ".services.ai.azure.com",
    ".cognitiveservices.azure.com",
];

/// Each tracker: its section, its token, and what the token allows.
pub(super) async fn trackers(config: &Config, kind: Kind, clocks: &Clocks) -> Vec<Finding> {
    if let Err(missing) = config.trackers.require_one() {
        return vec![match kind {
            Kind::Embedded => Finding::skipped(
                "none is configured; `agentmine run` needs none, producer and consumer need one",
            ),
            Kind::Fleet => Finding::failed(error_text(&missing.into())),
        }];
    }
    let mut findings = Vec::new();
    for (key, section) in one_by_one(&config.trackers) {
        match agentmine_trackers::from_config(&section) {
            Ok(trackers) => {
                for tracker in trackers {
                    findings.extend(access(tracker.as_ref(), clocks).await);
                }
            }
            Err(error) => findings.push(Finding::failed(format!("{key}: {error}"))),
        }
    }
    findings
}

async fn access(tracker: &dyn Tracker, clocks: &Clocks) -> Vec<Finding> {
    let name = format!("{} at {}", tracker.kind(), tracker.host());
    match tracker.access().await {
        Ok(Access {
            login,
            scopes,
            missing,
            server_time,
        }) => {
            clocks.note(&name, server_time);
            let scopes = scopes.map(|scopes| format!(", scopes {}", scopes.join(" ")));
            let who = format!("{name}: {login}{}", scopes.unwrap_or_default());
            let missing = missing.into_iter();
            let missing: Vec<Finding> = missing
                .map(|it| Finding::failed(format!("{name}: {it}")))
                .collect();
            match missing.is_empty() {
                true => vec![Finding::good(who)],
                false => missing,
            }
        }
        Err(error) => vec![
            Finding::failed(error.to_string())
                .fix("check the tracker's api_url, and that this machine reaches it"),
        ],
    }
}

/// The database, and whether its schema is that of this version.
pub(super) async fn database(config: &Config, kind: Kind, clocks: &Clocks) -> Vec<Finding> {
    let found = match agentmine_store::inspect(&config.store).await {
        Ok(found) => found,
        // It has a hint of its own.
        Err(error) if error.to_string().contains("hint: ") => {
            return vec![Finding::failed(error.to_string())];
        }
        Err(error) => {
            return vec![Finding::failed(error.to_string()).fix(match kind {
                Kind::Embedded => "check the folder, or move the file away",
                Kind::Fleet => "start the database, or correct store.url (AGENTMINE_STORE_URL)",
            })];
        }
    };
    let address = found.address;
    let (product, missing, migrated, time) = match found.database {
        Existing::Absent => {
            return vec![match kind {
                Kind::Embedded => Finding::good(format!("{address} is created by the first task")),
                Kind::Fleet => Finding::warning(format!("{address} does not exist yet")).fix(
                    "create it, or let `producer migrate` create it with a user that has CREATEDB",
                ),
            }];
        }
        Existing::Present {
            product,
            missing,
            migrated,
            time,
        } => (product, missing, migrated, time),
    };
    match kind {
        // A file has the clock of this machine.
        Kind::Embedded => {}
        Kind::Fleet => clocks.note("the database", Some(time)),
    }
    let mut findings = vec![Finding::good(format!("{product} at {address}"))];
    let schema = match migrated {
        Migrated::Never => "it has no tables yet".to_owned(),
        Migrated::Before => format!("it lacks {missing} of this version's migrations"),
    };
    findings.extend(match (missing, config.store.migrations, kind) {
        (0, _, _) => None,
        (_, Migrations::Wait, Kind::Fleet) => {
            Some(Finding::failed(schema).fix("`producer migrate`, as the owner of the tables"))
        }
        (_, Migrations::Run, Kind::Fleet) => Some(
            Finding::warning(schema)
                .fix("start a producer or consumer of this version, or run `producer migrate`"),
        ),
        (_, _, Kind::Embedded) => Some(Finding::good(format!(
            "{schema}; the next command applies them"
        ))),
    });
    findings
}

/// The broker, where there is one.
pub(super) async fn broker(config: &Config) -> Vec<Finding> {
    let queue = match embedded::broker(config) {
        Ok(Some(queue)) => queue,
        Ok(None) => {
            return vec![Finding::skipped(
                "not needed: without Postgres everything runs in one process",
            )];
        }
        Err(error) => return vec![Finding::failed(error_text(&error))],
    };
    let healthy = queue.healthy().await;
    queue.close().await;
    vec![match healthy {
        Ok(()) => Finding::good("answers, and has the exchanges and queues"),
        Err(error) => Finding::failed(error.to_string())
            .fix("start the broker, or correct queue.url (AGENTMINE_QUEUE_URL)"),
    }]
}

/// The engine with its image, or the jail of this machine. Without a fleet both can be used, and the jail is the default.
pub(super) async fn sandbox(config: &Config, kind: Kind) -> Vec<Finding> {
    let of = async |backend| {
        let mut executor = config.command_executor.clone();
        executor.backend = backend;
        let (name, with) = match backend {
            BackendKind::Docker => ("docker", format!(" with {}", executor.docker.base_image)),
            BackendKind::Local => ("the jail on this machine", String::new()),
        };
        let fix = match backend {
            BackendKind::Docker => {
                "build the default image with docker/executor-default/build, or name another one in command_executor.docker.base_image"
            }
            BackendKind::Local => {
                "install bubblewrap and allow user namespaces, or use command_executor.backend: docker"
            }
        };
        let made = agentmine_sandbox::from_config(&executor).await;
        let backend = match made {
            Ok(backend) => backend,
            Err(error) => return Err(Finding::failed(format!("{name}: {error}")).fix(fix)),
        };
        if let Err(error) = backend.check().await {
            return Err(Finding::failed(format!("{name}: {error}")).fix(fix));
        }
        let weak = backend.weaknesses().await;
        let strength = match weak.is_empty() {
            true => ", at full strength",
            false => "",
        };
        let works = Finding::good(format!("{name}{with} works{strength}"));
        let weak = weak.into_iter();
        let weak = weak.map(|it| Finding::warning(format!("{name}: {it}")));
        Ok(std::iter::once(works).chain(weak).collect::<Vec<_>>())
    };
    match kind {
        Kind::Fleet => of(config.command_executor.backend)
            .await
            .unwrap_or_else(|failed| vec![failed]),
        Kind::Embedded => {
            let (jail, docker) = tokio::join!(of(BackendKind::Local), of(BackendKind::Docker));
            let mut findings = jail.unwrap_or_else(|failed| vec![failed]);
            findings.extend(docker.unwrap_or_else(|failed| {
                // `run --sandbox docker` alone needs it.
                let optional = format!("only `run --sandbox docker` needs it: {}", failed.detail);
                vec![Finding::skipped(optional)]
            }));
            findings
        }
    }
}

/// The model API, and whether it has the model.
pub(super) async fn model(config: &Config, clocks: &Clocks) -> Vec<Finding> {
    let (name, base) = (&config.model.name, &config.model.base_url);
    let host = base.host_str().unwrap_or_default();
    let model = match agentmine_llm::from_config(&config.model) {
        Ok(model) => model,
        Err(error) => return vec![Finding::failed(format!("{error:#}"))],
    };
    if config.model.provider == Provider::Replay {
        return vec![Finding::good("recorded replies; no API is called")];
    }
    let Probe {
        models,
        server_time,
    } = match model.probe().await {
        Ok(probe) => probe,
        Err(error) => {
            return vec![
                Finding::failed(unanswered(&error))
                    .fix("start the server, or correct model.base_url (AGENTMINE_MODEL_BASE_URL)"),
            ];
        }
    };
    clocks.note("the model API", server_time);
    vec![match models {
        None => Finding::warning(format!(
            "{host} answers, but does not list its models, so `{name}` could not be looked up"
        ))
        .fix("check that model.base_url is as the server's documentation gives it, and the name"),
        Some(models) => of_list(host, name, &models),
    }]
}

/// What the list of a server's models says about the one of this name.
fn of_list(host: &str, name: &str, models: &[String]) -> Finding {
    if AZURE.iter().any(|azure| host.ends_with(azure)) {
        return Finding::warning(format!(
            "{host} answers, but does not list its deployments, so `{name}` could not be looked up"
        ))
        .fix("check that model.name (AGENTMINE_MODEL_NAME) is the name of a deployment");
    }
    if offers(models, name) {
        return Finding::good(format!("{name} at {host}"));
    }
    let shown: Vec<&str> = models.iter().take(SHOWN).map(String::as_str).collect();
    let more = models.len().saturating_sub(shown.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Finding::failed(format!("{host} has no model `{name}`")).fix(match shown.is_empty() {
        true => "it has no models at all: load one on the server".to_owned(),
        false => format!(
            "set model.name (AGENTMINE_MODEL_NAME) to one of: {}{more}",
            shown.join(", ")
        ),
    })
}

/// It was asked once, so the number of tries says nothing.
fn unanswered(error: &LlmError) -> String {
    match error {
        LlmError::Unavailable { detail, .. } => format!("no answer from {detail}"),
        other => other.to_string(),
    }
}

/// Ollama lists `qwen3:latest` for what is called `qwen3`. OpenRouter and Hugging Face list `a/b` for what may be called
/// `a/b:fast`. Anthropic lists `claude-haiku-4-5-20251001` for what is called `claude-haiku-4-5` too, or ends with
/// `-latest`.
fn offers(models: &[String], name: &str) -> bool {
    let latest = format!("{name}:latest");
    let base = name.rsplit_once(':').map(|(base, _)| base);
    let base = base.filter(|base| base.contains('/'));
    let undated = name.strip_suffix("-latest").unwrap_or(name);
    let is_dated = |it: &str| {
        let date = it.strip_prefix(undated).and_then(|it| it.strip_prefix('-'));
        date.is_some_and(|it| it.len() == 8 && it.chars().all(|c| c.is_ascii_digit()))
    };
    models
        .iter()
        .any(|it| *it == name || *it == latest || Some(it.as_str()) == base || is_dated(it))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;

    fn outcome(host: &str, name: &str, models: &[&str]) -> Outcome {
        let models: Vec<String> = models.iter().map(ToString::to_string).collect();
        of_list(host, name, &models).outcome
    }

    #[test]
    fn a_model_counts_as_offered_under_each_name_that_the_server_takes() {
        let ollama = ["qwen3:latest", "qwen3:8b"];
        assert_eq!(outcome("127.0.0.1", "qwen3", &ollama), Outcome::Good);
        assert_eq!(outcome("127.0.0.1", "qwen3:8b", &ollama), Outcome::Good);
        assert_eq!(outcome("127.0.0.1", "qwen3:4b", &ollama), Outcome::Failed);
        let own = outcome("vm.westeurope.cloudapp.azure.com", "qwen3:4b", &ollama);
        assert_eq!(own, Outcome::Failed);
        let router = ["acme/large"];
        assert_eq!(
            outcome("router", "acme/large:nitro", &router),
            Outcome::Good
        );
        assert_eq!(
            outcome("router", "acme/small:nitro", &router),
            Outcome::Failed
        );
        assert_eq!(outcome("127.0.0.1", "qwen3", &[]), Outcome::Failed);
        let anthropic = ["claude-haiku-4-5-20251001", "claude-opus-4-6"];
        for (name, expected) in [
            ("claude-haiku-4-5", Outcome::Good),
            ("claude-haiku-4-5-latest", Outcome::Good),
            ("claude-haiku-4-5-20251001", Outcome::Good),
            ("claude-opus-4-6", Outcome::Good),
            ("claude-haiku-4", Outcome::Failed),
            ("claude-haiku-4-5-20240101", Outcome::Failed),
        ] {
            assert_eq!(
                outcome("api.anthropic.com", name, &anthropic),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn a_list_without_deployments_fails_no_deployment() {
        let finding = of_list("a.openai.azure.com", "our-gpt", &["gpt-5".to_owned()]);
        assert_eq!(finding.outcome, Outcome::Warning);
        assert!(finding.fix.unwrap().contains("a deployment"));
    }
}
