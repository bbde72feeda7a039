//! What a sandbox can reach and see.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::OutboundKind;

contract![
    connections_out_arrive_with_their_kind,
    there_is_no_network,
    nothing_of_the_host_can_be_read_or_changed,
    a_sandbox_is_killed_first_when_memory_runs_out,
];

async fn connections_out_arrive_with_their_kind(bench: Bench) {
    let sandbox = bench.start().await;
    let ports = sandbox.ports();
    for (port, kind) in [
        (ports.git, OutboundKind::Git),
        (ports.web, OutboundKind::Web),
    ] {
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf ping >&3; cat <&3");
        let serve = async {
            let mut outbound = sandbox.next_outbound().await.unwrap();
            assert_eq!(outbound.kind, kind);
            let mut buffer = [0; 4];
            outbound.stream.read_exact(&mut buffer).await.unwrap();
            assert_eq!(&buffer, b"ping");
            outbound
                .stream
                .write_all(&vec![b'y'; 2_000_000])
                .await
                .unwrap();
            outbound.stream.shutdown().await.unwrap();
        };
        let mut command = shell(&format!("{{ {line}; }} | wc -c"));
        command.max_output = 100;
        let (result, ()) = tokio::join!(sandbox.run(command), serve);
        assert_eq!(text(&result.unwrap().stdout).trim(), "2000000");
    }
    sandbox.remove().await.unwrap();
}

async fn there_is_no_network(bench: Bench) {
    let sandbox = bench.start().await;
    if bench.kind != Kind::Alone {
        let interfaces = sandbox
            .output("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
            .await;
        assert_eq!(interfaces, "lo");
    }
    // The machine's own address, which a container would reach over a bridge.
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let own = probe
        .connect("192.0.2.1:9")
        .and_then(|()| probe.local_addr());
    let own = own.map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip());
    let loopback = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let everywhere = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let loopback = loopback.local_addr().unwrap().port();
    let open = everywhere.local_addr().unwrap().port();
    for target in [
        format!("127.0.0.1/{loopback}"),
        format!("127.0.0.1/{open}"),
        format!("{own}/{open}"),
        format!("172.17.0.1/{open}"),
        "192.0.2.1/80".to_owned(),
    ] {
        let result = sandbox
            .shell(&format!("timeout 5 bash -c 'echo > /dev/tcp/{target}'"))
            .await;
        assert_eq!(result.exit_code, 1, "{target}: {}", text(&result.stderr));
    }
    if bench.kind == Kind::Alone {
        let udp = "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)'";
        assert!(text(&sandbox.shell(udp).await.stderr).contains("PermissionError"));
        let unix = "python3 -c 'import socket; socket.socketpair(); socket.socket(socket.AF_UNIX)'";
        assert!(text(&sandbox.shell(unix).await.stderr).contains("PermissionError"));
        let listen = "python3 -c 'import socket; socket.socket().listen()'";
        assert!(text(&sandbox.shell(listen).await.stderr).contains("PermissionError"));
    }
    drop(everywhere);
    sandbox.remove().await.unwrap();
}

async fn nothing_of_the_host_can_be_read_or_changed(bench: Bench) {
    let secret = tempfile::tempdir_in(scratch()).unwrap();
    std::fs::write(secret.path().join("secret"), "s").unwrap();
    let sandbox = bench.start().await;
    let secret = secret.path().join("secret").display().to_string();
    for line in [
        format!("cat {secret}").as_str(),
        "cat /etc/shadow",
        "cat /root/.bashrc",
        "touch /usr/x",
        "touch /etc/x",
        "touch /opt/agentmine/bin/agentmine-guest",
        "unshare -U true",
        "unshare -m true",
        "mount -t tmpfs none /tmp",
    ] {
        let result = sandbox.shell(line).await;
        assert_ne!(result.exit_code, 0, "{line}: {}", text(&result.stdout));
    }
    if bench.kind != Kind::Alone {
        assert_eq!(sandbox.output("id -u; id -g").await, "1000\n1000");
        let processes = sandbox.output("ls /proc | grep -c '^[0-9]*$'").await;
        assert!(processes.parse::<u32>().unwrap() < 12, "{processes}");
    }
    if bench.kind == Kind::Alone {
        let own = std::process::id();
        for line in [format!("cat /proc/{own}/environ"), format!("kill -0 {own}")] {
            assert_ne!(sandbox.shell(&line).await.exit_code, 0, "{line}");
        }
    }
    let capabilities = sandbox.output("grep CapEff /proc/self/status").await;
    assert!(
        capabilities.ends_with("\t0000000000000000"),
        "{capabilities}"
    );
    assert!(
        sandbox
            .output("grep NoNewPrivs /proc/self/status")
            .await
            .ends_with('1')
    );
    let weaker = |warning: &String| warning.starts_with("this sandbox is weaker");
    let warned = sandbox.warnings().iter().any(weaker);
    assert_eq!(warned, bench.kind == Kind::Alone);
    sandbox.remove().await.unwrap();
}

async fn a_sandbox_is_killed_first_when_memory_runs_out(bench: Bench) {
    let sandbox = bench.start().await;
    assert_eq!(sandbox.output("cat /proc/self/oom_score_adj").await, "1000");
    sandbox.remove().await.unwrap();
}
