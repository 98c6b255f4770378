//! PostgreSQL: connections and transactions.
//!
//! diesel-async speaks to the server; each connection has a small runtime of its own, and its calls block: the store's threads
//! are made for that. The texts of statements are those of SQLite where both understand them (`store/dialect`).

use super::super::candidate::Tables;
use super::super::error::StoreError;
use super::super::schema::meta;
use crate::domain::database::{ServerUrl, SslMode};
use crate::domain::ids::BrokerId;
use crate::domain::leader::Turn;
use diesel::connection::{
    AnsiTransactionManager, CacheSize, Connection, ConnectionSealed, Instrumentation, LoadConnection, SimpleConnection, TransactionManager,
};
use diesel::internal::derives::multiconnection::MultiConnectionHelper;
use diesel::migration::{CREATE_MIGRATIONS_TABLE, MigrationConnection};
use diesel::pg::{Pg, PgMetadataLookup, PgTypeMetadata};
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::DatabaseErrorKind;
use diesel::sql_types::{BigInt, Bool, Text, TypeMetadata};
use diesel::{ConnectionError, ConnectionResult, OptionalExtension, QueryDsl, QueryResult, RunQueryDsl};
use diesel_async::{AsyncConnection, AsyncConnectionCore, AsyncPgConnection, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use futures_util::StreamExt;
use std::any::Any;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

pub(in crate::store) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// Limits of connecting to a server: for one of several, and for the only one.
const CONNECT: Duration = Duration::from_secs(5);
const SILENT: Duration = Duration::from_secs(15);
/// The text of the error if it does not answer.
const NO_ANSWER: &str = "the server does not answer";

/// For the writer. A transaction that waits for its client holds the lease: a broker that hangs must not hold it for ever. The server
/// finds out in seconds that a client's machine is gone, and then releases its locks.
const WRITER: &str = "SET idle_in_transaction_session_timeout = '5s'; SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; \
    SET tcp_keepalives_count = 3; SET tcp_user_timeout = '15s'; SET client_min_messages = warning;";
/// What reads several statements in one transaction sees one state.
const READER: &str =
    "SET default_transaction_read_only = on; SET default_transaction_isolation = 'repeatable read'; SET client_min_messages = warning;";
const SEAT: &str = "SET lock_timeout = '200ms'; SET idle_in_transaction_session_timeout = '5s'; SET client_min_messages = warning;";
/// The channel on which a leader notifies standbys that it has released its lease.
const RELEASED: &str = "webloom_released";
/// The key of the leader's lock among the advisory locks of the database: `webloom` in ASCII.
const LOCK: i64 = 0x0077_6562_6c6f_6f6d;

/// See the module documentation.
pub(in crate::store) struct PgConn {
    inner: AsyncPgConnection,
    runtime: BlockingRuntime,
    transactions: AnsiTransactionManager,
    /// How long an answer may take; `None` for commands whose statements may take any time.
    limit: Option<Duration>,
    /// The server did not answer, or a commit failed: the connection cannot be used any more.
    is_lost: bool,
}

/// The runtime of a connection. A broker that starts calls it from within a runtime, which must not wait: then another thread does.
struct BlockingRuntime(Option<Runtime>);

impl BlockingRuntime {
    fn block_on<F: Future<Output: Send> + Send>(&self, future: F) -> F::Output {
        let runtime = self.0.as_ref().expect("it is taken only when it is dropped");
        if tokio::runtime::Handle::try_current().is_err() {
            return runtime.block_on(future);
        }
        std::thread::scope(|scope| scope.spawn(|| runtime.block_on(future)).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for BlockingRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl PgConn {
    fn open(url: &ServerUrl, settings: &str, limit: Option<Duration>) -> Result<Self, StoreError> {
        let failed = |e: &dyn std::fmt::Display| StoreError::Unreachable(format!("{url}: {e}"));
        let runtime = BlockingRuntime(Some(Builder::new_current_thread().enable_all().build()?));
        let inner = runtime.block_on(connect(url)).map_err(|e| failed(&e))?;
        let mut conn = Self { inner, runtime, transactions: AnsiTransactionManager::default(), limit, is_lost: false };
        conn.batch_execute(settings).map_err(|e| failed(&e))?;
        Ok(conn)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }
}

/// Waits for an answer of the server, and no longer than the limit. After that the connection is lost.
fn answer<T: Send>(
    runtime: &BlockingRuntime,
    limit: Option<Duration>,
    is_lost: &mut bool,
    asked: impl Future<Output = QueryResult<T>> + Send,
) -> QueryResult<T> {
    let silent = || diesel::result::Error::DatabaseError(DatabaseErrorKind::ClosedConnection, Box::new(NO_ANSWER.to_owned()));
    if *is_lost {
        return Err(silent());
    }
    let Some(limit) = limit else { return runtime.block_on(asked) };
    runtime.block_on(async { tokio::time::timeout(limit, asked).await }).unwrap_or_else(|_| {
        *is_lost = true;
        Err(silent())
    })
}

/// The text of an error with its causes: that of tokio-postgres alone is `db error`.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(found) = cause {
        let found_text = found.to_string();
        if !text.contains(&found_text) {
            text = format!("{text}: {found_text}");
        }
        cause = found.source();
    }
    text
}

/// Connects to the first server that accepts writes.
async fn connect(url: &ServerUrl) -> Result<AsyncPgConnection, String> {
    let mut failures = Vec::new();
    let is_only = url.servers().count() == 1;
    for (host, server) in url.servers() {
        let mut config: tokio_postgres::Config = server.parse().map_err(|e: tokio_postgres::Error| causes(&e))?;
        // As libpq: for the whole of an attempt. A server that hangs must not keep the next one from being asked.
        let chosen = config.get_connect_timeout().copied();
        let limit = chosen.unwrap_or(if is_only { SILENT } else { CONNECT });
        config.connect_timeout(chosen.unwrap_or(CONNECT));
        let failed = match tokio::time::timeout(limit, connect_to(config, url)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(e)) => e,
            Err(_) => NO_ANSWER.to_owned(),
        };
        failures.push(if is_only { failed } else { format!("{host}: {failed}") });
    }
    Err(failures.join("; "))
}

async fn connect_to(mut config: tokio_postgres::Config, url: &ServerUrl) -> Result<AsyncPgConnection, String> {
    use tokio_postgres::config::SslMode as Mode;
    config.ssl_mode(match url.ssl() {
        SslMode::Disable => Mode::Disable,
        SslMode::Prefer => Mode::Prefer,
        SslMode::Require | SslMode::VerifyFull => Mode::Require,
    });
    config.keepalives_idle(CONNECT).keepalives_interval(CONNECT / 2).keepalives_retries(3);
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENT);
    }
    if config.get_application_name().is_none() {
        config.application_name("webloom");
    }
    // A server that only reads is a replica.
    config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    let tls = tokio_postgres_rustls::MakeRustlsConnect::new(tls(url)?);
    let (client, connection) = config.connect(tls).await.map_err(|e| causes(&e))?;
    AsyncPgConnection::try_from_client_and_connection(client, connection).await.map_err(|e| causes(&e))
}

