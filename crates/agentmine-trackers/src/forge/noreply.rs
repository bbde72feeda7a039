//! Addresses that forges give to accounts, and that reach nobody.

/// An account as git names people, `LOGIN <ID+LOGIN@users.noreply.HOST>`, if nothing in it could end that early. `joint` is
/// what the forge has between id and login.
pub(crate) fn noreply(id: u64, joint: char, login: &str, host: &str) -> Option<String> {
    let host = host.split_once(':').map_or(host, |(name, _)| name);
    let fine = |text: &str, more: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        !text.is_empty() && text.len() <= 200 && text.chars().all(known)
    };
    let is_fine = fine(login, "-_.") && fine(host, "-.");
    is_fine.then(|| format!("{login} <{id}{joint}{login}@users.noreply.{host}>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_port_and_nothing_that_ends_it() {
        let named = |login, host| noreply(7, '+', login, host);
        let mona = "mona <7+mona@users.noreply.github.com>";
        assert_eq!(named("mona", "github.com").as_deref(), Some(mona));
        let mona = "mona <7-mona@users.noreply.git.example>";
        let address = noreply(7, '-', "mona", "git.example:8443");
        assert_eq!(address.as_deref(), Some(mona));
        for hostile in ["a> <b", "a\nb", "", "a@b", "a'b", "a b"] {
            assert_eq!(named(hostile, "github.com"), None, "{hostile:?}");
        }
    }
}
