//! From a URL to a queue.

use std::sync::Arc;

use agentmine_runtime::config;

use crate::inproc::InProcess;
use crate::rabbitmq::RabbitMq;
use crate::{Queue, QueueError};

/// The queue that the URL names: `amqp://…`, `amqps://…` or `inproc:`.
///
/// Only the configuration is checked here. The broker is reached, and its exchanges and queues declared,
/// at the first use and again after every loss, so a process can start while the broker is down;
/// [`Queue::healthy`] tells.
///
/// # Errors
/// [`QueueError::Unavailable`] for a URL, prefix or ladder that cannot work. No message holds the URL.
pub async fn connect(config: &config::QueueConfig) -> Result<Arc<dyn Queue>, QueueError> {
    crate::metrics::describe();
    check_ladder(&config.retry_seconds)?;
    match config.url.expose().split_once(':') {
        Some(("amqp" | "amqps", _)) => Ok(Arc::new(RabbitMq::new(config)?)),
        Some(("inproc", _)) => Ok(Arc::new(InProcess::new(&config.retry_seconds))),
        _ => Err(QueueError::Unavailable(
            "queue.url must be amqp://USER:PASSWORD@HOST:PORT/VHOST, amqps://… or inproc:".into(),
        )),
    }
}

/// A queue in this process, with the default retry ladder.
#[must_use]
pub fn inproc() -> Arc<dyn Queue> {
    Arc::new(InProcess::new(
        &config::QueueConfig::default().retry_seconds,
    ))
}

fn check_ladder(seconds: &[u64]) -> Result<(), QueueError> {
    const DAY: u64 = 24 * 3600;
    if seconds.is_empty() || seconds.iter().any(|s| *s == 0 || *s > DAY) {
        return Err(QueueError::Unavailable(format!(
            "queue.retry_seconds must name one or more delays between 1 and {DAY} seconds"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agentmine_runtime::config::Secret;

    use super::*;

    async fn fault(change: impl FnOnce(&mut config::QueueConfig)) -> String {
        let mut config = config::QueueConfig::default();
        change(&mut config);
        connect(&config).await.err().unwrap().to_string()
    }

    #[tokio::test]
    async fn a_configuration_that_cannot_work_is_refused_without_its_password() {
        for url in [
            "kafka://u:hunter2@h",
            "amqp://u:hunter2@h:99999/x",
            "hunter2",
        ] {
            let message = fault(|c| c.url = Secret::new(url)).await;
            assert!(message.contains("queue.url"), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(
            fault(|c| c.retry_seconds = vec![])
                .await
                .contains("retry_seconds")
        );
        assert!(fault(|c| c.prefix = "a b".into()).await.contains("prefix"));
    }

    #[tokio::test]
    async fn an_absent_broker_is_unavailable_at_once_and_not_at_the_start() {
        let config = config::QueueConfig {
            url: Secret::new("amqp://guest:guest@127.0.0.1:1/%2f"),
            ..config::QueueConfig::default()
        };
        let queue = connect(&config).await.unwrap();
        let started = std::time::Instant::now();
        assert!(matches!(
            queue.healthy().await,
            Err(QueueError::Unavailable(_))
        ));
        let next = queue.next(std::time::Duration::from_millis(50)).await;
        assert!(matches!(next, Err(QueueError::Unavailable(_))));
        assert!(started.elapsed() < std::time::Duration::from_secs(4));
    }
}
