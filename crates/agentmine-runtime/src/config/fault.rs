//! What is wrong with a configuration, in words.

use std::fmt;

use super::tree::Place;

/// One fault: where, what was seen, what was expected, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// `config.yaml:12:5`, `environment variable X`, `flag --x`, or the defaults.
    pub place: String,
    /// The key, as `consumer.concurrency`; empty for the file as a whole.
    pub key: String,
    /// What was seen. Never the value of a secret.
    pub seen: String,
    /// What was expected.
    pub expected: String,
    /// The next action, where there is a better one than to write what was expected.
    pub hint: Option<String>,
    /// Sources in the order in which they are read, then lines and columns.
    order: (u8, u64, u64),
}

impl ConfigFault {
    pub(super) fn new(
        place: &Place,
        key: &str,
        seen: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let order = match place {
            Place::File { line, column, .. } => (0, *line, *column),
            Place::Env(_) => (1, 0, 0),
            Place::Flag(_) => (2, 0, 0),
            Place::Default => (3, 0, 0),
        };
        Self {
            order,
            place: place.to_string(),
            key: key.to_owned(),
            seen: seen.into(),
            expected: expected.into(),
            hint: None,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}, expected {}", self.seen, self.expected)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// All faults of a configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    faults: Vec<ConfigFault>,
}

impl ConfigErrors {
    pub(super) fn new(mut faults: Vec<ConfigFault>) -> Self {
        faults.sort_by_key(|fault| fault.order);
        Self { faults }
    }

    /// The faults, in the order of their places: file, environment, flags.
    #[must_use]
    pub fn faults(&self) -> &[ConfigFault] {
        &self.faults
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.len() {
            1 => f.write_str("the configuration has a fault")?,
            count => write!(f, "the configuration has {count} faults")?,
        }
        for fault in &self.faults {
            write!(f, "\n{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
