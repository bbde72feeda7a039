//! What is in the images of the fleet's programs: little beside the programs, and what resolves names.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;

use crate::images::{Images, docker};
use crate::rig::{PATIENCE, binary};

/// Megabytes of an image beside its program, which a debug build makes larger than a release build.
const ROOTS: [(&str, u64); 2] = [("producer", 5), ("consumer", 35)];
/// Megabytes of each program that runs in a sandbox.
const LARGEST_GUEST: usize = 6;

/// Programs that are packed as gzip within another one.
fn packed(program: &[u8]) -> Vec<Vec<u8>> {
    let starts = memchr::memmem::find_iter(program, b"\x1f\x8b\x08");
    let unpacked = starts.filter_map(|start| {
        let mut bytes = Vec::new();
        let rest = program.get(start..)?;
        GzDecoder::new(rest).read_to_end(&mut bytes).ok()?;
        bytes.starts_with(b"\x7fELF").then_some(bytes)
    });
    unpacked.collect()
}

#[test]
fn each_program_for_sandboxes_is_small_and_once_in_the_programs_that_start_them() {
    for name in ["producer", "consumer"] {
        let program = std::fs::read(binary(name)).unwrap();
        let sizes: Vec<usize> = packed(&program).iter().map(Vec::len).collect();
        assert_eq!(
            sizes.len(),
            2,
            "{name}: the guest and the editor: {sizes:?}"
        );
        let largest = sizes.into_iter().max().unwrap();
        assert!(largest < LARGEST_GUEST * 1_000_000, "{name}: {largest}");
    }
}

/// Builds with the binaries of the tests; `docker/build` itself refuses a release build whose image is too large.
#[test]
fn an_image_has_little_beside_its_program() {
    let images = Images::build(&["producer", "consumer"]);
    for (name, most) in ROOTS {
        let image = images.of(&format!("agentmine-{name}"));
        let whole = docker(&["image", "inspect", "-f", "{{.Size}}", &image]).unwrap();
        let container = docker(&["create", &image]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(name);
        let place = format!("{container}:/usr/local/bin/{name}");
        let copied = docker(&["cp", &place, program.to_str().unwrap()]);
        docker(&["rm", &container]).unwrap();
        copied.unwrap();
        let own = std::fs::metadata(&program).unwrap().len();
        let rest = whole.parse::<u64>().unwrap() - own;
        assert!(rest < most * 1_000_000, "{name}: {rest} beside {own}");
    }
}

/// On request, since it makes a release build.
#[test]
#[ignore = "makes a release build"]
fn the_images_of_a_release_build_are_as_small_as_they_have_to_be() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = Command::new(root.join("docker/build"))
        .args(["--prefix", "agentmine-size-", "producer", "consumer"])
        .output()
        .unwrap();
    let output = [built.stdout, built.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(built.status.success(), "{}", output.concat());
}

/// A name server of a cluster, and a server that notes who connects to it. Standard Python alone.
const NAME_SERVER: &str = r#"
import socket, struct, sys, threading
own = socket.gethostbyname(socket.gethostname())
known = sys.argv[1:]
def serve_tcp():
    listener = socket.create_server(("0.0.0.0", 5432))
    print("ready", own, flush=True)
    while True:
        listener.accept()[0].close()
        print("connected", flush=True)
threading.Thread(target=serve_tcp, daemon=True).start()
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 53))
while True:
    query, client = server.recvfrom(512)
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    name, kind = ".".join(labels), struct.unpack(">H", query[at + 1:at + 3])[0]
    print("asked", kind, name, flush=True)
    answers = name in known and kind == 1
    flags = 0x8180 if name in known else 0x8183
    head = query[:2] + struct.pack(">HHHHH", flags, 1, int(answers), 0, 0)
    record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(own) if answers else b""
    server.sendto(head + query[12:at + 5] + record, client)
"#;

/// Its container; removed when dropped.
struct Server {
    name: String,
}

impl Server {
    fn log(&self) -> String {
        docker(&["logs", &self.name]).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", &self.name]);
    }
}

