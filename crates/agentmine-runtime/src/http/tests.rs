use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

async fn served(health: Health) -> (SocketAddr, Shutdown) {
    let shutdown = Shutdown::new(Duration::from_secs(60));
    let metrics = crate::metrics::install("test");
    let address = serve("127.0.0.1:0", health, metrics, shutdown.clone())
        .await
        .unwrap();
    (address, shutdown)
}

/// Loops are those of the process, which tests may share: held by each test that looks at `/live`.
static LIVE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Status line and body.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    get_from(address, "localhost", path).await
}

async fn get_from(address: SocketAddr, host: &str, path: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, body.to_owned())
}

#[tokio::test]
async fn ready_follows_its_checks_and_says_why_not() {
    let _alone = LIVE.lock().await;
    let store_up = Arc::new(AtomicBool::new(true));
    let health = Health::new();
    health.check("store", &store_up, |up| async move {
        anyhow::ensure!(up.load(Ordering::SeqCst), "connection refused");
        Ok(())
    });
    health.check("queue", &Arc::new(()), |_| async { Ok(()) });
    let (address, shutdown) = served(health).await;

    assert_eq!(get(address, "/ready").await.0, 200);
    store_up.store(false, Ordering::SeqCst);
    let (status, body) = get(address, "/ready").await;
    assert_eq!(status, 503);
    insta::assert_snapshot!(body, @r#"{"ready":false,"checks":[{"name":"store","reason":"connection refused"},{"name":"queue"}]}"#);
    assert_eq!(get(address, "/live").await, (200, "ok\n".to_owned()));
    store_up.store(true, Ordering::SeqCst);
    assert_eq!(get(address, "/ready").await.0, 200);

    shutdown.drain();
    let (status, body) = get(address, "/ready").await;
    assert_eq!(status, 503);
    assert!(body.contains("draining"), "{body}");
    assert_eq!(get(address, "/live").await.0, 200);
}

#[tokio::test]
async fn a_main_loop_that_stands_still_makes_the_process_not_live() {
    let _alone = LIVE.lock().await;
    let (address, _) = served(Health::new()).await;
    let turning = liveness::MainLoop::start("turning", Duration::from_secs(3600));
    let stuck = liveness::MainLoop::start("stuck", Duration::ZERO);
    let (status, body) = get(address, "/live").await;
    assert_eq!(status, 503);
    assert!(
        body.starts_with("the loop `stuck` has made no progress for "),
        "{body}"
    );
    assert!(!body.contains("turning"), "{body}");
    // A loop that has ended in good order is not waited for.
    drop(stuck);
    assert_eq!(get(address, "/live").await, (200, "ok\n".to_owned()));
    turning.turned();
}

#[tokio::test]
async fn a_health_check_gives_the_reason_of_a_process_that_is_not_ready() {
    let up = Arc::new(AtomicBool::new(true));
    let health = Health::new();
    health.check("store", &up, |up| async move {
        anyhow::ensure!(up.load(Ordering::SeqCst), "connection refused");
        Ok(())
    });
    let (address, _) = served(health).await;
    // As `0.0.0.0:PORT`, which a container listens on.
    let listen = format!("0.0.0.0:{}", address.port());
    crate::healthcheck::check(Some(&listen)).await.unwrap();
    up.store(false, Ordering::SeqCst);
    let error = crate::healthcheck::check(Some(&listen)).await.unwrap_err();
    assert!(error.to_string().contains("connection refused"), "{error}");
    let absent = crate::healthcheck::check(None).await.unwrap_err();
    assert_eq!(crate::exit::Exit::of(&absent), crate::exit::Exit::Config);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_or_crashes_is_a_failed_check() {
    let health = Health::new();
    let subject = Arc::new(());
    health.check("hangs", &subject, |_| std::future::pending());
    health.check("crashes", &subject, |_| async {
        panic!("a check that crashes")
    });
    let report = health.report().await;
    assert!(!report.ready);
    assert_eq!(report.checks[0].reason.as_deref(), Some("no answer in 2 s"));
    assert_eq!(
        report.checks[1].reason.as_deref(),
        Some("the check crashed")
    );
}

#[tokio::test]
async fn metrics_of_several_fleets_in_one_process_do_not_clash() {
    let (first, _) = served(Health::new()).await;
    crate::metrics::install("second");
    let (second, _) = served(Health::new()).await;
    metrics::describe_histogram!("agentmine_example_seconds", "An example.");
    metrics::histogram!("agentmine_example_seconds").record(0.2);
    for address in [first, second] {
        let (status, body) = get(address, "/metrics").await;
        assert_eq!(status, 200);
        assert!(body.contains("process_start_time_seconds"), "{body}");
        for figure in [
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
        ] {
            assert!(body.contains(&format!("\n{figure}")), "{figure}: {body}");
        }
        // The objectives.
        for bound in ["60", "90"] {
            let series = format!("agentmine_example_seconds_bucket{{le=\"{bound}\"}} 1");
            assert!(body.contains(&series), "{series}: {body}");
        }
        assert!(body.contains("service=\"second\""), "{body}");
        assert!(
            body.contains("agentmine_example_seconds_bucket{le=\"0.3\"} 1"),
            "{body}"
        );
        assert_has_help(&body);
    }
}

/// What `promtool check metrics` wants first: a help text for each metric.
fn assert_has_help(body: &str) {
    for line in body.lines() {
        if let Some(name) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split(' ').next())
        {
            assert!(
                body.contains(&format!("# HELP {name} ")),
                "{name} has no help text"
            );
        }
    }
}

#[tokio::test]
async fn a_name_that_was_rebound_to_this_machine_reaches_nothing() {
    let _alone = LIVE.lock().await;
    let (address, _) = served(Health::new()).await;
    for path in ["/live", "/ready", "/metrics"] {
        for here in [
            "localhost",
            "LOCALHOST:9464",
            "127.0.0.1:1",
            "[::1]",
            "a.localhost",
        ] {
            assert_eq!(get_from(address, here, path).await.0, 200, "{here}");
        }
        for name in [
            "evil.example",
            "evil.example:9464",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "192.0.2.1",
            "0.0.0.0",
            "x@127.0.0.1@evil.example",
        ] {
            assert_eq!(get_from(address, name, path).await.0, 421, "{name}");
        }
    }
}

/// As the pods of a cluster listen, whose addresses may be of either family.
#[tokio::test]
async fn every_address_of_both_families_is_one_that_a_health_check_reaches() {
    let _alone = LIVE.lock().await;
    let shutdown = Shutdown::new(Duration::from_secs(60));
    let metrics = crate::metrics::install("test");
    let address = serve("[::]:0", Health::new(), metrics, shutdown)
        .await
        .unwrap();
    let listen = format!("[::]:{}", address.port());
    crate::healthcheck::check(Some(&listen)).await.unwrap();
    let mut here = vec![SocketAddr::from(([127, 0, 0, 1], address.port()))];
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        here.push(SocketAddr::from((
            std::net::Ipv6Addr::LOCALHOST,
            address.port(),
        )));
    }
    for address in here {
        assert_eq!(get(address, "/live").await.0, 200, "{address}");
    }
}

#[tokio::test]
async fn an_address_in_use_is_reported() {
    let (address, shutdown) = served(Health::new()).await;
    let metrics = crate::metrics::install("test");
    let again = serve(&address.to_string(), Health::new(), metrics, shutdown).await;
    let reported = crate::exit::render(&again.unwrap_err());
    for part in [
        "cannot listen on",
        "http.listen",
        "in use",
        "hint: another process uses this port",
        "AGENTMINE_HTTP_LISTEN",
    ] {
        assert!(reported.contains(part), "{part}: {reported}");
    }
}
