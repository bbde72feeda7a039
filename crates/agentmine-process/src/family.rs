//! A program and every process that it started, including those that left its process group.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::process::{Process, Stat, signal_group};

/// How many bytes of a process's environment are searched.
const MAX_ENVIRONMENT: u64 = 1024 * 1024;

/// How long a look waits for all processes that are executing another program, which takes microseconds on a free core.
/// The environment of a hostile process may never become readable.
const MAX_WAIT_FOR_PROGRAM: Duration = Duration::from_millis(500);

/// How often the environment of such a process is read at least, however long that takes.
const MIN_TRIES: u32 = 20;

/// A variable in the environment of a program. All processes that it starts inherit it, and keep it when
/// their parents end.
#[derive(Debug, Clone)]
pub struct Mark {
    variable: &'static str,
    value: String,
}

impl Mark {
    /// A mark that no other program on this machine has.
    #[must_use]
    pub fn new(variable: &'static str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let own = std::process::id();
        // Pids are reused; a pid together with its start time is not.
        let started = Process::of(own.cast_signed()).map_or(0, Process::started);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            variable,
            value: format!("{own}-{started}-{number}"),
        }
    }

    /// A mark that another process can find again by the same value.
    #[must_use]
    pub fn of(variable: &'static str, value: String) -> Self {
        Self { variable, value }
    }

    /// The living processes with this mark.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let ours = std::process::id().cast_signed();
        let living: Vec<Stat> = Stat::all()
            .filter(|stat| !stat.dead && stat.process.pid() != ours)
            .collect();
        let marked = self.among(&living);
        let found = living.into_iter().map(|stat| stat.process);
        found.filter(|process| marked.contains(process)).collect()
    }

    /// The variable to set, and its value.
    #[must_use]
    pub fn variable(&self) -> (&'static str, &str) {
        (self.variable, &self.value)
    }

    /// Those that have it. While a process executes another program, some or all of its environment cannot be read for a
    /// moment: this waits for the end of it, once for all of them.
    fn among(&self, stats: &[Stat]) -> HashSet<Process> {
        let wanted = format!("{}={}", self.variable, self.value);
        let is_marked = |environment: &[u8]| {
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == wanted.as_bytes())
        };
        let mut marked = HashSet::new();
        let mut unsure: Vec<Process> = stats.iter().map(|stat| stat.process).collect();
        let patience = Instant::now() + MAX_WAIT_FOR_PROGRAM;
        for tries in 1.. {
            unsure.retain(|process| {
                let seen = look_into_environment(process.pid(), is_marked);
                if seen == Environment::Has {
                    marked.insert(*process);
                }
                seen == Environment::Incomplete
            });
            // On a busy machine a single look can take longer than the whole wait.
            let is_over = tries >= MIN_TRIES && Instant::now() > patience;
            if unsure.is_empty() || is_over {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        marked
    }
}

/// What a look into the environment of a process shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Environment {
    Has,
    /// As far as it is searched, or it may not be read.
    HasNot,
    /// The process executes another program at this moment.
    Incomplete,
}

/// Whether the environment of a process has what is looked for.
fn look_into_environment(pid: i32, is_found: impl Fn(&[u8]) -> bool) -> Environment {
    let living = || Stat::of(pid).filter(|stat| !stat.dead);
    let file = File::open(format!("/proc/{pid}/environ"));
    let (Some(before), Ok(file)) = (living(), file) else {
        return Environment::HasNot;
    };
    let mut environment = Vec::new();
    let _ = file.take(MAX_ENVIRONMENT).read_to_end(&mut environment);
    if is_found(&environment) {
        return Environment::Has;
    }
    // Each program has its environment at another place, which the kernel chooses at random.
    let is_whole = before.environment.is_some_and(|(begin, end)| {
        environment.len() as u64 == end.saturating_sub(begin).min(MAX_ENVIRONMENT)
    });
    let is_same = || living().is_some_and(|now| now.environment == before.environment);
    match is_whole && is_same() {
        true => Environment::HasNot,
        false => Environment::Incomplete,
    }
}

