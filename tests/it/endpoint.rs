//! The HTTP endpoint of a program under test.

/// An address that nothing listens on at the moment.
pub(crate) fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Status and body of a GET.
pub(crate) async fn get(address: &str, path: &str) -> (u16, String) {
    agentmine_runtime::tls::install_default_provider();
    let answer = reqwest::get(format!("http://{address}{path}"))
        .await
        .unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}
