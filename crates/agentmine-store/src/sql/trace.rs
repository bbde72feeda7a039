//! Records the statements that a test executes, and executes them again, for `contract/upgrade.rs`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, FromRow, Pool, Row, SqlSafeStr as _, Type};

use super::arg::Arg;
use super::db::{AnyRow, Dialect};
use super::failure::Failure;

thread_local! {
    static TRACE: RefCell<Option<Vec<Value>>> = const { RefCell::new(None) };
    /// Each statement of this thread, as it was executed first.
    static ALL: RefCell<BTreeMap<String, Value>> = const { RefCell::new(BTreeMap::new()) };
}

/// Begins to record what this thread executes.
pub(crate) fn start() {
    TRACE.with_borrow_mut(|trace| *trace = Some(Vec::new()));
}

/// Ends the record and returns it.
pub(crate) fn take() -> Vec<Value> {
    TRACE.with_borrow_mut(Option::take).unwrap_or_default()
}

/// Each different statement that this thread executed since the last call, whether or not [`start`] was called, with its
/// first arguments.
pub(crate) fn take_all() -> Vec<Value> {
    let all = ALL.with_borrow_mut(std::mem::take);
    all.into_values().collect()
}

/// Records a statement, how it was executed, and the number of rows that it returned or changed.
pub(super) fn note(how: &str, sql: &str, args: &[Arg<'_>], rows: u64) {
    let recorded = || {
        let args: Vec<Value> = args.iter().map(value).collect();
        json!({ "how": how, "sql": sql, "args": args, "rows": rows })
    };
    ALL.with_borrow_mut(|all| {
        if !all.contains_key(sql) {
            all.insert(sql.to_owned(), recorded());
        }
    });
    TRACE.with_borrow_mut(|trace| {
        if let Some(trace) = trace {
            trace.push(recorded());
        }
    });
}

fn value(arg: &Arg<'_>) -> Value {
    match arg {
        Arg::Uuid(id) => json!({ "uuid": id.map(|id| id.to_string()) }),
        Arg::Int(number) => json!({ "int": number }),
        Arg::Text(text) => json!({ "text": text }),
        Arg::Bytes(bytes) => json!({ "bytes": bytes }),
    }
}

/// A row whose columns nobody reads.
struct AnyColumns;

impl<'r, R: Row> FromRow<'r, R> for AnyColumns {
    fn from_row(_: &'r R) -> Result<Self, sqlx::Error> {
        Ok(Self)
    }
}

impl AnyRow for AnyColumns {
    const COLUMNS: &'static str = "";
}

/// Executes a recorded statement. Returns the number of rows that it returned or changed.
pub(crate) async fn replay<D: Dialect>(pool: &Pool<D>, recorded: &Value) -> Result<u64, Failure> {
    let sql = recorded["sql"].as_str().unwrap_or_default().to_owned();
    let sql = AssertSqlSafe(sql).into_sql_str();
    let recorded_args = recorded["args"].as_array().map_or(&[][..], Vec::as_slice);
    let bytes: Vec<Vec<u8>> = recorded_args.iter().map(bytes).collect();
    let args: Vec<Arg<'_>> = recorded_args.iter().zip(&bytes).map(arg).collect();
    let mut connection = pool.acquire().await?;
    match recorded["how"].as_str() {
        Some("fetch") => {
            let rows: Vec<AnyColumns> = D::fetch(&mut connection, sql, &args).await?;
            Ok(rows.len() as u64)
        }
        _ => D::execute(&mut connection, sql, &args).await,
    }
}

/// A line of a plan: the last column.
struct PlanLine(String);

impl<'r, R: Row> FromRow<'r, R> for PlanLine
where
    usize: ColumnIndex<R>,
    String: Type<R::Database> + Decode<'r, R::Database>,
{
    fn from_row(row: &'r R) -> Result<Self, sqlx::Error> {
        row.try_get(row.len() - 1).map(Self)
    }
}

impl AnyRow for PlanLine {
    const COLUMNS: &'static str = "";
}

/// How the database would execute a recorded statement.
pub(crate) async fn plan<D: Dialect>(
    pool: &Pool<D>,
    explain: &str,
    recorded: &Value,
) -> Result<Vec<String>, Failure> {
    let sql = format!("{explain} {}", recorded["sql"].as_str().unwrap_or_default());
    let recorded_args = recorded["args"].as_array().map_or(&[][..], Vec::as_slice);
    let bytes: Vec<Vec<u8>> = recorded_args.iter().map(bytes).collect();
    let args: Vec<Arg<'_>> = recorded_args.iter().zip(&bytes).map(arg).collect();
    let mut connection = pool.acquire().await?;
    let sql = AssertSqlSafe(sql).into_sql_str();
    let lines: Vec<PlanLine> = D::fetch(&mut connection, sql, &args).await?;
    Ok(lines.into_iter().map(|line| line.0).collect())
}

fn arg<'a>((recorded, bytes): (&'a Value, &'a Vec<u8>)) -> Arg<'a> {
    if let Some(id) = recorded.get("uuid") {
        Arg::Uuid(id.as_str().and_then(|id| id.parse().ok()))
    } else if let Some(number) = recorded.get("int") {
        Arg::Int(number.as_i64())
    } else if let Some(text) = recorded.get("text") {
        Arg::Text(text.as_str().map(Into::into))
    } else {
        Arg::Bytes(bytes)
    }
}

fn bytes(arg: &Value) -> Vec<u8> {
    let bytes = arg["bytes"].as_array().into_iter().flatten();
    bytes
        .map(|byte| {
            byte.as_u64()
                .and_then(|it| u8::try_from(it).ok())
                .unwrap_or(0)
        })
        .collect()
}
