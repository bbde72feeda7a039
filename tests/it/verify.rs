//! `deploy/kubernetes/verify`, with a stand-in for a cluster: each of its checks passes on a right one, and finds the
//! fault that it is for. Whether a real cluster answers like this was not tried.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Answers as kubectl does on a cluster with a running fleet. `BROKEN` names what is wrong there.
const KUBECTL: &str = r#"#!/usr/bin/env bash
broken() { [ "$BROKEN" = "$1" ]; }
case "$*" in
    "kustomize "*) /usr/bin/env -i PATH="$REAL_PATH" kubectl "$@" | sed 's/192\.0\.2\./198.51.100./' ;;
    "apply --dry-run=server"*) ! broken schema ;;
    "diff --selector app.kubernetes.io/name!=migrate "*) ! broken drift ;;
    "diff "*) ! broken drift && ! broken removed-job ;;
    *"wait --for=condition=complete job/"*) ! broken migration ;;
    *"get job "*) ! broken removed-job ;;
    *"rollout status deployment/producer"*) ! broken producer ;;
    *"rollout status deployment/consumer"*) ! broken consumer ;;
    *"pod-security"*) if broken namespace; then echo privileged; else echo restricted; fi ;;
    *"run agentmine-verify"*) broken admission ;;
    "auth can-i --list"*) echo "selfsubjectreviews.authentication.k8s.io [] [] [create]"; if broken rights; then echo "secrets [] [] [get]"; fi ;;
    *"go-template="*) if broken root; then echo "<no value> false [ALL]"; else echo "true false [ALL]"; fi ;;
    *"serviceAccountToken"*) if broken token; then echo '{"path":"token"}'; fi ;;
    *"get networkpolicy names-from-dns") ! broken policy ;;
    *"get networkpolicy "*) ;;
    *"spec.nodeName"*) echo node-1 ;;
    "drain node-1 --dry-run=server"*) ! broken drain ;;
    "api-resources"*) echo scaledobjects.keda.sh ;;
    *"wait --for=condition=Ready scaledobject/consumer"*) ! broken autoscaler ;;
    *"get pods -l app.kubernetes.io/name="*) echo "pod/some" ;;
    *"/usr/local/bin/producer healthcheck") ! broken store ;;
    *"/usr/local/bin/consumer healthcheck") ! broken engine ;;
    *"git ls-remote https://kubernetes.default.svc/x")
        if broken names; then echo "fatal: unable to access: Could not resolve host: kubernetes.default.svc"
        elif broken api; then echo "fatal: unable to access: SSL certificate problem"
        else echo "fatal: unable to access: Failed to connect to kubernetes.default.svc port 443"; fi >&2; exit 128 ;;
    *"git ls-remote http://169.254.169.254/x")
        if broken metadata; then echo "fatal: repository not found" >&2; exit 128; fi
        exit 124 ;;
    *"git ls-remote https://"*) ! broken public || { echo "fatal: Failed to connect" >&2; exit 128; } ;;
    *) echo "the stand-in does not know: $*" >&2; exit 1 ;;
esac
"#;

/// What it prints, and whether it ended well.
fn verify(tools: &Path, broken: &str) -> (bool, String) {
    let path = std::env::var("PATH").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes/verify");
    let out = Command::new(script)
        .env("PATH", format!("{}:{path}", tools.display()))
        .env("REAL_PATH", path)
        .env("BROKEN", broken)
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    (out.status.success(), text.concat())
}

/// A folder with the stand-in as `kubectl`.
fn cluster() -> tempfile::TempDir {
    let tools = tempfile::tempdir().unwrap();
    let kubectl = tools.path().join("kubectl");
    std::fs::write(&kubectl, KUBECTL).unwrap();
    std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
    tools
}

/// Kubernetes removes it an hour after its end.
#[test]
fn a_migration_job_that_was_removed_is_no_difference() {
    let (passed, text) = verify(cluster().path(), "removed-job");
    assert!(passed, "{text}");
}

#[test]
fn each_check_of_a_cluster_passes_on_a_right_one_and_finds_its_fault() {
    let tools = cluster();
    let (passed, text) = verify(tools.path(), "");
    let checks = text.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(passed, "{text}");
    assert_eq!(checks, text.lines().count(), "{text}");
    let faults = [
        ("schema", "the API server accepts every object"),
        (
            "drift",
            "what is deployed is what is in overlays/production",
        ),
        ("migration", "the schema is migrated"),
        ("producer", "producers are ready"),
        ("consumer", "consumers are ready, or scaled to zero"),
        (
            "namespace",
            "the namespace enforces restricted Pod Security",
        ),
        ("admission", "Pod Security refuses a pod that runs as root"),
        (
            "root",
            "running pods have a read-only root and no capabilities",
        ),
        ("token", "running pods have no token for the API"),
        ("rights", "the programs have no rights in the cluster"),
        ("policy", "every network policy is there"),
        ("drain", "the drain of a node is not blocked"),
        ("autoscaler", "the autoscaler reads the demand"),
        ("store", "a producer is healthy from inside"),
        ("engine", "a consumer is healthy from inside"),
        ("names", "a consumer resolves names"),
        ("public", "a consumer reaches public addresses"),
        ("metadata", "a consumer does not reach the metadata service"),
        ("api", "a consumer does not reach the API server"),
    ];
    assert_eq!(checks, faults.len(), "a check without a fault:\n{text}");
    for (broken, check) in faults {
        let (passed, text) = verify(tools.path(), broken);
        let failed: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("FAILED  "))
            .collect();
        assert!(!passed, "{broken}: {text}");
        assert_eq!(failed, [check], "{broken}: {text}");
    }
}
