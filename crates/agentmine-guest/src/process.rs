//! Starts processes, and reaps those that the guest adopts.
//!
//! The guest is a subreaper, so whatever a command leaves behind becomes a child of the guest and is found.
//! Accepted: a process that forks while its tree is read is missed in that round. When the tunnel ends, the
//! kill is repeated until nothing is left.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentmine_process::{children, descendants, reap, signal_group};
use tokio::process::{Child, Command};

/// Children that tokio waits for; all others were adopted.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnChildren(Arc<Mutex<HashSet<i32>>>);

/// A process that was started as the leader of its own group.
#[derive(Debug)]
pub(crate) struct Leader {
    pub(crate) child: Child,
    pub(crate) pid: i32,
    _awaited: Awaited,
}

/// A child that is waited for as long as this lives.
#[derive(Debug)]
pub(crate) struct Awaited {
    pid: i32,
    own: OwnChildren,
}

/// What a program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// What is written to a pipe.
    Piped,
    /// `/dev/null`. An empty pipe would not be the same: tools such as `rg` search a pipe instead of the folder.
    Empty,
}

/// The standard library can start a program without forking, which saves 0.2 ms for each command, but only if it finds this
/// function of the C library. In a static binary it is there only if something refers to it.
#[used]
static CHANGES_FOLDER: unsafe extern "C" fn(
    *mut libc::posix_spawn_file_actions_t,
    *const libc::c_char,
) -> libc::c_int = libc::posix_spawn_file_actions_addchdir_np;

/// The program that a name leads to in the folders of `PATH`, as `execvp` finds it, except that a script whose interpreter
/// is missing ends the search. The standard library would have to fork for the search. `None` if it has to search: the
/// name is a path, nothing is found, or a folder is relative.
pub(crate) fn find(name: &str, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    for folder in env.get("PATH")?.split(':') {
        let path = Path::new(folder).join(name);
        if path.is_relative() || is_program(&path) {
            return Some(path).filter(|it| it.is_absolute());
        }
    }
    None
}

fn is_program(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the name ends in NUL.
    path.is_file() && unsafe { libc::access(name.as_ptr(), libc::X_OK) } == 0
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.own.lock().remove(&self.pid);
    }
}

impl OwnChildren {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program whose output is piped. `image` is what is executed in its place.
    pub(crate) fn spawn(
        &self,
        argv: &[String],
        image: Option<&Path>,
        cwd: &Path,
        env: &BTreeMap<String, String>,
        input: Input,
    ) -> io::Result<Leader> {
        let program = argv.first().map_or("", String::as_str);
        let found = image.map(Path::to_owned).or_else(|| find(program, env));
        let mut command = Command::new(found.as_deref().unwrap_or(Path::new(program)));
        let child = command
            .arg0(program)
            .args(argv.iter().skip(1))
            .env_clear()
            .envs(env)
            .current_dir(cwd)
            .process_group(0)
            .stdin(match input {
                Input::Piped => Stdio::piped(),
                Input::Empty => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let awaited = self.awaits(&child);
        Ok(Leader {
            child,
            pid: awaited.pid,
            _awaited: awaited,
        })
    }

    /// Keeps a child from being reaped as an adopted one.
    pub(crate) fn awaits(&self, child: &Child) -> Awaited {
        let pid = child.id().map_or(0, u32::cast_signed);
        self.lock().insert(pid);
        Awaited {
            pid,
            own: self.clone(),
        }
    }

    /// Reaps adopted processes that have ended. Never returns.
    pub(crate) async fn reap_adopted(self) {
        let kind = tokio::signal::unix::SignalKind::child();
        let Ok(mut signals) = tokio::signal::unix::signal(kind) else {
            return;
        };
        while signals.recv().await.is_some() {
            // Processes end in bursts, and reaping them is not urgent.
            tokio::time::sleep(Duration::from_millis(50)).await;
            for pid in children(std::process::id().cast_signed()) {
                if !self.lock().contains(&pid) {
                    reap(pid);
                }
            }
        }
    }
}

/// The group of a process, which is killed with all descendants when this is dropped before [`Family::ended`].
#[derive(Debug)]
pub(crate) struct Family(Option<i32>);

impl Family {
    /// The child must have been started as the leader of its own group.
    pub(crate) fn of(child: &Child) -> Self {
        Self(child.id().map(u32::cast_signed))
    }

    /// The process has ended, so its number may be another one's.
    pub(crate) fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            kill_family(leader);
        }
    }
}

fn kill_family(leader: i32) {
    let descendants = descendants(leader);
    signal_group(leader, libc::SIGKILL);
    for process in descendants {
        process.signal(libc::SIGKILL);
    }
}

impl Leader {
    /// Kills the group and all descendants that left the group.
    pub(crate) fn kill(&self) {
        kill_family(self.pid);
    }

    /// Sends SIGTERM to the group.
    pub(crate) fn terminate(&self) {
        signal_group(self.pid, libc::SIGTERM);
    }

    /// Waits for its end, and returns the exit code, or 128 + the signal.
    pub(crate) async fn wait(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        match self.child.wait().await {
            Ok(status) => status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            Err(_) => -1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_is_found_where_its_own_environment_says() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let paths = folders.each_ref().map(|it| it.path().join("tool"));
        for (path, mode) in paths.iter().zip([0o644, 0o755, 0o755]) {
            std::fs::write(path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let search = |folders: &[&str]| {
            let env = BTreeMap::from([("PATH".to_owned(), folders.join(":"))]);
            find("tool", &env)
        };
        let [plain, first, second] = folders.each_ref().map(|it| it.path().to_str().unwrap());
        let expected = Some(paths[1].clone());
        assert_eq!(search(&["/nowhere", plain, first, second]), expected);
        assert_eq!(search(&["/nowhere", plain]), None);
        assert_eq!(search(&["node_modules/.bin", first]), None);
        assert_eq!(search(&["", first]), None);
        assert_eq!(find("./tool", &BTreeMap::new()), None);
    }

    #[tokio::test]
    async fn a_command_without_input_reads_nothing_and_has_no_pipe() {
        let env = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let look = ["sh", "-c", "test -p /dev/stdin; echo $?; cat"].map(str::to_owned);
        for (input, printed) in [(Input::Piped, "0\n"), (Input::Empty, "1\n")] {
            let own = OwnChildren::default();
            let leader = own.spawn(&look, None, Path::new("/"), &env, input).unwrap();
            let output = leader.child.wait_with_output().await.unwrap();
            assert_eq!(output.stdout, printed.as_bytes());
        }
    }
}
