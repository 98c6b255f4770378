//! Brokers of one PostgreSQL database, which all execute runs.

use super::api::Api;
use super::postgres::Cluster;
use super::process::Broker;
use super::until;
use serde_json::Value;
use std::collections::HashMap;
use std::process::Command;

const LEASE_MS: &str = "1500";

/// Brokers on one server; the first one leads at first.
pub struct Brokers {
    pub all: Vec<(Broker, tempfile::TempDir)>,
    pub url: String,
    args: Vec<&'static str>,
    token: Option<&'static str>,
    cluster: Cluster,
}

impl Brokers {
    pub async fn start(count: usize) -> Self {
        Self::start_on(count, &[], &[], None).await
    }

    /// On a server with these settings; the brokers have these arguments, and the tests this token of an admin.
    pub async fn start_on(count: usize, settings: &[&str], args: &[&'static str], token: Option<&'static str>) -> Self {
        let mut this = Self::none(settings, args, token);
        for _ in 0..count {
            this.add();
        }
        this.execute(count).await;
        this
    }

    /// The server alone.
    pub fn none(settings: &[&str], args: &[&'static str], token: Option<&'static str>) -> Self {
        let cluster = Cluster::start(settings);
        let args = [&["--lease-ms", LEASE_MS], args].concat();
        Self { all: Vec::new(), url: cluster.url("webloom", ""), args, token, cluster }
    }

    pub fn add(&mut self) {
        self.add_at("127.0.0.1:0", &[]);
    }

    /// One that listens on this address, with more arguments.
    pub fn add_at(&mut self, listen: &str, more: &[&str]) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("b.url"), &self.url).expect("written");
        self.all.push((Broker::start_in(folder.path(), listen, &[&self.args, more].concat(), ""), folder));
    }

    pub fn api(&self, nth: usize) -> Api {
        let api = Api::new(&self.all[nth].0.url);
        match self.token {
            Some(token) => api.with_token(token),
            None => api,
        }
    }

    /// Executes statements in the database.
    pub fn sql(&self, statements: &str) -> String {
        self.cluster.sql("webloom", statements)
    }

    pub fn kill(&mut self, nth: usize) {
        self.all[nth].0.process.kill();
    }

    pub fn signal(&self, nth: usize, name: &str) {
        let pid = self.all[nth].0.process.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
    }

    /// What the brokers say of each, by their URLs; asked at this one.
    pub async fn at(&self, nth: usize) -> HashMap<String, Value> {
        let (status, list) = self.api(nth).get("/api/v1/brokers").await;
        assert_eq!(status, 200, "{list}");
        let list = list.as_array().expect("a list").clone();
        list.into_iter().map(|broker| (broker["url"].as_str().expect("a URL").to_owned(), broker)).collect()
    }

    /// The URLs of all, as agents and workers know them.
    pub fn addresses(&self) -> String {
        self.all.iter().map(|(broker, _)| broker.url.as_str()).collect::<Vec<_>>().join(",")
    }

    /// The id of a broker.
    pub async fn id(&self, nth: usize) -> Value {
        self.at(self.all.len() - 1).await[&self.all[nth].0.url]["id"].clone()
    }

    /// The number of open runs of each broker.
    pub async fn runs(&self, asked: usize) -> Vec<u64> {
        let brokers = self.at(asked).await;
        self.all.iter().map(|(broker, _)| brokers.get(&broker.url).and_then(|found| found["runs"].as_u64()).unwrap_or(0)).collect()
    }

    /// Waits until this number of brokers execute runs.
    pub async fn execute(&self, count: usize) {
        until("brokers that execute runs", || async {
            let brokers = self.at(self.all.len() - 1).await;
            (brokers.values().filter(|broker| broker["executes"] == true).count() == count).then_some(())
        })
        .await;
    }

    pub async fn have_runs(&self, asked: usize, expected: &[u64]) {
        until(&format!("{expected:?} runs"), || async { (self.runs(asked).await == expected).then_some(()) }).await;
    }
}
