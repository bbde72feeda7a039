//! Jails of `bwrap` alone that lack a control, and processes without a jail, whose editor opens any file.
//!
//! They run as a separate user, whom nobody else is; root alone can become one. Attacks that need a right on the
//! machine itself run as root, with that one capability. All have limits, so that nothing but their folder comes to harm.

use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::Command;

use super::place::{Place, processes_in, remove};
use super::{Demonstration, Ended, Lacking, concerned};
use crate::attack::arena::argv;
use crate::attack::canaries::fresh_environment;
use crate::attack::entry::{Act, Attack, Without};
use crate::attack::family::Family;
use crate::attack::finding::Claim;

/// The jail, an option with its arguments in each entry. What the guest of AgentMine adds, it lacks: the filter of
/// system calls, Landlock, and the limits.
const JAIL: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--uid 1000",
    "--gid 1000",
    "--cap-drop ALL",
    "--ro-bind /usr /usr",
    "--symlink usr/bin /bin",
    "--symlink usr/lib /lib",
    "--symlink usr/lib64 /lib64",
    "--ro-bind-try /etc/alternatives /etc/alternatives",
    "--ro-bind-try /etc/ld.so.cache /etc/ld.so.cache",
    "--proc /proc",
    "--dev /dev",
    "--tmpfs /tmp",
    "--ro-bind $PROGRAMS /opt/agentmine",
    "--bind $WORKSPACE_OUTSIDE /workspace",
    "--chdir /workspace/project",
];
/// What an attack may take at most, in and out of a jail.
const BOUNDS: &[&str] = &["--nproc=1000", "--as=4294967296"];
/// The same for files, where no sparse one is meant to be larger.
const FILE_BOUND: &str = "--fsize=1073741824";
/// Ends what an attack leaves behind, and what it cannot be trusted with.
const ENDS_WITH_IT: &[&str] = &[
    "bwrap",
    "--dev-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--unshare-pid",
    "--die-with-parent",
    "--",
];
/// The first of the users of the suite; none of them is anybody else.
const FIRST_USER: u32 = 0x4000_0000;

/// Whose process it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rights {
    /// A separate user.
    None,
    /// Anybody who runs the suite, as a rule the machine's root.
    Root,
}

/// Carries attacks out in processes of their own.
pub(super) async fn demonstrate(
    program: &Path,
    kind: Lacking,
    attacks: &[Attack],
) -> anyhow::Result<Vec<Demonstration>> {
    // SAFETY: it only returns a number.
    let root = unsafe { libc::geteuid() } == 0;
    let mut shown = Vec::new();
    let (mut of_nobody, mut of_root) = (Vec::new(), Vec::new());
    for attack in attacks {
        match attack.without(kind) {
            None => {
                shown.push(Demonstration::of(attack, kind, "", Ended::unwritten()));
            }
            Some(it) if it.by_root && !root => {
                let why = Ended::NotDemonstrated("only root can take the control away".into());
                shown.push(Demonstration::of(attack, kind, &it.control, why));
            }
            Some(it) if it.by_root => of_root.push(attack.name.clone()),
            Some(it) if it.options.contains("+own-user") && !root => {
                let why = Ended::NotDemonstrated("it would end the processes of a person".into());
                shown.push(Demonstration::of(attack, kind, "", why));
            }
            Some(_) => of_nobody.push(attack.name.clone()),
        }
    }
    for (rights, names) in [(Rights::None, of_nobody), (Rights::Root, of_root)] {
        shown.extend(apart(program, kind, rights, &names).await?);
    }
    Ok(shown)
}

/// Starts a process of the suite that carries the attacks out, if there are any.
pub(super) async fn apart(
    program: &Path,
    kind: Lacking,
    rights: Rights,
    names: &[String],
) -> anyhow::Result<Vec<Demonstration>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let folder = tempfile::Builder::new()
        .prefix("agentmine-attacks-")
        .tempdir_in("/var/tmp")?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let state = folder.path().join("state");
    std::fs::create_dir(&state)?;
    // SAFETY: it only returns a number.
    let root = unsafe { libc::geteuid() } == 0;
    let mut command = if rights == Rights::None && root {
        let user = FIRST_USER + std::process::id();
        chown(&state, Some(user), Some(user))?;
        let mut command = Command::new("/usr/bin/setpriv");
        command
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .arg("--clear-groups")
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    let rights = rights.to_possible_value();
    let mut child = command
        .args(["controls-in", &kind.to_string()])
        .arg(rights.as_ref().map_or("", |it| it.get_name()))
        .args(["--only", &names.join(",")])
        .envs(fresh_environment())
        .env("HOME", &state)
        .env("AGENTMINE_ATTACKS_STATE", &state)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let mut shown = Vec::new();
    while let Some(line) = lines.next_line().await? {
        shown.push(serde_json::from_str(&line).with_context(|| line.clone())?);
    }
    let status = child.wait().await?;
    anyhow::ensure!(
        status.success() && shown.len() == names.len(),
        "the attacks in {kind}: {status} after {shown:?}"
    );
    Ok(shown)
}

