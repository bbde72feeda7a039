//! The images of the fleet's programs, built by `docker/build` and started by Docker as the manifests start them.
//!
//! Only addresses are the test's own: of the forge, the model, database, broker and engine, and of the programs' HTTP
//! server, since the containers share the network of this machine.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use agentmine_runtime::config::{Migrations, Secret, StoreConfig};
use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Scenario, commit_and_push, say, shell};
use serde_json::Value;

use crate::endpoint::{free_address, get};
use crate::kubernetes::{Roles, list, objects, one, text};
use crate::remote_engine::{sshd::Sshd, tls_engine};
use crate::rig::{PATIENCE, Rig, assert_done, binary, solves_demo};

/// The user of every manifest.
const USER: u32 = 10001;

pub(crate) fn docker(args: &[&str]) -> Result<String, String> {
    let out = Command::new("docker").args(args).output().unwrap();
    let [stdout, stderr] =
        [out.stdout, out.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    match out.status.success() {
        true => Ok(stdout.trim().to_owned()),
        false => Err(stderr),
    }
}

/// Images of this test's own, from the binaries that the tests run; removed when dropped.
pub(crate) struct Images {
    pub(crate) prefix: String,
    names: Vec<&'static str>,
}

impl Images {
    pub(crate) fn build(names: &[&'static str]) -> Self {
        let prefix = format!("agentmine-test-{}-", uuid::Uuid::new_v4().simple());
        let images = Self {
            prefix,
            names: names.to_vec(),
        };
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let binaries = binary("producer").parent().unwrap().to_owned();
        let out = Command::new(root.join("docker/build"))
            .arg("--binaries")
            .arg(&binaries)
            .args(["--prefix", &images.prefix, "--tag", "test"])
            .args(names)
            .env("CARGO_TARGET_DIR", binaries.parent().unwrap())
            .env("JAIL_BASE", crate::rig::image())
            .output()
            .unwrap();
        let output = [out.stdout, out.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        assert!(out.status.success(), "docker/build:\n{}", output.concat());
        images
    }

    /// The image of a manifest: `agentmine-consumer:0.1.0` is ours of the same name.
    pub(crate) fn of(&self, manifest: &str) -> String {
        let name = manifest.split(':').next().unwrap();
        let name = name.strip_prefix("agentmine-").unwrap();
        assert!(self.names.contains(&name), "{manifest} is not built");
        format!("{}{name}:test", self.prefix)
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = docker(&["rmi", "-f", &format!("{}{name}:test", self.prefix)]);
        }
    }
}

/// What the cluster would have: the content of ConfigMaps and Secrets, and addresses instead of the manifests'.
struct Cluster {
    folder: tempfile::TempDir,
    images: Images,
    objects: Vec<Value>,
    /// Files by the name of their Secret, then by key.
    secrets: BTreeMap<String, BTreeMap<String, String>>,
    config: String,
}

impl Cluster {
    /// The arguments of `docker run` that start a pod as its template says.
    fn run_args(&self, template: &Value, name: &str, env: &[(&str, &str)]) -> Vec<String> {
        let pod = &template["spec"];
        let container = &pod["containers"][0];
        let (of_pod, own) = (&pod["securityContext"], &container["securityContext"]);
        assert_eq!(own["readOnlyRootFilesystem"], true);
        assert_eq!(own["allowPrivilegeEscalation"], false);
        assert_eq!(own["capabilities"]["drop"], serde_json::json!(["ALL"]));
        let number = |value: &Value| value.as_u64().unwrap().to_string();
        let user = [&of_pod["runAsUser"], &of_pod["runAsGroup"]].map(number);
        let mut args: Vec<String> = ["--name", name, "--network", "host", "--read-only"]
            .map(str::to_owned)
            .to_vec();
        args.extend(["--cap-drop=ALL", "--security-opt=no-new-privileges"].map(str::to_owned));
        args.push(format!("--user={}", user.join(":")));
        args.push(format!("--group-add={}", number(&of_pod["fsGroup"])));
        let memory = text(container, "/resources/limits/memory").replace('i', "");
        args.push(format!("--memory={memory}"));
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
        args.push(format!("--stop-timeout={grace}"));
        for variable in list(container, "/env") {
            let key = text(variable, "/name");
            let own = env.iter().find(|(name, _)| *name == key);
            let value = own.map_or(text(variable, "/value"), |(_, value)| value);
            args.push(format!("--env={key}={value}"));
        }
        for mount in list(container, "/volumeMounts") {
            let place = text(mount, "/mountPath");
            let mut volumes = list(pod, "/volumes").iter();
            let volume = volumes.find(|it| it["name"] == mount["name"]).unwrap();
            let folder = format!("{name}-{}", text(volume, "/name"));
            let folder = self.folder.path().join(folder);
            if volume.get("emptyDir").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                let mode = std::fs::Permissions::from_mode(0o2777);
                std::fs::set_permissions(&folder, mode).unwrap();
                args.push(format!("--volume={}:{place}", folder.display()));
                continue;
            }
            assert_eq!(mount["readOnly"], true, "{place}");
            self.fill(&folder, volume);
            args.push(format!("--volume={}:{place}:ro", folder.display()));
        }
        args.push(self.images.of(text(container, "/image")));
        args.extend(
            list(container, "/args")
                .iter()
                .map(|it| it.as_str().unwrap().to_owned()),
        );
        args
    }

    /// Writes the files of a ConfigMap or Secret, which the pod's group can read.
    fn fill(&self, folder: &Path, volume: &Value) {
        std::fs::create_dir_all(folder).unwrap();
        let config = BTreeMap::from([("config.yaml".to_owned(), self.config.clone())]);
        let (files, mode) = match volume.get("secret") {
            None => (&config, 0o644),
            Some(secret) => (&self.secrets[text(secret, "/secretName")], 0o440),
        };
        for (key, content) in files {
            let file = folder.join(key);
            std::fs::write(&file, content).unwrap();
            // Only root gives files away; another user's are read by everybody in this test.
            let is_given = std::os::unix::fs::chown(&file, None, Some(USER)).is_ok();
            let mode = if is_given { mode } else { 0o444 };
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    fn template(&self, kind: &'static str, name: &str) -> &Value {
        &one(&self.objects, kind, name)["spec"]["template"]
    }

    /// Starts a Deployment's pod, whose HTTP server gets its own address.
    fn start(&self, of: &str, env: &[(&str, &str)]) -> Container {
        let name = format!("{}{of}", self.images.prefix);
        let address = free_address();
        let mut env = env.to_vec();
        env.push(("AGENTMINE_HTTP_LISTEN", &address));
        let template = self.template("Deployment", of).clone();
        let args = self.run_args(&template, &name, &env);
        let mut command = vec!["run", "--detach"];
        command.extend(args.iter().map(String::as_str));
        docker(&command).unwrap();
        Container {
            name,
            address,
            template,
        }
    }

    /// Runs the migration's pod to its end.
    fn migrate(&self) {
        let name = format!("{}migrate", self.images.prefix);
        let args = self.run_args(self.template("Job", "migrate"), &name, &[]);
        let mut command = vec!["run", "--rm"];
        command.extend(args.iter().map(String::as_str));
        docker(&command).unwrap_or_else(|log| panic!("{log}"));
    }
}

/// A running pod; removed when dropped.
struct Container {
    name: String,
    address: String,
    template: Value,
}

impl Container {
    fn log(&self) -> String {
        let out = Command::new("docker")
            .args(["logs", &self.name])
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    fn inspect(&self, format: &str) -> String {
        docker(&["inspect", "--format", format, &self.name]).unwrap()
    }

    async fn wait_log(&self, what: &str) {
        let begun = Instant::now();
        while !self.log().contains(what) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What a probe of the manifest gets.
    async fn probe(&self, kind: &str) -> u16 {
        let probe = &self.template["spec"]["containers"][0][kind]["httpGet"];
        assert_eq!(probe["port"], "http");
        let listens = tokio::net::TcpStream::connect(&self.address).await.is_ok();
        match listens {
            true => get(&self.address, text(probe, "/path")).await.0,
            false => 0,
        }
    }

    /// Until a probe of the manifest has this result.
    async fn wait_probe(&self, kind: &str, status: u16) {
        let begun = Instant::now();
        while self.probe(kind).await != status {
            let is_late =
                begun.elapsed() > PATIENCE || self.inspect("{{.State.Running}}") != "true";
            assert!(!is_late, "{kind} is not {status}:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Until the subcommand says so, as the health check of the image does; a loaded machine answers late.
    async fn wait_healthy(&self) {
        let program = self.inspect("{{index .Config.Entrypoint 0}}");
        let begun = Instant::now();
        while let Err(why) = docker(&["exec", &self.name, &program, "healthcheck"]) {
            assert!(begun.elapsed() < PATIENCE, "{why}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let command = self.inspect("{{.Config.Healthcheck.Test}}");
        assert_eq!(command, format!("[CMD {program} healthcheck]"));
    }

    /// A process whose parent has ended gets the first one of the pod as its parent. Until that waits for it, it counts
    /// against the limits of processes.
    async fn assert_orphans_are_waited_for(&self) {
        let shell = |line: &str| docker(&["exec", &self.name, "sh", "-c", line]).unwrap();
        shell("sleep 0.1 >/dev/null 2>&1 &");
        let begun = Instant::now();
        // One that has ended keeps its name.
        while shell("ps -eo comm=").contains("sleep") {
            assert!(begun.elapsed() < PATIENCE, "nobody waits for an orphan");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What the kernel says about the program, and not what was requested of Docker.
    fn assert_confined(&self) {
        let pid = self.inspect("{{.State.Pid}}");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let user = USER.to_string();
        assert_eq!(field("Uid:"), [user.as_str(); 4].join(" "));
        assert_eq!(field("CapEff:"), "0000000000000000");
        assert_eq!(field("CapBnd:"), "0000000000000000");
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(field("Seccomp:"), "2");
        let mounts = std::fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap();
        let root = mounts
            .lines()
            .find(|line| line.split(' ').nth(1) == Some("/"));
        assert!(root.unwrap().contains(" ro,"), "{root:?}");
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", "-v", &self.name]);
    }
}

/// The configuration of an overlay with the addresses of the rig.
fn configuration(rig: &Rig, objects: &[Value]) -> String {
    let config = text(
        one(objects, "ConfigMap", "agentmine-config"),
        "/data/config.yaml",
    );
    let mut config: Value = serde_saphyr::from_str(config).unwrap();
    assert_eq!(config["store"]["migrations"], "wait");
    config["trackers"] = rig.config["trackers"].clone();
    config["model"] = rig.config["model"].clone();
    config["queue"] = serde_json::json!({"prefix": rig.config["queue"]["prefix"]});
    config["producer"]["interval_seconds"] = 1.into();
    if config["command_executor"]["backend"] != "local" {
        config["command_executor"]["docker"]["base_image"] = crate::rig::image().into();
    }
    serde_json::to_string_pretty(&config).unwrap()
}

async fn cluster(overlay: &str, rig: &mut Rig, images: &[&'static str]) -> (Cluster, Roles) {
    let roles = Roles::make().await;
    let objects = objects(overlay);
    let config = configuration(rig, &objects);
    let file = |key: &str, content: &str| (key.to_owned(), content.to_owned());
    let fleet = BTreeMap::from([
        file("store-url", &roles.fleet),
        file("queue-url", &crate::rig::amqp_url()),
        file("github-token", rig.forge.token()),
        file("openai-api-key", "unused"),
    ]);
    let owner = BTreeMap::from([file("store-url", &roles.owner)]);
    let secrets = BTreeMap::from([
        ("agentmine".to_owned(), fleet),
        ("agentmine-owner".to_owned(), owner),
    ]);
    let cluster = Cluster {
        folder: tempfile::tempdir().unwrap(),
        images: Images::build(images),
        objects,
        secrets,
        config,
    };
    (cluster, roles)
}

/// From now on the rig reads the database of the pods.
async fn look_into(rig: &mut Rig, roles: &Roles) {
    let config = StoreConfig {
        url: Secret::new(&roles.fleet),
        max_connections: 2,
        migrations: Migrations::Wait,
        ..StoreConfig::default()
    };
    rig.store = agentmine_store::connect(&config).await.unwrap();
    rig.config["store"]["url"] = roles.fleet.clone().into();
    rig.config["store"]["migrations"] = "wait".into();
}

/// The whole of `production` but for the cluster: a pod that waits for the schema, the migration, a task from label
/// to pull request on an engine over TLS, and the end of a pod that works.
// The engine's TLS is served by this test, while it waits for Docker.
#[tokio::test(flavor = "multi_thread")]
async fn the_images_carry_a_task_as_the_production_manifests_start_them() {
    let mut rig = Rig::new(solves_demo()).await;
    let (mut cluster, roles) = cluster("production", &mut rig, &["producer", "consumer"]).await;
    let ours = tls_engine::authority();
    let server = tls_engine::pair(tls_engine::server("127.0.0.1"), &ours);
    let engine = tls_engine::engine(server, &ours).await;
    let files = tempfile::tempdir().unwrap();
    tls_engine::write_files(files.path(), &ours, &tls_engine::client(&ours));
    let keys = ["ca.pem", "cert.pem", "key.pem"].map(|key| {
        let content = std::fs::read_to_string(files.path().join(key)).unwrap();
        (key.to_owned(), content)
    });
    cluster
        .secrets
        .insert("agentmine-engine".into(), keys.into());

    let producer = cluster.start("producer", &[]);
    producer.wait_log("waiting for `producer migrate`").await;
    assert_eq!(producer.probe("readinessProbe").await, 0, "no schema");
    cluster.migrate();
    look_into(&mut rig, &roles).await;
    let consumer = cluster.start("consumer", &[("DOCKER_HOST", &engine)]);
    for container in [&producer, &consumer] {
        container.wait_probe("readinessProbe", 200).await;
        assert_eq!(container.probe("livenessProbe").await, 200);
        container.assert_confined();
        container.wait_healthy().await;
    }
    rig.label_issue();
    let tasks = rig.wait_ended(1).await;
    assert_done(&tasks[0]);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);

    // The grace period is enough for a pod that works.
    rig.model.hold_at(2);
    rig.label_issue();
    rig.model.wait_for_held(1).await;
    let stopped = std::process::Command::new("docker")
        .args(["stop", &consumer.name])
        .spawn();
    consumer.wait_log("drain").await;
    rig.model.release();
    let stopped = tokio::task::spawn_blocking(move || stopped.unwrap().wait().unwrap());
    assert!(stopped.await.unwrap().success());
    assert_eq!(
        consumer.inspect("{{.State.ExitCode}}"),
        "0",
        "{}",
        consumer.log()
    );
    for task in rig.wait_ended(2).await {
        assert_done(&task);
    }
    docker(&["stop", &producer.name]).unwrap();
    assert_eq!(
        producer.inspect("{{.State.ExitCode}}"),
        "0",
        "{}",
        producer.log()
    );
}

/// The consumer of `production-ssh`: the image's ssh, with the keys and the configuration that the manifest mounts.
#[tokio::test]
async fn the_image_of_the_consumer_reaches_an_engine_over_ssh() {
    let mut rig = Rig::new(solves_demo()).await;
    let (mut cluster, roles) = cluster("production-ssh", &mut rig, &["producer", "consumer"]).await;
    let sshd = Sshd::start(&std::env::var("PATH").unwrap());
    let read = |name: &str| std::fs::read_to_string(sshd.folder.path().join(name)).unwrap();
    let host = sshd.host();
    let port = host.rsplit_once(':').unwrap().1;
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    // As components/engine-ssh/kustomization.yaml describes it.
    let config = format!(
        "Host engine.example\n  User {}\n  IdentityFile ~/.ssh/id_ed25519\n  UserKnownHostsFile ~/.ssh/known_hosts\n  \
         StrictHostKeyChecking yes\n  HostName 127.0.0.1\n  Port {port}\n",
        user.trim()
    );
    let keys = [
        ("config", config),
        ("id_ed25519", read("user")),
        ("known_hosts", read("known")),
    ]
    .map(|(key, content)| (key.to_owned(), content));
    cluster
        .secrets
        .insert("agentmine-engine-ssh".into(), keys.into());
    cluster.migrate();
    look_into(&mut rig, &roles).await;
    let consumer = cluster.start("consumer", &[]);
    consumer.wait_probe("readinessProbe", 200).await;
    consumer.assert_confined();
    rig.produce_issue().await;
    let tasks = rig.wait_ended(1).await;
    assert_done(&tasks[0]);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
}

/// The consumer of `production-jail`: tasks in jails of Landlock and seccomp inside a restricted pod.
#[tokio::test]
async fn the_image_of_the_consumer_runs_tasks_in_its_own_jail() {
    let mut rig = Rig::new(Scenario::new("without the path of the project").replies([
        shell("sed -i 's/name=\"\"/name=\"${1:-world}\"/' greet.sh && sh test.sh"),
        commit_and_push("Greet the person named"),
        say("`greet.sh` now greets its argument."),
    ]))
    .await;
    let images = ["producer", "consumer-jail"];
    let (cluster, roles) = cluster("production-jail", &mut rig, &images).await;
    cluster.migrate();
    look_into(&mut rig, &roles).await;
    let consumer = cluster.start("consumer", &[]);
    consumer.wait_probe("readinessProbe", 200).await;
    consumer.assert_confined();
    consumer.assert_orphans_are_waited_for().await;
    rig.produce_issue().await;
    let tasks = rig.wait_ended(1).await;
    assert_done(&tasks[0]);
    assert_eq!(rig.forge.pulls(DEMO).len(), 1);
    assert!(consumer.log().contains("weaker"), "{}", consumer.log());
}
