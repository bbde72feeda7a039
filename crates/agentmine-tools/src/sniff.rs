//! Detects the type of a file, from its name and its content.
//!
//! A name is judged by its extensions, regardless of case, so `a.so.1` and `A.EXE ` are recognized. Content is
//! judged by its first bytes. If these are so short that prose can begin with them (`BM`, `MZ`), text stays
//! text.

use infer::MatcherType;

/// Extensions of executable files, with their MIME types.
const EXECUTABLE: [(&str, &str); 54] = [
    ("apk", "application/vnd.android.package-archive"),
    ("app", "application/x-executable"),
    ("appimage", "application/x-executable"),
    ("axf", "application/x-executable"),
    ("bash", "application/x-sh"),
    ("bat", "application/x-msdos-batch"),
    ("bin", "application/octet-stream"),
    ("class", "application/java-vm"),
    ("cmd", "application/x-msdos-batch"),
    ("com", "application/x-msdownload"),
    ("command", "application/x-sh"),
    ("cpl", "application/x-msdownload"),
    ("csh", "application/x-csh"),
    ("deb", "application/vnd.debian.binary-package"),
    ("desktop", "application/x-desktop"),
    ("dll", "application/x-msdownload"),
    ("dmg", "application/x-apple-diskimage"),
    ("drv", "application/x-msdownload"),
    ("dylib", "application/x-sharedlib"),
    ("elf", "application/x-executable"),
    ("exe", "application/vnd.microsoft.portable-executable"),
    ("fish", "application/x-fish"),
    ("gadget", "application/x-windows-gadget"),
    ("hta", "application/hta"),
    ("jar", "application/java-archive"),
    ("jse", "application/x-jscript"),
    ("ko", "application/x-object"),
    ("ksh", "application/x-sh"),
    ("lnk", "application/x-ms-shortcut"),
    ("mpkg", "application/vnd.apple.installer+xml"),
    ("msc", "application/x-msdownload"),
    ("msi", "application/x-msi"),
    ("msp", "application/x-msi"),
    ("o", "application/x-object"),
    ("ocx", "application/x-msdownload"),
    ("pif", "application/x-msdownload"),
    ("pkg", "application/vnd.apple.installer+xml"),
    ("ps1", "application/x-powershell"),
    ("psd1", "application/x-powershell"),
    ("psm1", "application/x-powershell"),
    ("reg", "application/x-windows-registry"),
    ("rpm", "application/x-rpm"),
    ("run", "application/x-sh"),
    ("scr", "application/x-msdownload"),
    ("sh", "application/x-sh"),
    ("so", "application/x-sharedlib"),
    ("sys", "application/x-msdownload"),
    ("tcsh", "application/x-csh"),
    ("vbe", "application/x-vbscript"),
    ("vbs", "application/x-vbscript"),
    ("wasm", "application/wasm"),
    ("wsf", "application/x-windows-script"),
    ("wsh", "application/x-windows-script"),
    ("zsh", "application/x-zsh"),
];

/// Extensions of files that are not text. Scripts are text: they may be read, but not written.
const BINARY: [&str; 72] = [
    "7z", "a", "apk", "app", "appimage", "avi", "avif", "bin", "bmp", "br", "bz2", "cab", "class",
    "com", "cpl", "db", "deb", "dll", "dmg", "doc", "docx", "drv", "dylib", "ear", "elf", "eot",
    "exe", "flac", "gif", "gz", "heic", "ico", "img", "iso", "jar", "jpeg", "jpg", "ko", "lib",
    "lz4", "lzma", "m4a", "mkv", "mov", "mp3", "mp4", "msi", "o", "obj", "ocx", "odt", "ogg",
    "otf", "pdf", "png", "ppt", "pptx", "pyc", "rar", "rpm", "so", "sqlite", "tar", "tgz", "tiff",
    "ttf", "war", "wasm", "wav", "webp", "whl", "zip",
];
const MORE_BINARY: [&str; 9] = [
    "tif", "txz", "woff", "woff2", "xls", "xlsx", "xz", "zst", "zstd",
];

/// The extension, if a file with this name is not text.
pub(crate) fn binary_name(name: &str) -> Option<String> {
    let trimmed = trimmed(name);
    let last = trimmed.rsplit_once('.')?.1.to_owned();
    let shared = trimmed.contains(".so.").then(|| "so".to_owned());
    let listed = |extension: &String| {
        BINARY.contains(&extension.as_str()) || MORE_BINARY.contains(&extension.as_str())
    };
    shared.or(Some(last).filter(listed))
}

