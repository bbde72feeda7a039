//! Sizes, as Docker writes them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The `format` of a size in the JSON Schema.
pub(super) const FORMAT: &str = "byte-size";
/// What a size looks like, in words.
pub(super) const EXPECTED: &str = "a size such as `512m` or `4g`";

/// A number of bytes, written as a number with an optional unit `b`, `k`, `m`, `g` or `t` (also `kb`,
/// `kib`, …) in powers of 1024. The only parser of sizes: code that needs bytes gets this type.
///
/// ```
/// use agentmine_runtime::config::ByteSize;
///
/// let size = |text: &str| text.parse().map(ByteSize::bytes).ok();
/// assert_eq!(size("4g"), Some(4 << 30));
/// assert_eq!(size("1.5 MiB"), Some(3 << 19));
/// assert_eq!(size("4 apples"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

/// A text that is not a size, or a size that does not fit in 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidByteSize;

impl ByteSize {
    /// A size of this many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = InvalidByteSize;

    fn from_str(text: &str) -> Result<Self, InvalidByteSize> {
        let text = text.trim().to_ascii_lowercase();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let shift = match unit.trim() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(InvalidByteSize),
        };
        if let Ok(whole) = number.parse::<u64>() {
            let bytes = whole.checked_mul(1 << shift);
            return bytes.map(Self).ok_or(InvalidByteSize);
        }
        let number: f64 = number.parse().map_err(|_| InvalidByteSize)?;
        let bytes = number * (1_u64 << shift) as f64;
        // 2^53: a larger float cannot hold a fraction of a byte anyway.
        match bytes.is_finite() && bytes < 9_007_199_254_740_992.0 {
            true => Ok(Self(bytes as u64)),
            false => Err(InvalidByteSize),
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "t"), (30, "g"), (20, "m"), (10, "k")];
        let fits = |(shift, _): &(u32, &str)| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        match units.into_iter().find(fits) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}b", self.0),
        }
    }
}

impl fmt::Display for InvalidByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {EXPECTED}")
    }
}

impl std::error::Error for InvalidByteSize {}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": FORMAT,
            "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([bB]|[kKmMgGtT]([iI]?[bB])?)?\s*$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<u64> {
        text.parse().map(ByteSize::bytes).ok()
    }

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        assert_eq!(bytes("512"), Some(512));
        assert_eq!(bytes("512b"), Some(512));
        assert_eq!(bytes("10K"), Some(10_240));
        assert_eq!(bytes("512MiB"), Some(512 << 20));
        assert_eq!(bytes("4GB"), Some(4 << 30));
        assert_eq!(bytes("0.5g"), Some(1 << 29));
        assert_eq!(bytes(" 2 t "), Some(2 << 40));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "g",
            "-1g",
            "4gg",
            "1..5g",
            ".",
            "4 apples",
            "99999999999t",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_is_written_as_it_is_read() {
        for text in ["0b", "7b", "1536b", "3k", "512m", "4g", "2t"] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.to_string(), text);
        }
        assert_eq!(ByteSize::from_bytes(1536 << 10).to_string(), "1536k");
    }
}
