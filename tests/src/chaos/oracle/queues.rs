//! What is left in the broker's queues.

use lapin::options::QueueDeclareOptions;

use crate::chaos::fleet::Fleet;
use crate::chaos::services::connect_broker;

/// The queues of a fleet, without its prefix: one for each priority, that of takeovers, the retry ladder, and what
/// could not be handled, which every consumer looks through.
const QUEUES: [&str; 8] = [
    "tasks.takeover",
    "tasks.critical",
    "tasks.high",
    "tasks.medium",
    "tasks.low",
    "retry.1",
    "retry.2",
    "dead",
];

/// The first queue that is not empty.
pub(super) async fn left(fleet: &Fleet) -> anyhow::Result<Option<String>> {
    let Some(url) = &fleet.queue_url else {
        return Ok(None);
    };
    let connection = connect_broker(url).await?;
    let passive = QueueDeclareOptions {
        passive: true,
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let mut found = None;
    for queue in QUEUES {
        // A queue that is missing closes its channel. The broker was wiped, and nobody needed the queue since.
        let channel = connection.create_channel().await?;
        let name = format!("{}.{queue}", fleet.name);
        let declared = channel.queue_declare(name.into(), passive, Default::default());
        match declared.await.map(|it| it.message_count()) {
            Ok(0) => {}
            Ok(count) => {
                found = Some(format!("{count} messages in the queue {queue}"));
                break;
            }
            Err(error) if error.to_string().contains("NOT_FOUND") => {}
            Err(error) => return Err(error.into()),
        }
    }
    // It may be closed already, with the last channel.
    let _ = connection.close(200, "".into()).await;
    Ok(found)
}