/// A program that leads its process group, and all that it started: its descendants, the members of its
/// group and session, and the processes with its mark.
#[derive(Debug)]
pub struct Family {
    leader: Process,
    mark: Option<Mark>,
    /// The living members as of the last look. An orphan is no longer a descendant, so it is remembered.
    known: HashSet<Process>,
    leader_reaped: bool,
}

impl Family {
    /// The family of a program that was just started.
    #[must_use]
    pub fn new(leader: Process, mark: Option<Mark>) -> Self {
        Self {
            leader,
            mark,
            known: HashSet::new(),
            leader_reaped: false,
        }
    }

    /// The program itself.
    #[must_use]
    pub fn leader(&self) -> Process {
        self.leader
    }

    /// Must be called before the program is waited for, since its pid, which is also the id of its group, may be
    /// reused afterwards. Members of the group that were not seen by then are found by the mark only.
    pub fn before_reaping_leader(&mut self) {
        self.look();
        self.leader_reaped = true;
    }

    /// Whether [`Family::before_reaping_leader`] was called, so the leader may be reaped.
    #[must_use]
    pub fn is_leader_reaped(&self) -> bool {
        self.leader_reaped
    }

    /// Finds and remembers the members that are alive, and counts them. Reads all of `/proc`, which takes
    /// milliseconds on a busy machine.
    pub fn look(&mut self) -> usize {
        let ours = std::process::id().cast_signed();
        // Whatever the leader started is younger than the leader.
        let mut others: Vec<Stat> = Stat::all()
            .filter(|stat| stat.process.pid() != ours)
            .filter(|stat| stat.process.started() >= self.leader.started())
            .collect();
        let mut family = HashMap::new();
        take(&mut others, &mut family, |stat, _| self.is_member(stat));
        descend(&mut others, &mut family);
        if let Some(mark) = &self.mark {
            // Only among the rest: reading environments is the most expensive part.
            let marked = mark.among(&others);
            take(&mut others, &mut family, |stat, _| {
                marked.contains(&stat.process)
            });
            descend(&mut others, &mut family);
        }
        let living = family.into_values().filter(|stat| !stat.dead);
        self.known = living.map(|stat| stat.process).collect();
        self.known.len()
    }

    /// Signals every member that is alive, and returns whether there was one. To kill a family, repeat this
    /// until it returns false: members may fork meanwhile.
    pub fn signal(&mut self, signal: i32) -> bool {
        self.look();
        if !self.leader_reaped {
            signal_group(self.leader.pid(), signal);
        }
        for process in &self.known {
            process.signal(signal);
        }
        !self.known.is_empty()
    }

    fn is_member(&self, stat: &Stat) -> bool {
        let leader = self.leader.pid();
        stat.process == self.leader
            || self.known.contains(&stat.process)
            || (!self.leader_reaped && (stat.group == leader || stat.session == leader))
    }
}

fn descend(others: &mut Vec<Stat>, family: &mut HashMap<i32, Stat>) {
    while take(others, family, |stat, family| {
        family.contains_key(&stat.parent)
    }) {}
}