fn tls(url: &ServerUrl) -> Result<rustls::ClientConfig, String> {
    if url.ssl() == SslMode::VerifyFull {
        return crate::tls::client_for(url.root());
    }
    Ok(crate::tls::unverified_client())
}

impl SimpleConnection for PgConn {
    fn batch_execute(&mut self, query: &str) -> QueryResult<()> {
        let Self { inner, runtime, limit, is_lost, .. } = self;
        answer(runtime, *limit, is_lost, SimpleAsyncConnection::batch_execute(inner, query))
    }
}

impl ConnectionSealed for PgConn {}

impl Connection for PgConn {
    type Backend = Pg;
    type TransactionManager = AnsiTransactionManager;

    fn establish(url: &str) -> ConnectionResult<Self> {
        let bad = |e: &dyn std::fmt::Display| ConnectionError::BadConnection(e.to_string());
        match crate::domain::database::DatabaseAddress::parse(url.as_ref()) {
            Ok(crate::domain::database::DatabaseAddress::Server(url)) => {
                Self::open(&url, "", Some(url.answer_limit())).map_err(|e| bad(&e))
            }
            Ok(_) => Err(bad(&"not a URL of PostgreSQL")),
            Err(e) => Err(bad(&e)),
        }
    }

    fn execute_returning_count<T: QueryFragment<Pg> + QueryId>(&mut self, source: &T) -> QueryResult<usize> {
        let Self { inner, runtime, limit, is_lost, .. } = self;
        answer(runtime, *limit, is_lost, AsyncConnectionCore::execute_returning_count(inner, source))
    }

