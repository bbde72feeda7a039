//! A string that cannot be printed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};

use super::rotation::SecretFile;

/// A secret string. `Debug` and `Display` show `***`; [`Secret::expose`] is the only way to the text.
#[derive(Clone)]
pub struct Secret {
    text: SecretString,
    /// The file that holds it, if that is read again.
    file: Option<Arc<SecretFile>>,
    /// Whether it is a default of the program.
    is_default: bool,
}

impl Secret {
    /// Wraps a string.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: SecretString::from(text.into()),
            file: None,
            is_default: false,
        }
    }

    /// The value of a key that nobody has configured.
    pub(super) fn default_value(text: &str) -> Self {
        Self {
            is_default: true,
            ..Self::new(text)
        }
    }

    /// Whether nobody has configured it. The same value, written out, is no default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// The same, which was read from the file at `path` and follows it.
    pub(super) fn of_file(first: &Self, path: &Path) -> Self {
        Self {
            text: first.text.clone(),
            file: Some(SecretFile::new(first.text.clone(), path)),
            is_default: false,
        }
    }

    /// The text itself, as it was read. To be passed only to what needs it, never to what prints.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }

    /// The value to use now: that of its file, if it is in one and that has changed.
    #[must_use]
    pub fn current(&self) -> Self {
        match &self.file {
            None => self.clone(),
            Some(file) => Self {
                text: file.current(),
                file: Some(Arc::clone(file)),
                is_default: self.is_default,
            },
        }
    }

    /// Without blanks at its ends.
    #[must_use]
    pub fn trimmed(&self) -> Self {
        Self {
            text: SecretString::from(self.expose().trim().to_owned()),
            file: self.file.clone(),
            is_default: self.is_default,
        }
    }

    #[cfg(test)]
    pub(super) fn file(&self) -> Option<&SecretFile> {
        self.file.as_deref()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}
