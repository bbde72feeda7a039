//! The configured queue.

use std::sync::Arc;

use agentmine_runtime::config;

use crate::error::QueueError;
use crate::inproc::InProcess;
use crate::queue::Queue;
use crate::rabbitmq::RabbitMq;

/// The queue that the URL names: `amqp://…`, `amqps://…` or `inproc:`.
///
/// Only the configuration is checked here. The connection is opened, and exchanges and queues are
/// declared, at the first use and again after every loss: a process can start while the broker is down.
///
/// # Errors
/// [`QueueError::Invalid`] for a URL, prefix or ladder that cannot work. No message contains the URL.
pub fn connect(config: &config::QueueConfig) -> Result<Arc<dyn Queue>, QueueError> {
    crate::metrics::describe();
    check_ladder(&config.retry_seconds)?;
    match config.url.expose().split_once(':') {
        Some(("amqp" | "amqps", _)) => Ok(Arc::new(RabbitMq::new(config)?)),
        Some(("inproc", _)) => Ok(Arc::new(InProcess::new(&config.retry_seconds))),
        _ => Err(QueueError::Invalid(
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
        return Err(QueueError::Invalid(format!(
            "queue.retry_seconds must list one or more delays between 1 and {DAY} seconds"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agentmine_runtime::config::Secret;

    use super::*;

    fn fault(change: impl FnOnce(&mut config::QueueConfig)) -> String {
        let mut config = config::QueueConfig::default();
        change(&mut config);
        let error = connect(&config).err().unwrap();
        assert!(matches!(error, QueueError::Invalid(_)), "{error}");
        error.to_string()
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused_without_its_password() {
        for url in [
            "kafka://u:hunter2@h",
            "amqp://u:hunter2@h:99999/x",
            "hunter2",
        ] {
            let message = fault(|c| c.url = Secret::new(url));
            assert!(message.contains("queue.url"), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(fault(|c| c.retry_seconds = vec![]).contains("retry_seconds"));
        assert!(fault(|c| c.prefix = "a b".into()).contains("prefix"));
    }

    #[tokio::test]
    async fn an_absent_broker_is_unavailable_at_once_and_not_at_the_start() {
        let config = config::QueueConfig {
            url: Secret::new("amqp://guest:guest@127.0.0.1:1/%2f"),
            ..config::QueueConfig::default()
        };
        let queue = connect(&config).unwrap();
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
