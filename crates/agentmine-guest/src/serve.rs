//! Serves a worker: sends the hello, then starts one task for each stream that the worker opens.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use agentmine_guest::mux::{self, End, MuxStream};
use agentmine_guest::protocol::{
    GuestRequest, Hello, JailReport, MAGIC, MAX_REQUEST, OutboundKind, VERSION, read_json,
};
use agentmine_guest::seal::{self, Key, Opener, Sealed, Sealer};
use anyhow::{Context as _, Result};
use tokio::net::unix::pipe;

use crate::args::Options;
use crate::disk::Disk;
use crate::load::Load;
use crate::process::OwnChildren;
use crate::programs::Programs;
use crate::state::State;
use crate::{
    command, environment, evidence, figures, files, home, jail, outbound, restore, snapshot, stdio,
};

/// Serves until the tunnel ends, then kills all processes that were started.
pub(crate) fn main(options: Options) -> Result<()> {
    agentmine_process::become_subreaper();
    jail::die_first();
    jail::hide().context("hiding the guest's memory and files from what it starts")?;
    let (mut sealer, opener) = read_key()?.halves(End::Guest);
    jail::limit_resources(&options);
    jail::mask_modes();
    // The listeners are opened before the jail is entered: the stricter jail allows no further ones.
    let prepared = listen(options.git_port).and_then(|git| {
        let web = listen(options.web_port)?;
        let ports = (git.local_addr()?.port(), web.local_addr()?.port());
        let report = jail::enter(&options, ports)?;
        Ok((git, web, ports, report))
    });
    let (git, web, ports, report) = match prepared {
        Ok(prepared) => prepared,
        Err(err) => {
            send_hello(
                &mut sealer,
                &options,
                (0, 0),
                JailReport::default(),
                Some(format!("{err:#}")),
            )?;
            return Err(err);
        }
    };
    send_hello(&mut sealer, &options, ports, report, None)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let served = runtime.block_on(serve(options, ports, (git, web), (sealer, opener)));
    // Does not wait for anything that a command still holds.
    runtime.shutdown_background();
    agentmine_process::kill_all_descendants();
    served
}

fn listen(port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind(("127.0.0.1", port))
        .with_context(|| format!("listening on 127.0.0.1:{port}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Reads the key that the worker writes first, and nothing after it.
fn read_key() -> Result<Key> {
    let mut input = std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut key = [0; seal::KEY];
    input
        .read_exact(&mut key)
        .context("reading the key of the tunnel")?;
    Ok(Key::new(key))
}

fn send_hello(
    sealer: &mut Sealer,
    options: &Options,
    (git_port, web_port): (u16, u16),
    jail: JailReport,
    error: Option<String>,
) -> Result<()> {
    let body = serde_json::to_vec(&Hello {
        version: VERSION,
        git_port,
        web_port,
        root: options.root.to_string_lossy().into_owned(),
        jail,
        error,
    })?;
    let length = u32::try_from(body.len())?.to_be_bytes();
    let mut sealed = Vec::new();
    sealer.seal(&[MAGIC.as_slice(), &length, &body].concat(), &mut sealed);
    let mut out = std::io::stdout().lock();
    out.write_all(&sealed)?;
    out.flush().context("sending the hello")
}

async fn serve(
    options: Options,
    ports: (u16, u16),
    (git, web): (TcpListener, TcpListener),
    seal: (Sealer, Opener),
) -> Result<()> {
    let env = environment::base(&options, ports.1);
    let own = OwnChildren::default();
    let programs = Arc::<Programs>::default();
    let load = Load {
        memory: options.watched_memory,
        confinement: options.confinement,
        processes: options.watched_processes,
    };
    let state = Arc::new(State {
        disk: Disk::new(options.root.clone(), options.disk_limit),
        root: options.root,
        env,
        own: own.clone(),
        programs: programs.clone(),
        evidence: evidence::Evidence::default(),
        snapshots: tokio::sync::Mutex::default(),
    });
    // Both may exist already, and commands work without them.
    let _ = std::fs::create_dir_all(state.root.join("project"));
    let _ = home::prepare(&home::of(&state.root), ports.1);
    let input = nonblocking(std::io::stdin().as_fd().try_clone_to_owned())?;
    let output = nonblocking(std::io::stdout().as_fd().try_clone_to_owned())?;
    let input = pipe::Receiver::from_owned_fd_unchecked(input).context("stdin")?;
    let output = pipe::Sender::from_owned_fd_unchecked(output).context("stdout")?;
    let sealed = Sealed::new(tokio::io::join(input, output), End::Guest, seal);
    let mut mux = mux::start(sealed, End::Guest);

    tokio::spawn(own.reap_adopted());
    tokio::spawn(load.watch(state.disk.clone(), programs.clone()));
    tokio::spawn(state.disk.clone().watch(programs));
    let permits = outbound::permits();
    for (listener, kind) in [(git, OutboundKind::Git), (web, OutboundKind::Web)] {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let opener = mux.opener.clone();
        tokio::spawn(outbound::forward(listener, kind, opener, permits.clone()));
    }
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        tokio::select! {
            stream = mux.inbound.recv() => match stream {
                Some(stream) => { tokio::spawn(answer(stream, state.clone())); }
                None => return Ok(()),
            },
            _ = &mut mux.driver => return Ok(()),
            _ = stop.recv() => return Ok(()),
        }
    }
}

/// Makes the descriptor non-blocking.
fn nonblocking(fd: std::io::Result<OwnedFd>) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    let fd = fd?;
    // SAFETY: the descriptor is open, and these commands take plain integers.
    unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(std::io::Error::last_os_error()).context("making a stream non-blocking");
        }
    }
    Ok(fd)
}

async fn answer(mut stream: MuxStream, state: Arc<State>) {
    let Ok(request) = read_json::<GuestRequest, _>(&mut stream, MAX_REQUEST).await else {
        return;
    };
    // An error means that the worker closed the stream, so nobody waits for the reply.
    let _ = match request {
        GuestRequest::Run {
            argv,
            cwd,
            env,
            stdin_len,
            timeout_ms,
            max_output,
            purpose,
        } => {
            let order = command::Order {
                argv,
                cwd,
                env,
                stdin_len,
                timeout: std::time::Duration::from_millis(timeout_ms),
                max_output: usize::try_from(max_output).unwrap_or(usize::MAX),
                purpose,
            };
            command::run(stream, order, &state).await
        }
        GuestRequest::Stdio { argv, env } => stdio::run(stream, argv, env, &state).await,
        GuestRequest::StdioStderr { id } => stdio::stderr(stream, id, &state).await,
        GuestRequest::StdioEnded { id } => stdio::ended(stream, id, None, &state).await,
        GuestRequest::StdioStop { id, grace_ms } => {
            let grace = std::time::Duration::from_millis(grace_ms);
            stdio::ended(stream, id, Some(grace), &state).await
        }
        GuestRequest::GetFile { path, max } => files::get(stream, &path, max, &state).await,
        GuestRequest::Snapshot { since, max_bundle } => {
            snapshot::run(stream, since, max_bundle, &state).await
        }
        GuestRequest::Restore { commit, bundles } => {
            restore::run(stream, &commit, &bundles, &state).await
        }
        GuestRequest::Use => figures::report(stream, &state).await,
    };
}
