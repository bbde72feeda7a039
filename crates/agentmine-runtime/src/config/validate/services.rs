//! The rules of `consumer`, `queue` and `store`.

use std::path::Path;

use super::rules::{Rules, scheme_of, scheme_seen, shown};
use crate::config::retention::{KeepDays, RetentionConfig};
use crate::config::schema::{Consumer, Migrations, MirrorsConfig, QueueConfig, StoreConfig};

/// More than one machine can hold.
const MOST_WARM: usize = 100;

impl Rules<'_> {
    pub(super) fn consumer(&mut self, consumer: &Consumer) {
        let Consumer {
            concurrency,
            max_attempts,
            outage_seconds: _,
            lease_seconds,
            heartbeat_seconds,
            heartbeat_loss_seconds,
            item_check_seconds,
            item_gone_seconds: _,
            progress_seconds,
            sweep_seconds,
            wakeup_after_seconds,
            drain_seconds: _,
            warm_sandboxes,
            ref pause_file,
            ref mirrors,
        } = *consumer;
        self.at_least(
            "consumer.concurrency",
            u64::try_from(concurrency).unwrap_or(u64::MAX),
            1,
        );
        self.expect(
            "consumer.warm_sandboxes",
            warm_sandboxes <= MOST_WARM,
            || format!("the number {warm_sandboxes}"),
            &format!("at most {MOST_WARM}"),
        );
        self.at_least("consumer.max_attempts", max_attempts, 1);
        self.at_least("consumer.heartbeat_seconds", heartbeat_seconds, 1);
        self.at_least("consumer.item_check_seconds", item_check_seconds, 1);
        self.at_least("consumer.progress_seconds", progress_seconds, 1);
        self.at_least("consumer.sweep_seconds", sweep_seconds, 1);
        self.at_least("consumer.wakeup_after_seconds", wakeup_after_seconds, 1);
        let MirrorsConfig {
            enabled: _,
            max_size,
            folder,
            templates: _,
        } = mirrors;
        self.at_least("consumer.mirrors.max_size", max_size.bytes(), 1);
        self.absolute("consumer.mirrors.folder", folder.as_deref());
        self.absolute("consumer.pause_file", pause_file.as_deref());
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

    /// A path that does not depend on where a process was started.
    fn absolute(&mut self, key: &str, path: Option<&Path>) {
        self.expect(
            key,
            path.is_none_or(Path::is_absolute),
            || shown(&path.unwrap_or_else(|| "".as_ref()).to_string_lossy()),
            "an absolute path",
        );
    }

    pub(super) fn queue(&mut self, queue: &QueueConfig) {
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

    pub(super) fn store(&mut self, store: &StoreConfig) {
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
        self.expect(
            "store.migrations",
            store.migrations == Migrations::Run || !url.starts_with("sqlite:"),
            || "`wait`".into(),
            "`run` for a database in a file, which has no other user",
        );
        let RetentionConfig {
            enabled: _,
            checkpoint_hours: _,
            journal_days,
            effect_days,
        } = &store.retention;
        for (kind, days) in [("journal_days", journal_days), ("effect_days", effect_days)] {
            let KeepDays {
                done,
                failed,
                stopped,
            } = *days;
            for (outcome, days) in [("done", done), ("failed", failed), ("stopped", stopped)] {
                // The sweep looks at the end of a task for a day.
                self.expect(
                    &format!("store.retention.{kind}.{outcome}"),
                    days != 1,
                    || "the number 1".into(),
                    "a whole number of at least 2, or 0 to keep for good",
                );
            }
        }
    }
}