/// Moves the processes that belong to the family into it, and returns whether there were any.
fn take(
    others: &mut Vec<Stat>,
    family: &mut HashMap<i32, Stat>,
    belongs: impl Fn(&Stat, &HashMap<i32, Stat>) -> bool,
) -> bool {
    let all = std::mem::take(others).into_iter();
    let (taken, left): (Vec<Stat>, Vec<Stat>) = all.partition(|stat| belongs(stat, family));
    *others = left;
    let any = !taken.is_empty();
    family.extend(taken.into_iter().map(|stat| (stat.process.pid(), stat)));
    any
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn start(script: &str) -> (Child, Family) {
        let mark = Mark::new("AGENTMINE_TEST_RUN");
        let (name, value) = mark.variable();
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .env(name, value)
            // What a failed test leaves behind must not hold the test runner's pipes open.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let child = command.spawn().unwrap();
        let leader = Process::of(child.id().cast_signed()).unwrap();
        (child, Family::new(leader, Some(mark)))
    }

    #[track_caller]
    fn until(mut holds: impl FnMut() -> bool) {
        let patience = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < patience);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn orphan_in_a_session_of_its_own_is_found_by_the_mark() {
        let (mut child, mut family) = start("setsid -f sleep 1000");
        child.wait().unwrap();
        family.leader_reaped = true;
        until(|| family.look() == 1);
        until(|| !family.signal(libc::SIGKILL));
        assert_eq!(family.look(), 0);
    }

    #[test]
    fn member_without_mark_is_remembered_when_its_parents_end() {
        let (mut child, mut family) = start("env -i setsid sleep 1000 & sleep 1000");
        until(|| family.look() == 3);
        family.leader().signal(libc::SIGKILL);
        family.before_reaping_leader();
        child.wait().unwrap();
        assert_eq!(family.look(), 2);
        until(|| !family.signal(libc::SIGKILL));
    }

    #[test]
    fn process_that_executes_one_program_after_the_other_is_found_at_each_look() {
        assert_eq!(missed_of_a_process_that_executes(""), 0);
    }

    /// The kernel lists the variables one by one, and until it is done an environment looks empty.
    #[test]
    fn process_that_executes_programs_with_many_variables_is_found_at_each_look() {
        let many = "i=0; while [ $i -lt 20000 ]; do export v$i=; i=$((i + 1)); done; ";
        assert_eq!(missed_of_a_process_that_executes(many), 0);
    }

    /// How many of 200 looks do not find a process that does nothing but execute a shell again and again.
    fn missed_of_a_process_that_executes(prelude: &str) -> usize {
        let again = "exec sh -c \"$0\" \"$0\"";
        let (mut child, mut family) = start(&format!(
            "{prelude}exec setsid -f sh -c '{again}' '{again}'"
        ));
        child.wait().unwrap();
        family.leader_reaped = true;
        let mark = family.mark.clone().unwrap();
        until(|| mark.processes().len() == 1);
        let missed = (0..200).filter(|_| mark.processes().is_empty()).count();
        until(|| !family.signal(libc::SIGKILL));
        missed
    }

    /// Processes that have removed their environment from their memory. They are killed when this is dropped.
    struct Unreadable(Vec<i32>);

    impl Unreadable {
        fn start(count: usize) -> Self {
            let own = Stat::of(std::process::id().cast_signed()).unwrap();
            let (begin, end) = own.environment.unwrap();
            // SAFETY: takes a plain integer.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
            let begin = begin / page * page;
            let length = usize::try_from(end - begin).unwrap();
            let begin = usize::try_from(begin).unwrap() as *mut libc::c_void;
            let mut all = Self(Vec::new());
            for _ in 0..count {
                // SAFETY: the child only makes system calls, and never returns to what its environment was for.
                let child = unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::munmap(begin, length);
                        loop {
                            libc::pause();
                        }
                    }
                    child
                };
                assert!(child > 0);
                all.0.push(child);
            }
            all
        }
    }

    impl Drop for Unreadable {
        fn drop(&mut self) {
            for child in &self.0 {
                // SAFETY: these are children of this process that were not waited for.
                unsafe {
                    libc::kill(*child, libc::SIGKILL);
                    libc::waitpid(*child, std::ptr::null_mut(), 0);
                }
            }
        }
    }

    #[test]
    fn processes_whose_environment_stays_unreadable_are_waited_for_together() {
        let hostile = Unreadable::start(40);
        until(|| {
            let unreadable = |pid: &i32| std::fs::read(format!("/proc/{pid}/environ"));
            hostile
                .0
                .iter()
                .map(unreadable)
                .all(|it| it.unwrap().is_empty())
        });
        let (mut child, mut family) = start("sleep 1000");
        let before = Instant::now();
        let mark = family.mark.clone().unwrap();
        assert!(mark.processes().contains(&family.leader()));
        assert!(before.elapsed() < 10 * MAX_WAIT_FOR_PROGRAM);
        until(|| !family.signal(libc::SIGKILL));
        child.wait().unwrap();
    }

    #[test]
    fn zombie_that_nobody_collects_counts_as_gone() {
        let (mut child, mut family) = start("exit 0");
        until(|| !family.leader().is_alive());
        assert_eq!(family.look(), 0);
        assert!(!family.signal(libc::SIGKILL));
        child.wait().unwrap();
    }
}