/// Starts it; returns its address too.
fn name_server(prefix: &str, known: &[&str]) -> (Server, String) {
    let name = format!("{prefix}dns");
    let mut args = vec!["run", "--detach", "--user=0", "--name", &name];
    args.push("--entrypoint=python3");
    let image = crate::rig::image();
    args.extend([image.as_str(), "-c", NAME_SERVER]);
    args.extend(known);
    docker(&args).unwrap();
    let server = Server { name };
    let begun = Instant::now();
    loop {
        let said = server.log();
        if let Some(line) = said.lines().find_map(|line| line.strip_prefix("ready ")) {
            return (server, line.to_owned());
        }
        assert!(begun.elapsed() < PATIENCE, "{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// As a pod has it: a search list, `ndots:5`, and lines in `/etc/hosts`.
#[test]
fn the_programs_of_the_images_resolve_names_as_the_cluster_does() {
    let images = Images::build(&["producer", "consumer"]);
    let (server, address) = name_server(
        &images.prefix,
        &["db.fleet.svc.cluster.local", "db.example.com"],
    );
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let tracker = "trackers: {github: {api_url: 'http://127.0.0.1:1/', repositories: [a/b]}}\n\
                   command_executor: {enabled: true}\nmodel: {base_url: 'http://127.0.0.1:1/', name: none}\n";
    std::fs::write(&config, tracker).unwrap();
    for (path, mode) in [(folder.path(), 0o755), (&config, 0o644)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let mount = format!("--volume={}:/etc/agentmine:ro", folder.path().display());
    for name in ["producer", "consumer"] {
        let image = images.of(&format!("agentmine-{name}"));
        // What follows the first new line of the server's log, once the program has ended.
        let asked = |host: &str, extra: &[&str]| -> Vec<String> {
            let before = server.log().lines().count();
            let url = format!("AGENTMINE_STORE_URL=postgres://u@{host}:5432/x?sslmode=disable");
            let mut args = vec!["run", "--rm", "--read-only", &mount, "--env", &url];
            let others = [
                "AGENTMINE_QUEUE_URL=amqp://u:p@127.0.0.1:1",
                "GITHUB_PERSONAL_ACCESS_TOKEN=unused",
            ];
            others.iter().for_each(|it| args.extend(["--env", it]));
            args.extend(["--dns", &address, "--dns-option", "ndots:5"]);
            for search in [
                "fleet.svc.cluster.local",
                "svc.cluster.local",
                "cluster.local",
            ] {
                args.extend(["--dns-search", search]);
            }
            args.extend(extra);
            let config = "/etc/agentmine/config.yaml";
            args.extend([image.as_str(), "--config", config, "--once"]);
            let ended = docker(&args).unwrap_err();
            assert!(ended.contains(host), "the database is away: {ended}");
            let log = server.log();
            // Answers for IPv4 and IPv6 are requested at the same time; connections are repeated.
            let mut seen: Vec<String> = log.lines().skip(before).map(str::to_owned).collect();
            seen.retain(|line| !line.starts_with("asked 28 "));
            seen.dedup();
            seen
        };
        let found = asked("db", &[]);
        assert_eq!(
            found[..2],
            ["asked 1 db.fleet.svc.cluster.local", "connected"]
        );
        // Fewer than five dots: the search list goes before the name as it is.
        let found = asked("db.fleet.svc", &[]);
        let expected = [
            "asked 1 db.fleet.svc.fleet.svc.cluster.local",
            "asked 1 db.fleet.svc.svc.cluster.local",
            "asked 1 db.fleet.svc.cluster.local",
            "connected",
        ];
        assert_eq!(found[..4], expected);
        let found = asked("db.example.com", &[]);
        let last = found
            .iter()
            .position(|line| line == "asked 1 db.example.com");
        assert_eq!(last, Some(3), "{found:?}");
        let line = format!("db.in.hosts:{address}");
        let found = asked("db.in.hosts", &["--add-host", &line]);
        assert_eq!(found[..1], ["connected"], "{found:?}");
    }
}
