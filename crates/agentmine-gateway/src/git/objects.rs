//! Reads the objects of a push one at a time, from one process of git.

use std::io;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::facts::BareRepo;

/// Length of the line ahead of an object, in bytes.
const MAX_HEADER: u64 = 200;

/// The objects of a quarantined push.
pub(super) struct Objects {
    /// Killed when this is dropped.
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// One object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) kind: String,
    /// Its content, as far as the caller wanted it.
    pub(super) bytes: Vec<u8>,
    /// Its whole size, in bytes.
    pub(super) size: u64,
}

impl Objects {
    pub(super) fn of(repo: &BareRepo) -> io::Result<Self> {
        let mut git = repo.git();
        git.args(["cat-file", "--batch"]);
        let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || io::Error::other("git was started without pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        Ok(Self {
            _child: child,
            stdin,
            stdout: BufReader::with_capacity(64 * 1024, stdout),
        })
    }

    /// The object, with at most `cap` bytes of its content; `None` if it is not there.
    pub(super) async fn read(&mut self, id: &str, cap: u64) -> io::Result<Option<Object>> {
        self.stdin.write_all(format!("{id}\n").as_bytes()).await?;
        self.stdin.flush().await?;
        let mut line = String::new();
        let mut head = (&mut self.stdout).take(MAX_HEADER);
        head.read_line(&mut line).await?;
        let mut fields = line.trim_end().split(' ');
        let (_, kind, size) = (fields.next(), fields.next(), fields.next());
        let Some(kind) = kind else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let Some(size) = size.and_then(|size| size.parse::<u64>().ok()) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let kept = size.min(cap);
        let read = (&mut self.stdout)
            .take(kept)
            .read_to_end(&mut bytes)
            .await?;
        if read as u64 != kept {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = (&mut self.stdout).take(size - kept + 1);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        Ok(Some(Object {
            kind: kind.to_owned(),
            bytes,
            size,
        }))
    }
}
