//! The manifests of `deploy/kubernetes`: rendered by kubectl and checked as a cluster would. No cluster takes part.
//!
//! Each check is also given wrong manifests, which it has to find.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use agentmine_runtime::config::{BackendKind, Config, Sources, load};
use serde_json::{Value, json};

const OVERLAYS: [&str; 4] = ["dev", "production", "production-ssh", "production-jail"];
/// The versions whose schemas every object has to fit.
const VERSIONS: [&str; 3] = ["1.32", "1.34", "1.37"];
const FLEET: [&str; 3] = ["producer", "consumer", "migrate"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The YAML of an overlay.
fn rendered(overlay: &str) -> String {
    let folder = root().join("deploy/kubernetes/overlays").join(overlay);
    let kubectl = Command::new("kubectl")
        .arg("kustomize")
        .arg(folder)
        .output();
    let kubectl = kubectl.expect("kubectl, which tests/run installs");
    let error = String::from_utf8_lossy(&kubectl.stderr);
    assert!(kubectl.status.success(), "{overlay}: {error}");
    String::from_utf8(kubectl.stdout).unwrap()
}

/// The objects, or what is wrong with them by the schemas of these versions.
fn validated(yaml: &str, versions: &[&str]) -> Result<Vec<Value>, String> {
    let packages = std::env::var("AGENTMINE_TEST_MANIFESTS")
        .expect("AGENTMINE_TEST_MANIFESTS, which tests/run sets: a folder of Python packages");
    let mut python = Command::new("/usr/bin/python3")
        .arg(root().join("tests/services/manifests/validate.py"))
        .args(versions)
        .env("PYTHONPATH", packages)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = python.stdin.take().unwrap();
    stdin.write_all(yaml.as_bytes()).unwrap();
    drop(stdin);
    let output = python.wait_with_output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

pub(crate) fn objects(overlay: &str) -> Vec<Value> {
    validated(&rendered(overlay), &[]).unwrap()
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn of_kind<'a>(objects: &'a [Value], kind: &'static str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

pub(crate) fn one<'a>(objects: &'a [Value], kind: &'static str, named: &str) -> &'a Value {
    let mut found = of_kind(objects, kind).filter(|object| name(object).starts_with(named));
    found.next().unwrap_or_else(|| panic!("no {kind} {named}"))
}

/// Objects that make pods, with the template of these.
fn workloads(objects: &[Value]) -> Vec<(&Value, &Value)> {
    let with_template = objects
        .iter()
        .filter_map(|object| Some((object, object.pointer("/spec/template")?)));
    with_template.collect()
}

#[test]
fn every_object_fits_the_published_schemas_of_three_versions() {
    for overlay in OVERLAYS {
        let objects = validated(&rendered(overlay), &VERSIONS);
        let objects = objects.unwrap_or_else(|faults| panic!("{overlay}:\n{faults}"));
        assert!(objects.len() > 15, "{overlay}");
    }
    let production = rendered("production");
    for (right, wrong) in [
        ("replicas: 2", "replicas: two"),
        (
            "terminationGracePeriodSeconds:",
            "terminationGracePeriodSecond:",
        ),
        ("unhealthyPodEvictionPolicy:", "unhealthyPodEviction:"),
        ("pollingInterval: 15", "pollingInterval: often"),
        ("cooldownPeriod:", "coolDownPeriod:"),
        ("behavior: currentReplicas", "behavior: keep"),
        ("podMetricsEndpoints:", "podMetricEndpoints:"),
        ("interval: 15s", "interval: 15 seconds"),
    ] {
        let mut documents = production.split("\n---\n");
        let document = documents.find(|it| it.contains(right));
        let document = document.unwrap_or_else(|| panic!("no {right}"));
        let faults = validated(&document.replacen(right, wrong, 1), &VERSIONS);
        assert!(faults.is_err(), "{wrong} is not noticed");
    }
}

/// The rules of the restricted Pod Security standard (<https://kubernetes.io/docs/concepts/security/pod-security-standards/>)
/// and those of this project: no token, a read-only root, limits.
fn pod_faults(template: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut expect = |holds: bool, what: String| {
        if !holds {
            faults.push(what);
        }
    };
    let pod = &template["spec"];
    for key in ["hostNetwork", "hostPID", "hostIPC", "hostUsers"] {
        expect(pod[key].is_null(), format!("{key} is set"));
    }
    expect(
        pod["automountServiceAccountToken"] == false,
        "a token is mounted".into(),
    );
    expect(
        pod["securityContext"]["runAsNonRoot"] == true,
        "it may run as root".into(),
    );
    expect(
        pod["securityContext"]["runAsUser"].as_u64() > Some(0),
        "it runs as root".into(),
    );
    let profile = &pod["securityContext"]["seccompProfile"]["type"];
    expect(profile == "RuntimeDefault", format!("seccomp: {profile}"));
    for volume in list(pod, "/volumes") {
        let kinds = [
            "configMap",
            "emptyDir",
            "projected",
            "secret",
            "persistentVolumeClaim",
        ];
        let is_known = kinds.iter().any(|kind| volume.get(kind).is_some());
        expect(is_known, format!("volume {volume}"));
        if let Some(folder) = volume.get("emptyDir") {
            expect(
                !folder["sizeLimit"].is_null(),
                format!("{volume} has no limit"),
            );
        }
        // Others cannot read a secret that is mounted as a file.
        for kind in ["secret", "projected"] {
            if let Some(mounted) = volume.get(kind) {
                expect(
                    mounted["defaultMode"] == 0o440,
                    format!("{volume} can be read by others"),
                );
            }
        }
    }
    let containers = [list(pod, "/containers"), list(pod, "/initContainers")].concat();
    expect(!containers.is_empty(), "no container".into());
    for container in &containers {
        let (of, context) = (text(container, "/name"), &container["securityContext"]);
        expect(
            context["allowPrivilegeEscalation"] == false,
            format!("{of}: privilege escalation"),
        );
        expect(
            context["readOnlyRootFilesystem"] == true,
            format!("{of}: a writable root"),
        );
        expect(
            context["capabilities"] == json!({"drop": ["ALL"]}),
            format!("{of}: capabilities"),
        );
        for key in [
            "privileged",
            "procMount",
            "seccompProfile",
            "runAsUser",
            "runAsNonRoot",
        ] {
            expect(context[key].is_null(), format!("{of}: {key} is set"));
        }
        for port in list(container, "/ports") {
            expect(
                port["hostPort"].is_null(),
                format!("{of}: a port of the node"),
            );
        }
        let resources = &container["resources"];
        expect(
            !resources["limits"]["memory"].is_null(),
            format!("{of}: no memory limit"),
        );
        expect(
            !resources["requests"]["cpu"].is_null(),
            format!("{of}: no CPU request"),
        );
        expect(
            !text(container, "/image").ends_with(":latest"),
            format!("{of}: no version"),
        );
    }
    faults
}

#[test]
fn every_pod_is_restricted_and_without_a_token() {
    for overlay in OVERLAYS {
        let objects = objects(overlay);
        let namespace = one(&objects, "Namespace", "agentmine");
        let enforced = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
        assert_eq!(enforced, "restricted");
        for (object, template) in workloads(&objects) {
            let faults = pod_faults(template);
            assert!(faults.is_empty(), "{overlay}: {}: {faults:?}", name(object));
            // Each start would let the group write to what the program keeps there for itself.
            if !list(object, "/spec/volumeClaimTemplates").is_empty() {
                let changes = &template["spec"]["securityContext"]["fsGroupChangePolicy"];
                assert_eq!(changes, "OnRootMismatch", "{overlay}: {}", name(object));
            }
        }
        for account in of_kind(&objects, "ServiceAccount") {
            assert_eq!(
                account["automountServiceAccountToken"],
                false,
                "{}",
                name(account)
            );
        }
        let rights = objects
            .iter()
            .filter(|it| text(it, "/apiVersion").starts_with("rbac."));
        assert_eq!(rights.count(), 0, "no program calls the API of Kubernetes");
    }
    let objects = objects("production");
    let template = &one(&objects, "Deployment", "consumer")["spec"]["template"];
    for (pointer, wrong) in [
        ("/spec/hostNetwork", json!(true)),
        ("/spec/automountServiceAccountToken", json!(true)),
        ("/spec/securityContext/runAsNonRoot", json!(false)),
        ("/spec/securityContext/runAsUser", json!(0)),
        (
            "/spec/securityContext/seccompProfile/type",
            json!("Unconfined"),
        ),
        (
            "/spec/volumes/0",
            json!({"name": "x", "hostPath": {"path": "/"}}),
        ),
        (
            "/spec/containers/0/securityContext/allowPrivilegeEscalation",
            json!(true),
        ),
        (
            "/spec/containers/0/securityContext/readOnlyRootFilesystem",
            json!(false),
        ),
        (
            "/spec/containers/0/securityContext/capabilities",
            json!({"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
        ),
        ("/spec/containers/0/securityContext/privileged", json!(true)),
        ("/spec/containers/0/resources/limits", json!({})),
        ("/spec/containers/0/image", json!("x:latest")),
    ] {
        let mut mutant = template.clone();
        set(&mut mutant, pointer, wrong);
        assert!(!pod_faults(&mutant).is_empty(), "{pointer} is not noticed");
    }
}

fn set(value: &mut Value, pointer: &str, new: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap();
    match key.parse::<usize>() {
        Ok(at) => parent[at] = new,
        Err(_) => parent[key] = new,
    }
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
enum End {
    /// A pod of the fleet's namespace by its name, as the labels have it.
    Pod(&'static str),
    /// A pod of another namespace: the namespace, a label, its value.
    Other(&'static str, &'static str, &'static str),
    Address(&'static str),
}

fn labels_match(selector: &Value, has: &dyn Fn(&str) -> Option<String>) -> bool {
    let mut exact = selector["matchLabels"].as_object().into_iter().flatten();
    let exact = exact.all(|(key, value)| has(key).as_deref() == value.as_str());
    let set = list(selector, "/matchExpressions").iter().all(|rule| {
        assert_eq!(rule["operator"], "In");
        let value = has(text(rule, "/key"));
        value.is_some_and(|value| list(rule, "/values").contains(&json!(value)))
    });
    exact && set
}

fn pod_label(pod: &'static str) -> impl Fn(&str) -> Option<String> {
    move |key| (key == "app.kubernetes.io/name").then(|| pod.to_owned())
}

/// Whether a peer of a rule is this end.
fn is_peer(peer: &Value, end: End) -> bool {
    match (end, peer.get("ipBlock")) {
        (End::Address(ip), Some(block)) => {
            let contains = |range: &str| in_range(ip.parse().unwrap(), range);
            let mut except = list(block, "/except").iter().filter_map(Value::as_str);
            contains(text(block, "/cidr")) && !except.any(contains)
        }
        (End::Pod(pod), None) => {
            peer.get("namespaceSelector").is_none()
                && labels_match(&peer["podSelector"], &pod_label(pod))
        }
        (End::Other(namespace, label, value), None) => {
            let of_namespace =
                |key: &str| (key == "kubernetes.io/metadata.name").then(|| namespace.to_owned());
            let of_pod = |key: &str| (key == label).then(|| value.to_owned());
            peer.get("namespaceSelector")
                .is_some_and(|it| labels_match(it, &of_namespace))
                && labels_match(&peer["podSelector"], &of_pod)
        }
        (End::Address(_), None) | (End::Pod(_) | End::Other(..), Some(_)) => false,
    }
}

fn in_range(ip: IpAddr, range: &str) -> bool {
    let (base, bits) = range.split_once('/').unwrap();
    let bits: u32 = bits.parse().unwrap();
    match (ip, base.parse().unwrap()) {
        (IpAddr::V4(ip), IpAddr::V4(base)) => {
            bits == 0 || (u32::from(ip) ^ u32::from(base)) >> (32 - bits) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(base)) => {
            bits == 0 || (u128::from(ip) ^ u128::from(base)) >> (128 - bits) == 0
        }
        _ => false,
    }
}

/// Whether the policies let a connection of this pod's pass in one direction.
fn passes(
    objects: &[Value],
    pod: &'static str,
    direction: &str,
    end: End,
    protocol: &str,
    port: u64,
) -> bool {
    let (rules, peers) = match direction {
        "Egress" => ("/spec/egress", "/to"),
        _ => ("/spec/ingress", "/from"),
    };
    let policies = of_kind(objects, "NetworkPolicy").filter(|policy| {
        list(policy, "/spec/policyTypes").contains(&json!(direction))
            && labels_match(&policy["spec"]["podSelector"], &pod_label(pod))
    });
    let mut selected = false;
    let mut allowed = false;
    for policy in policies {
        selected = true;
        allowed |= list(policy, rules).iter().any(|rule| {
            list(rule, peers).iter().any(|peer| is_peer(peer, end))
                && list(rule, "/ports")
                    .iter()
                    .any(|it| it["protocol"] == protocol && it["port"].as_u64() == Some(port))
        });
    }
    // A pod that no policy selects is open.
    !selected || allowed
}

/// A connection: from, to, protocol, port.
type Flow = (End, End, &'static str, u64);

fn is_open(objects: &[Value], (from, to, protocol, port): Flow) -> bool {
    let leaves = match from {
        End::Pod(pod) => passes(objects, pod, "Egress", to, protocol, port),
        End::Other(..) | End::Address(_) => true,
    };
    let arrives = match to {
        End::Pod(pod) => passes(objects, pod, "Ingress", from, protocol, port),
        End::Other(..) | End::Address(_) => true,
    };
    leaves && arrives
}

const PUBLIC: End = End::Address("140.82.121.6");
const PUBLIC_V6: End = End::Address("2606:50c0:8000::154");
const METADATA: End = End::Address("169.254.169.254");
const PRIVATE: End = End::Address("10.1.2.3");
/// Name servers: CoreDNS, caches on the node, Google's, OpenShift's.
const DNS: [(End, u64); 6] = [
    (End::Other("kube-system", "k8s-app", "kube-dns"), 53),
    (End::Other("kube-system", "k8s-app", "node-local-dns"), 53),
    (End::Address("169.254.20.10"), 53),
    (End::Address("169.254.25.10"), 53),
    (METADATA, 53),
    (
        End::Other(
            "openshift-dns",
            "dns.operator.openshift.io/daemonset-dns",
            "default",
        ),
        5353,
    ),
];
const PROMETHEUS: End = End::Other("monitoring", "app.kubernetes.io/name", "prometheus");
const STRANGER: End = End::Other("default", "app.kubernetes.io/name", "prometheus");

/// The flows of every overlay.
fn common() -> (Vec<Flow>, Vec<Flow>) {
    use End::Pod;
    let (producer, consumer, migrate) = (Pod("producer"), Pod("consumer"), Pod("migrate"));
    let mut open = vec![
        (producer, PUBLIC, "TCP", 443),
        (producer, PUBLIC_V6, "TCP", 443),
        (consumer, PUBLIC, "TCP", 443),
        (consumer, PUBLIC, "TCP", 80),
        (consumer, PUBLIC_V6, "TCP", 443),
        (PROMETHEUS, producer, "TCP", 9464),
        (PROMETHEUS, consumer, "TCP", 9464),
    ];
    let mut closed = vec![
        (producer, PUBLIC, "TCP", 80),
        (producer, PUBLIC, "TCP", 22),
        (migrate, PUBLIC, "TCP", 443),
        (consumer, METADATA, "TCP", 80),
        (consumer, PRIVATE, "TCP", 443),
        (consumer, End::Address("192.168.1.1"), "TCP", 443),
        (consumer, End::Address("fd00::1"), "TCP", 443),
        (consumer, PUBLIC, "TCP", 5432),
        (producer, METADATA, "TCP", 80),
        (producer, PRIVATE, "TCP", 443),
        (STRANGER, producer, "TCP", 9464),
        (STRANGER, consumer, "TCP", 9464),
        (PUBLIC, consumer, "TCP", 9464),
        (PROMETHEUS, migrate, "TCP", 9464),
        (PROMETHEUS, consumer, "TCP", 22),
        (producer, consumer, "TCP", 9464),
        (consumer, producer, "TCP", 9464),
    ];
    for pod in FLEET {
        for (server, port) in DNS {
            open.push((Pod(pod), server, "UDP", port));
            open.push((Pod(pod), server, "TCP", port));
            closed.push((Pod(pod), server, "TCP", 443));
        }
        closed.push((Pod(pod), PUBLIC, "UDP", 53));
        closed.push((
            Pod(pod),
            End::Other("kube-system", "k8s-app", "other"),
            "UDP",
            53,
        ));
    }
    (open, closed)
}

/// The flows of an overlay: those that are open, and those that are not.
fn flows(overlay: &str) -> (Vec<Flow>, Vec<Flow>) {
    use End::{Address, Pod};
    let (mut open, mut closed) = common();
    let engine = Address("192.0.2.30");
    let (store, queue, amqp) = match overlay {
        "dev" => (Pod("postgres"), Pod("rabbitmq"), 5672),
        _ => (Address("192.0.2.10"), Address("192.0.2.20"), 5671),
    };
    open.extend(FLEET.map(|pod| (Pod(pod), store, "TCP", 5432)));
    open.extend(["producer", "consumer"].map(|pod| (Pod(pod), queue, "TCP", amqp)));
    closed.push((Pod("migrate"), queue, "TCP", amqp));
    closed.push((Pod("consumer"), store, "TCP", 22));
    closed.push((Pod("producer"), engine, "TCP", 2376));
    closed.push((Pod("producer"), engine, "TCP", 22));
    for (port, overlays) in [(2376, ["production"]), (22, ["production-ssh"])] {
        let flow = (Pod("consumer"), engine, "TCP", port);
        match overlays.contains(&overlay) {
            true => open.push(flow),
            false => closed.push(flow),
        }
    }
    if overlay == "dev" {
        closed.extend([
            (STRANGER, store, "TCP", 5432),
            (PUBLIC, store, "TCP", 5432),
            (STRANGER, queue, "TCP", 5672),
            (queue, store, "TCP", 5432),
            (store, PUBLIC, "TCP", 443),
            (queue, PUBLIC, "TCP", 443),
        ]);
    }
    (open, closed)
}

/// Flows that are not as expected.
fn flow_faults(objects: &[Value], overlay: &str) -> Vec<String> {
    let (open, closed) = flows(overlay);
    let broken = open.into_iter().filter(|flow| !is_open(objects, *flow));
    let broken = broken.map(|flow| format!("closed: {flow:?}"));
    let leaks = closed.into_iter().filter(|flow| is_open(objects, *flow));
    broken
        .chain(leaks.map(|flow| format!("open: {flow:?}")))
        .collect()
}

#[test]
fn every_flow_is_named_and_nothing_else_passes() {
    for overlay in OVERLAYS {
        let objects = objects(overlay);
        let faults = flow_faults(&objects, overlay);
        assert!(faults.is_empty(), "{overlay}: {faults:#?}");
        // Each policy is needed: without it, a flow is closed, or open for everybody.
        for at in 0..objects.len() {
            if objects[at]["kind"] == "NetworkPolicy" {
                let mut without = objects.clone();
                let removed = without.remove(at);
                let faults = flow_faults(&without, overlay);
                assert!(
                    !faults.is_empty(),
                    "{overlay}: nothing needs {}",
                    name(&removed)
                );
            }
        }
        // Without its exceptions, a range of addresses reaches private ones.
        let mut wide = objects.clone();
        for policy in wide.iter_mut().filter(|it| it["kind"] == "NetworkPolicy") {
            for rule in policy["spec"]["egress"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                for peer in rule["to"].as_array_mut().into_iter().flatten() {
                    if let Some(block) = peer.get_mut("ipBlock") {
                        block.as_object_mut().unwrap().remove("except");
                    }
                }
            }
        }
        assert!(!flow_faults(&wide, overlay).is_empty(), "{overlay}");
    }
}

/// What an overlay promises about a deploy.
fn deploy_faults(objects: &[Value]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            faults.push(what.to_owned());
        }
    };
    let config_map = one(objects, "ConfigMap", "agentmine-config");
    let config = text(config_map, "/data/config.yaml");
    let setting = |key: &str| -> Option<u64> {
        let value = config
            .lines()
            .find_map(|line| line.trim().strip_prefix(key))?;
        value.trim().parse().ok()
    };
    let drain = setting("drain_seconds:").unwrap_or(u64::MAX);
    expect(
        config.contains("migrations: wait"),
        "processes change the schema",
    );
    for of in ["producer", "consumer"] {
        let deployment = one(objects, "Deployment", of);
        let pod = &deployment["spec"]["template"]["spec"];
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(0);
        // The removal of sandboxes has 90 s after the drain.
        expect(
            grace > drain.saturating_add(90),
            "the grace period is too short",
        );
        let uses = list(pod, "/volumes")
            .iter()
            .any(|it| it["configMap"]["name"] == config_map["metadata"]["name"]);
        expect(uses, "the configuration is not that of the ConfigMap");
        let budget = one(objects, "PodDisruptionBudget", of);
        expect(
            budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow",
            "pods that are not ready block the drain of a node",
        );
        expect(
            budget["spec"]["selector"] == deployment["spec"]["selector"],
            "the budget is of other pods",
        );
        expect(
            list(pod, "/topologySpreadConstraints").len() == 2,
            "pods are not spread",
        );
        let container = &pod["containers"][0];
        expect(
            container["resources"]["requests"]["ephemeral-storage"].is_string(),
            "it is evicted first from a node that runs out of disk",
        );
        for (probe, path) in [
            ("startupProbe", "/live"),
            ("livenessProbe", "/live"),
            ("readinessProbe", "/ready"),
        ] {
            expect(container[probe]["httpGet"]["path"] == path, probe);
        }
        let listen = list(container, "/env")
            .iter()
            .find(|it| it["name"] == "AGENTMINE_HTTP_LISTEN");
        expect(
            listen.is_some_and(|it| it["value"] == "[::]:9464"),
            "a cluster without IPv4 cannot reach its probes",
        );
        for variable in list(container, "/env") {
            let is_secret = variable.get("valueFrom").is_some();
            expect(!is_secret, "a secret is in the environment");
        }
    }
    let deployment = one(objects, "Deployment", "consumer");
    for scaled in of_kind(objects, "ScaledObject") {
        expect(
            deployment["spec"].get("replicas").is_none(),
            "apply undoes the autoscaler",
        );
        let trigger = &scaled["spec"]["triggers"][0]["metadata"];
        let target = text(trigger, "/targetQueryValue").parse().ok();
        expect(
            target == setting("concurrency:"),
            "the target is not the number of slots",
        );
        expect(
            trigger["query"] == "SELECT slots FROM demand",
            "another query",
        );
        expect(
            scaled["spec"]["fallback"]["behavior"] == "currentReplicas",
            "an outage scales",
        );
    }
    let job = one(objects, "Job", "migrate");
    let template = &job["spec"]["template"]["spec"];
    let image = text(template, "/containers/0/image");
    let (_, tag) = image.rsplit_once(':').unwrap_or_default();
    expect(
        tag == env!("CARGO_PKG_VERSION"),
        "the image is of another version",
    );
    let named = format!("migrate-{}", tag.replace('.', "-"));
    expect(
        name(job) == named,
        "the migration is not named by its version",
    );
    let mut hashed = list(template, "/volumes").iter();
    expect(
        hashed
            .all(|it| it["configMap"].is_null() && it["secret"]["secretName"] == "agentmine-owner"),
        "a changed configuration changes the Job",
    );
    let others = workloads(objects)
        .into_iter()
        .filter(|(object, _)| object["kind"] != "Job");
    for (_, template) in others {
        let as_text = template.to_string();
        expect(
            !as_text.contains("agentmine-owner"),
            "another process has the owner's password",
        );
    }
    faults
}

#[test]
fn a_deploy_needs_nothing_by_hand_and_ends_no_task() {
    for overlay in OVERLAYS {
        let objects = objects(overlay);
        let faults = deploy_faults(&objects);
        assert!(faults.is_empty(), "{overlay}: {faults:?}");
    }
    let right = objects("production");
    let position = |kind: &str, of: &str| {
        right
            .iter()
            .position(|it| it["kind"] == kind && name(it).starts_with(of))
            .unwrap()
    };
    let (consumer, job) = (
        position("Deployment", "consumer"),
        position("Job", "migrate"),
    );
    for (at, pointer, wrong) in [
        (
            consumer,
            "/spec/template/spec/terminationGracePeriodSeconds",
            json!(150),
        ),
        (consumer, "/spec/replicas", json!(3)),
        (
            consumer,
            "/spec/template/spec/containers/0/resources/requests",
            json!({"cpu": "1"}),
        ),
        (
            consumer,
            "/spec/template/spec/containers/0/livenessProbe/httpGet/path",
            json!("/ready"),
        ),
        (
            consumer,
            "/spec/template/spec/volumes/1/configMap/name",
            json!("agentmine-config"),
        ),
        (job, "/metadata/name", json!("migrate")),
        (
            job,
            "/spec/template/spec/containers/0/image",
            json!("agentmine-producer:9.9.9"),
        ),
        (
            position("PodDisruptionBudget", "consumer"),
            "/spec/unhealthyPodEvictionPolicy",
            json!("IfHealthyBudget"),
        ),
        (
            position("ScaledObject", "consumer"),
            "/spec/triggers/0/metadata/targetQueryValue",
            json!("1"),
        ),
        (
            position("ScaledObject", "consumer"),
            "/spec/fallback/behavior",
            json!("static"),
        ),
    ] {
        let mut mutant = right.clone();
        set(&mut mutant[at], pointer, wrong);
        assert!(
            !deploy_faults(&mutant).is_empty(),
            "{pointer} is not noticed"
        );
    }
}

#[test]
fn a_changed_configuration_has_another_name() {
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(root().join("deploy/kubernetes"))
        .arg(copy.path())
        .status();
    assert!(copied.unwrap().success());
    let overlay = copy.path().join("kubernetes/overlays/production");
    let render = || {
        let kubectl = Command::new("kubectl")
            .arg("kustomize")
            .arg(&overlay)
            .output()
            .unwrap();
        let objects = validated(&String::from_utf8(kubectl.stdout).unwrap(), &[]).unwrap();
        let config = name(one(&objects, "ConfigMap", "agentmine-config")).to_owned();
        (config, one(&objects, "Job", "migrate").clone())
    };
    let before = render();
    let file = overlay.join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("gpt-5", "another")).unwrap();
    let after = render();
    assert_ne!(before.0, after.0, "pods are not rolled");
    assert_eq!(before.1, after.1, "a Job cannot be changed");
}

#[test]
fn a_service_monitor_takes_the_place_of_the_pod_monitor() {
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(root().join("deploy/kubernetes"))
        .arg(copy.path())
        .status();
    assert!(copied.unwrap().success());
    let overlay = copy.path().join("kubernetes/overlays/production");
    let file = overlay.join("kustomization.yaml");
    let operator = "  - ../../components/prometheus-operator\n";
    let text_of = std::fs::read_to_string(&file).unwrap();
    let both = format!("{operator}  - ../../components/service-monitor\n");
    std::fs::write(&file, text_of.replace(operator, &both)).unwrap();
    let kubectl = Command::new("kubectl")
        .arg("kustomize")
        .arg(&overlay)
        .output()
        .unwrap();
    let yaml = String::from_utf8(kubectl.stdout).unwrap();
    let objects = validated(&yaml, &VERSIONS).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(of_kind(&objects, "PodMonitor").count(), 0, "scraped twice");
    let monitor = one(&objects, "ServiceMonitor", "agentmine");
    let endpoint = &monitor["spec"]["endpoints"][0];
    for program in ["producer", "consumer"] {
        let service = one(&objects, "Service", program);
        let labels = &service["metadata"]["labels"];
        let has = |key: &str| labels[key].as_str().map(str::to_owned);
        assert!(labels_match(&monitor["spec"]["selector"], &has));
        // Alerts and dashboards name the jobs like this.
        assert_eq!(labels[text(monitor, "/spec/jobLabel")], program);
        let port = &service["spec"]["ports"][0];
        assert_eq!(port["name"], endpoint["port"]);
        let template = &one(&objects, "Deployment", program)["spec"]["template"];
        let pod = &template["metadata"]["labels"]["app.kubernetes.io/name"];
        assert_eq!(&service["spec"]["selector"]["app.kubernetes.io/name"], pod);
        let open = &template["spec"]["containers"][0]["ports"][0];
        assert_eq!(open["name"], port["targetPort"]);
    }
}

/// The configuration of an overlay, as its consumer reads it.
fn configuration(overlay: &str, objects: &[Value]) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let config = text(
        one(objects, "ConfigMap", "agentmine-config"),
        "/data/config.yaml",
    );
    let consumer = one(objects, "Deployment", "consumer");
    let variables = list(consumer, "/spec/template/spec/containers/0/env");
    let env = variables.iter().map(|variable| {
        let (key, value) = (text(variable, "/name"), text(variable, "/value"));
        let file = folder.path().join(key);
        let secret = match key {
            "AGENTMINE_STORE_URL_FILE" => "postgres://u:p@db/x",
            "AGENTMINE_QUEUE_URL_FILE" => "amqp://u:p@mq/%2f",
            _ => "secret",
        };
        match key.ends_with("_FILE") {
            true => {
                assert!(
                    value.starts_with("/run/secrets/agentmine/"),
                    "{key}: {value}"
                );
                std::fs::write(&file, secret).unwrap();
                (key.to_owned(), file.display().to_string())
            }
            false => (key.to_owned(), value.to_owned()),
        }
    });
    let sources = Sources::from_text("config.yaml", config).with_env(env);
    load(&sources).unwrap_or_else(|faults| panic!("{overlay}: {faults}"))
}

#[test]
fn the_configurations_are_valid_and_the_secrets_come_from_files() {
    for overlay in OVERLAYS {
        let config = configuration(overlay, &objects(overlay));
        assert_eq!(config.store.url.expose(), "postgres://u:p@db/x");
        assert!(config.trackers.github.unwrap().token.is_some());
        assert!(config.model.api_key.is_some());
    }
}

/// A pod whose volume exceeds its limit is evicted, with all of its tasks.
#[test]
fn the_workspaces_of_a_pod_and_its_mirrors_fit_into_its_volume() {
    for overlay in OVERLAYS {
        let objects = objects(overlay);
        let config = configuration(overlay, &objects);
        let slots = config.consumer.concurrency as u64;
        // A verification has a workspace of its own, while that of the agent still exists.
        let workspaces = match config.command_executor.backend {
            BackendKind::Docker => 0,
            BackendKind::Local => 2 * slots,
        };
        let disk = config.command_executor.docker.resources.disk_limit;
        let needed = workspaces * disk.bytes() + config.consumer.mirrors.max_size.bytes();
        let consumer = one(&objects, "Deployment", "consumer");
        let mut volumes = list(consumer, "/spec/template/spec/volumes").iter();
        let home = volumes.find(|volume| volume["name"] == "home").unwrap();
        let limit = text(home, "/emptyDir/sizeLimit").strip_suffix("Gi");
        let limit: u64 = limit.unwrap().parse().unwrap();
        assert!(
            limit << 30 > needed,
            "{overlay}: {limit} GiB for {needed} B"
        );
    }
}

/// Postgres allows 100 by default, and reserves three of them.
#[test]
fn the_fleet_at_its_largest_fits_into_the_connections_of_its_database() {
    for overlay in OVERLAYS {
        let objects = objects(overlay);
        let each = u64::from(configuration(overlay, &objects).store.max_connections);
        let scaled = of_kind(&objects, "ScaledObject").next();
        let consumers = scaled.map_or(1, |it| it["spec"]["maxReplicaCount"].as_u64().unwrap());
        let producer = one(&objects, "Deployment", "producer");
        let producers = producer["spec"]["replicas"].as_u64().unwrap();
        // Two for the heartbeats of a consumer, and one for the autoscaler.
        let most = consumers * (each + 2) + producers * each + 1;
        assert!(most <= 97, "{overlay}: {most} connections");
    }
}

/// A separate database with the roles of `roles.sql`, as URLs. Removed when dropped.
pub(crate) struct Roles {
    pub(crate) owner: String,
    pub(crate) fleet: String,
    pub(crate) autoscaler: String,
    prefix: String,
}

impl Roles {
    pub(crate) async fn make() -> Self {
        let prefix = format!("k{}", uuid::Uuid::new_v4().simple());
        let server = crate::rig::postgres_url();
        as_admin(&[format!("CREATE DATABASE {prefix}")]).await;
        let database = crate::database::with_database(&server, &prefix);
        make_roles(&roles_sql(), &prefix, &database).unwrap();
        let url = |role: &str, password: &str| {
            let mut url: url::Url = database.parse().unwrap();
            url.set_username(role).unwrap();
            url.set_password(Some(password)).unwrap();
            url.to_string()
        };
        Self {
            owner: url(&format!("{prefix}_owner"), "a"),
            fleet: url(&prefix, "b"),
            autoscaler: url(&format!("{prefix}_autoscaler"), "c"),
            prefix,
        }
    }
}

fn roles_sql() -> String {
    let component = "deploy/kubernetes/components/postgres-roles/roles.sql";
    std::fs::read_to_string(root().join(component)).unwrap()
}

/// Runs the script with another name in place of `agentmine`. The error is what psql reports.
fn make_roles(sql: &str, prefix: &str, database: &str) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), sql.replace("agentmine", prefix)).unwrap();
    let psql = Command::new("psql")
        .args(["owner='a'", "fleet='b'", "autoscaler='c'"].map(|it| format!("--set={it}")))
        .arg("--file")
        .arg(file.path())
        .arg(database)
        .output()
        .expect("psql, which tests/run installs");
    match psql.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&psql.stderr).into_owned()),
    }
}