    fn transaction_state(&mut self) -> &mut AnsiTransactionManager {
        &mut self.transactions
    }

    fn instrumentation(&mut self) -> &mut dyn Instrumentation {
        AsyncConnection::instrumentation(&mut self.inner)
    }

    fn set_instrumentation(&mut self, instrumentation: impl Instrumentation) {
        AsyncConnection::set_instrumentation(&mut self.inner, instrumentation);
    }

    fn set_prepared_statement_cache_size(&mut self, size: CacheSize) {
        AsyncConnection::set_prepared_statement_cache_size(&mut self.inner, size);
    }
}

type Row = <AsyncPgConnection as AsyncConnectionCore>::Row<'static, 'static>;

/// The rows of an answer, as they come.
pub(in crate::store) struct Cursor<'a> {
    rows: <AsyncPgConnection as AsyncConnectionCore>::Stream<'static, 'static>,
    runtime: &'a BlockingRuntime,
    limit: Option<Duration>,
    is_lost: &'a mut bool,
}

impl Iterator for Cursor<'_> {
    type Item = QueryResult<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { rows, runtime, limit, is_lost } = self;
        answer(runtime, *limit, is_lost, async { rows.next().await.transpose() }).transpose()
    }
}

impl LoadConnection for PgConn {
    type Cursor<'conn, 'query> = Cursor<'conn>;
    type Row<'conn, 'query> = Row;

    fn load<'conn, 'query, T>(&'conn mut self, source: T) -> QueryResult<Cursor<'conn>>
    where
        T: Query + QueryFragment<Pg> + QueryId + 'query,
        Pg: diesel::expression::QueryMetadata<T::SqlType>,
    {
        let Self { inner, runtime, limit, is_lost, .. } = self;
        let rows = answer(runtime, *limit, is_lost, AsyncConnectionCore::load(inner, source))?;
        Ok(Cursor { rows, runtime, limit: *limit, is_lost })
    }
}

impl MigrationConnection for PgConn {
    fn setup(&mut self) -> QueryResult<usize> {
        self.batch_execute(CREATE_MIGRATIONS_TABLE).map(|()| 0)
    }
}

/// Finds the types that an extension adds; the tables have none.
struct NoLookup;

impl PgMetadataLookup for NoLookup {
    fn lookup_type(&mut self, name: &str, _: Option<&str>) -> PgTypeMetadata {
        unreachable!("no table has the type {name}")
    }
}

impl MultiConnectionHelper for PgConn {
    fn to_any<'a>(_: &mut <Pg as TypeMetadata>::MetadataLookup) -> &mut (dyn Any + 'a) {
        // Without a size: nothing is allocated, and nothing is lost.
        Box::leak(Box::new(NoLookup))
    }

    fn from_any(lookup: &mut dyn Any) -> Option<&mut <Pg as TypeMetadata>::MetadataLookup> {
        lookup.downcast_mut::<NoLookup>().map(|lookup| lookup as _)
    }
}

/// Migrates the tables.
pub(in crate::store) fn migrate(url: &ServerUrl) -> Result<(), StoreError> {
    let mut conn = PgConn::open(url, "SET client_min_messages = warning;", None)?;
    let has_meta = has_table(&mut conn, "meta")?;
    let applied = super::apply_pending::<Pg, _>(&mut conn, || MIGRATIONS, has_meta);
    applied.map_err(|e| StoreError::Failed(format!("migrating {url}: {e}")))?;
    Ok(())
}

