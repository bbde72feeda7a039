//! An engine over ssh: each connection is a child process `ssh … docker system dial-stdio`, as with the `docker`
//! command line. Names, keys and known hosts are those of the operator's ssh configuration; nothing is asked,
//! and an unknown host key is refused unless that configuration accepts it. The process is killed with its
//! connection.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use agentmine_process::Tail;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use url::Url;

use crate::error::SandboxError;

/// How much of what ssh said is kept, in bytes.
const SAID_KEPT: usize = 1024;
/// How long a connection that ended may take to say why.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// An engine on a machine that ssh reaches.
#[derive(Debug)]
pub(super) struct SshRoute {
    arguments: Vec<String>,
}

impl SshRoute {
    /// The route to `ssh://[USER@]HOST[:PORT][/SOCKET]`. `configuration` is given to ssh in place of the user's
    /// and the system's. `limit` is that of one call of the API.
    ///
    /// # Errors
    /// When it is not such an address, or has a password.
    pub(super) fn new(
        address: &str,
        configuration: Option<&PathBuf>,
        limit: Duration,
    ) -> Result<Self, SandboxError> {
        let refused = |why: &str| {
            Err(SandboxError::Refused(format!(
                "command_executor.docker.host {why}. hint: expected ssh://[USER@]HOST[:PORT][/SOCKET]"
            )))
        };
        let Ok(url) = Url::parse(address) else {
            return refused("is no URL");
        };
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_matches(['[', ']']);
        // ssh would take it for an option.
        let unusual = |name: &str| {
            name.starts_with('-') || name.contains(['%', ' ', '\'', '"', '\\', '`', '$'])
        };
        if host.is_empty() || unusual(host) || unusual(url.username()) {
            return refused("has no usable name of a machine or user");
        }
        if url.password().is_some() {
            return refused("has a password, which ssh does not take");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refused("has a query or fragment");
        }
        // Half of the limit, so that what ssh says of it is still heard.
        let connect_seconds = (limit.as_secs() / 2).max(1);
        let mut arguments = Vec::new();
        if let Some(file) = configuration {
            arguments.extend(["-F".to_owned(), file.display().to_string()]);
        }
        for option in [
            "BatchMode=yes",
            // A master that others share would end with the first connection, or never.
            "ControlMaster=no",
            "ForwardAgent=no",
            "ForwardX11=no",
            "ClearAllForwardings=yes",
            "ServerAliveInterval=15",
            &format!("ConnectTimeout={connect_seconds}"),
        ] {
            arguments.extend(["-o".to_owned(), option.to_owned()]);
        }
        if let Some(port) = url.port() {
            arguments.extend(["-p".to_owned(), port.to_string()]);
        }
        if !url.username().is_empty() {
            arguments.extend(["-l".to_owned(), url.username().to_owned()]);
        }
        arguments.extend(["-T", "--", host, "docker"].map(str::to_owned));
        match url.path() {
            "" | "/" => {}
            // The far shell reads these words.
            socket
                if socket
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b)) =>
            {
                arguments.extend(["--host".to_owned(), format!("unix://{socket}")]);
            }
            _ => return refused("has a path with unusual characters"),
        }
        arguments.extend(["system", "dial-stdio"].map(str::to_owned));
        Ok(Self { arguments })
    }

    pub(super) fn open(&self) -> io::Result<(SshStream, Said)> {
        let started = Command::new("ssh")
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C in a terminal ends the worker, which still removes its containers.
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = started.map_err(|err| match err.kind() {
            io::ErrorKind::NotFound => {
                io::Error::new(err.kind(), "the program `ssh` is not installed")
            }
            _ => io::Error::new(err.kind(), format!("ssh: {err}")),
        })?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("ssh was started without its pipes"));
        };
        let stream = SshStream {
            _child: child,
            stdin: Some(stdin),
            stdout,
        };
        Ok((stream, Said::listen(stderr)))
    }
}

/// What ssh and the far side write to stderr.
pub(super) struct Said {
    kept: Arc<Mutex<Tail>>,
    ended: JoinHandle<()>,
}

impl Said {
    fn listen(mut stderr: ChildStderr) -> Self {
        let kept = Arc::new(Mutex::new(Tail::new(SAID_KEPT)));
        let tail = Arc::clone(&kept);
        let ended = tokio::spawn(async move {
            let mut buffer = [0; SAID_KEPT];
            while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.push(&buffer[..n]);
            }
        });
        Self { kept, ended }
    }

    /// All of it on one line, without control characters.
    pub(super) async fn at_the_end(self) -> String {
        let _ = tokio::time::timeout(LAST_WORDS, self.ended).await;
        let tail = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail.to_vec()).into_owned();
        let words = text.split(|c: char| c.is_whitespace() || c.is_control());
        words
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Both directions of a connection.
pub(super) struct SshStream {
    _child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl SshStream {
    fn stdin(&mut self) -> io::Result<Pin<&mut ChildStdin>> {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.stdin.as_mut().map(Pin::new).ok_or_else(closed)
    }
}

impl AsyncRead for SshStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stdout).poll_read(cx, buf)
    }
}

impl AsyncWrite for SshStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stdin()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stdin.as_mut() {
            Some(stdin) => Pin::new(stdin).poll_flush(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Only a closed pipe ends the far side's input.
    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stdin = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(address: &str) -> Result<String, String> {
        let route = SshRoute::new(address, None, Duration::from_secs(60));
        let route = route.map_err(|err| err.to_string())?;
        let arguments = route.arguments.join(" ");
        Ok(arguments.split_once("ConnectTimeout=30 ").unwrap().1.into())
    }

    #[test]
    fn user_port_and_socket_are_passed_on() {
        for (address, expected) in [
            ("ssh://engine", "-T -- engine docker system dial-stdio"),
            (
                "ssh://ann@engine:2222",
                "-p 2222 -l ann -T -- engine docker system dial-stdio",
            ),
            (
                "ssh://[::1]:22/",
                "-p 22 -T -- ::1 docker system dial-stdio",
            ),
            (
                "ssh://engine/run/user/1000/docker.sock",
                "-T -- engine docker --host unix:///run/user/1000/docker.sock system dial-stdio",
            ),
        ] {
            assert_eq!(arguments(address).unwrap(), expected, "{address}");
        }
    }

    #[test]
    fn what_ssh_or_the_far_shell_would_take_for_something_else_is_refused() {
        for address in [
            "ssh://",
            "ssh:///run/docker.sock",
            "ssh://-oProxyCommand=touch",
            "ssh://-oProxyCommand=touch@engine",
            "ssh://ann:secret@engine",
            "ssh://engine/$(touch x)",
            "ssh://engine/a;b",
            "ssh://engine?x=y",
            "ssh://a%20b@engine",
        ] {
            let error = arguments(address).unwrap_err();
            assert!(
                error.contains("hint: expected ssh://"),
                "{address}: {error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
