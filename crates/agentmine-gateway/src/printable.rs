//! Foreign text made safe to record, log and print.

/// Bytes of one text that are kept.
pub(crate) const MAX_TEXT: usize = 300;

/// `text` as one printable line, truncated at [`MAX_TEXT`] bytes.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_TEXT));
    for c in text.chars() {
        if out.len() + c.len_utf8() > MAX_TEXT {
            out.push('…');
            break;
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_unprintable_text_is_truncated() {
        let text = printable(&format!("a\x1b[31m\nb{}", "x".repeat(1000)));
        assert!(text.starts_with("a [31m b"));
        assert!(text.len() <= MAX_TEXT + 3);
    }
}
