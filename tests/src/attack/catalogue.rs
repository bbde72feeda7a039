//! All attacks. A script holds one family; each function in it with a docstring is an attack, named by the
//! function, and the lines with `@` before it are its conditions (`scripts/prelude.py` explains them).

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;

use super::entry::{Act, Attack, LIMIT, Recorded, Without};
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
                without: arguments(conditions, "without")
                    .filter_map(|it| without(&it))
                    .collect(),
                through: argument(conditions, "through"),
                undemonstrated: arguments(conditions, "undemonstrated")
                    .filter_map(|it| it.split_once(": ").map(|(a, b)| (a.into(), b.into())))
                    .collect(),
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
    arguments(conditions, name).next()
}

/// The arguments of all conditions `@name(...)`.
fn arguments<'a>(conditions: &'a str, name: &str) -> impl Iterator<Item = String> + use<'a> {
    let start = format!("@{name}(");
    conditions.lines().filter_map(move |line| {
        let inner = line.strip_prefix(&start)?.strip_suffix(')')?;
        Some(inner.trim_matches('"').to_owned())
    })
}

/// From `kind; control; options`, where the kind may have `root` before it.
fn without(text: &str) -> Option<Without> {
    let mut parts = text.splitn(3, ';').map(str::trim);
    let (kind, control) = (parts.next()?, parts.next()?);
    let by_root = kind.strip_prefix("root ");
    Some(Without {
        kind: by_root.unwrap_or(kind).to_owned(),
        by_root: by_root.is_some(),
        control: control.to_owned(),
        options: parts.next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::attack::cell::Cell;
    use crate::attack::controls::Lacking;

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
                      @without(\"root bubblewrap; mounts; --bind / /\")\n\
                      @undemonstrated(\"docker landlock: too slow\")\n\
                      def one():\n    \"\"\"Takes over\"\"\"\n\ndef two():\n    \"\"\"Waits\"\"\"\n";
        let [one, two] = &of_script(Family::Host, script)[..] else {
            panic!("two attacks");
        };
        assert!(one.is_for(Cell::BubblewrapUnprivileged) && !one.is_for(Cell::Landlock));
        assert_eq!(one.limit, Duration::from_secs(60));
        assert_eq!(one.recorded, Some(Recorded::Web));
        let without = one.without(Lacking::Bubblewrap).unwrap();
        assert!(without.by_root);
        assert_eq!(
            (without.control.as_str(), without.options.as_str()),
            ("mounts", "--bind / /")
        );
        assert_eq!(one.undemonstrated(Lacking::Bubblewrap), None);
        let why = one.undemonstrated(Lacking::Landlock);
        assert_eq!(why.as_deref(), Some("too slow"));
        assert_eq!(two.without(Lacking::Bubblewrap), None);
        assert_eq!((two.what.as_str(), two.limit), ("Waits", LIMIT));
    }
}
