//! Decodes bytes to text.

/// Decodes UTF-8, or the encoding of a byte order mark.
///
/// # Errors
/// What was found instead, and what to do next.
pub(super) fn decode(bytes: Vec<u8>) -> Result<String, String> {
    match bytes.as_slice() {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
            return Err("it is UTF-32: convert it with iconv -t UTF-8".to_owned());
        }
        [0xff, 0xfe, rest @ ..] => return utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => return utf16(rest, u16::from_be_bytes),
        _ => {}
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        format!(
            "byte {} is not UTF-8: if it is text in another encoding, convert it with iconv -t UTF-8",
            error.utf8_error().valid_up_to()
        )
    })?;
    let text = match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    };
    match text.find('\0') {
        Some(at) => Err(format!(
            "it contains a NUL character at byte {at}, as binary files do: use a program that understands it"
        )),
        None => Ok(text),
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, String> {
    let broken = || {
        "it begins like UTF-16 but is not: convert it with iconv, or use a program that understands it"
            .to_owned()
    };
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(broken());
    }
    let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    let text = String::from_utf16(&units).map_err(|_| broken())?;
    match text.contains('\0') {
        true => Err(broken()),
        false => Ok(text),
    }
}
