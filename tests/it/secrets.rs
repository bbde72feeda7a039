//! What a sandbox can reach and contain, and what it cannot.

use agentmine_tests::forge::DEMO;
use agentmine_tests::model::{Answer, Scenario, say, shell};

use crate::rig::{Rig, assert_done};

/// The sample's solution, after other calls.
fn first(calls: Vec<Answer>) -> Scenario {
    use agentmine_tests::model::{commit_and_push, edit_replace};
    Scenario::new("looks around first").replies(calls.into_iter().chain([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        say("Done."),
    ]))
}

#[tokio::test]
async fn push_to_another_branch_is_refused() {
    let scenario = first(vec![
        shell("git commit -q --allow-empty -m elsewhere && git push origin HEAD:refs/heads/main"),
        shell("git push origin HEAD:refs/heads/other"),
        shell("git push origin HEAD:refs/tags/v1"),
        shell("git push origin HEAD:refs/heads/{branch} HEAD:refs/heads/other"),
        shell("git push origin :refs/heads/main"),
    ]);
    let rig = Rig::new(scenario).await;
    let before = rig.forge.branch_sha(DEMO, "main");
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    assert_eq!(rig.forge.branch_sha(DEMO, "main"), before);
    assert_eq!(rig.forge.branches(DEMO), [task.branch(), "main".to_owned()]);
    let results = rig.results(&task).await;
    let pushes: Vec<&str> = results
        .iter()
        .filter(|(_, result)| result.name == "command-executor_execute_command")
        .map(|(_, result)| result.text.as_str())
        .collect();
    assert_eq!(pushes.len(), 6);
    for refused in &pushes[..5] {
        assert!(!refused.contains("\"exit_code\":0"), "{refused}");
    }
    assert!(pushes[5].contains("\"exit_code\":0"), "{}", pushes[5]);
}

