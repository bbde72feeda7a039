//! Object ids in hexadecimal: SHA-1 or SHA-256.

/// Whether `text` is a full object id in lower case.
pub(crate) fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether `id` means "no commit".
pub(crate) fn is_zero(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

/// The id that means "no commit".
pub(crate) fn zero(object_format: &str) -> String {
    "0".repeat(if object_format == "sha256" { 64 } else { 40 })
}
