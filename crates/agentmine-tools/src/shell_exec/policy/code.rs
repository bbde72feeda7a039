//! Code that is given to an interpreter as an argument (`python -c`, `perl -e`).
//!
//! It is not understood. Only the texts in quotes in it are judged as commands, one by one and joined,
//! which finds `os.system("rm -rf x")` and `["rm", "-rf", "x"]`.

/// Whether a program takes code as an argument.
pub(super) fn is_interpreter(name: &str) -> bool {
    const NAMES: [&str; 22] = [
        "python",
        "pypy",
        "perl",
        "ruby",
        "node",
        "nodejs",
        "deno",
        "bun",
        "php",
        "lua",
        "luajit",
        "awk",
        "gawk",
        "mawk",
        "nawk",
        "osascript",
        "tclsh",
        "expect",
        "Rscript",
        "julia",
        "groovy",
        "elixir",
    ];
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    NAMES.contains(&plain)
}

/// The texts in quotes, and all of them joined.
pub(super) fn commands_in(code: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut chars = code.chars();
    while let Some(quote) = chars.next() {
        if !matches!(quote, '\'' | '"' | '`') {
            continue;
        }
        let mut text = String::new();
        while let Some(c) = chars.next() {
            match c {
                c if c == quote => break,
                '\\' => text.extend(chars.next()),
                c => text.push(c),
            }
        }
        texts.push(text);
    }
    if texts.len() > 1 {
        texts.push(texts.join(" "));
    }
    texts
}
