//! What is recorded of effects that more than one crate writes or reads.
//!
//! Records of earlier versions may lack a field. What those did not record is `None`.

use serde::{Deserialize, Serialize};

/// What is recorded of a label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRecord {
    /// Its name on the tracker, which the configuration may change later. `None`: it was not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What is recorded of a command that a person gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Whether it changed the row of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// What came of it, in a sentence. It replaces the record of whether the row changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// What is recorded of a pull request that a task opened, beside what its kind of effect adds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestRecord {
    /// Its number.
    pub number: u64,
    /// Its address.
    pub url: String,
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::*;

    /// Whether a record is stored as this text, and read from it.
    fn is_stored_as<T: Debug + PartialEq + Serialize + DeserializeOwned>(record: &T, text: &str) {
        assert_eq!(serde_json::to_string(record).unwrap(), text);
        assert_eq!(serde_json::from_str::<T>(text).unwrap(), *record);
    }

    /// A changed text means that stored records can no longer be read.
    #[test]
    fn records_are_stored_as_earlier_versions_stored_them() {
        let name = Some("agentmine".to_owned());
        is_stored_as(&LabelRecord { name }, r#"{"name":"agentmine"}"#);
        is_stored_as(&LabelRecord::default(), "{}");
        let changed = CommandRecord {
            changed: Some(true),
            said: None,
        };
        is_stored_as(&changed, r#"{"changed":true}"#);
        let said = CommandRecord {
            changed: None,
            said: Some("task 7 is stopped".to_owned()),
        };
        is_stored_as(&said, r#"{"said":"task 7 is stopped"}"#);
        let pull = PullRequestRecord {
            number: 8,
            url: "https://forge.example/8".to_owned(),
        };
        is_stored_as(&pull, r#"{"number":8,"url":"https://forge.example/8"}"#);
    }
}
