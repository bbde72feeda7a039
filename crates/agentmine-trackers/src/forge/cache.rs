//! Replies with their `ETag`, for conditional requests: what did not change costs no rate limit.
//!
//! Guaranteed: at most [`MAX_BYTES`] of replies are kept; the replies that were not used for longest are
//! dropped first. Each page of a list has its own `ETag`: that page 1 is the same says nothing about
//! page 2.
//!
//! Bodies are packed, and of the headers only those are kept that are read: the JSON of forges is mostly addresses that
//! repeat, so the room is enough for all that is asked of several hundred pull requests that nobody touches.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use http::{HeaderMap, HeaderName, StatusCode, header};
use url::Url;

use super::reply::Reply;

/// Bytes of all replies that are kept.
const MAX_BYTES: usize = 8 << 20;
/// What a kept reply takes beside its body, its headers and its address: tables, and what the allocator adds.
const OVERHEAD: usize = 640;
/// A packed body larger than this is not kept: it would drive out too many others.
const MAX_BODY: usize = MAX_BYTES / 4 - OVERHEAD;

/// The headers that are read of a reply with 200; others come with each 304 again.
const KEPT: [HeaderName; 2] = [header::LINK, HeaderName::from_static("x-oauth-scopes")];

/// Replies by address.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_url: HashMap<Arc<str>, Entry>,
    /// Addresses by their last use, oldest first.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    kept: Arc<Kept>,
    used: u64,
}

/// A reply that is kept.
#[derive(Debug)]
pub(crate) struct Kept {
    etag: String,
    headers: HeaderMap,
    packed: Box<[u8]>,
    /// Of the body.
    length: usize,
}

impl Cache {
    /// The kept reply of an address.
    pub(crate) fn get(&self, url: &Url) -> Option<Arc<Kept>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = entries.remove(url.as_str())?;
        entries.insert(url.as_str().into(), Arc::clone(&kept));
        Some(kept)
    }

    /// Keeps a reply that has an `ETag`.
    pub(crate) fn put(&self, url: &Url, reply: &Reply) {
        let kept = Kept::of(reply).filter(|kept| kept.packed.len() <= MAX_BODY);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whatever was kept is out of date now.
        entries.remove(url.as_str());
        if let Some(kept) = kept {
            entries.make_room(kept.bytes(url.as_str()));
            entries.insert(url.as_str().into(), Arc::new(kept));
        }
    }
}

impl Kept {
    fn of(reply: &Reply) -> Option<Self> {
        let etag = reply.headers.get(header::ETAG)?.to_str().ok()?.to_owned();
        let mut headers = HeaderMap::new();
        for name in KEPT {
            let values = reply.headers.get_all(&name).iter().cloned();
            let values: Vec<_> = values.collect();
            for value in values {
                headers.append(name.clone(), value);
            }
        }
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&reply.body).ok()?;
        Some(Self {
            etag,
            headers,
            packed: packed.finish().ok()?.into(),
            length: reply.body.len(),
        })
    }

    pub(crate) fn etag(&self) -> &str {
        &self.etag
    }

    /// The reply, to a request that was answered with 304.
    pub(crate) fn unpack(&self, not_modified: Reply) -> io::Result<Reply> {
        let mut body = Vec::with_capacity(self.length);
        DeflateDecoder::new(&self.packed[..]).read_to_end(&mut body)?;
        let mut headers = not_modified.headers;
        for name in KEPT {
            if !headers.contains_key(&name) {
                for value in self.headers.get_all(&name) {
                    headers.append(name.clone(), value.clone());
                }
            }
        }
        Ok(Reply {
            status: StatusCode::OK,
            headers,
            body: body.into(),
            ..not_modified
        })
    }

    /// What it takes at this address.
    fn bytes(&self, url: &str) -> usize {
        let headers = self.headers.iter();
        let headers: usize = headers.map(|(_, value)| value.len() + 100).sum();
        self.packed.len() + self.etag.len() + headers + url.len() + OVERHEAD
    }
}

impl Entries {
    fn insert(&mut self, url: Arc<str>, kept: Arc<Kept>) {
        self.uses += 1;
        let used = self.uses;
        self.bytes += kept.bytes(&url);
        self.by_use.insert(used, Arc::clone(&url));
        self.by_url.insert(url, Entry { kept, used });
    }

    fn remove(&mut self, url: &str) -> Option<Arc<Kept>> {
        let entry = self.by_url.remove(url)?;
        self.by_use.remove(&entry.used);
        self.bytes -= entry.kept.bytes(url);
        Some(entry.kept)
    }

    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > MAX_BYTES
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use agentmine_domain::TrackerKind;

    use super::*;

    fn reply(body: Vec<u8>, etag: Option<&str>) -> Reply {
        let mut headers = HeaderMap::new();
        if let Some(etag) = etag {
            headers.insert(header::ETAG, etag.parse().unwrap());
        }
        Reply {
            tracker: TrackerKind::GitHub,
            status: StatusCode::OK,
            headers,
            body: body.into(),
            redactor: Default::default(),
        }
    }

