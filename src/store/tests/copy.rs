//! Copies of a store.

use super::*;
use crate::store::copy::{LEFT_OUT, copied_tables, copy};

/// The tables of this database, as its migrations made them, with the types of their columns.
fn columns_of(config: &StoreConfig) -> Vec<(String, String, String)> {
    #[derive(diesel::QueryableByName)]
    struct Column {
        #[diesel(sql_type = diesel::sql_types::Text)]
        of: String,
        #[diesel(sql_type = diesel::sql_types::Text)]
        name: String,
        #[diesel(sql_type = diesel::sql_types::Text)]
        kind: String,
    }
    let mut conn = dialect::writer(&config.database).expect("a connection");
    let query = dialect::by_database(
        &conn,
        "SELECT m.name AS \"of\", p.name AS name, p.type AS kind FROM sqlite_schema m JOIN pragma_table_info(m.name) p \
        WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'",
        "SELECT table_name::text AS \"of\", column_name::text AS name, data_type::text AS kind FROM information_schema.columns \
        WHERE table_schema = current_schema()",
    );
    let columns: Vec<Column> = diesel::RunQueryDsl::load(diesel::sql_query(query), &mut conn).expect("columns");
    let mut columns: Vec<_> = columns.into_iter().map(|column| (column.of, column.name, column.kind)).collect();
    columns.sort();
    columns
}

#[test]
fn each_table_is_copied_or_left_out_for_a_reason() {
    with_store(|_store, config| async move {
        let tables = copied_tables().expect("tables");
        let mut expected = Vec::new();
        for (of, name, kind) in columns_of(&config) {
            if !LEFT_OUT.iter().any(|(left_out, _)| *left_out == of) {
                expected.push((of, name, crate::store::copy::Kind::of(&kind).unwrap_or_else(|| panic!("{kind}"))));
            }
        }
        let mut found = Vec::new();
        for table in &tables {
            found.extend(table.columns.iter().map(|(column, kind)| (table.name.clone(), column.clone(), *kind)));
        }
        found.sort();
        assert_eq!(found, expected);
        assert!(tables.iter().all(|table| table.key.len() == 1 || !table.is_numbered));
        for name in ["run", "run_log", "job_property", "alert_event"] {
            assert!(tables.iter().any(|table| table.name == name && table.is_numbered), "{name}");
        }
    });
}

#[test]
fn numbers_that_were_given_are_not_given_again() {
    with_store(|store, config| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let owned = run(&store).await;
        store.write(push(&owned, 0..3)).await.expect("pushed");
        for (seq, pack) in [(0, "first"), (1, "second"), (2, "third")] {
            store.write(result(&owned, seq, pack)).await.expect("stored");
        }
        store.write(ack(&owned, &[1])).await.expect("acknowledged");
        let last = store.write(by_hand(new_run(JobId::random()))).await.expect("made").run.no;
        store.close().await;
        let mut conn = dialect::writer(&config.database).expect("a connection");
        // As the cleaning deletes runs.
        conn.batch_execute(&format!("DELETE FROM run WHERE no = {last}")).expect("deleted");
        drop(conn);

        let others = [StoreConfig::new(folder.path().join("a.db")), self::config(&tempfile::tempdir().expect("a folder"))];
        let mut from = config;
        for to in others {
            let report = copy(&from.database, &to.database).expect("copied");
            let rows = |what: &str| report.parts.iter().find(|part| part.what == what).map(|part| part.rows);
            assert_eq!((rows("run"), rows("block"), rows("results"), rows("packages")), (Some(1), Some(3), Some(2), Some(0)));
            assert_eq!(report.warnings, Vec::<String>::new());
            from = to;
        }
        let store = Store::open(&from).expect("a store");
        let found = store.read(ReadResults { no: owned.0.no, seqs: vec![0, 2] }).await.expect("results");
        let packs: Vec<_> = found.results.iter().map(|result| String::from_utf8_lossy(&result.pack).into_owned()).collect();
        assert_eq!((packs, found.damaged), (vec!["first".to_owned(), "third".to_owned()], vec![]));
        assert_eq!(store.write(by_hand(new_run(JobId::random()))).await.expect("made").run.no, last + 1);
    });
}

#[test]
fn a_store_that_is_led_or_has_rows_is_no_target() {
    with_store(|store, config| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let other: DatabaseAddress = folder.path().join("a.db").into();
        let refused = |from: &DatabaseAddress, to: &DatabaseAddress| copy(from, to).expect_err("refused").to_string();
        assert!(refused(&config.database, &other).contains("Stop all brokers of this store"));
        assert!(refused(&config.database, &config.database).contains("the target is the same store"));
        assert!(refused(&folder.path().join("none.db").into(), &other).ends_with("no such file."));
        let _run = run(&store).await;
        store.close().await;
        copy(&config.database, &other).expect("copied");
        assert!(refused(&config.database, &other).contains("it is not empty: the table "));
        assert!(refused(&other, &config.database).contains("it is not empty: the table "));
    });
}