/// The server gives up a statement before the broker gives up the server, so that one slow statement fails alone. It never gives up a commit.
pub(in crate::store) fn writer(url: &ServerUrl) -> Result<PgConn, StoreError> {
    let limit = url.answer_limit();
    PgConn::open(url, &format!("{WRITER} SET statement_timeout = {};", limit.as_millis() * 2 / 3), Some(limit))
}

/// The leader may have to wait for a transaction of an owner. With the usual lease it is over before the lease of the leader is, also if the owner hangs.
pub(in crate::store) fn owner_writer(url: &ServerUrl) -> Result<PgConn, StoreError> {
    let mut conn = writer(url)?;
    conn.batch_execute("SET idle_in_transaction_session_timeout = '2s'").map_err(|e| StoreError::Unreachable(e.to_string()))?;
    Ok(conn)
}

pub(in crate::store) fn reader(url: &ServerUrl) -> Result<PgConn, StoreError> {
    PgConn::open(url, READER, Some(url.answer_limit()))
}

pub(in crate::store) fn bulk_writer(url: &ServerUrl) -> Result<PgConn, StoreError> {
    PgConn::open(url, WRITER, None)
}

pub(in crate::store) fn bulk_reader(url: &ServerUrl) -> Result<PgConn, StoreError> {
    PgConn::open(url, READER, None)
}

/// The connection of a standby.
pub(in crate::store) fn seat(url: &ServerUrl) -> Result<PgConn, StoreError> {
    PgConn::open(url, &format!("{SEAT} LISTEN {RELEASED};"), Some(url.answer_limit()))
}

/// Wakes up the standbys, when the transaction is committed.
pub(in crate::store) fn wake_standbys(conn: &mut PgConn) -> Result<(), StoreError> {
    Ok(conn.batch_execute(&format!("NOTIFY {RELEASED}"))?)
}

/// Waits for [`wake_standbys`] of the leader, and no longer than this.
pub(in crate::store) fn wait_for_release(conn: &mut PgConn, limit: Duration) {
    let begin = Instant::now();
    let PgConn { inner, runtime, .. } = conn;
    let mut notified = std::pin::pin!(inner.notifications_stream());
    let woken = runtime.block_on(async { tokio::time::timeout(limit, notified.next()).await });
    if !matches!(woken, Ok(Some(Ok(_)))) {
        // A connection that is lost does not wait.
        std::thread::sleep(limit.saturating_sub(begin.elapsed()));
    }
}

/// Takes the lock of the leader if it is free. It is held as long as this connection lives.
pub(in crate::store) fn try_lock(conn: &mut PgConn) -> Result<bool, StoreError> {
    #[derive(diesel::QueryableByName)]
    struct Locked {
        #[diesel(sql_type = Bool)]
        locked: bool,
    }
    let row: Locked = diesel::sql_query("SELECT pg_try_advisory_lock($1) AS locked").bind::<BigInt, _>(LOCK).get_result(conn)?;
    Ok(row.locked)
}

/// Whether a connection still works; not within a transaction.
pub(in crate::store) fn is_alive(conn: &mut PgConn) -> bool {
    conn.batch_execute("SELECT 1").is_ok()
}

/// The connection that holds the leader's lock.
pub(in crate::store) fn lock_holder(url: &ServerUrl) -> Result<PgConn, StoreError> {
    PgConn::open(url, WRITER, Some(url.answer_limit()))
}

/// Begins a transaction that will write.
pub(in crate::store) fn begin(conn: &mut PgConn) -> Result<(), StoreError> {
    Ok(AnsiTransactionManager::begin_transaction_sql(conn, "BEGIN")?)
}

