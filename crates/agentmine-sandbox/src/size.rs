//! Sizes in the configuration.

use crate::error::SandboxError;

/// `4g` in bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, SandboxError> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.trim_end_matches('b').trim_end_matches('i');
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "" => Some(0),
        "k" => Some(10),
        "m" => Some(20),
        "g" => Some(30),
        "t" => Some(40),
        _ => None,
    };
    let bytes = shift.and_then(|shift| digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift));
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| {
        SandboxError::Refused(format!(
            "{text:?} is not a size; expected one like 512m or 4g"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        assert_eq!(parse_size("4g").unwrap(), 4 << 30);
        assert_eq!(parse_size("512MiB").unwrap(), 512 << 20);
        assert_eq!(parse_size("10").unwrap(), 10);
        for bad in ["", "g", "4x", "-1g", "0", "99999999999t"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
