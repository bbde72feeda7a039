//! Over TLS.

use std::path::Path;

use tokio::net::TcpListener;

use super::tls_engine::{Authority, Pair, authority, client, engine, pair, server, write_files};
use super::*;

/// The configuration of a worker with these files in its `cert_path`.
fn worker(folder: &Path, host: String, ca: &Authority, own: &Pair) -> CommandExecutor {
    write_files(folder, ca, own);
    let mut config = docker_config();
    config.docker.host = Some(host);
    config.docker.cert_path = Some(folder.to_owned());
    config
}

#[tokio::test]
async fn an_engine_over_tls_does_all_that_a_task_needs() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority();
    let host = engine(pair(server("127.0.0.1"), &ours), &ours).await;
    essentials(&worker(folder.path(), host, &ours, &client(&ours))).await;
}

#[tokio::test]
async fn an_error_names_the_side_and_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, foreign) = (authority(), authority());
    let valid = || pair(server("127.0.0.1"), &ours);
    let at = |host| worker(folder.path(), host, &ours, &client(&ours));

    let host = engine(pair(server("127.0.0.1"), &foreign), &ours).await;
    let error = refusal(&at(host)).await;
    let ca = folder.path().join("ca.pem").display().to_string();
    assert!(
        error.contains(&format!("not signed by an authority in {ca}")),
        "{error}"
    );

    let mut expired = server("127.0.0.1");
    expired.not_before = rcgen::date_time_ymd(2019, 1, 1);
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let host = engine(pair(expired, &ours), &ours).await;
    let error = refusal(&at(host)).await;
    assert!(error.contains("its certificate has expired"), "{error}");

    let host = engine(pair(server("engine.example.com"), &ours), &ours).await;
    let error = refusal(&at(host)).await;
    assert!(error.contains("not for the name 127.0.0.1"), "{error}");
    assert!(error.contains("engine.example.com"), "{error}");

    let cert = folder.path().join("cert.pem").display().to_string();
    let host = engine(valid(), &ours).await;
    let error = refusal(&worker(folder.path(), host, &ours, &client(&foreign))).await;
    assert!(
        error.contains(&format!("does not accept the certificate in {cert}")),
        "{error}"
    );

    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("tcp://{}", plain.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = plain.accept().await {
            stream.writable().await.unwrap();
            let _ = stream.try_write(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = refusal(&at(host)).await;
    assert!(error.contains("does not use TLS"), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let ours = authority();
    let (one, other) = (client(&ours), client(&ours));
    let host = "tcp://engine.example.com".to_owned();
    let config = worker(
        folder.path(),
        host.clone(),
        &ours,
        &(one.0.clone(), other.1),
    );
    let error = DockerBackend::connect(&config).await.unwrap_err();
    assert!(matches!(error, SandboxError::Refused(_)), "{error}");
    assert!(error.to_string().contains("key.pem: "), "{error}");

    let config = worker(folder.path(), host, &ours, &one);
    std::fs::write(folder.path().join("ca.pem"), "").unwrap();
    let error = DockerBackend::connect(&config)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("ca.pem contains no certificate"), "{error}");
}