    /// Numbers without a pattern, the same in each run.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Bytes that cannot be packed.
        fn bytes(&mut self, count: usize) -> Vec<u8> {
            (0..count).map(|_| self.next().to_be_bytes()[0]).collect()
        }

        /// The id of a commit.
        fn commit(&mut self) -> String {
            let [a, b, c] = [self.next(), self.next(), self.next()];
            format!("{a:016x}{b:016x}{:08x}", c >> 32)
        }
    }

    fn url(name: &str) -> Url {
        Url::parse("https://forge.test/")
            .unwrap()
            .join(name)
            .unwrap()
    }

    #[test]
    fn a_full_cache_drops_what_was_not_used_for_longest() {
        let (cache, mut noise) = (Cache::default(), Noise(7));
        let known = |name| cache.get(&url(name)).map(|kept| kept.etag.clone());
        for name in ["a", "b", "c", "d"] {
            let body = noise.bytes(MAX_BODY - 2_000);
            cache.put(&url(name), &reply(body, Some(name)));
        }
        assert_eq!(known("a").as_deref(), Some("a"));
        cache.put(&url("e"), &reply(noise.bytes(10_000), Some("e")));
        assert_eq!(known("b"), None);
        for name in ["a", "c", "d", "e"] {
            assert_eq!(known(name).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_replaced_reply_frees_its_bytes() {
        let (cache, mut noise) = (Cache::default(), Noise(7));
        let large = reply(noise.bytes(MAX_BODY - 2_000), Some("v"));
        for _ in 0..9 {
            cache.put(&url("a"), &large);
            cache.put(&url("b"), &large);
        }
        assert!(cache.get(&url("a")).is_some() && cache.get(&url("b")).is_some());
        cache.put(&url("a"), &reply(vec![0], None));
        assert!(cache.get(&url("a")).is_none());
        assert!(cache.get(&url("b")).is_some());
    }

    #[test]
    fn what_has_no_etag_or_is_too_large_is_not_kept() {
        let (cache, mut noise) = (Cache::default(), Noise(7));
        cache.put(&url("a"), &reply(vec![0], None));
        cache.put(&url("b"), &reply(noise.bytes(MAX_BODY + 1), Some("v")));
        assert!(cache.get(&url("a")).is_none() && cache.get(&url("b")).is_none());
    }

    #[test]
    fn a_kept_reply_has_its_body_and_its_next_page_and_the_rest_of_the_304() {
        let cache = Cache::default();
        let mut whole = reply(b"{\"a\": 1}".to_vec(), Some("v"));
        let link = "<https://forge.test/a?page=2>; rel=\"next\"";
        whole.headers.insert(header::LINK, link.parse().unwrap());
        whole.headers.insert(header::DATE, "then".parse().unwrap());
        cache.put(&url("a"), &whole);
        let mut unchanged = reply(Vec::new(), Some("v"));
        unchanged.status = StatusCode::NOT_MODIFIED;
        unchanged
            .headers
            .insert(header::DATE, "now".parse().unwrap());
        let read = cache.get(&url("a")).unwrap().unpack(unchanged).unwrap();
        assert_eq!(read.status, StatusCode::OK);
        assert_eq!(read.body, whole.body);
        let next = read.link("next");
        assert_eq!(next.as_deref(), Some("https://forge.test/a?page=2"));
        assert_eq!(read.headers[header::DATE], "now");
    }

    /// An account as GitHub shows it wherever it names one.
    fn account(login: &str, id: u64) -> String {
        let api = format!("https://api.github.com/users/{login}");
        let mut text = format!(
            "{{\"login\":\"{login}\",\"id\":{id},\"node_id\":\"MDQ6VXNlcj{id:x}\",\"avatar_url\":\"https://avatars.githubusercontent.com/u/{id}?v=4\",\
             \"url\":\"{api}\",\"html_url\":\"https://github.com/{login}\""
        );
        for list in [
            "followers",
            "following{/other_user}",
            "gists{/gist_id}",
            "starred{/owner}{/repo}",
            "subscriptions",
            "orgs",
            "repos",
            "events{/privacy}",
            "received_events",
        ] {
            write!(text, ",\"{list}_url\":\"{api}/{list}\"").unwrap();
        }
        text + ",\"type\":\"User\",\"user_view_type\":\"public\",\"site_admin\":false}"
    }

    /// A repository likewise.
    fn repository() -> String {
        let api = "https://api.github.com/repos/octo/demo";
        let mut text = format!(
            "{{\"id\":42,\"full_name\":\"octo/demo\",\"owner\":{}",
            account("octo", 1)
        );
        for list in [
            "forks",
            "keys{/key_id}",
            "collaborators{/collaborator}",
            "teams",
            "hooks",
            "issue_events{/number}",
            "events",
            "assignees{/user}",
            "branches{/branch}",
            "tags",
            "blobs{/sha}",
            "git_tags{/sha}",
            "git_refs{/sha}",
            "trees{/sha}",
            "statuses{/sha}",
            "languages",
            "stargazers",
            "contributors",
            "subscribers",
            "subscription",
            "commits{/sha}",
            "git_commits{/sha}",
            "comments{/number}",
            "issue_comment{/number}",
            "contents/{+path}",
            "compare/{base}...{head}",
            "merges",
            "archive",
            "downloads",
            "issues{/number}",
            "pulls{/number}",
            "milestones{/number}",
            "notifications{?since,all,participating}",
            "labels{/name}",
            "releases{/id}",
            "deployments",
        ] {
            write!(text, ",\"{list}_url\":\"{api}/{list}\"").unwrap();
        }
        text + "}"
    }

    /// What a look at one settled pull request asks of GitHub, with bodies of the sizes and kinds that it sends: ten checks,
    /// our comment, no review.
    fn answers(number: u64, noise: &mut Noise) -> [(String, String); 6] {
        let (head, base) = (noise.commit(), noise.commit());
        let repo = "repos/octo/demo";
        let (bot, person) = (
            account("agentmine-bot[bot]", 7),
            account("noor", noise.next() % 1_000_000),
        );
        let mut pull = format!(
            "{{\"id\":{},\"number\":{number},\"state\":\"open\",\"title\":\"Greet {}\",\"user\":{bot},\"merge_commit_sha\":\"{}\",\"mergeable\":true",
            noise.next(),
            noise.commit(),
            noise.commit()
        );
        for (side, commit) in [("head", &head), ("base", &base)] {
            write!(pull, ",\"{side}\":{{\"label\":\"octo:x\",\"ref\":\"x\",\"sha\":\"{commit}\",\"user\":{bot},\"repo\":{}}}", repository()).unwrap();
        }
        // A text of a few hundred words, which packs worse than addresses.
        let text: String = (0..80).map(|_| format!("{:x} ", noise.next())).collect();
        write!(
            pull,
            ",\"assignees\":[{person}],\"requested_reviewers\":[{person}],\"body\":\"{text}\"}}"
        )
        .unwrap();
        let runs: Vec<String> = (0..10)
            .map(|run| {
                let (id, job) = (noise.next(), noise.next());
                let api = "https://api.github.com/repos/octo/demo";
                format!(
                    "{{\"id\":{id},\"name\":\"test {run}\",\"node_id\":\"CR_{}\",\"head_sha\":\"{head}\",\"external_id\":\"{}\",\
                     \"url\":\"{api}/check-runs/{id}\",\"html_url\":\"https://github.com/octo/demo/actions/runs/{job}/job/{id}\",\
                     \"details_url\":\"https://github.com/octo/demo/actions/runs/{job}/job/{id}\",\"status\":\"completed\",\"conclusion\":\"success\",\
                     \"output\":{{\"title\":null,\"summary\":null,\"annotations_count\":0,\"annotations_url\":\"{api}/check-runs/{id}/annotations\"}},\
                     \"app\":{{\"id\":15368,\"slug\":\"github-actions\",\"owner\":{}}},\"pull_requests\":[{{\"id\":{},\"number\":{number},\"url\":\"{api}/pulls/{number}\"}}]}}",
                    noise.commit(), noise.commit(), account("github", 9919), noise.next()
                )
            })
            .collect();
        let runs = format!("{{\"total_count\":10,\"check_runs\":[{}]}}", runs.join(","));
        let statuses = format!(
            "{{\"state\":\"pending\",\"statuses\":[],\"sha\":\"{head}\",\"repository\":{}}}",
            repository()
        );
        let comments = format!(
            "[{{\"id\":{},\"user\":{bot},\"body\":\"{text}{text}\"}}]",
            noise.next()
        );
        [
            (format!("{repo}/pulls/{number}"), pull),
            (
                format!("{repo}/commits/{head}/check-runs?filter=latest&per_page=100"),
                runs,
            ),
            (
                format!("{repo}/commits/{head}/status?per_page=100"),
                statuses,
            ),
            (
                format!("{repo}/issues/{number}/comments?per_page=100"),
                comments,
            ),
            (
                format!("{repo}/pulls/{number}/reviews?per_page=100"),
                "[]".to_owned(),
            ),
            (
                format!("{repo}/pulls/{number}/comments?per_page=100"),
                "[]".to_owned(),
            ),
        ]
    }

    #[test]
    fn what_looks_at_five_hundred_settled_pull_requests_ask_is_kept() {
        let (cache, mut noise) = (Cache::default(), Noise(7));
        let mut asked = Vec::new();
        let mut bytes = 0;
        for number in 1..=500 {
            for (path, body) in answers(number, &mut noise) {
                let etag = format!("W/\"{}{}\"", noise.commit(), noise.commit());
                bytes += body.len();
                cache.put(&url(&path), &reply(body.into_bytes(), Some(&etag)));
                asked.push((url(&path), etag));
            }
        }
        assert!(bytes > 15 << 20, "{bytes} are less than GitHub sends");
        let is_known = |(url, etag): &&(Url, String)| {
            let known = cache.get(url);
            known.is_some_and(|kept| kept.etag == *etag)
        };
        let known = asked.iter().filter(is_known).count();
        let held = cache.0.lock().unwrap().bytes;
        assert_eq!(known, asked.len(), "of {bytes} bytes {held} are held");
        assert!(held <= MAX_BYTES);
    }
}
