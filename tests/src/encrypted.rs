//! A Postgres and a RabbitMQ that speak TLS alone, with a certificate authority and passwords of their own.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::chaos::services::{Postgres, RabbitMq, User, free_port, unprivileged};

/// The user of both servers.
const USER: &str = "fleet";

/// Both servers. They end when this is dropped.
pub struct Encrypted {
    /// The certificate of their authority, PEM.
    pub authority: PathBuf,
    /// `amqps://` with the broker's user and password.
    pub queue_url: String,
    /// `postgres://` without parameters; the server refuses connections that are not encrypted.
    pub store_url: String,
    /// The password in `queue_url`.
    pub queue_password: String,
    /// The password in `store_url`.
    pub store_password: String,
    broker: RabbitMq,
    _postgres: Postgres,
    _folder: tempfile::TempDir,
}

impl Encrypted {
    /// Starts both, for the name `localhost`.
    ///
    /// # Errors
    /// If a server cannot be started.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("agentmine-tls-")
            .tempdir()?;
        allow(folder.path(), 0o755)?;
        let authority = certify(folder.path())?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let access = folder.path().join("pg_hba.conf");
        // The suite's own connection goes over the socket and over TLS alike.
        std::fs::write(
            &access,
            format!(
                "local all all trust\nhostssl all {USER} 127.0.0.1/32 scram-sha-256\n\
                 hostssl all all 127.0.0.1/32 trust\n"
            ),
        )?;
        let settings = vec![
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", path("server.pem")),
            format!("ssl_key_file={}", path("server.key")),
            format!("hba_file={}", access.display()),
        ];
        let postgres = Postgres::start_with(folder.path(), settings).await?;
        let store_password = password("store");
        let user = format!("CREATE ROLE {USER} SUPERUSER LOGIN PASSWORD '{store_password}'");
        let own = sqlx::PgPool::connect(&postgres.own_url("postgres")).await?;
        sqlx::query(sqlx::AssertSqlSafe(user)).execute(&own).await?;
        let port = free_port()?;
        let settings = format!(
            "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {}\nssl_options.certfile = {}\n\
             ssl_options.keyfile = {}\nssl_options.verify = verify_none\n",
            authority.display(),
            path("server.pem"),
            path("server.key"),
        );
        let queue_password = password("queue");
        let user = User {
            name: USER.to_owned(),
            password: queue_password.clone(),
        };
        let broker = RabbitMq::start_with(folder.path(), settings, user).await?;
        Ok(Self {
            authority,
            queue_url: format!("amqps://{USER}:{queue_password}@localhost:{port}/%2f"),
            store_url: format!(
                "postgres://{USER}:{store_password}@localhost:{}/postgres",
                postgres.address().port()
            ),
            queue_password,
            store_password,
            broker,
            _postgres: postgres,
            _folder: folder,
        })
    }
}

impl Encrypted {
    /// The broker without TLS, for the tests themselves.
    #[must_use]
    pub fn own_queue_url(&self) -> String {
        self.broker.own_url()
    }

    /// The certificate of an authority that has certified neither server, PEM.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub fn foreign_authority() -> anyhow::Result<String> {
        Ok(authority()?.pem())
    }
}

fn password(of: &str) -> String {
    format!("canary-{of}-{}", uuid::Uuid::new_v4().simple())
}

fn authority() -> anyhow::Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

/// Makes an authority, and a certificate of it for both servers. Returns the authority's file.
fn certify(folder: &Path) -> anyhow::Result<PathBuf> {
    let issuer = authority()?;
    let key = KeyPair::generate()?;
    let names = ["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
    let server = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    let authority = folder.join("authority.pem");
    std::fs::write(&authority, issuer.pem())?;
    std::fs::write(folder.join("server.pem"), server.pem())?;
    let key_file = folder.join("server.key");
    std::fs::write(&key_file, key.serialize_pem())?;
    allow(&key_file, 0o600)?;
    if let Some((user, group)) = unprivileged() {
        // Postgres wants to own its key; RabbitMQ runs as this user.
        std::os::unix::fs::chown(&key_file, Some(user), Some(group))?;
    }
    Ok(authority)
}

fn allow(path: &Path, mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).with_context(|| path.display().to_string())
}
