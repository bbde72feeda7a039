//! A change of a large file: the difference from the blob of the snapshot before, where the repository stores that blob
//! as an object by itself. A small one is sent whole, since the worker compresses a bundle.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

use super::delta::blob_delta;
use super::objects::{Object, ObjectType, Oid, name};
use super::repository::Repository;
use super::unsure::Unsure;

/// The longest header of a blob: its type, a length of 20 digits, and the end.
const HEADER: u64 = 26;

/// Makes `blob` a difference from the blob `old`, of at most `max` bytes. Returns whether it is one: it is not if the
/// old one is in a pack, or if they share too little.
pub(super) fn becomes_difference(
    blob: &mut Object,
    old: Oid,
    repository: &Repository,
    max: u64,
) -> Result<bool, Unsure> {
    let Some(content) = loose_blob(repository, old, max)? else {
        return Ok(false);
    };
    let delta = blob_delta(&content, &blob.content);
    blob.delta = delta.map(|delta| (old, delta));
    Ok(blob.delta.is_some())
}

/// The content of a blob that is an object by itself. A process of the sandbox may have written another one in its
/// place, so it is compared with its name: a difference from anything else could not be applied.
fn loose_blob(repository: &Repository, oid: Oid, max: u64) -> Result<Option<Vec<u8>>, Unsure> {
    let Some(stored) = repository.object(oid, max)? else {
        return Ok(None);
    };
    let mut raw = Vec::new();
    let mut inflated = ZlibDecoder::new(stored.as_slice()).take(HEADER + max);
    if inflated.read_to_end(&mut raw).is_err() {
        return Ok(None);
    }
    let Some(end) = raw.iter().position(|&byte| byte == 0) else {
        return Ok(None);
    };
    raw.drain(..=end);
    let is_it = name(ObjectType::Blob, &raw)? == oid;
    Ok(is_it.then_some(raw))
}
