//! URLs of services, whose passwords may have characters that have to be percent-encoded.

/// Whether a password with a slash ends the host early: then parsers take a part of it for the host, and messages would show
/// that.
#[must_use]
pub fn has_host_in_path(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    path.split(['?', '#'])
        .next()
        .is_some_and(|it| it.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_after_a_slash_is_noticed() {
        for (url, expected) in [
            ("postgres://u:p@SECR/ET@h/db", true),
            ("amqp://u:SECR/ET@h", true),
            ("postgres://u:p%2F@h/db?options=a@b", false),
            ("amqp://u:p@h/%2f", false),
            ("amqp://h", false),
        ] {
            assert_eq!(has_host_in_path(url), expected, "{url}");
        }
    }
}