/// The turn of this transaction, of the leader or of this owner of runs; `None` if its row is not there. Nobody takes over, or takes the runs away,
/// before the transaction is over. Each batch has a number, so that it can be found out what became of it; a number of PostgreSQL's would not do,
/// because a server that crashed may give one again.
pub(in crate::store) fn next_turn(conn: &mut PgConn, owner: Option<BrokerId>) -> Result<Option<Turn>, StoreError> {
    let next = NextBatch(owner).get_result(conn).optional()?;
    Ok(next.map(|(term, broker, number)| Turn { term, batch: Some((broker, number)) }))
}

/// Of the leader, or of this owner of runs.
#[derive(Debug, Clone, Copy)]
struct NextBatch(Option<BrokerId>);

impl QueryFragment<Pg> for NextBatch {
    fn walk_ast<'b>(&'b self, mut out: diesel::query_builder::AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        match &self.0 {
            None => out.push_sql("UPDATE leader SET batch = batch + 1 WHERE id = 1"),
            Some(broker) => {
                out.push_sql("UPDATE run_owner SET batch = batch + 1 WHERE broker = ");
                out.push_bind_param::<Text, _>(broker)?;
            }
        }
        out.push_sql(" RETURNING term, broker, batch");
        Ok(())
    }
}

/// Cached by its text.
impl QueryId for NextBatch {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for NextBatch {
    type SqlType = (BigInt, Text, BigInt);
}

impl RunQueryDsl<PgConn> for NextBatch {}

/// Commits. After an error it is unknown whether the transaction took place, see [`last_turn`].
pub(in crate::store) fn commit(conn: &mut PgConn) -> Result<(), StoreError> {
    AnsiTransactionManager::commit_transaction(conn).map_err(|e| {
        conn.is_lost = true;
        StoreError::Unknown(e.to_string())
    })
}

/// Reads the number of the last batch, once a transaction that was lost is over: it holds the row.
pub(in crate::store) fn last_turn(url: &ServerUrl, owner: Option<BrokerId>) -> Result<Option<Turn>, StoreError> {
    #[derive(diesel::QueryableByName)]
    struct Last {
        #[diesel(sql_type = BigInt)]
        term: i64,
        #[diesel(sql_type = Text)]
        broker: BrokerId,
        #[diesel(sql_type = BigInt)]
        batch: i64,
    }
    let mut conn = PgConn::open(url, "SET lock_timeout = '2s'", Some(url.answer_limit()))?;
    let last = match owner {
        None => diesel::sql_query("SELECT term, broker, batch FROM leader WHERE id = 1 FOR UPDATE").get_result::<Last>(&mut conn),
        Some(broker) => diesel::sql_query("SELECT term, broker, batch FROM run_owner WHERE broker = $1 FOR UPDATE")
            .bind::<Text, _>(broker)
            .get_result(&mut conn),
    };
    Ok(last.optional()?.map(|last| Turn { term: last.term, batch: Some((last.broker, last.batch)) }))
}

/// Rolls back everything since [`begin`].
pub(in crate::store) fn rollback(conn: &mut PgConn) -> Result<(), StoreError> {
    Ok(AnsiTransactionManager::rollback_transaction(conn)?)
}

/// Whether a table with this name exists.
pub(in crate::store) fn has_table(conn: &mut PgConn, name: &str) -> Result<bool, StoreError> {
    #[derive(diesel::QueryableByName)]
    struct Found {
        #[diesel(sql_type = Bool)]
        found: bool,
    }
    let row: Found =
        diesel::sql_query("SELECT to_regclass(quote_ident($1)) IS NOT NULL AS found").bind::<Text, _>(name).get_result(conn)?;
    Ok(row.found)
}

/// Compares the tables with this version.
pub(in crate::store) fn tables(conn: &mut PgConn) -> Result<Tables, StoreError> {
    if !has_table(conn, "__diesel_schema_migrations")? {
        return Ok(Tables::Older);
    }
    super::compare::<Pg, _>(conn, &MIGRATIONS, |conn| {
        meta::table.find(super::COMPATIBLE_KEY).select(meta::value).get_result(conn).optional()
    })
}
