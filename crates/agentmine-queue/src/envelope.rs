//! The format of a message: JSON with a version.
//!
//! Unknown fields, as a later program may add, are ignored. A message of another version is an error.

use agentmine_domain::{Priority, TaskId, Urgency, WakeUp};
use serde::{Deserialize, Serialize};

/// The version this program writes and reads.
const VERSION: u32 = 1;

/// Ours are smaller than 100 bytes. A larger message than this is foreign and not parsed.
const LARGEST: usize = 4096;

/// The type of the body, in the message's properties.
pub(crate) const CONTENT_TYPE: &str = "application/json";

#[derive(Serialize, Deserialize)]
struct Envelope {
    v: u32,
    task: TaskId,
    priority: Priority,
    #[serde(default)]
    urgency: Urgency,
}

/// The body of a message.
pub(crate) fn encode(wake_up: &WakeUp) -> Result<Vec<u8>, String> {
    let WakeUp {
        task,
        priority,
        urgency,
    } = *wake_up;
    serde_json::to_vec(&Envelope {
        v: VERSION,
        task,
        priority,
        urgency,
    })
    .map_err(|error| error.to_string())
}

/// Reads a body. The error says why it cannot be read.
pub(crate) fn decode(body: &[u8]) -> Result<WakeUp, String> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    if body.len() > LARGEST {
        return Err(format!("a message of {} bytes, not a wake-up", body.len()));
    }
    let malformed = |error: serde_json::Error| format!("not a wake-up: {error}");
    let Version { v } = serde_json::from_slice(body).map_err(malformed)?;
    if v != VERSION {
        return Err(format!(
            "a wake-up of version {v}; this program reads {VERSION}"
        ));
    }
    let Envelope {
        v: _,
        task,
        priority,
        urgency,
    } = serde_json::from_slice(body).map_err(malformed)?;
    Ok(WakeUp {
        task,
        priority,
        urgency,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_reads_back_and_later_fields_are_ignored() {
        let mut wake_up = WakeUp {
            task: TaskId::new(),
            priority: Priority::High,
            urgency: Urgency::Takeover,
        };
        assert_eq!(decode(&encode(&wake_up).unwrap()), Ok(wake_up.clone()));
        // Nor need those that an earlier program did not write.
        let other = format!(
            r#"{{"v":1,"task":"{}","priority":"high","hint":1}}"#,
            wake_up.task
        );
        wake_up.urgency = Urgency::Normal;
        assert_eq!(decode(other.as_bytes()), Ok(wake_up));
    }

    #[test]
    fn foreign_bodies_are_refused() {
        assert!(
            decode(br#"{"v":2,"x":1}"#)
                .unwrap_err()
                .contains("version 2")
        );
        assert!(decode(b"\xff\x00").unwrap_err().contains("not a wake-up"));
        assert!(decode(&[b'['; 5000]).unwrap_err().contains("5000 bytes"));
    }
}
