//! What only Docker containers promise.

use std::net::Ipv4Addr;

use super::*;

#[tokio::test]
async fn a_container_has_the_whole_profile() {
    let backend = DockerBackend::connect(&docker_config()).await;
    let backend = backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
    let task = TaskId::new();
    let sandbox = Running(backend.start(&spec(task)).await.unwrap());
    let (ok, json) = docker_cli(&["inspect", sandbox.name()]);
    assert!(ok);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (host, config) = (&json[0]["HostConfig"], &json[0]["Config"]);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
    assert_eq!(
        host["SecurityOpt"],
        serde_json::json!(["no-new-privileges:true"])
    );
    assert_eq!(host["PidsLimit"], 1024);
    assert_eq!(host["Memory"], 4_i64 << 30);
    assert_eq!(host["MemorySwap"], 4_i64 << 30);
    assert!(host["NanoCpus"].as_i64().unwrap() > 0);
    assert_eq!(host["ShmSize"], 1 << 30);
    let own = sandbox.output("getent ahosts $(uname -n)").await;
    assert!(own.starts_with("127.0.0.1 "), "{own}");
    // The guest is the first process, and reaps what others leave.
    assert_eq!(host["Init"], false);
    let first = sandbox.output("cat /proc/1/comm").await;
    assert_eq!(first, "agentmine-guest");
    assert_eq!(host["Privileged"], false);
    assert_eq!(
        host["Ulimits"],
        serde_json::json!([{"Name": "core", "Hard": 0, "Soft": 0}])
    );
    assert_eq!(host["LogConfig"]["Type"], "none");
    assert!(host["Binds"].is_null());
    assert!(!host["MaskedPaths"].as_array().unwrap().is_empty());
    assert_eq!(config["User"], "1000:1000");
    assert_eq!(config["Labels"]["agentmine.task"], task.to_string());
    assert_eq!(config["Labels"]["agentmine.epoch"], "3");
    assert_eq!(config["Labels"]["agentmine.role"], "main");
    for mount in json[0]["Mounts"].as_array().unwrap() {
        assert_eq!(mount["Type"], "volume");
        let is_workspace = mount["Destination"] == "/workspace";
        assert_eq!(mount["RW"], is_workspace, "{mount}");
    }
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn an_image_that_allows_it_gets_a_read_only_root() {
    let mut config = docker_config();
    let tag = format!("agentmine-test-readonly:{}", TaskId::new().short());
    let (ok, base) = docker_cli(&["create", &config.docker.base_image]);
    assert!(ok, "run tests/run");
    let label = "LABEL agentmine.readonly-root=true";
    assert!(docker_cli(&["commit", "--change", label, base.trim(), &tag]).0);
    docker_cli(&["rm", base.trim()]);
    config.docker.base_image = tag.clone();
    let backend = DockerBackend::connect(&config).await.unwrap();
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    sandbox
        .output("touch /tmp/x /run/x file ../tmp/home/x")
        .await;
    let elsewhere = sandbox.shell("touch /var/tmp/x").await;
    assert!(
        text(&elsewhere.stderr).contains("Read-only"),
        "{}",
        text(&elsewhere.stderr)
    );
    sandbox.remove().await.unwrap();
    docker_cli(&["rmi", &tag]);
}

/// An engine behind TCP shares no file system with the worker as far as the worker knows.
#[tokio::test]
async fn an_engine_behind_tcp_works() {
    let mut config = docker_config();
    let socket = config
        .docker
        .host
        .clone()
        .unwrap_or_else(|| "unix:///var/run/docker.sock".into());
    if let Some(socket) = socket.strip_prefix("unix://") {
        let socket = socket.to_owned();
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .unwrap();
        config.docker.host = Some(format!("tcp://{}", listener.local_addr().unwrap()));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut engine = tokio::net::UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
                });
            }
        });
    }
    let backend = DockerBackend::connect(&config).await;
    let backend = backend.unwrap_or_else(|err| panic!("{err}\nrun tests/run"));
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    assert_eq!(sandbox.output("echo far").await, "far");
    sandbox.remove().await.unwrap();
}

#[tokio::test]
async fn what_an_engine_lacks_is_reported_with_a_hint() {
    let mut config = docker_config();
    config.docker.base_image = "127.0.0.1:1/agentmine-none:latest".into();
    let backend = DockerBackend::connect(&config).await.unwrap();
    let err = backend
        .start(&spec(TaskId::new()))
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        err.contains("agentmine-none")
            && err.contains("docker/executor-default/build, which uses DOCKER_HOST"),
        "{err}"
    );
    config.docker.runtime = Some("kata".into());
    let err = DockerBackend::connect(&config).await.unwrap_err();
    assert!(
        matches!(&err, SandboxError::Refused(why) if why.contains("kata")),
        "{err}"
    );
    config.docker.host = Some("unix:///nowhere/docker.sock".into());
    let err = DockerBackend::connect(&config).await.unwrap_err();
    assert!(
        matches!(&err, SandboxError::Unavailable(why) if why.contains("hint:")),
        "{err}"
    );
}

#[tokio::test]
async fn presets_are_what_the_package_managers_of_the_image_use() {
    let mut config = docker_config();
    let tag = format!("agentmine-test-presets:{}", TaskId::new().short());
    let (ok, base) = docker_cli(&["create", &config.docker.base_image]);
    assert!(ok, "run tests/run");
    let env = "ENV npm_config_registry=https://npm.example.com/ PIP_INDEX_URL=https://pypi.example.com/simple";
    assert!(docker_cli(&["commit", "--change", env, base.trim(), &tag]).0);
    docker_cli(&["rm", base.trim()]);
    config.docker.base_image = tag.clone();
    let backend = DockerBackend::connect(&config).await.unwrap();
    let sandbox = Running(backend.start(&spec(TaskId::new())).await.unwrap());
    let mut network = config.docker.network.clone();
    network.whitelist_mode = true;
    network.allowed_domains = ["npm", "pypi", "go", "maven", "crates", "debian"]
        .map(|name| format!("preset:{name}"))
        .into();
    network
        .presets
        .insert("debian".into(), vec!["deb.example.com".into()]);
    let network = crate::with_presets(sandbox.0.as_ref(), network)
        .await
        .unwrap();
    let of = |name: &str| network.presets[name].clone();
    assert!(of("npm").contains(&"npm.example.com".into()), "{network:?}");
    assert_eq!(of("pypi"), ["pypi.example.com"]);
    assert_eq!(of("debian"), ["deb.example.com"], "the operator's own list");
    // These are not configured in the image: what the programs use by default.
    for name in ["go", "maven", "crates"] {
        assert!(!of(name).is_empty(), "{name}: {network:?}");
    }
    sandbox.remove().await.unwrap();
    docker_cli(&["rmi", &tag]);
}
