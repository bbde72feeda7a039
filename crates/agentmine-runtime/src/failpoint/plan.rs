//! What the environment wants to happen at which failpoint.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::names::{BOUNDARIES, Guard, OutcomeUnknown};

/// A side of a boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    Before,
    After,
}

impl Edge {
    fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Kill,
    Stop,
    Unknown,
    Panic,
}

impl Action {
    fn as_str(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Unknown => "unknown",
            Self::Panic => "panic",
        }
    }
}

/// One entry of `AGENTMINE_FAILPOINTS`.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// `NAME.EDGE`.
    point: String,
    action: Action,
    /// The first hit that acts, from 1.
    from: u64,
    /// How many hits act.
    times: u64,
    /// Only once for all processes.
    once: bool,
    hits: u64,
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?}: expected NAME.EDGE=ACTION, with *N, @N and ! in this order");
        let (point, how) = text.split_once('=').ok_or_else(wrong)?;
        let (name, edge) = point.rsplit_once('.').ok_or_else(wrong)?;
        if !BOUNDARIES.contains(&name) || !["before", "after"].contains(&edge) {
            return Err(format!("there is no failpoint {point:?}"));
        }
        let once = how.ends_with('!');
        let (how, from) = number(how.trim_end_matches('!'), '@').ok_or_else(wrong)?;
        let (action, times) = number(how, '*').ok_or_else(wrong)?;
        let action = match action {
            "kill" => Action::Kill,
            "stop" => Action::Stop,
            "unknown" => Action::Unknown,
            "panic" => Action::Panic,
            _ => return Err(wrong()),
        };
        Ok(Self {
            point: point.to_owned(),
            action,
            from,
            times,
            once,
            hits: 0,
        })
    }
}

/// What is before the sign, and the number after it; 1 without a sign.
fn number(text: &str, sign: char) -> Option<(&str, u64)> {
    match text.split_once(sign) {
        Some((text, number)) => Some((text, number.parse().ok()?)),
        None => Some((text, 1)),
    }
}

fn parse_all(list: &str) -> Result<Vec<Entry>, String> {
    let entries = list.split(',').map(str::trim).filter(|it| !it.is_empty());
    entries.map(str::parse).collect()
}

struct Plan {
    entries: Mutex<Vec<Entry>>,
    folder: Option<PathBuf>,
    /// What was recorded as reached.
    reached: Mutex<HashSet<(&'static str, &'static str)>>,
}

/// A wrong plan is a fault of the test, which must not pass for that.
static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let list = std::env::var("AGENTMINE_FAILPOINTS").unwrap_or_default();
    let entries = parse_all(&list).unwrap_or_else(|error| panic!("AGENTMINE_FAILPOINTS: {error}"));
    Plan {
        entries: Mutex::new(entries),
        folder: std::env::var_os("AGENTMINE_FAILPOINTS_DIR").map(PathBuf::from),
        reached: Mutex::default(),
    }
});

static GUARDS_OFF: LazyLock<Vec<Guard>> = LazyLock::new(|| {
    let list = std::env::var("AGENTMINE_GUARDS_OFF").unwrap_or_default();
    let names = list.split(',').map(str::trim).filter(|it| !it.is_empty());
    let guard = |name: &str| Guard::ALL.into_iter().find(|it| it.as_str() == name);
    names
        .map(|name| guard(name).unwrap_or_else(|| panic!("there is no guard {name:?}")))
        .collect()
});

pub(super) fn guards_off() -> &'static [Guard] {
    &GUARDS_OFF
}

/// The process is at a failpoint.
pub(super) fn reach(boundary: &'static str, edge: Edge) -> Result<(), OutcomeUnknown> {
    let plan = &*PLAN;
    if let Some(folder) = &plan.folder {
        let key = (boundary, edge.as_str());
        let mut reached = plan.reached.lock().unwrap_or_else(PoisonError::into_inner);
        if reached.insert(key) {
            let name = format!("reached.{boundary}.{}", edge.as_str());
            let _ = std::fs::write(folder.join(name), "");
        }
    }
    let due = {
        let mut entries = plan.entries.lock().unwrap_or_else(PoisonError::into_inner);
        due(&mut entries, boundary, edge)
    };
    let Some((action, once)) = due else {
        return Ok(());
    };
    if !record(plan.folder.as_deref(), boundary, edge, action, once) {
        return Ok(());
    }
    match action {
        Action::Kill => signal_self(libc::SIGKILL),
        Action::Stop => signal_self(libc::SIGSTOP),
        Action::Unknown => return Err(OutcomeUnknown(boundary)),
        Action::Panic => {
            let said = std::env::var("AGENTMINE_PANIC_MESSAGE").unwrap_or_default();
            panic!("failpoint {boundary}: {said}")
        }
    }
    Ok(())
}

/// What is to happen at this hit, and whether only once for all processes.
fn due(entries: &mut [Entry], boundary: &str, edge: Edge) -> Option<(Action, bool)> {
    let is_here =
        |entry: &Entry| entry.point.strip_suffix(edge.as_str()) == Some(&format!("{boundary}."));
    let mut due = None;
    for entry in entries.iter_mut().filter(|entry| is_here(entry)) {
        entry.hits += 1;
        if (entry.from..entry.from.saturating_add(entry.times)).contains(&entry.hits) {
            due = Some((entry.action, entry.once));
        }
    }
    due
}

/// Records what is about to happen as the file `hit.NAME.EDGE.ACTION.PID.NANOSECONDS`. `false`: it has
/// happened once already.
fn record(folder: Option<&Path>, boundary: &str, edge: Edge, action: Action, once: bool) -> bool {
    let Some(folder) = folder else {
        return true;
    };
    let what = format!("{boundary}.{}.{}", edge.as_str(), action.as_str());
    if once {
        let mark = std::fs::File::create_new(folder.join(format!("once.{what}")));
        if mark.is_err() {
            return false;
        }
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanoseconds = now.map_or(0, |it| it.as_nanos());
    let pid = std::process::id();
    let _ = std::fs::write(folder.join(format!("hit.{what}.{pid}.{nanoseconds}")), "");
    true
}

fn signal_self(signal: i32) {
    // To this thread, which would otherwise continue for a moment while another one takes the signal.
    // SAFETY: it takes and returns numbers and touches no memory of this program.
    unsafe {
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_which_hit_acts() {
        let list = "store.claim.after=unknown*2@3, gateway.push.before=kill!";
        let mut plan = parse_all(list).unwrap();
        let mut hit = || due(&mut plan, "store.claim", Edge::After);
        let acts: Vec<bool> = (0..6).map(|_| hit().is_some()).collect();
        assert_eq!(acts, [false, false, true, true, false, false]);
        assert_eq!(due(&mut plan, "gateway.push", Edge::After), None);
        let killed = due(&mut plan, "gateway.push", Edge::Before);
        assert_eq!(killed, Some((Action::Kill, true)));
    }

    #[test]
    fn an_entry_that_names_nothing_is_refused() {
        for wrong in [
            "store.claim=kill",
            "store.nothing.after=kill",
            "store.claim.after=sleep",
            "store.claim.after=kill@x",
        ] {
            parse_all(wrong).unwrap_err();
        }
    }

    #[test]
    fn what_happens_once_is_recorded_for_all_processes() {
        let folder = tempfile::tempdir().unwrap();
        let act = || {
            record(
                Some(folder.path()),
                "queue.ack",
                Edge::Before,
                Action::Kill,
                true,
            )
        };
        assert_eq!([act(), act()], [true, false]);
    }
}
