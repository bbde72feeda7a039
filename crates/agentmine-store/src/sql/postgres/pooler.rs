//! Poolers that give each transaction another session of the server.
//!
//! AgentMine needs sessions of its own: settings, prepared statements and the lock of a migration belong to one. Behind such a
//! pooler (PgBouncer with `pool_mode = transaction` or `statement`) a lock would stay with a session of others, and the next
//! process would wait for it for ever. One that gives each client a session (`pool_mode = session`) is fine.
//!
//! Accepted: a pooler whose sessions are busy at this moment is not noticed.

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};

use super::connect::attempt;
use crate::sql::failure::Failure;

/// Refuses a server that serves two connections at one time by one session.
pub(super) async fn refuse(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<(), Failure> {
    let mut other = attempt(options).await?;
    let sessions = (session(connection).await?, session(&mut other).await?);
    other.close().await?;
    match sessions {
        (one, two) if one == two => Err(Failure::Fault(
            "two connections share one session of the server, as behind PgBouncer with `pool_mode = transaction`, where \
             locks and settings do not hold. hint: name the server itself in store.url, or a pooler with \
             `pool_mode = session`"
                .into(),
        )),
        (..) => Ok(()),
    }
}

/// The process of the server that answers. The statement is not prepared: another client's may have its name.
async fn session(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    // A proxy that gives a client a session of its own once it changes a setting (RDS Proxy) is fine. This is the default.
    connection.execute("SET extra_float_digits = 1").await?;
    let row = sqlx::raw_sql("SELECT pg_backend_pid()")
        .fetch_one(connection)
        .await?;
    row.try_get(0)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;
    use crate::sql::fake_postgres;

    /// A message of the protocol.
    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    /// One row with a number.
    fn number(number: usize) -> Vec<u8> {
        // One column: its name, no table, the type int4 (23) of 4 bytes, as text.
        let column = b"\0\x01pid\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
        let text = number.to_string();
        let length = u32::try_from(text.len()).unwrap();
        let value = [&b"\0\x01"[..], &length.to_be_bytes(), text.as_bytes()].concat();
        [
            message(b'T', column),
            message(b'D', &value),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"I"),
        ]
        .concat()
    }

    async fn refusal(of: fn(usize, &[u8]) -> Vec<u8>) -> Result<(), Failure> {
        let url = fake_postgres::server(of).await;
        let options = PgConnectOptions::from_str(&url).unwrap();
        let mut connection = attempt(&options).await.unwrap();
        refuse(&mut connection, &options).await
    }

    #[tokio::test]
    async fn only_a_pooler_that_shares_sessions_is_refused() {
        refusal(|connection, _| number(100 + connection))
            .await
            .unwrap();
        let Err(Failure::Fault(reason)) = refusal(|_, _| number(100)).await else {
            panic!("it was accepted");
        };
        assert!(reason.contains("hint: "), "{reason}");
    }
}