/// Carries the attacks out in this process and prints each demonstration as a line of JSON.
pub(super) async fn here(kind: Lacking, rights: Rights, names: &[String]) -> anyhow::Result<()> {
    use std::io::Write as _;
    // An attack on all processes of the user reaches this one too. A handler, unlike an ignored signal, is not inherited.
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::spawn(async move { while ended.recv().await.is_some() {} });
    let mut place = Place::lay()?;
    for attack in concerned(kind, names) {
        let Some(without) = attack.without(kind) else {
            continue;
        };
        let ended = match one(&mut place, kind, &attack, &without).await {
            Ok(ended) => ended,
            Err(error) => Ended::Failed(format!("{error:#}")),
        };
        let shown = Demonstration::of(&attack, kind, &without.control, ended);
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&shown)?)?;
    }
    drop(place);
    // SAFETY: it only returns a number.
    let user = unsafe { libc::geteuid() };
    if rights == Rights::None && user >= FIRST_USER {
        // SAFETY: nobody else is this user; Linux leaves the caller out.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    }
    Ok(())
}

async fn one(
    place: &mut Place,
    kind: Lacking,
    attack: &Attack,
    without: &Without,
) -> anyhow::Result<Ended> {
    let workspace = place.workspace()?;
    let Act::Script(program) = &attack.act else {
        anyhow::bail!("it is no script");
    };
    let mut options = Vec::new();
    let (mut inherits, mut core, mut outlives) = (None, 0, false);
    for word in without.options.split_whitespace() {
        match word {
            "+core" => core = libc::RLIM_INFINITY,
            "+folder" => inherits = Some(place.root.as_raw_fd()),
            "+outlives" => outlives = true,
            "+own-user" => {}
            _ => options.push(word.to_owned()),
        }
    }
    let ends_with_it = attack.family == Family::Exhaustion && !outlives;
    let mut command = command(place, kind, attack, (&options, ends_with_it), &workspace)?;
    // SAFETY: the calls are safe after a fork, and the descriptor is open as long as the place.
    unsafe {
        command.pre_exec(move || {
            if let Some(descriptor) = inherits {
                libc::fcntl(descriptor, libc::F_SETFD, 0);
            }
            let core = libc::rlimit {
                rlim_cur: core,
                rlim_max: core,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const core);
            Ok(())
        });
    }
    let output = output(command, program).await?;
    let left = processes_in(&workspace);
    for &process in &left {
        // SAFETY: a process in a folder of the suite.
        unsafe { libc::kill(process, libc::SIGKILL) };
    }
    let claim = Claim::of(
        &String::from_utf8_lossy(&output.stdout),
        &String::from_utf8_lossy(&output.stderr),
    );
    let damage = place.bait.damage()?;
    let removed = remove(&workspace)?;
    let found = place
        .canaries
        .found_in(&[&output.stdout[..], &output.stderr].concat());
    Ok(match (claim, damage, found, removed) {
        (_, Some(damage), ..) => Ended::Succeeded(damage),
        (Claim::Succeeded(seen), ..) => Ended::Succeeded(seen),
        (_, _, Some(found), _) => Ended::Succeeded(format!("it got {found}")),
        (Claim::NotRun(why), ..) => Ended::NotDemonstrated(why),
        (Claim::Broken(why), ..) => Ended::Failed(why),
        (Claim::Blocked(_), None, None, Err(error)) => {
            Ended::Succeeded(format!("a careless removal fails: {error}"))
        }
        (Claim::Blocked(_), ..) if !left.is_empty() => {
            Ended::Succeeded(format!("{} processes are left", left.len()))
        }
        (Claim::Blocked(why), ..) => Ended::Failed(why),
    })
}

