//! All attacks. A script holds one family; each function in it with a docstring is an attack, named by the
//! function, and the lines with `@` before it are its conditions (`scripts/prelude.py` explains them).

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use super::entry::{Act, Attack, LIMIT, Recorded};
use super::family::Family;
use super::{hostile_guest, injection, operator, worker_git};

const PRELUDE: &str = include_str!("scripts/prelude.py");
const SCRIPTS: &[(Family, &str)] = &[
    (Family::Escape, include_str!("scripts/escape.py")),
    (Family::Host, include_str!("scripts/host.py")),
    (Family::Guest, include_str!("scripts/guest.py")),
    (Family::Network, include_str!("scripts/network.py")),
    (Family::Credentials, include_str!("scripts/credentials.py")),
    (Family::GitProxy, include_str!("scripts/git_proxy.py")),
    (Family::FileTools, include_str!("scripts/file_tools.py")),
    (Family::Exhaustion, include_str!("scripts/exhaustion.py")),
];

/// All attacks, by family.
#[must_use]
pub fn all() -> Vec<Attack> {
    let attacks = SCRIPTS
        .iter()
        .map(|&(family, text)| of_script(family, text));
    let attacks = attacks.flatten().chain(worker_git::attacks());
    let attacks = attacks.chain(hostile_guest::attacks());
    let attacks = attacks.chain(injection::attacks());
    attacks.chain(operator::attacks()).collect()
}

fn of_script(family: Family, script: &'static str) -> Vec<Attack> {
    // A pattern that does not compile fails the test below.
    static ATTACK: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?m)((?:^@.*\n)*)^def (\w+)\(\):\n    """([^"]+)""""#).ok());
    let Some(pattern) = &*ATTACK else {
        return Vec::new();
    };
    let found = pattern.captures_iter(script);
    found
        .map(|found| {
            let conditions = &found[1];
            Attack {
                name: found[2].to_owned(),
                family,
                what: found[3].to_owned(),
                limit: argument(conditions, "limit")
                    .and_then(|seconds| seconds.parse().ok())
                    .map_or(LIMIT, Duration::from_secs),
                check: conditions.contains("@check"),
                ruins: conditions.contains("@ruins"),
                recorded: match argument(conditions, "recorded").as_deref() {
                    Some("web") => Some(Recorded::Web),
                    Some("push") => Some(Recorded::Push),
                    Some(_) | None => None,
                },
                off: argument(conditions, "off"),
                needs_web: conditions.contains("@web"),
                only: argument(conditions, "only"),
                weaker: argument(conditions, "weaker")
                    .and_then(|it| it.split_once(": ").map(|(a, b)| (a.into(), b.into()))),
                act: Act::Script(format!("{PRELUDE}\n{script}\nmain({:?})\n", &found[2])),
            }
        })
        .collect()
}

/// The argument of the condition `@name(...)`.
fn argument(conditions: &str, name: &str) -> Option<String> {
    let start = format!("@{name}(");
    let line = conditions
        .lines()
        .find_map(|line| line.strip_prefix(&start))?;
    let inner = line.strip_suffix(')')?;
    Some(inner.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::attack::cell::Cell;

    #[test]
    fn each_attack_has_a_name_of_its_own() {
        let all = all();
        let names: BTreeSet<_> = all.iter().map(|attack| &attack.name).collect();
        assert_eq!(names.len(), all.len());
        for &(family, script) in SCRIPTS {
            let described = script.matches("():\n    \"\"\"").count();
            assert_eq!(of_script(family, script).len(), described, "{family}");
        }
    }

    #[test]
    fn conditions_are_read() {
        let script = "@only(\"docker bubblewrap\")\n@limit(60)\n@recorded(\"web\")\n\
                      def one():\n    \"\"\"Takes over\"\"\"\n\ndef two():\n    \"\"\"Waits\"\"\"\n";
        let [one, two] = &of_script(Family::Host, script)[..] else {
            panic!("two attacks");
        };
        assert!(one.is_for(Cell::BubblewrapUnprivileged) && !one.is_for(Cell::Landlock));
        assert_eq!(one.limit, Duration::from_secs(60));
        assert_eq!(one.recorded, Some(Recorded::Web));
        assert_eq!((two.what.as_str(), two.limit), ("Waits", LIMIT));
    }
}