#[tokio::test]
async fn sandbox_has_no_network_but_the_gateway() {
    let scenario = first(vec![
        shell("ls /sys/class/net; cat /proc/net/route; echo end-of-list"),
        // The host's own services: the broker on loopback, and anything at a bridge's address.
        shell(
            "for a in 127.0.0.1:56729 127.0.0.1:54329 172.17.0.1:22 10.0.0.1:80 1.1.1.1:443; do \
             timeout 3 bash -c \"exec 3<>/dev/tcp/${a%:*}/${a#*:}\" 2>/dev/null && echo REACHED-$a || echo closed-$a; done",
        ),
        shell("getent hosts example.com && echo RESOLVED || echo no-name"),
        shell(
            "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:56729/ ; curl -s -x $HTTP_PROXY --noproxy '' -w '%{http_code}' http://127.0.0.1:56729/",
        ),
        shell(
            "curl -s -x $HTTP_PROXY -w 'meta-%{http_code}' http://169.254.169.254/latest/meta-data/",
        ),
        shell(
            "curl -s -x $HTTP_PROXY -w 'private-%{http_code}' http://10.0.0.1/; curl -s -x $HTTPS_PROXY -w 'connect-%{http_connect}' https://192.168.0.1/",
        ),
    ]);
    let rig = Rig::new(scenario).await;
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let out: Vec<String> = rig
        .results(&task)
        .await
        .iter()
        .filter(|(_, result)| result.name == "command-executor_execute_command")
        .filter_map(|(_, result)| serde_json::from_str::<serde_json::Value>(&result.text).ok())
        .map(|v| v["stdout"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(
        out[0].starts_with("lo\n") && out[0].lines().count() <= 3,
        "{}",
        out[0]
    );
    assert!(
        !out[1].contains("REACHED") && out[1].matches("closed").count() == 5,
        "{}",
        out[1]
    );
    assert!(out[2].contains("no-name"), "{}", out[2]);
    assert!(
        out[3].starts_with("000") && out[3].contains("403"),
        "{}",
        out[3]
    );
    assert!(out[4].contains("meta-403"), "{}", out[4]);
    assert!(
        out[5].contains("private-403") && out[5].contains("connect-403"),
        "{}",
        out[5]
    );
    let body = &rig.forge.pulls(DEMO)[0].body;
    assert!(
        body.contains("169.254.169.254:80") && body.contains("refused"),
        "{body}"
    );
}

#[tokio::test]
async fn checks_are_read_before_the_agent_begins_and_not_from_its_commits() {
    let scenario = Scenario::new("grades itself").replies([
        shell(
            "echo 'checks: [\"true\"]' > .agentmine/config.yaml && echo '# better' >> greet.sh && \
             git add -A && git commit -qm better && git push -q origin HEAD:refs/heads/{branch}",
        ),
        say("Done, all checks pass."),
    ]);
    let mut rig = Rig::local(scenario).await;
    rig.config["agent"]["max_rounds"] = 1.into();
    rig.produce_issue().await;
    rig.consume().await;
    let pull = &rig.forge.pulls(DEMO)[0];
    assert!(pull.draft, "{}", pull.body);
    assert!(
        pull.body
            .contains("| `sh test.sh` | 1, as without this work |"),
        "{}",
        pull.body
    );
    assert!(
        pull.body
            .contains("| `.agentmine/config.yaml` | AgentMine |"),
        "{}",
        pull.body
    );
}

#[tokio::test]
async fn a_background_process_cannot_push_after_the_measurement() {
    use agentmine_tests::model::{commit_and_push, edit_replace};
    let scenario = Scenario::new("pushes behind its back").replies([
        edit_replace("greet.sh", "name=\"\"", "name=\"${1:-world}\""),
        commit_and_push("Greet the person named"),
        // Tries to push something else, repeatedly.
        shell(
            "cp -r . ../tmp/evil && cd ../tmp/evil && git commit -q --allow-empty -m evil && \
             (setsid sh -c 'sleep 1; while ! git push -q origin HEAD:refs/heads/{branch}; do sleep 0.05; done' >/dev/null 2>&1 &)",
        ),
        say("Done."),
    ]);
    let mut rig = Rig::new(scenario).await;
    // The measurement takes longer than the pusher waits.
    rig.config["agent"]["checks"] = serde_json::json!(["sh test.sh && sleep 2"]);
    rig.produce_issue().await;
    rig.consume().await;
    let task = rig.task().await;
    assert_done(&task);
    let pull = &rig.forge.pulls(DEMO)[0];
    assert!(
        pull.body.contains(&format!("Commit `{}`", pull.head_sha)),
        "the pull request reports on a commit that is not its head: {} {}",
        pull.head_sha,
        pull.body
    );
}

/// A registry over TLS: notes each request, and answers all with "package".
const TLS_REGISTRY: &str = r#"
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        with open(sys.argv[3], "a") as notes:
            notes.write(f"{self.command} {self.path}\n{self.headers}")
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"package")
    do_GET = do_POST = do_PUT = answer
server = http.server.ThreadingHTTPServer((sys.argv[1], 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// An address of this machine that is not its loopback.
fn own_address() -> String {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("198.51.100.1:9").unwrap();
    socket.local_addr().unwrap().ip().to_string()
}

#[tokio::test]
async fn a_registry_is_read_over_tls_with_credentials_that_the_sandbox_never_has() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let address = own_address();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![address.clone()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    std::fs::write(path("authority.pem"), &certificate).unwrap();
    std::fs::write(path("server.pem"), certificate + &key.serialize_pem()).unwrap();
    let mut server = Command::new("python3")
        .args(["-c", TLS_REGISTRY, &address])
        .args([path("server.pem"), path("notes")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    let printed = server.stdout.take().unwrap();
    BufReader::new(printed).read_line(&mut port).unwrap();
    let host = format!("{address}:{}", port.trim());

    let url = format!("https://{host}");
    let scenario = first(vec![
        shell(&format!(
            "curl -sS -H 'X-Vendor-Token: stolen' {url}/curl; curl -sS -d stolen {url}/post"
        )),
        shell(&format!(
            "python3 -c \"import urllib.request as u; print(u.urlopen('{url}/python').read())\""
        )),
        shell("env; cat ~/.agentmine/tls/session.pem; ls -A ~/.agentmine/tls"),
    ]);
    let mut rig = Rig::local(scenario).await;
    rig.config["command_executor"]["docker"] = serde_json::json!({ "network": {
        "allowed_private": [host],
        "registry_credentials": [{ "host": host, "token": "registry-canary" }],
    } });
    rig.produce_issue().await;
    let authority = path("authority.pem").display().to_string();
    let consumer = rig.spawn_with("consumer", ("SSL_CERT_FILE", &authority));
    let tasks = rig.wait_ended(1).await;
    consumer.terminate();
    let (_, log) = consumer.end().await;
    server.kill().unwrap();
    server.wait().unwrap();
    assert_done(&tasks[0]);
    let transcript = rig.transcript(&tasks[0]).await;
    for part in [
        "package",
        "read only: GET and HEAD are allowed",
        "b'package'",
        "session.pem",
    ] {
        assert!(transcript.contains(part), "{part}: {transcript}\n{log}");
    }
    let notes = std::fs::read_to_string(path("notes")).unwrap();
    assert!(
        notes.contains("GET /curl") && notes.contains("GET /python"),
        "{notes}"
    );
    assert_eq!(
        notes
            .matches("authorization: Bearer registry-canary")
            .count(),
        2,
        "{notes}"
    );
    assert!(
        !notes.contains("POST") && !notes.contains("stolen"),
        "{notes}"
    );
    for text in [&transcript, &log] {
        assert!(!text.contains("registry-canary"), "{text}");
    }
}
