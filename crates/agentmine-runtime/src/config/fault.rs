//! The faults of a configuration.

use std::fmt;

use super::tree::ConfigPlace;

/// One fault: its place, what was found, what was expected, and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFault {
    /// `config.yaml:12:5`, `environment variable X`, `flag --x`, or the defaults.
    pub place: String,
    /// The key, as `consumer.concurrency`; empty for the file as a whole.
    pub key: String,
    /// What was found. Never the value of a secret.
    pub seen: String,
    /// What was expected.
    pub expected: String,
    /// The next action, if it is not obvious.
    pub hint: Option<String>,
    /// Whether the value is still there as it was written.
    keeps_value: bool,
    /// Sources in the order in which they are read, then lines and columns.
    order: (u8, u64, u64),
}

impl SettingFault {
    /// A fault without a hint.
    #[must_use]
    pub fn new(
        place: &ConfigPlace,
        key: &str,
        seen: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let order = match place {
            ConfigPlace::File { line, column, .. } => (0, *line, *column),
            ConfigPlace::Env(_) => (1, 0, 0),
            ConfigPlace::Flag(_) => (2, 0, 0),
            ConfigPlace::Default => (3, 0, 0),
        };
        Self {
            order,
            place: place.to_string(),
            key: key.to_owned(),
            seen: seen.into(),
            expected: expected.into(),
            hint: None,
            keeps_value: false,
        }
    }

    /// The value stays as it was written, although it cannot be used: nothing follows from its absence.
    pub(super) fn keeping_value(mut self) -> Self {
        self.keeps_value = true;
        self
    }

    /// Whether what is found wrong with a section when it is used may only follow from this fault: it is of the section, of a
    /// part of it, or of what the section is in.
    #[must_use]
    pub fn may_cause_faults_of(&self, section: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        !self.keeps_value
            && !self.key.is_empty()
            && (is_within(&self.key, section) || is_within(section, &self.key))
    }

    /// Whether it is of the file as a whole, which was not read then.
    pub(super) fn is_of_file(&self) -> bool {
        self.key.is_empty() && self.order.0 == 0
    }

    /// Its line in a file, counted from 1; `None` where it is in no file or in the file as a whole.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self.order {
            (0, line @ 1.., _) => usize::try_from(line).ok(),
            _ => None,
        }
    }

    /// Adds a hint: the next action.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for SettingFault {
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
    faults: Vec<SettingFault>,
}

impl ConfigErrors {
    pub(super) fn new(mut faults: Vec<SettingFault>) -> Self {
        faults.sort_by_key(|fault| fault.order);
        Self { faults }
    }

    /// The faults, ordered by place: file, environment, flags. For the planned `config check --json`.
    #[must_use]
    pub fn faults(&self) -> &[SettingFault] {
        &self.faults
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.len() {
            1 => f.write_str("the configuration is invalid")?,
            count => write!(f, "the configuration has {count} faults")?,
        }
        for fault in &self.faults {
            write!(f, "\n{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