fn command(
    place: &Place,
    kind: Lacking,
    attack: &Attack,
    (options, ends_with_it): (&[String], bool),
    workspace: &Path,
) -> anyhow::Result<Command> {
    let variables = place.variables(workspace)?;
    let fill = |text: &str| {
        let mut text = text.to_owned();
        for (name, value) in &variables {
            text = text.replace(&format!("${name}"), value);
        }
        text
    };
    let mut command = Command::new("timeout");
    command
        .args([
            "-k",
            "5",
            &(attack.limit.as_secs() + 20).to_string(),
            "prlimit",
        ])
        .args(BOUNDS);
    if kind != Lacking::Editor {
        command.arg(FILE_BOUND);
    }
    let (mut own, outside) = (Vec::new(), workspace.display().to_string());
    let root = if kind == Lacking::Bubblewrap {
        let gone: Vec<_> = options
            .iter()
            .filter_map(|it| it.strip_prefix('!'))
            .collect();
        command.arg("bwrap");
        for option in JAIL {
            let name = option.split(' ').next().unwrap_or(option);
            if !gone.contains(&name) {
                command.args(option.split(' ').map(&fill));
            }
        }
        let added = options.iter().filter(|it| !it.starts_with('!'));
        command.args(added.map(|it| fill(it)));
        if !gone.contains(&"--remount-ro") {
            command.args(["--remount-ro", "/"]);
        }
        own.push(("PATH", "/opt/agentmine:/usr/bin:/bin".to_owned()));
        own.push(("HOME", "/workspace/tmp".to_owned()));
        "/workspace"
    } else {
        if ends_with_it {
            command.args(ENDS_WITH_IT);
        }
        command.current_dir(workspace.join("project"));
        own.push(("PATH", fill("$PROGRAMS:/usr/bin:/bin")));
        own.push(("HOME", fill("$SECRETS_HOME")));
        &outside
    };
    own.push(("TMPDIR", format!("{root}/tmp")));
    own.push(("AGENTMINE_WORKSPACE", root.to_owned()));
    let backend = match kind {
        Lacking::Docker | Lacking::Bubblewrap => Lacking::Bubblewrap,
        Lacking::Landlock | Lacking::Editor | Lacking::Operator | Lacking::Gateway => {
            Lacking::Landlock
        }
    };
    own.push(("BACKEND", backend.to_string()));
    let own = own
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    command.arg(if kind == Lacking::Bubblewrap {
        "--"
    } else {
        "env"
    });
    if kind == Lacking::Bubblewrap {
        command.arg("/usr/bin/env");
    }
    command.args(
        variables
            .into_iter()
            .chain(own)
            .map(|(name, value)| format!("{name}={value}")),
    );
    command.args(line(attack));
    Ok(command)
}

/// What is started there.
pub(super) fn line(attack: &Attack) -> Vec<String> {
    if attack.family == Family::Guest && !attack.check {
        // The shell is in the place of the guest.
        let line = ["/bin/sh", "-c", "/usr/bin/python3 -; exit 0"];
        return line.map(str::to_owned).into();
    }
    argv(attack)
}

/// What it printed, without waiting for what it left behind.
async fn output(mut command: Command, program: &str) -> anyhow::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let stdout = collect(child.stdout.take().context("stdout")?);
    let stderr = collect(child.stderr.take().context("stderr")?);
    let mut stdin = child.stdin.take().context("stdin")?;
    // A jail that does not start reads nothing.
    let _ = stdin.write_all(program.as_bytes()).await;
    drop(stdin);
    let status = child.wait().await?;
    let mut texts = Vec::new();
    for (text, mut reading) in [stdout, stderr] {
        // The other end may be open in a process that was left.
        let _ = tokio::time::timeout(Duration::from_secs(1), &mut reading).await;
        reading.abort();
        texts.push(std::mem::take(
            &mut *text.lock().unwrap_or_else(PoisonError::into_inner),
        ));
    }
    let stderr = texts.pop().unwrap_or_default();
    Ok(Output {
        status,
        stdout: texts.pop().unwrap_or_default(),
        stderr,
    })
}

/// Reads in the background.
fn collect(
    mut from: impl AsyncRead + Send + Unpin + 'static,
) -> (Arc<Mutex<Vec<u8>>>, tokio::task::JoinHandle<()>) {
    let text = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&text);
    let reading = tokio::spawn(async move {
        let mut buffer = vec![0; 65536];
        while let Ok(got @ 1..) = from.read(&mut buffer).await {
            let mut text = to.lock().unwrap_or_else(PoisonError::into_inner);
            text.extend_from_slice(buffer.get(..got).unwrap_or_default());
        }
    });
    (text, reading)
}
