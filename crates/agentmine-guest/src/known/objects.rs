//! Git's objects (gitformat-pack(5), gitformat-bundle(5)), with SHA-1 names.
//!
//! In a bundle they are not compressed: the worker compresses it anyway, and better than each object by itself. In the
//! repository large ones are.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1_checked::{Digest as _, Sha1};

use super::fs::now;
use super::unsure::{Unsure, only_git};

/// A larger object is compressed in the repository: each change of its file leaves one there.
const COMPRESSED: usize = 64 * 1024;

/// The name of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Oid(pub(crate) [u8; 20]);

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Oid {
    /// From its 40 digits.
    pub(crate) fn of_hex(hex: &str) -> Option<Self> {
        let mut oid = [0; 20];
        let is_hex = hex.len() == 40 && hex.bytes().all(|it| it.is_ascii_hexdigit());
        if !is_hex {
            return None;
        }
        for (byte, at) in oid.iter_mut().zip((0..40).step_by(2)) {
            *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
        }
        Some(Self(oid))
    }
}

/// The type of an object, with the number that it has in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectType {
    Commit = 1,
    Tree = 2,
    Blob = 3,
}

/// An object that is not in the repository yet.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) kind: ObjectType,
    pub(crate) oid: Oid,
    pub(crate) content: Vec<u8>,
    /// The same as a difference from an object of the snapshot before.
    pub(crate) delta: Option<(Oid, Vec<u8>)>,
}

impl Object {
    pub(crate) fn new(kind: ObjectType, content: Vec<u8>) -> Result<Self, Unsure> {
        Ok(Self {
            kind,
            oid: name(kind, &content)?,
            content,
            delta: None,
        })
    }
}

fn header(kind: ObjectType, length: usize) -> Vec<u8> {
    let kind = match kind {
        ObjectType::Commit => "commit",
        ObjectType::Tree => "tree",
        ObjectType::Blob => "blob",
    };
    format!("{kind} {length}\0").into_bytes()
}

/// The name of an object. Git refuses content that was made to share its name with another.
pub(crate) fn name(kind: ObjectType, content: &[u8]) -> Result<Oid, Unsure> {
    let mut hash = Sha1::new();
    hash.update(header(kind, content.len()));
    hash.update(content);
    let hash = hash.try_finalize();
    match hash.has_collision() {
        true => only_git("a collision"),
        false => Ok(Oid((*hash.hash()).into())),
    }
}

/// Adds an object to the repository, unless it is there.
pub(crate) fn store(objects: &Path, object: &Object) -> io::Result<()> {
    let hex = object.oid.to_string();
    let folder = objects.join(&hex[..2]);
    let path = folder.join(&hex[2..]);
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let mut raw = header(object.kind, object.content.len());
    raw.extend(&object.content);
    let whole = match raw.len() > COMPRESSED {
        true => compressed(&raw)?,
        false => deflated(&raw),
    };
    let temporary = folder.join("tmp_obj_agentmine");
    write_new(&temporary, &whole, 0o444).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            std::fs::create_dir(&folder)?;
            write_new(&temporary, &whole, 0o444)
        }
        io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(&temporary)?;
            write_new(&temporary, &whole, 0o444)
        }
        _ => Err(error),
    })?;
    std::fs::rename(temporary, path)
}

/// A zlib stream (RFC 1950), as small as it gets at little cost.
fn compressed(raw: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = ZlibEncoder::new(Vec::new(), Compression::fast());
    stream.write_all(raw)?;
    stream.finish()
}

/// Writes a file that does not exist yet.
pub(crate) fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    options.open(path)?.write_all(content)
}

/// The commit of a snapshot.
pub(crate) fn commit<'a>(
    tree: Oid,
    parents: impl Iterator<Item = &'a str>,
    message: &str,
) -> Result<Object, Unsure> {
    let parents: String = parents.map(|it| format!("parent {it}\n")).collect();
    let who = format!("AgentMine <agentmine@localhost> {} +0000", now().0);
    let commit = format!("tree {tree}\n{parents}author {who}\ncommitter {who}\n\n{message}\n");
    Object::new(ObjectType::Commit, commit.into_bytes())
}

/// A bundle of one ref, for a repository that has the commits `since`.
pub(crate) fn bundle(
    reference: &str,
    since: &[Oid],
    commit: Oid,
    objects: &[Object],
) -> Result<Vec<u8>, Unsure> {
    let since: String = since.iter().map(|it| format!("-{it} \n")).collect();
    let mut bundle = format!("# v2 git bundle\n{since}{commit} {reference}\n\n").into_bytes();
    let start = bundle.len();
    bundle.extend(b"PACK\0\0\0\x02");
    let count = u32::try_from(objects.len()).map_err(|_| Unsure::TooMuch)?;
    bundle.extend(count.to_be_bytes());
    for object in objects {
        match &object.delta {
            Some((base, delta)) => {
                entry_header(&mut bundle, 7, delta.len());
                bundle.extend(base.0);
                bundle.extend(deflated(delta));
            }
            None => {
                entry_header(&mut bundle, object.kind as u8, object.content.len());
                bundle.extend(deflated(&object.content));
            }
        }
    }
    let sum = Sha1::digest(&bundle[start..]);
    bundle.extend(sum);
    Ok(bundle)
}

/// The type and the size of an object in a pack.
fn entry_header(pack: &mut Vec<u8>, kind: u8, size: usize) {
    let (mut byte, mut rest) = ((kind << 4) | (size & 0xf) as u8, size >> 4);
    while rest > 0 {
        pack.push(byte | 0x80);
        (byte, rest) = ((rest & 0x7f) as u8, rest >> 7);
    }
    pack.push(byte);
}

/// A zlib stream (RFC 1950) of blocks that are stored as they are.
fn deflated(content: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 0xffff;
    let mut stream = Vec::with_capacity(content.len() + content.len() / BLOCK * 5 + 16);
    stream.extend([0x78, 0x01]);
    let mut rest = content;
    loop {
        let (block, after) = rest.split_at(rest.len().min(BLOCK));
        let length = block.len() as u16;
        stream.push(u8::from(after.is_empty()));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    stream.extend(adler32(content).to_be_bytes());
    stream
}

fn adler32(content: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut a, mut b) = (1_u32, 0_u32);
    // So many bytes fit before a sum overflows.
    for part in content.chunks(5552) {
        for &byte in part {
            a += u32::from(byte);
            b += a;
        }
        a %= MODULUS;
        b %= MODULUS;
    }
    (b << 16) | a
}