async fn as_admin(statements: &[String]) {
    use sqlx::Connection as _;
    let server = crate::rig::postgres_url();
    let mut admin = sqlx::PgConnection::connect(&server).await.unwrap();
    for sql in statements {
        let sql = sqlx::AssertSqlSafe(sql.as_str());
        sqlx::raw_sql(sql).execute(&mut admin).await.unwrap();
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        let prefix = self.prefix.clone();
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let drop_roles = format!("DROP ROLE {prefix}_owner, {prefix}, {prefix}_autoscaler");
            let drop_database = format!("DROP DATABASE {prefix} WITH (FORCE)");
            runtime
                .unwrap()
                .block_on(as_admin(&[drop_database, drop_roles]));
        });
        // A failed test is reported as such, whatever is left.
        let _ = removal.join();
    }
}

/// As on a managed server, whose administrator is no superuser.
#[tokio::test]
async fn only_the_event_trigger_needs_a_superuser() {
    let prefix = format!("k{}", uuid::Uuid::new_v4().simple());
    let admin = format!("{prefix}_admin");
    as_admin(&[
        format!("CREATE ROLE {admin} LOGIN CREATEROLE PASSWORD 'd'"),
        format!("CREATE DATABASE {prefix} OWNER {admin}"),
    ])
    .await;
    let database = crate::database::with_database(&crate::rig::postgres_url(), &prefix);
    let mut url: url::Url = database.parse().unwrap();
    url.set_username(&admin).unwrap();
    url.set_password(Some("d")).unwrap();
    let sql = roles_sql();
    let (without_trigger, _) = sql
        .split_once("-- The view is made by a migration")
        .unwrap();
    let made = make_roles(without_trigger, &prefix, url.as_str());
    as_admin(&[
        format!("DROP DATABASE {prefix} WITH (FORCE)"),
        format!(
            "DROP ROLE IF EXISTS {prefix}_owner, {prefix}, {prefix}_autoscaler, {prefix}_admin"
        ),
    ])
    .await;
    made.unwrap();
}

