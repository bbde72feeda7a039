//! `${VAR}` in a value of `env` or `headers`.
//!
//! `${VAR}` is replaced by the variable, `${VAR:-text}` by `text` if the variable is not set or empty, and
//! `$${` by a literal `${`. Any other `$` is kept. `${env:VAR}`, which editors use, is `${VAR}`.

use agentmine_runtime::config::Secret;

/// Why a value cannot be used. It contains names of variables, never a part of the value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("`${{` without `}}`; write `$${{` for a literal `${{`")]
    Open,
    #[error("between `${{` and `}}` there is no variable's name")]
    Name,
    #[error("the environment variable {0} is not set; set it, or write ${{{0}:-DEFAULT}}")]
    Missing(String),
    #[error(
        "a repository's file gets no variable of this machine; write `$${{` for a literal `${{`"
    )]
    Forbidden,
}

/// Where variables come from.
#[derive(Clone, Copy)]
pub(super) enum Variables<'a> {
    From(&'a dyn Fn(&str) -> Option<String>),
    /// The text is a repository's.
    Forbidden,
}

/// The value with its variables replaced.
pub(super) fn expand(text: &str, variables: Variables<'_>) -> Result<Secret, Refused> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, behind) = (&rest[..at], &rest[at + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            out.push_str(escaped);
            out.push_str("${");
            rest = behind;
            continue;
        }
        let Variables::From(lookup) = variables else {
            return Err(Refused::Forbidden);
        };
        out.push_str(before);
        let end = behind.find('}').ok_or(Refused::Open)?;
        out.push_str(&variable(&behind[..end], lookup)?);
        rest = &behind[end + 1..];
    }
    out.push_str(rest);
    Ok(Secret::new(out))
}

fn variable(inner: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, Refused> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let name = name.strip_prefix("env:").unwrap_or(name);
    if !is_name(name) {
        return Err(Refused::Name);
    }
    match (lookup(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Refused::Missing(name.to_owned())),
    }
}

/// Whether this is a variable's name that shells accept, and not too long.
fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=128).contains(&text.len())
        && text.chars().all(good)
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(text: &str) -> Result<String, Refused> {
        let lookup = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        expand(text, Variables::From(&lookup)).map(|it| it.expose().to_owned())
    }

    #[test]
    fn variables_are_replaced() {
        for (text, value) in [
            ("", ""),
            ("plain", "plain"),
            ("x${A}y${A}", "x1y1"),
            ("${env:A}", "1"),
            ("${NONE:-d}", "d"),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY}", ""),
            ("${A:-d}", "1"),
            ("$A pa$$word $", "$A pa$$word $"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
        ] {
            assert_eq!(with(text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn a_replaced_value_is_not_expanded_again() {
        let lookup = |_: &str| Some("${B}".to_owned());
        let value = expand("${A}", Variables::From(&lookup)).unwrap();
        assert_eq!(value.expose(), "${B}");
    }

    #[test]
    fn a_fault_is_reported_without_the_value() {
        assert_eq!(with("s3cret${NONE}"), Err(Refused::Missing("NONE".into())));
        assert_eq!(with("s3cret${A"), Err(Refused::Open));
        for text in ["${}", "${1A}", "${input:key}", "${A B}", "${A-x}", "${é}"] {
            assert_eq!(with(text), Err(Refused::Name), "{text}");
        }
    }

    #[test]
    fn a_repository_gets_no_variable() {
        let no = |text| expand(text, Variables::Forbidden).map(|it| it.expose().to_owned());
        assert_eq!(no("${A}"), Err(Refused::Forbidden));
        assert_eq!(no("${A:-x}"), Err(Refused::Forbidden));
        assert_eq!(no("a$b$$c"), Ok("a$b$$c".into()));
        assert_eq!(no("$${A}"), Ok("${A}".into()));
    }

    proptest! {
        #[test]
        fn any_value_is_read_without_a_panic(text in "[${}:A\\-é ]{0,30}") {
            let _ = with(&text);
        }
    }
}
