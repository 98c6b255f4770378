//! PostgreSQL: connections and transactions.
//!
//! diesel-async speaks to the server; each connection has a small runtime of its own, and its calls block: the store's threads
//! are made for that. The texts of statements are those of SQLite where both understand them (`store/dialect`).

use super::super::candidate::Tables;
use super::super::error::StoreError;
use crate::domain::database::{ServerUrl, SslMode};
use diesel::connection::{
    AnsiTransactionManager, CacheSize, Connection, ConnectionSealed, Instrumentation, LoadConnection, SimpleConnection, TransactionManager,
};
use diesel::internal::derives::multiconnection::MultiConnectionHelper;
use diesel::migration::{CREATE_MIGRATIONS_TABLE, MigrationConnection};
use diesel::pg::{Pg, PgMetadataLookup, PgTypeMetadata};
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Text, TypeMetadata};
use diesel::{ConnectionError, ConnectionResult, OptionalExtension, QueryResult, RunQueryDsl};
use diesel_async::{AsyncConnection, AsyncConnectionCore, AsyncPgConnection, SimpleAsyncConnection};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use futures_util::StreamExt;
use std::any::Any;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

pub(in crate::store) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// A server that does not answer for so long is taken for gone.
const CONNECT: Duration = Duration::from_secs(5);
const SILENT: Duration = Duration::from_secs(15);

/// How long the server is asked what became of a transaction.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// For the writer. A transaction that waits for its client holds the lease: a broker that hangs must not hold it for ever. The server
/// finds out in seconds that a client's machine is gone, and then releases its locks.
const WRITER: &str = "SET idle_in_transaction_session_timeout = '5s'; SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; \
    SET tcp_keepalives_count = 3; SET tcp_user_timeout = '15s'; SET client_min_messages = warning;";
/// What reads several statements in one transaction sees one state.
const READER: &str =
    "SET default_transaction_read_only = on; SET default_transaction_isolation = 'repeatable read'; SET client_min_messages = warning;";
const SEAT: &str = "SET lock_timeout = '200ms'; SET idle_in_transaction_session_timeout = '5s'; SET client_min_messages = warning;";
/// The channel on which a leader says that it has released its lease.
const RELEASED: &str = "webloom_released";
/// The key of the leader's lock among the advisory locks of the database: `webloom` in ASCII.
const LOCK: i64 = 0x0077_6562_6c6f_6f6d;

/// See the module documentation.
pub(in crate::store) struct PgConn {
    inner: AsyncPgConnection,
    runtime: BlockingRuntime,
    transactions: AnsiTransactionManager,
    url: ServerUrl,
    /// Term and number of the batch that the transaction in progress stores.
    batch: Option<(i64, i64)>,
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
    fn open(url: &ServerUrl, settings: &str) -> Result<Self, StoreError> {
        let failed = |e: &dyn std::fmt::Display| StoreError::Unreachable(format!("{url}: {e}"));
        let runtime = BlockingRuntime(Some(Builder::new_current_thread().enable_all().build()?));
        let connected = runtime.block_on(async { tokio::time::timeout(SILENT, connect(url)).await });
        let inner = connected.map_err(|_| failed(&"the server does not answer"))?.map_err(|e| failed(&e))?;
        let transactions = AnsiTransactionManager::default();
        let mut conn = Self { inner, runtime, transactions, url: url.clone(), batch: None, is_lost: false };
        conn.batch_execute(settings).map_err(|e| failed(&e))?;
        Ok(conn)
    }
}

impl PgConn {
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }
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

async fn connect(url: &ServerUrl) -> Result<AsyncPgConnection, String> {
    use tokio_postgres::config::SslMode as Mode;
    let mut config: tokio_postgres::Config = url.url().parse().map_err(|e: tokio_postgres::Error| causes(&e))?;
    config.ssl_mode(match url.ssl() {
        SslMode::Disable => Mode::Disable,
        SslMode::Prefer => Mode::Prefer,
        SslMode::Require | SslMode::VerifyFull => Mode::Require,
    });
    config
        .connect_timeout(CONNECT)
        .keepalives_idle(CONNECT)
        .keepalives_interval(CONNECT / 2)
        .keepalives_retries(3)
        .tcp_user_timeout(SILENT);
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
        self.runtime.block_on(SimpleAsyncConnection::batch_execute(&mut self.inner, query))
    }
}

impl ConnectionSealed for PgConn {}

impl Connection for PgConn {
    type Backend = Pg;
    type TransactionManager = AnsiTransactionManager;

