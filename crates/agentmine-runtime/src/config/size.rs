//! Sizes as Docker writes them.

/// Reads a size: a number with an optional unit `b`, `k`, `m`, `g` or `t` (also `kb`, `kib`, …), in
/// powers of 1024 as Docker counts. `None` for anything else, and for what does not fit.
///
/// ```
/// use agentmine_runtime::config::bytes;
///
/// assert_eq!(bytes("4g"), Some(4 << 30));
/// assert_eq!(bytes("1.5 MiB"), Some(3 << 19));
/// assert_eq!(bytes("4 apples"), None);
/// ```
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
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
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let size = number.parse::<f64>().ok()? * (1_u64 << shift) as f64;
    // 2^53: beyond it a fraction of a byte cannot be told anyway.
    (size.is_finite() && size < 9_007_199_254_740_992.0).then_some(size as u64)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        assert_eq!(bytes("512"), Some(512));
        assert_eq!(bytes("512b"), Some(512));
        assert_eq!(bytes("10K"), Some(10_240));
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
}