/// On a real Postgres: only the owner changes the schema, and the autoscaler reads one view.
#[tokio::test]
async fn each_role_of_the_database_may_do_what_it_needs_and_no_more() {
    use agentmine_runtime::config::{Migrations, Secret, StoreConfig};
    use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

    let roles = Roles::make().await;
    let config = |url: &str, migrations| StoreConfig {
        url: Secret::new(url),
        max_connections: 1,
        migrations,
        ..StoreConfig::default()
    };
    let without_right = config(&roles.fleet, Migrations::Run);
    assert!(
        agentmine_store::connect(&without_right).await.is_err(),
        "the fleet may change the schema"
    );
    agentmine_store::migrate(&config(&roles.owner, Migrations::Wait))
        .await
        .unwrap();
    let fleet = config(&roles.fleet, Migrations::Wait);
    let store = agentmine_store::connect(&fleet).await.unwrap();
    assert_eq!(store.figures().await.unwrap().slots, 0);
    store.scan_time().await.unwrap();
    store.close().await;

    let mut connection = PgConnection::connect(&roles.autoscaler).await.unwrap();
    // What KEDA asks.
    let slots: i64 = sqlx::query_scalar("SELECT slots FROM demand")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(slots, 0);
    for table in [
        "tasks",
        "sessions",
        "steps",
        "outbox",
        "effects",
        "checkpoints",
        "_sqlx_migrations",
    ] {
        let sql = AssertSqlSafe(format!("SELECT 1 FROM {table}"));
        assert!(
            sqlx::query(sql).execute(&mut connection).await.is_err(),
            "it reads {table}"
        );
    }
}