    fn establish(url: &str) -> ConnectionResult<Self> {
        let bad = |e: &dyn std::fmt::Display| ConnectionError::BadConnection(e.to_string());
        match crate::domain::database::DatabaseAddress::parse(url.as_ref()) {
            Ok(crate::domain::database::DatabaseAddress::Server(url)) => Self::open(&url, "").map_err(|e| bad(&e)),
            Ok(_) => Err(bad(&"not a URL of PostgreSQL")),
            Err(e) => Err(bad(&e)),
        }
    }

    fn execute_returning_count<T: QueryFragment<Pg> + QueryId>(&mut self, source: &T) -> QueryResult<usize> {
        self.runtime.block_on(AsyncConnectionCore::execute_returning_count(&mut self.inner, source))
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
}

impl Iterator for Cursor<'_> {
    type Item = QueryResult<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(self.rows.next())
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
        let rows = self.runtime.block_on(AsyncConnectionCore::load(&mut self.inner, source))?;
        Ok(Cursor { rows, runtime: &self.runtime })
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
    let mut conn = PgConn::open(url, "SET client_min_messages = warning;")?;
    conn.run_pending_migrations(MIGRATIONS).map_err(|e| StoreError::Failed(format!("migrating {url}: {e}")))?;
    Ok(())
}

pub(in crate::store) fn writer(url: &ServerUrl) -> Result<PgConn, StoreError> {
    PgConn::open(url, WRITER)
}

pub(in crate::store) fn reader(url: &ServerUrl) -> Result<PgConn, StoreError> {
    PgConn::open(url, READER)
}

/// The connection of a standby.
pub(in crate::store) fn seat(url: &ServerUrl) -> Result<PgConn, StoreError> {
    PgConn::open(url, &format!("{SEAT} LISTEN {RELEASED};"))
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
    PgConn::open(url, WRITER)
}

/// Begins a transaction that will write.
pub(in crate::store) fn begin(conn: &mut PgConn) -> Result<(), StoreError> {
    conn.batch = None;
    Ok(AnsiTransactionManager::begin_transaction_sql(conn, "BEGIN")?)
}

/// The current term. Nobody takes over before the transaction is over. Each batch has a number, so that [`commit`] can find out what became
/// of it; a number of PostgreSQL's would not do, because a server that crashed may give one again.
pub(in crate::store) fn locked_term(conn: &mut PgConn) -> Result<Option<i64>, StoreError> {
    conn.batch = NextBatch.get_result::<(i64, i64)>(conn).optional()?;
    Ok(conn.batch.map(|(term, _)| term))
}

#[derive(Debug, Clone, Copy)]
struct NextBatch;

impl QueryFragment<Pg> for NextBatch {
    fn walk_ast<'b>(&'b self, mut out: diesel::query_builder::AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("UPDATE leader SET batch = batch + 1 WHERE id = 1 RETURNING term, batch");
        Ok(())
    }
}

impl QueryId for NextBatch {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for NextBatch {
    type SqlType = (BigInt, BigInt);
}

impl RunQueryDsl<PgConn> for NextBatch {}

/// Commits. If the connection is lost meanwhile, the server is asked what became of the transaction.
pub(in crate::store) fn commit(conn: &mut PgConn) -> Result<(), StoreError> {
    let Err(e) = AnsiTransactionManager::commit_transaction(conn) else { return Ok(()) };
    conn.is_lost = true;
    let Some(batch) = conn.batch.take() else { return Err(StoreError::Unknown(e.to_string())) };
    outcome(&conn.url, batch, &e.to_string())
}

/// Reads the number of the last batch, once the lost transaction is over: it holds the row.
fn outcome(url: &ServerUrl, (term, batch): (i64, i64), lost: &str) -> Result<(), StoreError> {
    #[derive(diesel::QueryableByName)]
    struct Last {
        #[diesel(sql_type = BigInt)]
        term: i64,
        #[diesel(sql_type = BigInt)]
        batch: i64,
    }
    let begin = Instant::now();
    while begin.elapsed() < KNOWN_WITHIN {
        if let Ok(mut conn) = PgConn::open(url, "SET lock_timeout = '2s'") {
            match diesel::sql_query("SELECT term, batch FROM leader WHERE id = 1 FOR UPDATE").get_result::<Last>(&mut conn) {
                Ok(last) if last.term == term && last.batch == batch => {
                    log::info!("connection lost during a commit, and the batch is stored term={term} batch={batch} error={lost}");
                    return Ok(());
                }
                // This broker writes one batch after the other.
                Ok(last) if last.term == term => return Err(StoreError::Unreachable(lost.to_owned())),
                Ok(_) => break,
                Err(_) => {}
            }
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    Err(StoreError::Unknown(lost.to_owned()))
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
    super::compare::<Pg, _>(conn, &MIGRATIONS)
}