/// The MIME type, if a file with this name is executable.
pub(crate) fn executable_name(name: &str) -> Option<&'static str> {
    let trimmed = trimmed(name);
    let mime = |extension: &str| {
        EXECUTABLE
            .iter()
            .find(|(listed, _)| *listed == extension)
            .map(|(_, mime)| *mime)
    };
    if trimmed.contains(".so.") {
        return mime("so");
    }
    let last = trimmed.rsplit_once('.')?.1;
    // `name.exe:stream` writes to `name.exe` on file systems with streams.
    mime(last.split(':').next().unwrap_or(last))
}

/// The name as other systems would interpret it.
fn trimmed(name: &str) -> String {
    let visible: String = name.chars().filter(|c| !c.is_control()).collect();
    visible
        .trim_end_matches(|c: char| c == '.' || c.is_whitespace())
        .to_lowercase()
}

/// The MIME type, if content is not text by its first bytes.
pub(crate) fn binary_content(bytes: &[u8]) -> Option<&'static str> {
    let kind = infer::get(bytes)?;
    let mime = kind.mime_type();
    match kind.matcher_type() {
        MatcherType::Text => None,
        _ if mime.starts_with("text/") => None,
        // Mostly text, but not readable.
        _ if matches!(mime, "application/pdf" | "application/postscript") => Some(mime),
        _ if is_plain(bytes) => None,
        _ => Some(mime),
    }
}

/// The MIME type, if content is executable.
pub(crate) fn executable_content(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"#!") || bytes.starts_with(b"\xef\xbb\xbf#!") {
        return Some("text/x-shellscript (a #! line)");
    }
    if bytes.starts_with(b"MZ") && !is_plain(bytes) {
        return Some("application/vnd.microsoft.portable-executable");
    }
    if bytes.starts_with(b"\x7fELF") {
        return Some("application/x-executable (ELF)");
    }
    const MACH_O: [[u8; 4]; 5] = [
        [0xfe, 0xed, 0xfa, 0xce],
        [0xfe, 0xed, 0xfa, 0xcf],
        [0xce, 0xfa, 0xed, 0xfe],
        [0xcf, 0xfa, 0xed, 0xfe],
        [0xca, 0xfe, 0xba, 0xbe],
    ];
    if bytes
        .first_chunk::<4>()
        .is_some_and(|magic| MACH_O.contains(magic))
    {
        return Some("application/x-mach-binary");
    }
    let kind = infer::get(bytes)?;
    let runs = kind.matcher_type() == MatcherType::App && !is_plain(bytes);
    runs.then(|| kind.mime_type())
}

/// Whether it is UTF-8 without control characters, except those that occur in text.
fn is_plain(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    text.chars()
        .all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}' | '\u{8}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_whatever_their_case_and_tail() {
        for name in [
            "a.exe",
            "A.EXE",
            "a.exe.",
            "a.exe ",
            "a.tar.sh",
            "libx.so",
            "libx.so.1.2",
            "a.ps1",
            "a.exe:x",
            "x.Bat",
            ".sh",
        ] {
            assert!(executable_name(name).is_some(), "{name}");
        }
        for name in [
            "a.rs",
            "exe",
            "sh",
            "a.sh.md",
            "Makefile",
            "a.exe.txt",
            "so.x",
        ] {
            assert!(executable_name(name).is_none(), "{name}");
        }
        assert_eq!(binary_name("x.ZIP").as_deref(), Some("zip"));
        assert_eq!(binary_name("x.sh"), None);
    }

    #[test]
    fn prose_that_begins_like_a_magic_number_stays_text() {
        assert_eq!(binary_content(b"BM is a company\n"), None);
        assert_eq!(executable_content(b"MZ is a company\n"), None);
        assert!(executable_content(b"MZ\x90\0\x03\0\0\0").is_some());
        assert!(executable_content(b"\x7fELF\x02\x01\x01\0").is_some());
        assert!(executable_content(b"#!/bin/sh\n").is_some());
        assert!(executable_content(b"\xcf\xfa\xed\xfe0000").is_some());
        assert_eq!(binary_content(b"%PDF-1.7\n"), Some("application/pdf"));
        assert_eq!(
            binary_content(b"PK\x03\x04\x14\0\0\0"),
            Some("application/zip")
        );
    }
}
